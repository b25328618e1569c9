"""Sections as nodes: the inner nodes of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spolia.errors import WiringError
from spolia.indexing.readers.marked.markdown import headings_of
from spolia.indexing.splitters.atoms import stripped
from spolia.indexing.splitters.places import places_in
from spolia.indexing.structure.numbered import numbered_headings
from spolia.stores.definition import Part, Piece, Splitter


@dataclass(frozen=True)
class Sections(Splitter):
    """One piece for each section, however long: from a heading to the next of its level or above.

    The headings are those that the document's reader has noted (Markdown, HTML, Word); where it has noted none, those
    of Markdown in the text, else numbered ones (`1 Introduction`, `2.3 Results`, `Chapter IV`). What stands before
    the first is a piece too; without any heading all of it is one. Together the pieces cover every character but
    blanks. Cut them further with a group whose parent they are: sections of level 1, of these sections of level 2, of
    these chunks.

    Args:
        level: the deepest heading that begins a section, from 1.

    Raises:
        WiringError: for a level below 1.

    >>> from spolia.stores.definition import whole
    >>> from spolia.types import Document
    >>> document = Document("d", "Preface.\\n\\n# Rome\\n\\nStone.\\n\\n## Roads\\n\\nLong.\\n\\n# Oslo\\n\\nWood.")
    >>> [piece.text.split("\\n")[0] for piece in Sections(level=1).pieces(Part(whole(document), document))]
    ['Preface.', '# Rome', '# Oslo']
    """

    level: int = 1

    def __post_init__(self) -> None:
        if self.level < 1:
            raise WiringError(f"Sections got level={self.level}. Write a number of at least 1.")

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        for start, end in pairwise(dict.fromkeys((0, *self._places(part), len(text)))):
            if span := stripped(text, start, end):
                yield Piece(text[slice(*span)], span[0])

    def _places(self, part: Part) -> Sequence[int]:
        """Where sections begin in the part."""
        if part.document.headings:
            return places_in(part, [h.start for h in part.document.headings if h.level <= self.level])
        text = part.node.text
        found = list(headings_of(text)) or list(numbered_headings(text))
        return [heading.start for heading in found if heading.level <= self.level]
