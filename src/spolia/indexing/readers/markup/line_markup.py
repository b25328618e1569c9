"""AsciiDoc, reStructuredText and Org mode, read line by line; the text is the source itself.

https://docs.asciidoctor.org/asciidoc/latest/, https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from spolia.indexing.readers.file_metadata import fields, split
from spolia.indexing.readers.reader import Blob, Reading, title_of
from spolia.indexing.readers.source_structure import Structure, structured
from spolia.indexing.readers.text import source_text
from spolia.types import Heading, Region, Value

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|[\r\n]|\Z)")
_BAR = re.compile(r"(?<!\\)\|")


class SourceLine(NamedTuple):
    """A line without its end: where it starts, and its characters without blanks at the end."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def indent(self) -> int:
        """Blanks at the beginning; a tab counts one."""
        return len(self.text) - len(self.text.lstrip())


def lines_of(text: str) -> list[SourceLine]:
    """All lines.

    >>> lines_of("One \\r\\n\\r\\ntwo")
    [SourceLine(start=0, text='One'), SourceLine(start=6, text=''), SourceLine(start=8, text='two')]
    """
    found = [SourceLine(line.start(), line[1].rstrip()) for line in _LINE.finditer(text)]
    return found[:-1] if found and found[-1].start == len(text) else found


def cells(row: str) -> tuple[str, ...]:
    """The cells of a row with bars between them.

    >>> cells("| stone | 3 \\\\| 4 |")
    ('stone', '3 | 4')
    """
    row = row.strip().removeprefix("|")
    row = row[:-1] if row.endswith("|") and not row.endswith("\\|") else row
    return tuple(cell.strip().replace("\\|", "|") for cell in _BAR.split(row))


def region(
    kind: str, lines: Sequence[SourceLine], rows: Sequence[Sequence[str]] = (), caption: str = ""
) -> Iterator[Region]:
    """The region that some lines make, without the empty ones around them; none for none."""
    filled = [line for line in lines if line.text]
    if filled:
        yield Region(kind, filled[0].start, filled[-1].end, tuple(map(tuple, rows)), "", caption)


_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_DELIMITER = re.compile(r"(-{4,}|\.{4,}|`{3,}|\+{4,}|/{4,}|[|,:!]={3,})\w*\s*")
_ATTRIBUTE = re.compile(r":(author|date|revdate|lang|keywords|description):[ \t]+(.+)")
_CELL = re.compile(r"(?<!\\)(?:\d{0,4}(?:\.\d{1,4})?[+*])?[<^>]?(?:\.[<^>])?[adehlmsv]?\|")
_NAMES = {"lang": "language", "revdate": "date"}
_HEAD = 100


@dataclass(frozen=True)
class AsciiDocReader(Value):
    """Reads AsciiDoc.

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
        return structured(source_text(blob), self, blob, _asciidoc)


def _asciidoc(text: str) -> Structure:
    lines = lines_of(text)
    noted = list(_noted(lines))
    headings = [one for one in noted if isinstance(one, Heading)]
    regions = [one for one in noted if isinstance(one, Region)]
    attributes = (_ATTRIBUTE.fullmatch(line.text) for line in lines[:_HEAD])
    named = [attribute.groups() for attribute in attributes if attribute]
    said = {_NAMES.get(name, name): split(words) if name == "keywords" else words for name, words in named}
    return Structure(title_of(headings), headings, regions, fields(**said))


def _noted(lines: Sequence[SourceLine]) -> Iterator[Heading | Region]:
    ends = _ends(lines)
    at = 0
    while at < len(lines):
        line, end = lines[at], at + 1
        if heading := _HEADING.fullmatch(line.text):
            yield Heading(line.start, len(heading[1]), " ".join(heading[2].split()))
        elif at in ends:
            end = ends[at] + 1
            yield from _block_regions(lines, at, end)
        at = end


def _ends(lines: Sequence[SourceLine]) -> dict[int, int]:
    """The line that closes each line that opens a block; from the end, so that each line is visited a single time."""
    found, following = dict[int, int](), dict[str, int]()
    for at in range(len(lines) - 1, -1, -1):
        if delimiter := _DELIMITER.fullmatch(lines[at].text):
            if (end := following.get(delimiter[1])) is not None:
                found[at] = end
            following[delimiter[1]] = at
    return found


def _block_regions(lines: Sequence[SourceLine], at: int, end: int) -> Iterator[Region]:
    mark, inner = lines[at].text[0], lines[at + 1 : end - 1]
    if mark in "|,:!":
        rows = _rows(inner) if mark == "|" else [line.text.split(mark) for line in inner if line.text]
        yield from region("table", lines[at:end], rows, _title(lines, at))
    elif mark in "-.`":
        yield from region("code", lines[at:end], caption=_title(lines, at))
    elif mark == "+":
        yield from region("formula", lines[at:end])


def _title(lines: Sequence[SourceLine], at: int) -> str:
    """The title of a block: `.Title` above it, past its attributes."""
    for line in reversed(lines[max(0, at - 3) : at]):
        if re.match(r"\.[^\s.]", line.text):
            return line.text[1:]
        if not line.text.startswith("["):
            break
    return ""


def _rows(lines: Sequence[SourceLine]) -> list[list[str]]:
    """A row for each line with bars; where lines have one cell each, as many as the first line has make a row."""
    read: list[list[list[str]]] = []
    for line in lines:
        parts = _CELL.split(line.text)
        if len(parts) == 1 and read:  # it goes on with the last cell
            read[-1][-1].append(line.text)
        elif len(parts) > 1:
            read.append([[part] for part in parts[1:]])
    found = [[" ".join(" ".join(cell).split()).replace("\\|", "|") for cell in row] for row in read]
    width = len(found[0]) if found else 0
    if width > 1 and len(found) > 1 and all(len(row) == 1 for row in found[1:]):
        single = [row[0] for row in found[1:]]
        found = [found[0], *(single[at : at + width] for at in range(0, len(single), width))]
    return found


_ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1*+")
_DIRECTIVE = re.compile(r"\s*\.\. (code|code-block|sourcecode|math|csv-table)::\s*(.*)")
_GRID = re.compile(r"\s*\+[-=]+\+[-=+]*")
_SIMPLE = re.compile(r"\s*=+(?:\s+=+)+")
_FIELD = re.compile(r":(author|authors|date|language|keywords):\s+(.+)", re.IGNORECASE)
_KINDS = {"math": "formula", "csv-table": "table"}


@dataclass(frozen=True)
class RstReader(Value):
    """Reads reStructuredText.

    >>> text = b"Stones\\n======\\n\\nOld\\n---\\n\\n.. code:: python\\n\\n   x = 1\\n"
    >>> document = RstReader().read(Blob("a.rst", text)).document
    >>> document.title, [(heading.level, heading.text) for heading in document.headings], document.regions[0].kind
    ('Stones', [(1, 'Stones'), (2, 'Old')], 'code')
    """

    name = "rst"
    version = 1
    media_type = "text/x-rst"
    suffixes = (".rst", ".rest")

    def read(self, blob: Blob, /) -> Reading:
        return structured(source_text(blob), self, blob, _rst)


def _rst(text: str) -> Structure:
    lines = lines_of(text)
    headings = tuple(_headings(lines))
    named = [one for line in lines[:_HEAD] if (one := _FIELD.match(line.text))]
    meta = fields(**{one[1].lower().replace("authors", "author"): one[2] for one in named})
    return Structure(title_of(headings), headings, _regions(lines), meta)


def _headings(lines: Sequence[SourceLine]) -> Iterator[Heading]:
    """A style of lines below (and above) a title has the level at which it is first seen."""
    levels: dict[tuple[str, bool], int] = {}
    for at in range(1, len(lines)):
        under, title = lines[at].text, lines[at - 1].text
        if not title.strip() or not _is_adornment(under) or len(under) < min(len(title.strip()), 4):
            continue
        over = at > 1 and lines[at - 2].text == under
        if _is_adornment(title) or (not over and (title[0].isspace() or (at > 1 and lines[at - 2].text))):
            continue
        level = levels.setdefault((under[0], over), len(levels) + 1)
        yield Heading(lines[at - 2 if over else at - 1].start, level, " ".join(title.split()))


def _is_adornment(line: str) -> bool:
    return len(line) > 1 and _ADORNMENT.fullmatch(line) is not None


def _regions(lines: Sequence[SourceLine]) -> Iterator[Region]:
    at = 0
    while at < len(lines):
        line, end = lines[at], at + 1
        if said := _DIRECTIVE.fullmatch(line.text):
            end = _block_end(lines, at + 1, line.indent)
            kind = _KINDS.get(said[1], "code")
            yield from region(kind, lines[at:end], caption=said[2] if kind != "formula" else "")
        elif line.text.endswith("::") and not line.text.lstrip().startswith(".. "):
            end = _block_end(lines, at + 1, line.indent)
            yield from region("code", lines[at + 1 : end])
        elif _GRID.fullmatch(line.text):
            rest = range(at, len(lines))
            end = next((n for n in rest if not lines[n].text.lstrip().startswith(("+", "|"))), len(lines))
            yield from region("table", lines[at:end], _grid_rows(lines[at:end]))
        elif _SIMPLE.fullmatch(line.text):
            end = _end_of_simple(lines, at)
            yield from region("table", lines[at:end], _simple_rows(lines[at:end]) if end > at + 1 else ())
        at = end


def _block_end(lines: Sequence[SourceLine], at: int, indent: int) -> int:
    """One past the lines that are further in, and the empty ones between them."""
    end = at
    while at < len(lines) and (not lines[at].text or lines[at].indent > indent):
        at += 1
        end = at if lines[at - 1].text else end
    return end


def _grid_rows(lines: Sequence[SourceLine]) -> list[list[str]]:
    """Rows between the rules; the places of the columns are those of the first rule."""
    edges = [at for at, mark in enumerate(lines[0].text) if mark == "+"]
    rows: list[list[list[str]]] = [[]]
    for line in lines[1:]:
        if line.text.lstrip().startswith("+"):
            rows.append([])
        else:
            rows[-1].append([line.text[left + 1 : right] for left, right in pairwise(edges)])
    return [_joined(row) for row in rows if row]


def _joined(lines: Sequence[Sequence[str]]) -> list[str]:
    """The cells of a row that stands on several lines."""
    return [" ".join(filter(None, (part.strip() for part in column))) for column in zip(*lines, strict=True)]


def _end_of_simple(lines: Sequence[SourceLine], at: int) -> int:
    """One past the rule that ends a simple table: the third one, or the second where it has no head."""
    last = at
    for number in range(at + 1, len(lines)):
        if _SIMPLE.fullmatch(lines[number].text):
            last = number
            if number + 1 == len(lines) or not lines[number + 1].text:
                break
        elif not lines[number].text and not (number + 1 < len(lines) and lines[number + 1].text):
            break
    return last + 1


def _simple_rows(lines: Sequence[SourceLine]) -> list[list[str]]:
    columns = [found.span() for found in re.finditer("=+", lines[0].text)]
    bounds = [(start, columns[at + 1][0] if at + 1 < len(columns) else None) for at, (start, _) in enumerate(columns)]
    rows: list[list[list[str]]] = []
    for line in lines[1:]:
        if line.text and not _SIMPLE.fullmatch(line.text):
            parts = [line.text[start:end] for start, end in bounds]
            if parts[0].strip() or not rows:
                rows.append([])
            rows[-1].append(parts)  # an empty first column goes on with the row above
    return [_joined(row) for row in rows]


_ORG_HEADING = re.compile(r"(\*{1,9})[ \t]+(?:(?:TODO|DONE)[ \t]+)?(?:\[#[A-Z]\][ \t]+)?(\S.*?)(?:[ \t]+:[\w@#%:]+:)?")
_ORG_FIELD = re.compile(r"#\+(title|author|date|language|keywords|description):[ \t]+(.+)", re.IGNORECASE)
_ORG_BLOCK = re.compile(r"[ \t]*#\+begin_(src|example)\b[ \t]*(\S*).*", re.IGNORECASE)
_ORG_END = re.compile(r"[ \t]*#\+end_(src|example)\b.*", re.IGNORECASE)
_ORG_RULE = re.compile(r"\|[-+|]+")


@dataclass(frozen=True)
class OrgReader(Value):
    """Reads Org mode. Source: https://orgmode.org/worg/org-syntax.html

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
        return structured(source_text(blob), self, blob, _org)


def _org(text: str) -> Structure:
    lines = lines_of(text)
    noted = list(_org_parts(lines))
    headings = [one for one in noted if isinstance(one, Heading)]
    named = [one for line in lines[:_HEAD] if (one := _ORG_FIELD.fullmatch(line.text))]
    said: dict[str, Any] = {one[1].lower(): one[2] for one in named}
    title = said.pop("title", "") or title_of(headings)
    meta = fields(**said | {"keywords": split(said.get("keywords"))})
    return Structure(title, headings, [one for one in noted if isinstance(one, Region)], meta)


def _org_parts(lines: Sequence[SourceLine]) -> Iterator[Heading | Region]:
    at = 0
    while at < len(lines):
        line, end = lines[at], at + 1
        if heading := _ORG_HEADING.fullmatch(line.text):
            yield Heading(line.start, len(heading[1]), " ".join(heading[2].split()))
        elif block := _ORG_BLOCK.fullmatch(line.text):
            ends = (number for number in range(at + 1, len(lines)) if _ORG_END.fullmatch(lines[number].text))
            end = next(ends, at) + 1
            yield from region("code", lines[at:end], caption=block[2]) if end > at + 1 else ()
        elif line.text.lstrip().startswith("|"):
            rest = range(at, len(lines))
            end = next((number for number in rest if not lines[number].text.lstrip().startswith("|")), len(lines))
            rows = [cells(row.text) for row in lines[at:end] if not _ORG_RULE.fullmatch(row.text.strip())]
            yield from region("table", lines[at:end], rows)
        at = end
