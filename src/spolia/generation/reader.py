"""A language model answers: from the passages, with citations, or from what it remembers."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import emit, retract
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import EmptyReply
from spolia.generation.prompt import asks_for_marks, citations, fit_passages, number_passages
from spolia.models.parsers import AnswerText, refuses
from spolia.models.parsers.tags import Markers
from spolia.models.prompting.role import Ask, Prompted, Role, generate_answer
from spolia.models.prompting.template import Setting, check_language
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Generation, Prompt, Query, Ranking, lazy_property

_SHIPPED = re.compile(r"\w+")
_MARKED = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Reader(Prompted, Operator[Ranking, Answer]):
    """Ask a language model to answer the question from the ranking's passages.

    The passages are numbered from 1, best first. The reply's markers (`[1]`, `[1, 2]`, `【1】` …) become citations of
    the whole passage, or of each smaller node that was found in it (`Hit.found`), with its exact span; a marker that
    names no passage is taken out. That, and an answer without any although the prompt shows such a marker, is recorded
    in `Answer.faults`. A `[2]` that a passage itself holds is shown as `⟦2⟧`, so it is not read as a citation.
    Nothing found: an abstention, without asking the model. The reply streams.

    Args:
        llm: the language model.
        prompt: name of a shipped prompt file (`answer`, `brief`), or path of one, with the places
            `{{passages}}`, `{{question}}` and, if it asks for one, `{{abstention}}`
            (`spolia.models.prompting.template`).
        max_passages: how many of the best passages are shown.
        max_characters: of all passages together; the lowest-ranked that do not fit are not shown.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.
        abstention: the sentence by which the model says that the passages do not answer.
        language: of the prompt, `en`, `zh`, `ko` or `ja`; empty for that of the question, by its script.
        maker: makes the prompt of the passages in place of the file, as `FString` does.

    Raises:
        ModelError: when the prompt file cannot be read, or lacks a place.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.
        EmptyReply: when its reply is blank, or holds nothing but marks.

    Stop reasons: `resolve_reply`; `abstained`; `cap` when the reply was cut off at `max_tokens`.

    Source: citations as in Gao, Yen, Yu, Chen, "Enabling large language models to generate text with citations", EMNLP
    2023.

    >>> from spolia import Hit, Node, Query, ScriptedModel
    >>> node = Node("n1", "Clovis made Paris his capital in 508.", document="d1", uri="france.txt")
    >>> found = Ranking(Query("Since when is Paris the capital?"), (Hit(node, 3.2),))
    >>> answer = Reader(ScriptedModel(("Since 508 [1].",)))(found)
    >>> answer.text, answer.citations[0].uri, answer.citations[0].quote
    ('Since 508 [1].', 'france.txt', 'Clovis made Paris his capital in 508.')
    """

    llm: LanguageModel
    prompt: str = "answer"
    max_passages: int = 5
    max_characters: int = 20_000
    max_tokens: int = 512
    temperature: float = 0.0
    abstention: str = "I do not know."
    language: str = ""  # type: ignore[misc]
    maker: Operator[Ranking, Prompt] | None = None

    version: ClassVar[int] = 9  # 7: one rule for abstentions; 8, 9: more forms of a model's thought are left out
    prompts: ClassVar[tuple[str, ...]] = ("generation/answer", "generation/brief")
    places: ClassVar[tuple[str, ...]] = ("passages", "question")
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "max_passages", "max_characters", "max_tokens")
        check_language(self.language, self.short)

    def apply(self, value: Ranking, /) -> Answer:
        ranking = self._fit(value)
        if not ranking.hits:
            emit(self.abstention)
            return Answer(self.abstention, stop_reason="abstained", evidence=ranking)
        streamed = Markers(len(ranking))

        def take_back() -> None:
            nonlocal streamed
            retract()
            # The reply starts again, and so do its markers.
            streamed = Markers(len(ranking))

        options: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "take_back": take_back,
        }
        prompt = self.build_prompt(ranking)
        generation = generate_answer(self.llm, prompt, lambda piece: emit(streamed.feed(piece)), **options)
        emit(streamed.end())
        return self.resolve_reply(generation, ranking, asks_for_marks(prompt))

    def reads(self, value: Ranking, /) -> object:
        ranking = self._fit(value)
        hits = tuple((hit.node.digest, tuple(node.digest for node in hit.found)) for hit in ranking.hits)
        prompt = self.template(value.query.question).digest if self.maker is None else self.build_prompt(ranking)
        return (value.query.question, hits, prompt, self._sample(value))

    def attach(self, out: Any, value: Any, /) -> Any:
        return out.but(evidence=self._fit(value))

    def build_prompt(self, ranking: Ranking) -> Prompt:
        """Build the prompt for the passages of a ranking."""
        if self.maker is not None:
            return self.maker(ranking).but(sample=self._sample(ranking))
        parts = {
            "passages": number_passages(ranking, self.max_characters),
            "question": ranking.query.question,
            "abstention": Setting(self.abstention),
        }
        return Prompt(self.template(ranking.query.question).fill(parts), self._sample(ranking), self.prompt_file)

    @property
    def prompt_file(self) -> str:
        """Place of its prompt file."""
        return f"spolia:generation/prompts/{self.prompt}.txt" if _SHIPPED.fullmatch(self.prompt) else self.prompt

    def _sample(self, ranking: Ranking) -> int:
        # at temperature 0 all draws are equal: one call serves them all
        return ranking.query.sample if self.temperature > 0 else 0

    def _fit(self, ranking: Ranking) -> Ranking:
        return fit_passages(ranking, self.max_passages, self.max_characters)

    def resolve_reply(self, generation: Generation, ranking: Ranking, needs_marks: bool) -> Answer:
        """Turn a reply into the answer for the passages that the model was shown; `marked` if asked for marks."""
        markers = Markers(len(ranking))
        text = markers.feed(generation.text) + markers.end()
        if not text:
            raise EmptyReply(f"{self.llm.name} replied {generation.text[:40]!r}, which holds no answer. Ask it again.")
        cited = citations(markers.used, ranking.hits)
        is_cut = generation.finish_reason == "length"
        if not is_cut and abstains(text, bool(cited), self.abstention):  # a reply that was cut may begin like a refusal
            return Answer(text, (), "abstained", ranking)
        return Answer(text, cited, "cap" if is_cut else "answered", ranking, markers.faults(needs_marks))


ABSTENTION = "I do not know."
_LONGEST_TITLE = 16
"""Bytes in UTF-8 of a text that may be a title, as `Sorry Not Sorry`, and no refusal."""
_ABSTENTIONS = re.compile(
    r"(?:(?:죄송하지만|죄송합니다) )?(?:저는 |정답은 |답은 )?(?:잘 )?"
    r"(?:모르겠습니다|모르겠다|모르겠어요|모릅니다|알 수 없습니다|알 수 없음|알 수 없다)|"
    r"(?:抱歉 |对不起 )?我?(?:不知道|不清楚|无法确定|無法確定|無從得知)|"
    r"(?:答えは)?(?:分|わ|判)かりません|不明です"
)


def abstains(text: str, cites: bool, abstention: str = ABSTENTION) -> bool:
    """Return whether a reply says that the model does not know: the one rule of readers and flows.

    It is the sentence itself, whatever it cites; the sentence and more, or a refusal, if it cites nothing; or no more
    than that in Korean, Chinese or Japanese, where a model left the language of its prompt.

    >>> abstains("I don't know! [1]", True), abstains("I do not know, but Nokia is near [1].", True)
    (True, False)
    >>> abstains("I'm sorry, but I can't help with that.", False), abstains("Sorry", False)  # a song
    (True, False)
    >>> abstains("잘 모르겠습니다.", False), abstains("我不知道。", False), abstains("不知道火山", False)
    (True, True, False)
    """
    reply, expected = _normalize(_MARKED.sub("", text)), _normalize(abstention)
    declines = reply.startswith(expected) or (len(text.encode()) > _LONGEST_TITLE and refuses(text))
    return reply == expected or (not cites and declines) or _ABSTENTIONS.fullmatch(reply) is not None


def _normalize(text: str) -> str:
    """Return a sentence without case, punctuation and contraction.

    >>> _normalize("I don’t know!") == _normalize("I do not know.")
    True
    """
    plain = unicodedata.normalize("NFKC", text).casefold().replace("’", "'").replace("don't", "do not")
    return " ".join(re.findall(r"\w+", plain))


REMEMBERED: Role[str] = Role("spolia:generation/prompts/closed_book.txt", AnswerText(), default=ABSTENTION)


@dataclass(frozen=True)
class ClosedBook(Operator[Query, Answer]):
    """Answer a question without any document: an arm for what needs no retrieval, a draft to be verified.

    There are no citations. A reply that says that it does not know is an abstention.

    Args:
        llm: the language model.
        abstention: the sentence by which the model says that it does not know.
        role: prompt, with the places `{{question}}` and, if it asks for one, `{{abstention}}`, reader and default.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Source: Jeong et al., "Adaptive-RAG: learning to adapt retrieval-augmented large language models through question
    complexity", NAACL 2024, strategy A.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> book = ClosedBook(ScriptedModel((("Emma", "Jane Austen."), ("", "I do not know."))))
    >>> book(Query("Who wrote Emma?")).text, book(Query("Who am I?")).abstained
    ('Jane Austen.', True)
    """

    llm: LanguageModel
    abstention: str = ABSTENTION
    role: Role[str] = REMEMBERED
    max_tokens: int = 256
    temperature: float = 0.0

    version: ClassVar[int] = 3  # 2: one rule for abstentions; 3: more forms of a model's thought are left out

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "max_tokens")

    def apply(self, value: Query, /) -> Answer:
        text = self._ask.reply(value.sample, question=value.question, abstention=Setting(self.abstention))
        return Answer(text, stop_reason="abstained" if abstains(text, False, self.abstention) else "answered")

    def calls(self, rows: int | None = None, /) -> int | None:
        return self._ask.calls()

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self._ask,)

    @lazy_property
    def _ask(self) -> Ask:
        return Ask(self.llm, self.role, self.max_tokens, self.temperature)
