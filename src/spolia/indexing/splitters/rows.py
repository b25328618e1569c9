"""Splitters for tables and records: tables kept whole, rows of CSV, records of JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar, NamedTuple

from spolia.indexing.splitters.sized_splitter import Sized
from spolia.indexing.splitters.windows import Unit, alone, by_line
from spolia.stores.definition import Part, Piece, Splitter, regions_in, stretch
from spolia.stores.groups.nodes import BETWEEN

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
    """Runs of lines with bars between their cells, or with wide gaps between their columns."""
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
    """The noted tables, and tables recognised between them."""
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
    """Tables are pieces of their own, whole up to a size; another splitter cuts the text between them.

    A table is what the document's reader has noted as one; two or more lines with bars between their cells, as in
    Markdown; or three or more with columns two blanks or a tab apart, as in text out of a PDF. One that is too long is
    cut between rows, and each piece but the first has its header (the first line, in Markdown with the line below it)
    as context.

    Args:
        rest: cuts the text between tables.
        size: tokens of a piece of a table at most.

    >>> from spolia.indexing.splitters.text_units import Sentences
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


_ROW = re.compile(r'(?:(?<![^,;\t|\r\n])"(?:[^"]++|"")*+"|[^\r\n"]++|")*+(?:\r\n|[\r\n]|\Z)')


def by_row(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each row; a line break in a quoted field belongs to the row."""
    while start < end and (row := _ROW.match(text, start, end)):
        if row.end() > start and not text[start : row.end()].isspace():
            yield Unit(start, row.end())
        start = max(row.end(), start + 1)


@dataclass(frozen=True)
class CSVRows(Sized):
    """A fixed number of rows per piece; every piece has the header as its context.

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

    _least: ClassVar[Mapping[str, int]] = {"rows": 1}

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


_TOKEN = re.compile(r'"(?:[^"\\]++|\\[\s\S]?)*+"?|[\[\]{},]')
_KEY = re.compile(r'\s*"((?:[^"\\]++|\\[\s\S])*+)"\s*:')
_BESIDE = " \t\r\n,;"
"""Stands between values."""


def values(text: str) -> Iterator[Unit]:
    """Arrays and objects that are in no other, each alone, and the lines between them."""
    depth = start = at = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("{", "["):
            if depth == 0:
                start = token.start()
                yield from _lines(text, at, start)
            depth += 1
        elif mark in ("}", "]") and depth:
            depth -= 1
            if depth == 0:
                at = token.end()
                yield Unit(start, at, alone=True)
    if depth:  # the end is missing
        yield Unit(start, len(text), alone=True)
    else:
        yield from _lines(text, at, len(text))


def _lines(text: str, start: int, end: int) -> Iterator[Unit]:
    return (line for line in by_line(text, start, end) if text[line.start : line.end].strip(_BESIDE))


def members(text: str, start: int, end: int) -> Iterator[Unit]:
    """What the outermost brackets hold: members with their key as label; elements, alone if they have brackets."""
    opened, depth, at = "", 0, start
    for token in _TOKEN.finditer(text, start, end):
        mark = token[0]
        if mark in ("{", "["):
            depth += 1
            if depth == 1:
                opened, at = mark, token.end()
        elif mark == "," and depth == 1:
            yield from _member(text, at, token.start(), opened)
            at = token.end()
        elif mark in ("}", "]") and depth:
            depth -= 1
            if depth == 0:
                yield from _member(text, at, token.start(), opened)
                at = token.end()
    yield from _member(text, at, end, opened)


def _member(text: str, start: int, end: int, opened: str) -> Iterator[Unit]:
    body = text[start:end].strip(_BESIDE)
    if not body:
        return
    start = text.index(body[0], start)
    key = _KEY.match(text, start, end) if opened == "{" else None
    yield Unit(start, start + len(body), key[1] if key else "", opened == "[" and body[0] in "{[")


def parsed(text: str) -> Any:
    """The value of a text that is JSON, or some members or elements of it; None for what is not."""
    for whole in (text, f"{{{text}}}", f"[{text}]"):
        try:
            return json.loads(whole)
        except (ValueError, RecursionError):
            continue
    return None


def spelt(value: Any, above: str = "") -> str:
    """A line `path: value` for every scalar, in the order of the text; a list of scalars is one value."""
    lines: list[str] = []
    todo: list[tuple[str, Any]] = [(above, value)]
    while todo:
        path, found = todo.pop()
        if isinstance(found, dict):
            todo += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(found.items())]
        elif isinstance(found, list) and any(isinstance(item, (dict, list)) for item in found):
            todo += [(path, item) for item in reversed(found)]
        elif found != []:
            said = ", ".join(map(_plain, found)) if isinstance(found, list) else _plain(found)
            lines.append(f"{path}: {said}" if path else said)
    return "\n".join(lines)


def _plain(scalar: Any) -> str:
    return scalar if isinstance(scalar, str) else json.dumps(scalar)


DEEPEST = 8
"""Levels of nesting that are looked into; what is too long below them is cut after words."""


@dataclass(frozen=True)
class JSONRows(Sized):
    """One piece for each record: the elements of an array, the lines of JSON Lines, or one object.

    A record that is too long is cut between its members, of which neighbours share a piece, and those between theirs;
    the keys above them are the context. The text is what the file has, without the commas and brackets between pieces.
    The index gets a line `path: value` for every scalar, so that neither brackets nor key order of other records
    matter. Broken JSON is cut all the same, by the brackets that it has, and indexed as it is.

    Args:
        size: tokens of a piece at most.

    >>> from spolia.types import Document, Node
    >>> text = '[{"name": "basalt", "of": {"age": 3}}, {"name": "marble"}]'
    >>> pieces = list(JSONRows().pieces(Part(Node("d", text), Document("d", text))))
    >>> [piece.text for piece in pieces]
    ['{"name": "basalt", "of": {"age": 3}}', '{"name": "marble"}']
    >>> print(pieces[0].search_text)
    name: basalt
    of.age: 3
    """

    size: int = 400

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        for piece in self.cut(text, _records(text), *[members] * DEEPEST):
            said = spelt(parsed(piece.text), ".".join(piece.context.split(BETWEEN)))
            fits = said and len(said) <= 2 * self.bound.characters
            yield piece.but(search_text=said) if fits else piece


def _records(text: str) -> Iterator[Unit]:
    found = values(text)
    first = list(islice(found, 2))
    if len(first) == 1 and text[first[0].start] == "[":
        return members(text, first[0].start, first[0].end)
    return chain(first, found)
