"""Checks of an answer against passages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from spolia.core.call_bounds import times, total
from spolia.core.combinators import Identity
from spolia.core.operator import Operator
from spolia.core.run_context import note
from spolia.core.type_compatibility import refuse_counts
from spolia.generation.prompt import citations, fit_passages, number_passages
from spolia.models.parsers import NOTHING, Lines, OneOf, Text
from spolia.models.parsers.parser import MARKER, plain_words
from spolia.models.parsers.tags import Markers
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.protocols import LanguageModel
from spolia.models.text_classifier import JOINT, TrainedClassifier
from spolia.types import Answer, Failure, Query, Ranking
from spolia.types.outcomes import require_successes

SUPPORTED, REFUTED, UNKNOWN = "supported", "refuted", "not enough information"
CLAIMS: Role[tuple[str, ...]] = Role("spolia:generation/prompts/claims.txt", Lines(), default=NOTHING)
VERDICT: Role[str] = Role(
    "spolia:generation/prompts/verdict.txt", OneOf((SUPPORTED, REFUTED, UNKNOWN)), default=UNKNOWN
)
FROM_FACTS: Role[str] = Role("spolia:generation/prompts/from_facts.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class VerifyClaims(Operator[Answer, Answer]):
    """Take an answer apart, look for evidence of each statement, and answer again from the supported ones.

    answer → claims; claim → the best `evidence` passages → supported, refuted, or not enough information. Where all are
    supported, or the answer states nothing (which is noted), it stays as it is. Else a model rewrites it from the
    supported claims alone, with citations of their passages; if that repeats a claim that was not supported, or fails,
    the supported claims themselves are the answer. Where none is, it abstains.

    Args:
        llm: takes apart, judges and writes.
        search: finds evidence; its filter and access are those of the question.
        evidence: passages for each claim.
        claims: prompt with the places `{{question}}` and `{{answer}}`, reader of the list, what holds when it cannot be
            read.
        verdict: prompt with `{{passages}}` and `{{statement}}`, in the same form.
        draft: prompt with `{{facts}}` and `{{question}}`, in the same form.
        max_claims: at most; the rest is neither checked nor kept.
        characters: of a passage that are shown at most.
        max_tokens: longest reply.
        abstention: the answer if nothing is supported.

    Raises:
        ModelUnavailable: the answer could not be taken apart.
        ModelRejected: the same.

    Source: Semnani et al., "WikiChat: Stopping the hallucination of large language model chatbots by few-shot grounding
    on Wikipedia", Findings of EMNLP 2023.

    >>> from spolia import Hit, Node, ScriptedModel, step
    >>> @step
    ... def search(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("n", "Olsen worked for Nokia until 1998."), 1.0),))
    >>> model = ScriptedModel((
    ...     ("<facts>", "For Nokia [1]."), ("<statement>.*Nokia", "supported"), ("<statement>.*1990", "refuted"),
    ...     ("<answer>", "Olsen worked for Nokia.\\nOlsen left in 1990."),
    ... ))
    >>> VerifyClaims(model, search)(Answer("For Nokia, until 1990.")).text
    'For Nokia [1].'
    """

    llm: LanguageModel
    search: Operator[Query, Ranking]
    evidence: int = 2
    claims: Role[tuple[str, ...]] = CLAIMS
    verdict: Role[str] = VERDICT
    draft: Role[str] = FROM_FACTS
    max_claims: int = 20
    characters: int = 8_000
    max_tokens: int = 512
    abstention: str = "I found nothing that supports an answer."

    version: ClassVar[int] = 3  # 2: marks in passages are told from those of the prompt

    def __post_init__(self) -> None:
        refuse_counts(self, "evidence", "max_claims", "characters", "max_tokens")

    def apply(self, value: Answer, /) -> Answer:
        if value.abstained:
            return value
        query = value.evidence.query if value.evidence is not None else Query(value.text)
        question = value.evidence.query.question if value.evidence is not None else ""
        stated = self._extract_claims(value, question)
        if not stated:
            note("The answer states nothing that could be verified, and passes.")
            return value
        # Each claim costs a search and a call, however long the answer is.
        checked = stated[: self.max_claims]
        evidence = self._find_evidence(checked, query)
        verdicts = self._judge_claims(checked, evidence)
        refuted = [claim for claim, verdict in zip(checked, verdicts, strict=True) if verdict == REFUTED]
        supported = [
            index
            for index, verdict in enumerate(verdicts)
            if verdict == SUPPORTED and not repeats(stated[index], refuted)
        ]
        if len(supported) == len(stated):
            return value
        if not supported:
            return Answer(self.abstention, (), "abstained", value.evidence)
        dropped = [claim for index, claim in enumerate(stated) if index not in supported]
        return self._rewrite([(stated[index], evidence[index]) for index in supported], dropped, query, question)

    def calls(self, rows: int | None = None, /) -> int | None:
        calls_per_claim = total((self.search.calls(), self.verdict.calls))
        return total((self.claims.calls, times(self.max_claims, calls_per_claim), self.draft.calls))

    def _extract_claims(self, answer: Answer, question: str) -> tuple[str, ...]:
        brief = Brief.from_texts(question=question, answer=answer.text)
        statements: tuple[str, ...] = Ask(self.llm, self.claims, self.max_tokens)(brief)
        claims = tuple(bare for claim in statements if (bare := MARKER.sub("", claim).strip()))
        return () if [plain_words(claim) for claim in claims] == [NOTHING] else claims

    def _find_evidence(self, claims: Sequence[str], query: Query) -> list[Ranking]:
        # The vector is that of the question, and would find the same for each claim.
        results = self.search.batch([query.but(text=claim, question=claim, vector=None) for claim in claims])
        return [ranking.cut(self.evidence) for ranking in require_successes(results)]

    def _judge_claims(self, claims: Sequence[str], evidence: Sequence[Ranking]) -> list[str | Failure]:
        """Return the verdict on each claim; a claim without evidence is not judged but unknown."""
        briefs = [
            Brief.from_texts(statement=claim, passages=number_passages(ranking, self.characters))
            for claim, ranking in zip(claims, evidence, strict=True)
            if ranking.hits
        ]
        # in turn, for claims with evidence only
        verdicts = iter(replies(Ask(self.llm, self.verdict, self.max_tokens), briefs))
        return [next(verdicts) if ranking.hits else UNKNOWN for ranking in evidence]

    def _rewrite(
        self, supported: Sequence[tuple[str, Ranking]], dropped: Sequence[str], query: Query, question: str
    ) -> Answer:
        """Answer from the supported claims, with citations of their evidence."""
        # A passage that supports several claims has one number.
        hits = list({hit.node.id: hit for _, ranking in supported for hit in ranking.hits}.values())
        ids = [hit.node.id for hit in hits]
        facts = [
            claim + " " + "".join(f"[{ids.index(hit.node.id) + 1}]" for hit in ranking.hits)
            for claim, ranking in supported
        ]
        markers = Markers(len(hits))
        text = self._write_reply(facts, dropped, question)
        text = markers.feed(text) + markers.end()
        evidence = Ranking(query, tuple(hits), "verified")
        return Answer(text, citations(markers.used, hits), "answered", evidence, markers.faults())

    def _write_reply(self, facts: Sequence[str], dropped: Sequence[str], question: str) -> str:
        (reply,) = replies(
            Ask(self.llm, self.draft, self.max_tokens), [Brief.from_texts(facts="\n".join(facts), question=question)]
        )
        # A model may bring back what was dropped; the facts by themselves do not.
        unusable = isinstance(reply, Failure) or plain_words(reply) in ("", NOTHING) or repeats(reply, dropped)
        return " ".join(facts) if unusable else str(reply)


def repeats(text: str, claims: Sequence[str]) -> bool:
    """Return whether a text holds one of some claims, word by word.

    >>> repeats("He left, in 1990, Nokia [1].", ["He left in 1990."]), repeats("He left.", ["He left in 1990."])
    (True, False)
    """
    spaced_text = f" {plain_words(text)} "
    return any(f" {words} " in spaced_text for claim in claims if (words := plain_words(claim)))


RIGHT, WRONG_PASSAGES, WRONG_ANSWER = "right", "wrong passages", "wrong answer"
GROUNDED: Role[str] = Role(
    "spolia:generation/prompts/grounded.txt", OneOf((RIGHT, WRONG_PASSAGES, WRONG_ANSWER)), default=WRONG_ANSWER
)


def join_passages(answer: Answer, passages: Sequence[str]) -> str:
    """Return an answer and its passages in the form that a trained classifier reads."""
    return answer.text + JOINT + "\n".join(passages)


@dataclass(frozen=True)
class VerifyGrounding(Operator[Query, Answer]):
    """Search and answer; where a model finds the passages wrong, search again, where the answer, answer again.

    The model is a language model, or a classifier that `spolia train verifier` wrote, which takes no calls. Each round
    has a verdict: right, wrong passages, or wrong answer. An answer that abstains, and nothing found, count as wrong
    passages without asking. After `max_rounds` answers the last one is given with the stop reason `cap`: it was not
    verified. Round n draws sample n of the query, so give the reader a temperature above 0, or each reply is the same.

    Args:
        search: finds passages.
        read: answers from them.
        llm: judges; a language model or a trained classifier.
        rewrite: makes the next query after wrong passages; by default it keeps the query, which finds the same again.
        role: prompt with the places `{{passages}}`, `{{question}}` and `{{answer}}`, reader of the verdict, what holds
            when it cannot be read.
        max_rounds: answers at most.
        max_passages: passages that the judge is shown.
        max_characters: of all of them together.
        max_tokens: longest verdict.

    Source: Baek et al., "Knowledge-augmented language model verification" (KALMV), EMNLP 2023.

    >>> from spolia import Hit, Node, Reader, ScriptedModel, step
    >>> @step
    ... def search(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("n", "Olsen worked for Nokia."), 1.0),))
    >>> verdicts = (("<answer>.*Sony", "wrong answer"), ("<answer>", "right"))
    >>> model = ScriptedModel((*verdicts, ("", "Sony [1]", "Nokia [1]")))
    >>> VerifyGrounding(search, Reader(model, temperature=0.7), model)(Query("Who employed Olsen?")).text
    'Nokia [1]'
    """

    search: Operator[Query, Ranking]
    read: Operator[Ranking, Answer]
    llm: LanguageModel | TrainedClassifier
    rewrite: Operator[Query, Query] = field(default_factory=Identity[Query])
    role: Role[str] = GROUNDED
    max_rounds: int = 3
    max_passages: int = 5
    max_characters: int = 20_000
    max_tokens: int = 64

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_counts(self, "max_rounds", "max_passages", "max_characters", "max_tokens")

    def apply(self, value: Query, /) -> Answer:
        ranking = self.search(value)
        for number in range(self.max_rounds):
            # Another sample each round, or a cache would give the same answer again.
            answer = self.read(ranking.but(query=ranking.query.but(sample=value.sample + number)))
            verdict = self._judge(ranking, answer)
            if verdict == RIGHT:
                return answer
            # after the last round nobody would read the passages
            if verdict == WRONG_PASSAGES and number + 1 < self.max_rounds:
                ranking = self.search(self.rewrite(value.but(sample=value.sample + number + 1)))
        return answer if answer.abstained else answer.but(stop_reason="cap")

    def calls(self, rows: int | None = None, /) -> int | None:
        judge_calls = 0 if isinstance(self.llm, TrainedClassifier) else self.role.calls
        calls_per_round = total((self.search.calls(), self.read.calls(), judge_calls))
        return total((times(self.max_rounds, calls_per_round), times(self.max_rounds - 1, self.rewrite.calls())))

    def _judge(self, ranking: Ranking, answer: Answer) -> str:
        fitted = fit_passages(ranking, self.max_passages, self.max_characters)
        if answer.abstained or not fitted.hits:
            return WRONG_PASSAGES
        passages = number_passages(fitted, self.max_characters)
        if isinstance(self.llm, TrainedClassifier):
            chances = self.llm.by_label(ranking.query.question, join_passages(answer, passages))
            return max(chances, key=chances.__getitem__)
        brief = Brief.from_texts(question=ranking.query.question, answer=answer.text, passages=passages)
        verdict: str = Ask(self.llm, self.role, self.max_tokens)(brief)
        return verdict
