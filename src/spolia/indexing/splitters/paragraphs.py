"""One piece a paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.splitters.layers import Unit, alone, by_sentence
from spolia.indexing.splitters.sized import Sized
from spolia.stores.definition import Part, Piece

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
