"""What an answer states, held against passages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from spolia.core.call_bounds import times, total
from spolia.core.combinators import Identity
from spolia.core.operator import Operator
from spolia.core.run_context import note
from spolia.core.type_compatibility import refuse_counts
from spolia.generation.prompt import citations, fitting, numbered
from spolia.models.parsers import NOTHING, Lines, OneOf, Text
from spolia.models.parsers.parser import MARKER, plain_words
from spolia.models.parsers.tags import Markers
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.protocols import LanguageModel
from spolia.models.text_classifier import JOINT, TrainedClassifier
from spolia.types import Answer, Failure, Query, Ranking
from spolia.types.outcomes import successes

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

    version: ClassVar[int] = 3

    def __post_init__(self) -> None:
        refuse_counts(self, "evidence", "max_claims", "characters", "max_tokens")

    def apply(self, value: Answer, /) -> Answer:
        if value.abstained:
            return value
        asked = value.evidence.query if value.evidence is not None else Query(value.text)
        question = value.evidence.query.question if value.evidence is not None else ""
        stated = self._stated(value, question)
        if not stated:
            note("The answer states nothing that could be verified, and passes.")
            return value
        looked_at = stated[: self.max_claims]
        found = self._found(looked_at, asked)
        verdicts = self._verdicts(looked_at, found)
        refuted = [claim for claim, said in zip(looked_at, verdicts, strict=True) if said == REFUTED]
        kept = [at for at, said in enumerate(verdicts) if said == SUPPORTED and not repeats(stated[at], refuted)]
        if len(kept) == len(stated):
            return value
        if not kept:
            return Answer(self.abstention, (), "abstained", value.evidence)
        dropped = [claim for at, claim in enumerate(stated) if at not in kept]
        return self._answered([(stated[at], found[at]) for at in kept], dropped, asked, question)

    def calls(self, rows: int | None = None, /) -> int | None:
        of_each = total((self.search.calls(), self.verdict.calls))
        return total((self.claims.calls, times(self.max_claims, of_each), self.draft.calls))

    def _stated(self, answer: Answer, question: str) -> tuple[str, ...]:
        brief = Brief.of(question=question, answer=answer.text)
        said: tuple[str, ...] = Ask(self.llm, self.claims, self.max_tokens)(brief)
        claims = tuple(bare for claim in said if (bare := MARKER.sub("", claim).strip()))
        return () if [plain_words(claim) for claim in claims] == [NOTHING] else claims

    def _found(self, claims: Sequence[str], asked: Query) -> list[Ranking]:
        found = self.search.batch([asked.but(text=claim, question=claim, vector=None) for claim in claims])
        return [one.cut(self.evidence) for one in successes(found)]

    def _verdicts(self, claims: Sequence[str], found: Sequence[Ranking]) -> list[str | Failure]:
        """Of each claim; nobody is asked about one without evidence."""
        briefs = [
            Brief.of(statement=claim, passages=numbered(ranking, self.characters))
            for claim, ranking in zip(claims, found, strict=True)
            if ranking.hits
        ]
        said = iter(replies(Ask(self.llm, self.verdict, self.max_tokens), briefs))
        return [next(said) if ranking.hits else UNKNOWN for ranking in found]

    def _answered(
        self, kept: Sequence[tuple[str, Ranking]], dropped: Sequence[str], asked: Query, question: str
    ) -> Answer:
        """The answer that the supported claims give, with citations of their evidence."""
        hits = list({hit.node.id: hit for _, ranking in kept for hit in ranking.hits}.values())
        ids = [hit.node.id for hit in hits]
        facts = [
            claim + " " + "".join(f"[{ids.index(hit.node.id) + 1}]" for hit in found.hits) for claim, found in kept
        ]
        markers = Markers(len(hits))
        text = self._written(facts, dropped, question)
        text = markers.feed(text) + markers.end()
        evidence = Ranking(asked, tuple(hits), "verified")
        return Answer(text, citations(markers.used, hits), "answered", evidence, markers.faults())

    def _written(self, facts: Sequence[str], dropped: Sequence[str], question: str) -> str:
        (said,) = replies(
            Ask(self.llm, self.draft, self.max_tokens), [Brief.of(facts="\n".join(facts), question=question)]
        )
        unusable = isinstance(said, Failure) or plain_words(said) in ("", NOTHING) or repeats(said, dropped)
        return " ".join(facts) if unusable else str(said)


def repeats(text: str, claims: Sequence[str]) -> bool:
    """Whether a text holds one of some claims, word by word.

    >>> repeats("He left, in 1990, Nokia [1].", ["He left in 1990."]), repeats("He left.", ["He left in 1990."])
    (True, False)
    """
    said = f" {plain_words(text)} "
    return any(f" {words} " in said for claim in claims if (words := plain_words(claim)))


RIGHT, WRONG_PASSAGES, WRONG_ANSWER = "right", "wrong passages", "wrong answer"
GROUNDED: Role[str] = Role(
    "spolia:generation/prompts/grounded.txt", OneOf((RIGHT, WRONG_PASSAGES, WRONG_ANSWER)), default=WRONG_ANSWER
)


def with_passages(answer: Answer, passages: Sequence[str]) -> str:
    """An answer and its passages, as a trained classifier reads them."""
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
        found = self.search(value)
        for number in range(self.max_rounds):
            answer = self.read(found.but(query=found.query.but(sample=value.sample + number)))
            verdict = self._verdict(found, answer)
            if verdict == RIGHT:
                return answer
            if verdict == WRONG_PASSAGES and number + 1 < self.max_rounds:
                found = self.search(self.rewrite(value.but(sample=value.sample + number + 1)))
        return answer if answer.abstained else answer.but(stop_reason="cap")

    def calls(self, rows: int | None = None, /) -> int | None:
        judging = 0 if isinstance(self.llm, TrainedClassifier) else self.role.calls
        of_a_round = total((self.search.calls(), self.read.calls(), judging))
        return total((times(self.max_rounds, of_a_round), times(self.max_rounds - 1, self.rewrite.calls())))

    def _verdict(self, found: Ranking, answer: Answer) -> str:
        shown = fitting(found, self.max_passages, self.max_characters)
        if answer.abstained or not shown.hits:
            return WRONG_PASSAGES
        passages = numbered(shown, self.max_characters)
        if isinstance(self.llm, TrainedClassifier):
            chances = self.llm.by_label(found.query.question, with_passages(answer, passages))
            return max(chances, key=chances.__getitem__)
        brief = Brief.of(question=found.query.question, answer=answer.text, passages=passages)
        said: str = Ask(self.llm, self.role, self.max_tokens)(brief)
        return said
