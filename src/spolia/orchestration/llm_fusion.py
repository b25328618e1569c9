"""Several answers become one that a language model writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import StepFailed
from spolia.models.ask import Ask, Brief, replies
from spolia.models.parsers import Text
from spolia.models.parsers.markers import Markers
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.models.shortening import shortened
from spolia.operator import Operator
from spolia.orchestration.cited import evidence_of, together
from spolia.types import Answer, Failure
from spolia.wiring import refuse_counts

NOTHING = "none"
FUSE: Role[str] = Role("spolia:orchestration/prompts/fuse.txt", Text(), default=NOTHING)
SHORTEN: Role[str] = Role("spolia:orchestration/prompts/shorten.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class LLMFusion(Operator[Sequence[Answer], Answer]):
    """Have a language model write one answer of those of several arms.

    Answers that abstain are left out; where all do, or but one is left, nobody is asked. One that is longer than
    `characters` is shortened first, by one call of its own. Marks of citations get one numbering, and those that the
    model keeps become citations. Where the model cannot be asked, or its reply not be read, the first answer stays, and
    the result is degraded.

    Args:
        llm: the language model.
        role: prompt with the places `{{answers}}` and `{{question}}`, reader of the reply, what holds when it cannot be
            read.
        shorten: prompt with the places `{{answer}}` and `{{question}}`, likewise.
        characters: of an answer that are shown as they are.
        max_tokens: longest reply.

    Raises:
        StepFailed: when there is no answer.

    Source: LLM fusion in Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable
    Frameworks", 2024.

    >>> from spolia.models.scripted import ScriptedModel
    >>> LLMFusion(ScriptedModel(("Nokia in Salo.",)))((Answer("Nokia."), Answer("In Salo."))).text
    'Nokia in Salo.'
    """

    llm: LanguageModel
    role: Role[str] = FUSE
    shorten: Role[str] = SHORTEN
    characters: int = 4_000
    max_tokens: int = 512

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

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
        brief = Brief.of(question=question, answers=tuple(self._short(texts, question)))
        (reply,) = replies(Ask(self.llm, self.role, self.max_tokens), [brief])
        if isinstance(reply, Failure) or reply == NOTHING:
            return said[0]
        markers = Markers(len(cited))
        text = markers.feed(reply) + markers.end()
        citations = tuple(citation for number in markers.used for citation in cited[number - 1])
        return Answer(text, citations, "answered", evidence) if text else said[0]

    def calls(self, rows: int | None = None, /) -> int | None:
        return None if rows is None else rows * self.shorten.calls + self.role.calls

    def _short(self, texts: Sequence[str], question: str) -> list[str]:
        """The texts, those that are too long shortened; cut where that could not be done."""
        long = [text for text in texts if len(text) > self.characters]
        briefs = [Brief.of(question=question, answer=shortened(text, 10 * self.characters)) for text in long]
        told = replies(Ask(self.llm, self.shorten, self.max_tokens), briefs)
        made = zip(long, told, strict=True)
        short = {text: one for text, one in made if not isinstance(one, Failure) and one != NOTHING}
        return [shortened(short.get(text, text), self.characters) for text in texts]
