"""Rows of a table in a text file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from spolia.indexing.splitters.layers import Unit, alone
from spolia.indexing.splitters.sized_splitter import Sized, at_least
from spolia.stores.definition import Part, Piece

_ROW = re.compile(r'(?:(?<![^,;\t|\r\n])"(?:[^"]++|"")*+"|[^\r\n"]++|")*+(?:\r\n|[\r\n]|\Z)')


def by_row(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each row; a line break in a quoted field belongs to the row."""
    while start < end and (row := _ROW.match(text, start, end)):
        if row.end() > start and not text[start : row.end()].isspace():
            yield Unit(start, row.end())
        start = max(row.end(), start + 1)


@dataclass(frozen=True)
class CSVRows(Sized):
    """So many rows a piece, below the header, which every piece has as its context.

    The fields may be parted by commas, semicolons, tabs or bars, and be quoted as in RFC 4180. The first piece has the
    header itself. Rows that are too long together are parted, and one that is too long for itself is cut after words.
    Together the pieces cover every character but blanks.

    Args:
        rows: of a piece at most, the header not counted.
        header: whether the first row is one.
        size: tokens of a piece at most.

    Raises:
        WiringError: for fewer than one row.

    >>> from spolia.types import Document, Node
    >>> text = "stone,weight\\nbasalt,3.0\\nmarble,2.7\\n"
    >>> pieces = list(CSVRows(rows=1).pieces(Part(Node("d", text), Document("d", text))))
    >>> [(piece.context, piece.text) for piece in pieces]
    [('', 'stone,weight\\nbasalt,3.0'), ('stone,weight', 'marble,2.7')]
    """

    rows: int = 10
    header: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, rows=1)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        head = next(by_row(text, 0, len(text)), None) if self.header else None
        for piece in self.cut(text, alone(self._groups(text)), by_row):
            if head is None or piece.start is None or piece.start < head.end:
                yield piece
            else:
                yield piece.but(context=text[: head.end].strip()[: self.bound.characters // 2])

    def _groups(self, text: str) -> Iterator[Unit]:
        rows = by_row(text, 0, len(text))
        wanted = self.rows + self.header
        while group := list(islice(rows, wanted)):
            yield Unit(group[0].start, group[-1].end)
            wanted = self.rows
