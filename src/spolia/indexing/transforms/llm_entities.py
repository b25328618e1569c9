"""Entities by a language model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spolia.core.run_context import note
from spolia.indexing.transforms.llm_transform import CHARACTERS, NOTHING, LLMTransform, NamesWithKinds
from spolia.indexing.transforms.rule_entities import Mention, entities
from spolia.models.prompting.role import Role
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Part, Piece

Named: TypeAlias = tuple[tuple[str, str], ...]

OTHER = "other"
ROLE: Role[Named] = Role("spolia:indexing/prompts/entities.txt", NamesWithKinds(), default=NOTHING)


@dataclass(frozen=True)
class LLMEntities(LLMTransform[Named]):
    """One node for each distinct entity that a language model finds in a text; metadata as `RuleEntities` has them.

    A name that does not stand in the text, with any case and any blanks, is left out, and that is recorded.

    Args:
        llm: the language model.
        kinds: of which an entity may be (`{{kinds}}`); any other is taken for `other`.
        at_most: entities, which the model is told (`{{at_most}}`); further ones are left out.
        role: prompt, reader and default (`LLMTransform`).
        characters: of a text that are shown at most.
        max_tokens: longest reply.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> from spolia.types import Document, Node
    >>> text = "Clovis made Paris his capital."
    >>> model = ScriptedModel(("Clovis | person\\nparis | place",))
    >>> found = LLMEntities(model)(Part(Node("d", text), Document("d", text)))
    >>> [(piece.text, piece.start, piece.meta) for piece in found]  # doctest: +NORMALIZE_WHITESPACE
    [('Clovis', 0, (('entity', 'clovis'), ('type', 'person'))),
     ('Paris', 12, (('entity', 'paris'), ('type', 'place')))]
    """

    llm: LanguageModel
    kinds: tuple[str, ...] = ("person", "organisation", "place", "event", "work", "product", "time", OTHER)
    at_most: int = 30
    role: Role[Named] = ROLE
    characters: int = CHARACTERS
    max_tokens: int = 1024

    version: ClassVar[int] = 2
    counts: ClassVar[tuple[str, ...]] = ("at_most", "characters", "max_tokens")

    def places(self) -> Mapping[str, str]:
        return {"kinds": ", ".join(self.kinds), "at_most": str(self.at_most)}

    def pieces(self, reply: Named, part: Part, /) -> Iterator[Piece]:
        found = [(name, _mention(part.node.text, name, self._kind(kind))) for name, kind in reply[: self.at_most]]
        if absent := [name for name, mention in found if mention is None]:
            note(f"Named by the model, but not in the text, and left out: {', '.join(absent)}.")
        yield from entities(mention for _, mention in found if mention is not None)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.at_most

    def _kind(self, kind: str) -> str:
        return kind if kind in self.kinds else OTHER


def _mention(text: str, name: str, kind: str) -> Mention | None:
    """Where a name stands first: as a word of its own, or, in scripts without blanks, anywhere."""
    pattern = r"\s+".join(map(re.escape, name.split()))
    for written in (rf"(?<!\w){pattern}(?!\w)", pattern):
        if found := re.search(written, text, re.IGNORECASE):
            return Mention(found.start(), found[0], kind)
    return None
