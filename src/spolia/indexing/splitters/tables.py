"""Tables, kept whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from spolia.indexing.splitters.layers import Unit, by_line
from spolia.indexing.splitters.size_limits import regions_in, stretch
from spolia.indexing.splitters.sized_splitter import Sized
from spolia.stores.definition import Part, Piece, Splitter

_BAR = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*+\|?")
_COLUMN_GAP = re.compile(r"(?<=[^\s.!?:;]) {2,}|\t+")
BARRED, ALIGNED = 2, 3
"""Lines that a table of either kind has at least."""


class TableBlock(NamedTuple):
    """`text[start:end]`; its header ends at `head`."""

    start: int
    head: int
    end: int


def tables(text: str) -> Iterator[TableBlock]:
    """Runs of lines with bars between their cells, or with wide gaps between their columns.

    >>> text = "Prices:\\n| stone | euro |\\n|---|---|\\n| basalt | 3 |\\nThat is all."
    >>> [text[table.start : table.head] for table in tables(text)]
    ['| stone | euro |\\n|---|---|\\n']
    """
    kind, run = "", list[Unit]()
    for line in by_line(text, 0, len(text)):
        found = _kind(text[line.start : line.end].strip())
        if found != kind:
            yield from _table(text, kind, run)
            kind, run = found, []
        if found:
            run.append(line)
    yield from _table(text, kind, run)


def _kind(line: str) -> str:
    if "|" in line:
        return "barred" if len(_BAR.findall(line)) > line.startswith("|") + line.endswith("|") or line[0] == "|" else ""
    return "aligned" if _COLUMN_GAP.search(line) else ""


def _table(text: str, kind: str, run: list[Unit]) -> Iterator[TableBlock]:
    if not kind or len(run) < (BARRED if kind == "barred" else ALIGNED):
        return
    ruled = _RULE.fullmatch(text[run[1].start : run[1].end].strip()) is not None
    yield TableBlock(run[0].start, run[1 if ruled else 0].end, run[-1].end)


def _tables_of(part: Part) -> Iterator[TableBlock]:
    """The tables that are noted, and those that are seen between them."""
    text, at = part.node.text, 0
    for region in regions_in(part, "table"):
        yield from _seen(text, at, region.start)
        first = text.find("\n", region.start, region.end)
        if region.start < region.end:
            yield TableBlock(region.start, first + 1 if first >= 0 else region.end, region.end)
        at = region.end
    yield from _seen(text, at, len(text))


def _seen(text: str, start: int, end: int) -> Iterator[TableBlock]:
    for table in tables(text[start:end]):
        yield TableBlock(*(start + place for place in table))


@dataclass(frozen=True)
class TableAware(Sized):
    """Tables are pieces of their own, whole up to a size; what is between them is cut by another splitter.

    A table is what the document's reader has noted as one; two or more lines with bars between their cells, as in
    Markdown; or three or more with columns two blanks or a tab apart, as in text out of a PDF. One that is too long is
    cut between rows, and each piece but the first has its header (the first line, in Markdown with the line below it)
    as context.

    Args:
        rest: cuts what is between tables.
        size: tokens of a piece of a table at most.

    >>> from spolia.indexing.splitters.sentences import Sentences
    >>> from spolia.types import Document, Node
    >>> text = "Two stones. Weighed.\\n| stone | t |\\n|---|---|\\n| basalt | 3 |\\n| marble | 2 |\\n"
    >>> part = Part(Node("d", text), Document("d", text))
    >>> [piece.text for piece in TableAware(Sentences()).pieces(part)][1:]
    ['Weighed.', '| stone | t |\\n|---|---|\\n| basalt | 3 |\\n| marble | 2 |']
    >>> [(piece.context, piece.text) for piece in TableAware(Sentences(), size=12).pieces(part)][3:]
    [('| stone | t |\\n|---|---|', '| marble | 2 |')]
    """

    rest: Splitter

    version: ClassVar[int] = 2

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        at = 0
        for table in _tables_of(part):
            yield from self._between(part, at, table.start)
            yield from self._rows(part.node.text, table)
            at = table.end
        yield from self._between(part, at, len(part.node.text))

    def _between(self, part: Part, start: int, end: int) -> Iterator[Piece]:
        if start == 0 and end == len(part.node.text):
            yield from self.rest.pieces(part)
        elif start < end:
            for piece in self.rest.pieces(stretch(part, start, end)):
                yield piece.but(start=None if piece.start is None else start + piece.start)

    def _rows(self, text: str, table: TableBlock) -> Iterator[Piece]:
        head = text[table.start : table.head].strip()[: self.bound.characters // 2]
        for piece in self.cut(text, [Unit(table.start, table.end)], by_line):
            below = piece.start is not None and piece.start >= table.head
            yield piece.but(context=head) if below else piece
