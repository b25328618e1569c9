"""Summaries as nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.indexing.transforms.llm_transform import CHARACTERS, NOTHING, LLMTransform, says_nothing
from spolia.models.parsers import Text
from spolia.models.prompting.role import Role
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Part, Piece

ROLE: Role[str] = Role("spolia:indexing/prompts/summary.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class Summary(LLMTransform[str]):
    """One node for each: what its text says, in few words.

    Args:
        llm: the language model.
        max_words: of the summary, which the model is told (`{{max_words}}`).
        role: prompt, reader and default (`LLMTransform`).
        characters: of a text that are shown at most.
        max_tokens: longest reply.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> from spolia.types import Document, Node
    >>> text = "The tide is caused by the pull of the moon. Ships wait for it."
    >>> Summary(ScriptedModel(("The moon makes the tide.",)))(Part(Node("d", text), Document("d", text)))[0].text
    'The moon makes the tide.'
    """

    llm: LanguageModel
    max_words: int = 60
    role: Role[str] = ROLE
    characters: int = CHARACTERS
    max_tokens: int = 512

    counts: ClassVar[tuple[str, ...]] = ("max_words", "characters", "max_tokens")

    def places(self) -> Mapping[str, str]:
        return {"max_words": str(self.max_words)}

    def pieces(self, reply: str, part: Part, /) -> Iterator[Piece]:
        if not says_nothing(reply):
            yield Piece(reply)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1
