"""One piece a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.splitters.layers import Unit, alone, at_places, by_sentence
from spolia.indexing.splitters.paragraphs import by_paragraph
from spolia.indexing.splitters.places import places_in
from spolia.indexing.splitters.sized import Sized
from spolia.stores.definition import Part, Piece


@dataclass(frozen=True)
class Pages(Sized):
    """One piece for each page that has text, where `Document.pages` says that they begin.

    A document of a format without pages is one page. A page that is longer than `size` is cut between paragraphs, then
    between sentences. Together the pieces cover every character but blanks.

    Args:
        size: tokens of a piece at most.

    >>> from spolia.types import Document, Node
    >>> document = Document("d", "First page.\\nSecond page.", pages=(0, 12))
    >>> [piece.text for piece in Pages().pieces(Part(Node("d", document.text), document))]
    ['First page.', 'Second page.']
    """

    size: int = 2000

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        pages: Iterator[Unit] = alone(at_places(places_in(part, part.document.pages))(text, 0, len(text)))
        return self.cut(text, pages, by_paragraph, by_sentence)
