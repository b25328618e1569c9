"""Splitters for tables and records: whole tables, rows of CSV, records of JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar, NamedTuple

from spolia.indexing.splitters.sized_splitter import SizedSplitter
from spolia.indexing.splitters.windows import Unit, by_line, isolate
from spolia.stores.definition import Part, Piece, Splitter, cut_part, regions_in
from spolia.stores.groups.nodes import BETWEEN

_BAR = re.compile(r"(?<!\\)\|")
# Possessive, as those below: a long line that does not match takes linear time.
_RULE = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*+\|?")
_COLUMN_GAP = re.compile(r"(?<=[^\s.!?:;]) {2,}|\t+")
BARRED, ALIGNED = 2, 3
"""Lines that a table of either kind has at least."""


class TableBlock(NamedTuple):
    """Table at `text[start:end]`; its header ends at `head`."""

    start: int
    head: int
    end: int


def find_tables(text: str) -> Iterator[TableBlock]:
    """Yield runs of lines with bars between their cells, or with wide gaps between their columns."""
    kind, run = "", list[Unit]()
    for line in by_line(text, 0, len(text)):
        line_kind = _table_kind(text[line.start : line.end].strip())
        if line_kind != kind:
            yield from _table(text, kind, run)
            kind, run = line_kind, []
        if line_kind:
            run.append(line)
    yield from _table(text, kind, run)


def _table_kind(line: str) -> str:
    if "|" in line:
        return "barred" if len(_BAR.findall(line)) > line.startswith("|") + line.endswith("|") or line[0] == "|" else ""
    return "aligned" if _COLUMN_GAP.search(line) else ""


def _table(text: str, kind: str, run: list[Unit]) -> Iterator[TableBlock]:
    if not kind or len(run) < (BARRED if kind == "barred" else ALIGNED):
        return
    ruled = _RULE.fullmatch(text[run[1].start : run[1].end].strip()) is not None
    yield TableBlock(run[0].start, run[1 if ruled else 0].end, run[-1].end)


def _part_tables(part: Part) -> Iterator[TableBlock]:
    """Yield the tables noted by the reader, and tables recognised between them."""
    text, position = part.node.text, 0
    for region in regions_in(part, "table"):
        yield from _recognised_tables(text, position, region.start)
        first = text.find("\n", region.start, region.end)
        if region.start < region.end:
            yield TableBlock(region.start, first + 1 if first >= 0 else region.end, region.end)
        position = region.end
    yield from _recognised_tables(text, position, len(text))


def _recognised_tables(text: str, start: int, end: int) -> Iterator[TableBlock]:
    for table in find_tables(text[start:end]):
        yield TableBlock(*(start + place for place in table))


@dataclass(frozen=True)
class TableAware(SizedSplitter):
    """Splitter that keeps tables whole up to a size; another splitter cuts the text between them.

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

    version: ClassVar[int] = 2  # 2: tables that the reader noted are tables too

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        position = 0
        for table in _part_tables(part):
            yield from self._cut_between(part, position, table.start)
            yield from self._cut_table(part.node.text, table)
            position = table.end
        yield from self._cut_between(part, position, len(part.node.text))

    def _cut_between(self, part: Part, start: int, end: int) -> Iterator[Piece]:
        if start == 0 and end == len(part.node.text):
            yield from self.rest.pieces(part)
        elif start < end:
            for piece in self.rest.pieces(cut_part(part, start, end)):
                yield piece.but(start=None if piece.start is None else start + piece.start)

    def _cut_table(self, text: str, table: TableBlock) -> Iterator[Piece]:
        # A head of many columns must not outweigh its rows.
        head = text[table.start : table.head].strip()[: self.bound.characters // 2]
        for piece in self.cut(text, [Unit(table.start, table.end)], by_line):
            continues = piece.start is not None and piece.start >= table.head
            yield piece.but(context=head) if continues else piece


_ROW = re.compile(r'(?:(?<![^,;\t|\r\n])"(?:[^"]++|"")*+"|[^\r\n"]++|")*+(?:\r\n|[\r\n]|\Z)')


def by_row(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yield a unit for each row; a line break in a quoted field belongs to the row."""
    while start < end and (row := _ROW.match(text, start, end)):
        if row.end() > start and not text[start : row.end()].isspace():
            yield Unit(start, row.end())
        # The pattern matches the empty text too: one character at least is skipped.
        start = max(row.end(), start + 1)


@dataclass(frozen=True)
class CSVRows(SizedSplitter):
    """Splitter of CSV into a fixed number of rows per piece, each with the header as its context.

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

    _minimums: ClassVar[Mapping[str, int]] = {"rows": 1}

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        head = next(by_row(text, 0, len(text)), None) if self.header else None
        for piece in self.cut(text, isolate(self._groups(text)), by_row):
            if head is None or piece.start is None or piece.start < head.end:
                yield piece
            else:
                yield piece.but(context=text[: head.end].strip()[: self.bound.characters // 2])

    def _groups(self, text: str) -> Iterator[Unit]:
        rows = by_row(text, 0, len(text))
        count = self.rows + self.header
        while group := list(islice(rows, count)):
            yield Unit(group[0].start, group[-1].end)
            count = self.rows


_TOKEN = re.compile(r'"(?:[^"\\]++|\\[\s\S]?)*+"?|[\[\]{},]')
_KEY = re.compile(r'\s*"((?:[^"\\]++|\\[\s\S])*+)"\s*:')
_SEPARATORS = " \t\r\n,;"
"""Stands between values."""


def values(text: str) -> Iterator[Unit]:
    """Yield arrays and objects that no other contains, each alone, and the lines between them."""
    depth = start = position = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("{", "["):
            if depth == 0:
                start = token.start()
                yield from _filled_lines(text, position, start)
            depth += 1
        elif mark in ("}", "]") and depth:
            depth -= 1
            if depth == 0:
                position = token.end()
                yield Unit(start, position, alone=True)
    if depth:  # the end is missing
        yield Unit(start, len(text), alone=True)
    else:
        yield from _filled_lines(text, position, len(text))


def _filled_lines(text: str, start: int, end: int) -> Iterator[Unit]:
    return (line for line in by_line(text, start, end) if text[line.start : line.end].strip(_SEPARATORS))


def members(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yield the members of the outermost brackets, labelled with their key; array elements are alone if they have
    brackets."""
    bracket, depth, position = "", 0, start
    for token in _TOKEN.finditer(text, start, end):
        mark = token[0]
        if mark in ("{", "["):
            depth += 1
            if depth == 1:
                bracket, position = mark, token.end()
        elif mark == "," and depth == 1:
            yield from _member_unit(text, position, token.start(), bracket)
            position = token.end()
        elif mark in ("}", "]") and depth:
            depth -= 1
            if depth == 0:
                yield from _member_unit(text, position, token.start(), bracket)
                position = token.end()
    yield from _member_unit(text, position, end, bracket)


def _member_unit(text: str, start: int, end: int, bracket: str) -> Iterator[Unit]:
    body = text[start:end].strip(_SEPARATORS)
    if not body:
        return
    start = text.index(body[0], start)
    key = _KEY.match(text, start, end) if bracket == "{" else None
    yield Unit(start, start + len(body), key[1] if key else "", bracket == "[" and body[0] in "{[")


def parse_json(text: str) -> Any:
    """Parse a text that is JSON, or some members or elements of it; None if it is neither."""
    for candidate in (text, f"{{{text}}}", f"[{text}]"):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return None


def format_scalars(value: Any, prefix: str = "") -> str:
    """Format a value as a line `path: value` for each scalar, in text order; a list of scalars is one value."""
    lines: list[str] = []
    # A stack in place of recursion: a file may nest deeper than Python allows.
    stack: list[tuple[str, Any]] = [(prefix, value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            stack += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(item.items())]
        elif isinstance(item, list) and any(isinstance(item, (dict, list)) for item in item):
            stack += [(path, item) for item in reversed(item)]
        elif item != []:
            line = ", ".join(map(_format_scalar, item)) if isinstance(item, list) else _format_scalar(item)
            lines.append(f"{path}: {line}" if path else line)
    return "\n".join(lines)


def _format_scalar(scalar: Any) -> str:
    return scalar if isinstance(scalar, str) else json.dumps(scalar)


DEEPEST = 8
"""Levels of nesting that are looked into; what is too long below them is cut after words."""


@dataclass(frozen=True)
class JSONRows(SizedSplitter):
    """Splitter into records: elements of an array, lines of JSON Lines, or one object.

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
            search_text = format_scalars(parse_json(piece.text), ".".join(piece.context.split(BETWEEN)))
            # Repeated paths can make the lines far longer than the record itself.
            fits = search_text and len(search_text) <= 2 * self.bound.characters
            yield piece.but(search_text=search_text) if fits else piece


def _records(text: str) -> Iterator[Unit]:
    records = values(text)
    first = list(islice(records, 2))
    if len(first) == 1 and text[first[0].start] == "[":
        return members(text, first[0].start, first[0].end)
    return chain(first, records)
