"""What several answers cite, with numbers that mean the same in all of them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.core.operator import Operator
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import StepFailed
from spolia.models.parsers import NOTHING, Text
from spolia.models.parsers.parser import plain_words
from spolia.models.parsers.tags import Markers
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.prompting.template import shorten
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Citation, Failure, Ranking

_MARKER = re.compile(r"(?<!\s)(\s*+)\[(\d{1,4})\]")


def together(answers: Sequence[Answer]) -> tuple[list[str], list[list[Citation]]]:
    """The texts of the answers with marks in one numbering, and the citations of each number, from 1."""
    numbers: dict[tuple[object, ...], int] = {}
    cited: list[list[Citation]] = []
    texts = []
    for answer in answers:
        named: dict[str, int] = {}
        for marker in dict.fromkeys(citation.marker for citation in answer.citations):
            own = [citation for citation in answer.citations if citation.marker == marker]
            place = tuple((citation.node, citation.uri, citation.span) for citation in own)
            if place not in numbers:
                numbers[place] = len(numbers) + 1
                cited.append([citation.but(marker=str(numbers[place])) for citation in own])
            named[marker] = numbers[place]
        texts.append(_MARKER.sub(lambda mark, named=named: _renamed(mark, named), answer.text))  # type: ignore[misc]
    return texts, cited


def _renamed(mark: re.Match[str], named: dict[str, int]) -> str:
    """The mark with its number in all answers; what names nothing is taken out."""
    return f"{mark[1]}[{named[mark[2]]}]" if mark[2] in named else ""


def evidence_of(answers: Sequence[Answer]) -> Ranking | None:
    """All that any of them was made from, each hit once."""
    rankings = [answer.evidence for answer in answers if answer.evidence is not None]
    if not rankings:
        return None
    hits = {(hit.node.id, hit.node.uri): hit for ranking in reversed(rankings) for hit in reversed(ranking.hits)}
    order = dict.fromkeys((hit.node.id, hit.node.uri) for ranking in rankings for hit in ranking.hits)
    return rankings[0].but(hits=tuple(hits[key] for key in order), source="fused")


@dataclass(frozen=True)
class MajorityVote(Operator[Sequence[Answer], Answer]):
    """The answer that comes most often, as its first voice says it; of equally many the one that comes first.

    Answers are the same where their words are: case, width, punctuation, citation markers and how an accent is written
    do not matter. All that abstain are of one voice.

    Raises:
        StepFailed: when there is no answer.

    Source: Wang et al., "Self-consistency improves chain of thought reasoning in language models", ICLR 2023.

    >>> MajorityVote()((Answer("Salo"), Answer("Nokia, [1]"), Answer("nokia"))).text
    'Nokia, [1]'
    """

    def apply(self, value: Sequence[Answer], /) -> Answer:
        if not value:
            raise StepFailed("There is no answer to choose from: every arm before the vote failed or was dropped.")
        voices = [(answer.abstained, "" if answer.abstained else plain_words(answer.text)) for answer in value]
        counts = Counter(voices)
        return value[max(range(len(value)), key=lambda at: (counts[voices[at]], -at))]


FUSE: Role[str] = Role("spolia:orchestration/prompts/fuse.txt", Text(), default=NOTHING)
SHORTEN: Role[str] = Role("spolia:orchestration/prompts/shorten.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class LLMFusion(Operator[Sequence[Answer], Answer]):
    """Have a language model write one answer of those of several arms.

    Answers that abstain are left out; if none or one is left, no model is asked. One that is longer than
    `characters` is shortened first, by one call of its own. Marks of citations get one numbering, and those that the
    model keeps become citations. Where the model cannot be asked, or its reply not be read, the first answer stays, and
    the result is degraded.

    Args:
        llm: the language model.
        role: prompt with the places `{{answers}}` and `{{question}}`, reader of the reply, what holds when it cannot be
            read.
        shorten: prompt with the places `{{answer}}` and `{{question}}`, in the same form.
        characters: of an answer that are shown as they are.
        max_tokens: longest reply.

    Raises:
        StepFailed: when there is no answer.

    Source: LLM fusion in Gao et al., "Modular RAG", 2024 (arXiv 2407.21059).

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> LLMFusion(ScriptedModel(("Nokia in Salo.",)))((Answer("Nokia."), Answer("In Salo."))).text
    'Nokia in Salo.'
    """

    llm: LanguageModel
    role: Role[str] = FUSE
    shorten: Role[str] = SHORTEN
    characters: int = 4_000
    max_tokens: int = 512

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")

    def apply(self, value: Sequence[Answer], /) -> Answer:
        if not value:
            raise StepFailed("There is no answer to fuse: every arm before the fusion failed or was dropped.")
        said = [answer for answer in value if not answer.abstained]
        if len(said) < 2:
            return (said or value)[0]
        evidence = evidence_of(said)
        question = evidence.query.question if evidence is not None else ""
        texts, cited = together(said)
        brief = Brief.from_texts(question=question, answers=tuple(self._short(texts, question)))
        (reply,) = replies(Ask(self.llm, self.role, self.max_tokens), [brief])
        if isinstance(reply, Failure) or reply == NOTHING:
            return said[0]
        markers = Markers(len(cited))
        text = markers.feed(reply) + markers.end()
        citations = tuple(citation for number in markers.used for citation in cited[number - 1])
        return Answer(text, citations, "answered", evidence, markers.faults()) if text else said[0]

    def calls(self, rows: int | None = None, /) -> int | None:
        return None if rows is None else rows * self.shorten.calls + self.role.calls

    def _short(self, texts: Sequence[str], question: str) -> list[str]:
        """The texts, with long ones shortened, or cut if that fails."""
        long = [text for text in texts if len(text) > self.characters]
        briefs = [Brief.from_texts(question=question, answer=shorten(text, 10 * self.characters)) for text in long]
        told = replies(Ask(self.llm, self.shorten, self.max_tokens), briefs)
        made = zip(long, told, strict=True)
        short = {text: one for text, one in made if not isinstance(one, Failure) and one != NOTHING}
        return [shorten(short.get(text, text), self.characters) for text in texts]
