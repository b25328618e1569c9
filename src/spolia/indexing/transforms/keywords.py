"""Keywords as nodes, and as metadata to filter by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.indexing.transforms.function import TextPlaces
from spolia.indexing.transforms.llm_transform import CHARACTERS, NOTHING, LLMTransform, Phrases
from spolia.models.prompting.role import Role
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Part, Piece

ROLE: Role[tuple[str, ...]] = Role("spolia:indexing/prompts/keywords.txt", Phrases(), default=NOTHING)


@dataclass(frozen=True)
class Keywords(LLMTransform[tuple[str, ...]]):
    """One node with the keywords of a text, or one for each keyword; each is in the metadata too, as `keyword`.

    Args:
        llm: the language model.
        at_most: keywords, which the model is told (`{{at_most}}`); further ones are left out.
        each: one node for each keyword, so that each is found on its own.
        role: prompt, reader and default (`LLMTransform`).
        characters: of a text that are shown at most.
        max_tokens: longest reply.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> from spolia.types import Document, Node
    >>> text = "The tide is caused by the pull of the moon."
    >>> Keywords(ScriptedModel(("tide\\nmoon",)))(Part(Node("d", text), Document("d", text)))[0].meta
    (('keyword', 'tide'), ('keyword', 'moon'))
    """

    llm: LanguageModel
    at_most: int = 10
    each: bool = False
    role: Role[tuple[str, ...]] = ROLE
    characters: int = CHARACTERS
    max_tokens: int = 256

    version: ClassVar[int] = 2
    counts: ClassVar[tuple[str, ...]] = ("at_most", "characters", "max_tokens")

    def places(self) -> Mapping[str, str]:
        return {"at_most": str(self.at_most)}

    def pieces(self, reply: tuple[str, ...], part: Part, /) -> Iterator[Piece]:
        found = reply[: self.at_most]
        if self.each:
            places = TextPlaces(part.node.text)
            yield from (Piece(word, places.of(word), meta=(("keyword", word),)) for word in found)
        elif found:
            yield Piece(", ".join(found), meta=tuple(("keyword", word) for word in found))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.at_most if self.each else 1
