"""reStructuredText: the document is the source itself; headings, tables, code and formulas are noted.

https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.markup.lines import SourceLine, lines_of, region
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import source_text
from spolia.types import Heading, Region, Value

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
        found = source_text(blob)
        lines = lines_of(found.text)
        headings = tuple(_headings(lines))
        named = [said for line in lines[:100] if (said := _FIELD.match(line.text))]
        document = blob.document(
            self,
            found.text,
            title=headings[0].text if headings and headings[0].level == 1 else "",
            headings=headings,
            regions=tuple(_regions(lines)),
            meta=fields(**{said[1].lower().replace("authors", "author"): said[2] for said in named}),
        )
        return Reading(document, found.encoding, warnings=found.warnings)


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
            end = _block(lines, at + 1, line.indent)
            kind = _KINDS.get(said[1], "code")
            yield from region(kind, lines[at:end], caption=said[2] if kind != "formula" else "")
        elif line.text.endswith("::") and not line.text.lstrip().startswith(".. "):
            end = _block(lines, at + 1, line.indent)
            yield from region("code", lines[at + 1 : end])
        elif _GRID.fullmatch(line.text):
            end = _run(lines, at, ("+", "|"))
            yield from region("table", lines[at:end], _grid_rows(lines[at:end]))
        elif _SIMPLE.fullmatch(line.text):
            end = _end_of_simple(lines, at)
            yield from region("table", lines[at:end], _simple_rows(lines[at:end]) if end > at + 1 else ())
        at = end


def _block(lines: Sequence[SourceLine], at: int, indent: int) -> int:
    """One past the lines that are further in, and the empty ones between them."""
    end = at
    while at < len(lines) and (not lines[at].text or lines[at].indent > indent):
        at += 1
        end = at if lines[at - 1].text else end
    return end


def _run(lines: Sequence[SourceLine], at: int, begins: tuple[str, ...]) -> int:
    while at < len(lines) and lines[at].text.lstrip().startswith(begins):
        at += 1
    return at


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
