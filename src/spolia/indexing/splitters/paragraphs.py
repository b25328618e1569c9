"""One piece a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.splitters.layers import Unit, alone, at_places, by_sentence
from spolia.indexing.splitters.size_limits import places_in
from spolia.indexing.splitters.sized_splitter import Sized
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


_END = re.compile(r"(?:\r\n|[\n\r])[^\S\r\n]*(?:\r\n|[\n\r])|\f|\u2029")


def by_paragraph(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each paragraph; one ends at a blank line, a form feed or a paragraph separator."""
    for gap in _END.finditer(text, start, end):
        yield Unit(start, gap.start())
        start = gap.end()
    yield Unit(start, end)


@dataclass(frozen=True)
class Paragraphs(Sized):
    """One piece for each paragraph; one that is longer than `size` is cut between sentences.

    Together they cover every character but blanks.

    Args:
        size: tokens of a piece at most.

    >>> from spolia.types import Document, Node
    >>> text = "One paragraph\\nof two lines.\\n\\n\\nAnother."
    >>> [piece.text for piece in Paragraphs().pieces(Part(Node("d", text), Document("d", text)))]
    ['One paragraph\\nof two lines.', 'Another.']
    """

    size: int = 200

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        return self.cut(text, alone(by_paragraph(text, 0, len(text))), by_sentence)
