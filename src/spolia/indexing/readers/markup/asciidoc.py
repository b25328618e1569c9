"""AsciiDoc: the document is the source itself; headings, tables, code and formulas are noted.

https://docs.asciidoctor.org/asciidoc/latest/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spolia.indexing.readers.file_metadata import fields, split
from spolia.indexing.readers.markup.lines import SourceLine, lines_of, region
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import source_text
from spolia.types import Heading, Region, Value

_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_DELIMITER = re.compile(r"(-{4,}|\.{4,}|`{3,}|\+{4,}|/{4,}|[|,:!]={3,})\w*\s*")
_ATTRIBUTE = re.compile(r":(author|date|revdate|lang|keywords|description):[ \t]+(.+)")
_CELL = re.compile(r"(?<!\\)(?:\d*(?:\.\d+)?[+*])?[<^>]?(?:\.[<^>])?[adehlmsv]?\|")
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
        found = source_text(blob)
        lines = lines_of(found.text)
        headings, regions = list[Heading](), list[Region]()
        for one in _noted(lines):
            (headings if isinstance(one, Heading) else regions).append(one)  # type: ignore[arg-type]
        named = [said for line in lines[:_HEAD] if (said := _ATTRIBUTE.fullmatch(line.text))]
        meta = {_NAMES.get(one[1], one[1]): split(one[2]) if one[1] == "keywords" else one[2] for one in named}
        document = blob.document(
            self,
            found.text,
            title=headings[0].text if headings and headings[0].level == 1 else "",
            headings=tuple(headings),
            regions=tuple(regions),
            meta=fields(**meta),
        )
        return Reading(document, found.encoding, warnings=found.warnings)


def _noted(lines: Sequence[SourceLine]) -> Iterator[Heading | Region]:
    ends = _ends(lines)
    at = 0
    while at < len(lines):
        line, end = lines[at], at + 1
        if heading := _HEADING.fullmatch(line.text):
            yield Heading(line.start, len(heading[1]), " ".join(heading[2].split()))
        elif at in ends:
            end = ends[at] + 1
            yield from _block(lines, at, end)
        at = end


def _ends(lines: Sequence[SourceLine]) -> dict[int, int]:
    """The line that closes each line that opens a block; from the end, so that each line is looked at once."""
    found, following = dict[int, int](), dict[str, int]()
    for at in range(len(lines) - 1, -1, -1):
        if delimiter := _DELIMITER.fullmatch(lines[at].text):
            if (end := following.get(delimiter[1])) is not None:
                found[at] = end
            following[delimiter[1]] = at
    return found


def _block(lines: Sequence[SourceLine], at: int, end: int) -> Iterator[Region]:
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
