"""AsciiDoc, reStructuredText and Org mode, read line by line; the text is the source itself.

https://docs.asciidoctor.org/asciidoc/latest/, https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from spolia.indexing.readers.file_metadata import fields, split_keywords
from spolia.indexing.readers.reader import Blob, Reading, title_of
from spolia.indexing.readers.source_structure import Structure, read_structured
from spolia.indexing.readers.text import read_source_text
from spolia.types import Heading, Region, Value

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|[\r\n]|\Z)")
_BAR = re.compile(r"(?<!\\)\|")


class SourceLine(NamedTuple):
    """Line without its end: where it starts, and its characters without blanks at the end."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def indent(self) -> int:
        """Return the number of blanks at the beginning; a tab counts one."""
        return len(self.text) - len(self.text.lstrip())


def lines_of(text: str) -> list[SourceLine]:
    """Split a text into its lines.

    >>> lines_of("One \\r\\n\\r\\ntwo")
    [SourceLine(start=0, text='One'), SourceLine(start=6, text=''), SourceLine(start=8, text='two')]
    """
    lines = [SourceLine(line.start(), line[1].rstrip()) for line in _LINE.finditer(text)]
    return lines[:-1] if lines and lines[-1].start == len(text) else lines


def split_cells(row: str) -> tuple[str, ...]:
    """Split a row with bars into its cells.

    >>> split_cells("| stone | 3 \\\\| 4 |")
    ('stone', '3 | 4')
    """
    row = row.strip().removeprefix("|")
    row = row[:-1] if row.endswith("|") and not row.endswith("\\|") else row
    return tuple(cell.strip().replace("\\|", "|") for cell in _BAR.split(row))


def region_of_lines(
    kind: str, lines: Sequence[SourceLine], rows: Sequence[Sequence[str]] = (), caption: str = ""
) -> Iterator[Region]:
    """Yield the region of some lines, without empty ones around it; nothing if all are empty."""
    filled_lines = [line for line in lines if line.text]
    if filled_lines:
        yield Region(kind, filled_lines[0].start, filled_lines[-1].end, tuple(map(tuple, rows)), "", caption)


_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_DELIMITER = re.compile(r"(-{4,}|\.{4,}|`{3,}|\+{4,}|/{4,}|[|,:!]={3,})\w*\s*")
_ATTRIBUTE = re.compile(r":(author|date|revdate|lang|keywords|description):[ \t]+(.+)")
_CELL = re.compile(r"(?<!\\)(?:\d{0,4}(?:\.\d{1,4})?[+*])?[<^>]?(?:\.[<^>])?[adehlmsv]?\|")
_NAMES = {"lang": "language", "revdate": "date"}
# Attributes stand at the beginning; later lines of the same form are text.
_HEAD = 100


@dataclass(frozen=True)
class AsciiDocReader(Value):
    """Reader of AsciiDoc.

    >>> text = b"= Stones\\n\\n== Old\\n\\n.Weights\\n|===\\n|stone |t\\n|basalt |3\\n|===\\n"
    >>> document = AsciiDocReader().read(Blob("a.adoc", text)).document
    >>> document.title, document.regions[0].caption, document.regions[0].rows
    ('Stones', 'Weights', (('stone', 't'), ('basalt', '3')))
    """

    name = "asciidoc"
    version = 1
    media_type = "text/asciidoc"
    suffixes = (".adoc", ".asciidoc", ".asc")

    def read(self, blob: Blob, /) -> Reading:
        return read_structured(read_source_text(blob), self, blob, _asciidoc_structure)


def _asciidoc_structure(text: str) -> Structure:
    lines = lines_of(text)
    parts = list(_asciidoc_parts(lines))
    headings = [part for part in parts if isinstance(part, Heading)]
    regions = [part for part in parts if isinstance(part, Region)]
    attributes = (_ATTRIBUTE.fullmatch(line.text) for line in lines[:_HEAD])
    pairs = [attribute.groups() for attribute in attributes if attribute]
    metadata = {_NAMES.get(name, name): split_keywords(words) if name == "keywords" else words for name, words in pairs}
    return Structure(title_of(headings), headings, regions, fields(**metadata))


def _asciidoc_parts(lines: Sequence[SourceLine]) -> Iterator[Heading | Region]:
    ends = _block_ends(lines)
    index = 0
    while index < len(lines):
        line, end = lines[index], index + 1
        if heading := _HEADING.fullmatch(line.text):
            yield Heading(line.start, len(heading[1]), " ".join(heading[2].split()))
        elif index in ends:
            end = ends[index] + 1
            yield from _block_regions(lines, index, end)
        index = end


def _block_ends(lines: Sequence[SourceLine]) -> dict[int, int]:
    """Map each line that opens a block to the line that closes it. One pass from the end visits each line a single
    time."""
    ends, following = dict[int, int](), dict[str, int]()
    for index in range(len(lines) - 1, -1, -1):
        if delimiter := _DELIMITER.fullmatch(lines[index].text):
            if (end := following.get(delimiter[1])) is not None:
                ends[index] = end
            following[delimiter[1]] = index
    return ends


def _block_regions(lines: Sequence[SourceLine], index: int, end: int) -> Iterator[Region]:
    mark, content = lines[index].text[0], lines[index + 1 : end - 1]
    if mark in "|,:!":
        rows = _asciidoc_rows(content) if mark == "|" else [line.text.split(mark) for line in content if line.text]
        yield from region_of_lines("table", lines[index:end], rows, _block_title(lines, index))
    elif mark in "-.`":
        yield from region_of_lines("code", lines[index:end], caption=_block_title(lines, index))
    elif mark == "+":
        yield from region_of_lines("formula", lines[index:end])


def _block_title(lines: Sequence[SourceLine], index: int) -> str:
    """Return the title of a block: `.Title` above it, past its attributes."""
    for line in reversed(lines[max(0, index - 3) : index]):
        if re.match(r"\.[^\s.]", line.text):
            return line.text[1:]
        if not line.text.startswith("["):
            break
    return ""


def _asciidoc_rows(lines: Sequence[SourceLine]) -> list[list[str]]:
    """Return a row for each line with bars. If lines have one cell each, as many as the first line has make a row."""
    parsed_rows: list[list[list[str]]] = []
    for line in lines:
        parts = _CELL.split(line.text)
        if len(parts) == 1 and parsed_rows:  # it goes on with the last cell
            parsed_rows[-1][-1].append(line.text)
        elif len(parts) > 1:
            parsed_rows.append([[part] for part in parts[1:]])
    rows = [[" ".join(" ".join(cell).split()).replace("\\|", "|") for cell in row] for row in parsed_rows]
    width = len(rows[0]) if rows else 0
    if width > 1 and len(rows) > 1 and all(len(row) == 1 for row in rows[1:]):
        single = [row[0] for row in rows[1:]]
        rows = [rows[0], *(single[start : start + width] for start in range(0, len(single), width))]
    return rows


_ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1*+")
_DIRECTIVE = re.compile(r"\s*\.\. (code|code-block|sourcecode|math|csv-table)::\s*(.*)")
_GRID = re.compile(r"\s*\+[-=]+\+[-=+]*")
_SIMPLE = re.compile(r"\s*=+(?:\s+=+)+")
_FIELD = re.compile(r":(author|authors|date|language|keywords):\s+(.+)", re.IGNORECASE)
_KINDS = {"math": "formula", "csv-table": "table"}


@dataclass(frozen=True)
class RstReader(Value):
    """Reader of reStructuredText.

    >>> text = b"Stones\\n======\\n\\nOld\\n---\\n\\n.. code:: python\\n\\n   x = 1\\n"
    >>> document = RstReader().read(Blob("a.rst", text)).document
    >>> document.title, [(heading.level, heading.text) for heading in document.headings]
    ('Stones', [(1, 'Stones'), (2, 'Old')])
    >>> document.regions[0].kind
    'code'
    """

    name = "rst"
    version = 1
    media_type = "text/x-rst"
    suffixes = (".rst", ".rest")

    def read(self, blob: Blob, /) -> Reading:
        return read_structured(read_source_text(blob), self, blob, _rst_structure)


def _rst_structure(text: str) -> Structure:
    lines = lines_of(text)
    headings = tuple(_rst_headings(lines))
    matches = [entry for line in lines[:_HEAD] if (entry := _FIELD.match(line.text))]
    meta = fields(**{entry[1].lower().replace("authors", "author"): entry[2] for entry in matches})
    return Structure(title_of(headings), headings, _rst_regions(lines), meta)


def _rst_headings(lines: Sequence[SourceLine]) -> Iterator[Heading]:
    """Yield the headings. A style of lines below (and above) a title has the level at which it first appears."""
    levels: dict[tuple[str, bool], int] = {}
    for index in range(1, len(lines)):
        underline, title = lines[index].text, lines[index - 1].text
        if not title.strip() or not _is_adornment(underline) or len(underline) < min(len(title.strip()), 4):
            continue
        has_overline = index > 1 and lines[index - 2].text == underline
        if _is_adornment(title) or (not has_overline and (title[0].isspace() or (index > 1 and lines[index - 2].text))):
            continue
        level = levels.setdefault((underline[0], has_overline), len(levels) + 1)
        yield Heading(lines[index - 2 if has_overline else index - 1].start, level, " ".join(title.split()))


def _is_adornment(line: str) -> bool:
    return len(line) > 1 and _ADORNMENT.fullmatch(line) is not None


def _rst_regions(lines: Sequence[SourceLine]) -> Iterator[Region]:
    index = 0
    while index < len(lines):
        line, end = lines[index], index + 1
        if directive := _DIRECTIVE.fullmatch(line.text):
            end = _block_end(lines, index + 1, line.indent)
            kind = _KINDS.get(directive[1], "code")
            yield from region_of_lines(kind, lines[index:end], caption=directive[2] if kind != "formula" else "")
        elif line.text.endswith("::") and not line.text.lstrip().startswith(".. "):
            end = _block_end(lines, index + 1, line.indent)
            yield from region_of_lines("code", lines[index + 1 : end])
        elif _GRID.fullmatch(line.text):
            rest = range(index, len(lines))
            end = next((n for n in rest if not lines[n].text.lstrip().startswith(("+", "|"))), len(lines))
            yield from region_of_lines("table", lines[index:end], _grid_rows(lines[index:end]))
        elif _SIMPLE.fullmatch(line.text):
            end = _simple_table_end(lines, index)
            yield from region_of_lines(
                "table", lines[index:end], _simple_rows(lines[index:end]) if end > index + 1 else ()
            )
        index = end


def _block_end(lines: Sequence[SourceLine], index: int, indent: int) -> int:
    """Return the number of the line after a block: after lines with a larger indent, and empty ones between them."""
    end = index
    while index < len(lines) and (not lines[index].text or lines[index].indent > indent):
        index += 1
        end = index if lines[index - 1].text else end
    return end


def _grid_rows(lines: Sequence[SourceLine]) -> list[list[str]]:
    """Return the rows between the rules. The first rule places the columns."""
    edges = [column for column, mark in enumerate(lines[0].text) if mark == "+"]
    rows: list[list[list[str]]] = [[]]
    for line in lines[1:]:
        if line.text.lstrip().startswith("+"):
            rows.append([])
        else:
            rows[-1].append([line.text[left + 1 : right] for left, right in pairwise(edges)])
    return [_join_cells(row) for row in rows if row]


def _join_cells(lines: Sequence[Sequence[str]]) -> list[str]:
    """Join the cells of a row that stands on several lines."""
    return [" ".join(filter(None, (part.strip() for part in column))) for column in zip(*lines, strict=True)]


def _simple_table_end(lines: Sequence[SourceLine], index: int) -> int:
    """Return the number of the line after a simple table, which ends with the third rule, or the second if it has no
    head."""
    last_rule = index
    for number in range(index + 1, len(lines)):
        if _SIMPLE.fullmatch(lines[number].text):
            last_rule = number
            if number + 1 == len(lines) or not lines[number + 1].text:
                break
        elif not lines[number].text and not (number + 1 < len(lines) and lines[number + 1].text):
            break
    return last_rule + 1


def _simple_rows(lines: Sequence[SourceLine]) -> list[list[str]]:
    columns = [rule.span() for rule in re.finditer("=+", lines[0].text)]
    bounds = [
        (start, columns[column + 1][0] if column + 1 < len(columns) else None)
        for column, (start, _) in enumerate(columns)
    ]
    rows: list[list[list[str]]] = []
    for line in lines[1:]:
        if line.text and not _SIMPLE.fullmatch(line.text):
            parts = [line.text[start:end] for start, end in bounds]
            if parts[0].strip() or not rows:
                rows.append([])
            rows[-1].append(parts)  # an empty first column goes on with the row above
    return [_join_cells(row) for row in rows]


_ORG_HEADING = re.compile(r"(\*{1,9})[ \t]+(?:(?:TODO|DONE)[ \t]+)?(?:\[#[A-Z]\][ \t]+)?(\S.*?)(?:[ \t]+:[\w@#%:]+:)?")
_ORG_FIELD = re.compile(r"#\+(title|author|date|language|keywords|description):[ \t]+(.+)", re.IGNORECASE)
_ORG_BLOCK = re.compile(r"[ \t]*#\+begin_(src|example)\b[ \t]*(\S*).*", re.IGNORECASE)
_ORG_END = re.compile(r"[ \t]*#\+end_(src|example)\b.*", re.IGNORECASE)
_ORG_RULE = re.compile(r"\|[-+|]+")


@dataclass(frozen=True)
class OrgReader(Value):
    """Reader of Org mode. Source: https://orgmode.org/worg/org-syntax.html

    >>> text = b"#+TITLE: Stones\\n* TODO Old ones :wall:\\n| stone | t |\\n|-------+---|\\n| basalt | 3 |\\n"
    >>> document = OrgReader().read(Blob("a.org", text)).document
    >>> document.title, document.headings[0].text, document.regions[0].rows
    ('Stones', 'Old ones', (('stone', 't'), ('basalt', '3')))
    """

    name = "org"
    version = 1
    media_type = "text/org"
    suffixes = (".org",)

    def read(self, blob: Blob, /) -> Reading:
        return read_structured(read_source_text(blob), self, blob, _org_structure)


def _org_structure(text: str) -> Structure:
    lines = lines_of(text)
    parts = list(_org_parts(lines))
    headings = [entry for entry in parts if isinstance(entry, Heading)]
    matches = [entry for line in lines[:_HEAD] if (entry := _ORG_FIELD.fullmatch(line.text))]
    metadata: dict[str, Any] = {entry[1].lower(): entry[2] for entry in matches}
    title = metadata.pop("title", "") or title_of(headings)
    meta = fields(**metadata | {"keywords": split_keywords(metadata.get("keywords"))})
    return Structure(title, headings, [entry for entry in parts if isinstance(entry, Region)], meta)


def _org_parts(lines: Sequence[SourceLine]) -> Iterator[Heading | Region]:
    index = 0
    while index < len(lines):
        line, end = lines[index], index + 1
        if heading := _ORG_HEADING.fullmatch(line.text):
            yield Heading(line.start, len(heading[1]), " ".join(heading[2].split()))
        elif block := _ORG_BLOCK.fullmatch(line.text):
            ends = (number for number in range(index + 1, len(lines)) if _ORG_END.fullmatch(lines[number].text))
            end = next(ends, index) + 1
            yield from region_of_lines("code", lines[index:end], caption=block[2]) if end > index + 1 else ()
        elif line.text.lstrip().startswith("|"):
            rest = range(index, len(lines))
            end = next((number for number in rest if not lines[number].text.lstrip().startswith("|")), len(lines))
            rows = [split_cells(row.text) for row in lines[index:end] if not _ORG_RULE.fullmatch(row.text.strip())]
            yield from region_of_lines("table", lines[index:end], rows)
        index = end
