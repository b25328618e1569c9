"""Fusion of several answers, with one numbering for their citations."""

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

# from the first blank of a run: else each blank of a long one is tried
_MARKER = re.compile(r"(?<!\s)(\s*+)\[(\d{1,4})\]")


def renumber_citations(answers: Sequence[Answer]) -> tuple[list[str], list[list[Citation]]]:
    """Return the texts of the answers with marks in one numbering, and the citations of each number, from 1."""
    numbers: dict[tuple[object, ...], int] = {}
    cited: list[list[Citation]] = []
    texts = []
    for answer in answers:
        new_numbers: dict[str, int] = {}
        for marker in dict.fromkeys(citation.marker for citation in answer.citations):
            own = [citation for citation in answer.citations if citation.marker == marker]
            # Answers that cite the same stretch share its number.
            place = tuple((citation.node, citation.uri, citation.span) for citation in own)
            if place not in numbers:
                numbers[place] = len(numbers) + 1
                cited.append([citation.but(marker=str(numbers[place])) for citation in own])
            new_numbers[marker] = numbers[place]
        texts.append(_MARKER.sub(lambda mark, named=new_numbers: _renumber_marker(mark, named), answer.text))  # type: ignore[misc]
    return texts, cited


def _renumber_marker(mark: re.Match[str], new_numbers: dict[str, int]) -> str:
    """Return the mark with its number in all answers; a mark without a citation is removed."""
    return f"{mark[1]}[{new_numbers[mark[2]]}]" if mark[2] in new_numbers else ""


def merge_evidence(answers: Sequence[Answer]) -> Ranking | None:
    """Merge the evidence of all answers, each hit once."""
    rankings = [answer.evidence for answer in answers if answer.evidence is not None]
    if not rankings:
        return None
    # Backwards, so that of several hits of a node the first one stays.
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
        return value[max(range(len(value)), key=lambda index: (counts[voices[index]], -index))]


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

    version: ClassVar[int] = 2  # 2: `[2]` in a text that an arm quotes is no citation

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")

    def apply(self, value: Sequence[Answer], /) -> Answer:
        if not value:
            raise StepFailed("There is no answer to fuse: every arm before the fusion failed or was dropped.")
        answers = [answer for answer in value if not answer.abstained]
        if len(answers) < 2:
            return (answers or value)[0]
        evidence = merge_evidence(answers)
        question = evidence.query.question if evidence is not None else ""
        texts, cited = renumber_citations(answers)
        brief = Brief.from_texts(question=question, answers=tuple(self._shorten_texts(texts, question)))
        (reply,) = replies(Ask(self.llm, self.role, self.max_tokens), [brief])
        if isinstance(reply, Failure) or reply == NOTHING:
            return answers[0]
        markers = Markers(len(cited))
        text = markers.feed(reply) + markers.end()
        citations = tuple(citation for number in markers.used for citation in cited[number - 1])
        # A reply of nothing but marks has no text.
        return Answer(text, citations, "answered", evidence, markers.faults()) if text else answers[0]

    def calls(self, rows: int | None = None, /) -> int | None:
        return None if rows is None else rows * self.shorten.calls + self.role.calls

    def _shorten_texts(self, texts: Sequence[str], question: str) -> list[str]:
        """Shorten long texts by the model, or cut them if that fails."""
        long = [text for text in texts if len(text) > self.characters]
        # Bounded here too: what is to be shortened must itself fit into a prompt.
        briefs = [Brief.from_texts(question=question, answer=shorten(text, 10 * self.characters)) for text in long]
        short_replies = replies(Ask(self.llm, self.shorten, self.max_tokens), briefs)
        pairs = zip(long, short_replies, strict=True)
        short = {
            text: short_text
            for text, short_text in pairs
            if not isinstance(short_text, Failure) and short_text != NOTHING
        }
        return [shorten(short.get(text, text), self.characters) for text in texts]
