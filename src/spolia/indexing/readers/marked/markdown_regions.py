"""Code, tables and formulas in Markdown: fenced blocks, tables of GitHub's dialect, `$$` blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from spolia.indexing.readers.marked.lines import Line, cells, lines_of, region
from spolia.types import Region

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_PICTURE = re.compile(  # or code within a line, which shows none
    r"(?<!`)(?P<ticks>`{1,9}+)(?!`)(?:(?!(?P=ticks))[^\n]){0,1000}+(?P=ticks)"
    r"|!\[(?P<said>[^\[\]]{0,2000}+)\]\(\s{0,9}+(?:<(?P<wrapped>[^<>\n]++)>|(?P<name>[^\s()<>]++))[^()\n]{0,1000}+\)"
)
_RULE = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?")


def regions_of(text: str, start: int = 0) -> Iterator[Region]:
    """The regions of a text from `start` on, in order.

    >>> text = "| stone | t |\\n|---|---|\\n| basalt | 3 |\\n\\n```python\\nx = 1\\n```\\n"
    >>> [(region.kind, region.rows, region.caption) for region in regions_of(text)]
    [('table', (('stone', 't'), ('basalt', '3')), ''), ('code', (), 'python')]
    """
    lines = [line for line in lines_of(text) if line.start >= start]
    at = 0
    while at < len(lines):
        line = lines[at].text
        if (fence := _FENCE.match(line)) and ("`" not in fence[2] or fence[1][0] == "~"):
            end = _closing(lines, at, fence[1])
            yield from region("code", lines[at:end], caption=fence[2].strip().partition(" ")[0].strip("{}."))
        elif "|" in line and at + 1 < len(lines) and _is_rule(lines[at + 1].text, len(cells(line))):
            end = _end_of_table(lines, at + 2)
            rows = [cells(line), *(cells(row.text) for row in lines[at + 2 : end])]
            yield from region("table", lines[at:end], rows)
        elif line.lstrip().startswith("$$"):
            end = _end_of_formula(lines, at)
            yield from region("formula", lines[at:end])
        else:
            end = at + 1
        at = end


def with_pictures(text: str, start: int, regions: Iterator[Region]) -> Iterator[Region]:
    """Regions in order, and between them the pictures that a text shows: by their names, with what is said of them.

    >>> text = "`![a](b.png)` ![A wall](img/wall.png 'Old')"
    >>> [(one.image, text[one.start : one.end]) for one in with_pictures(text, 0, iter(()))]
    [('img/wall.png', 'A wall')]
    """
    pictures = _PICTURE.finditer(text, start)
    waiting = next(pictures, None)
    for other in regions:
        while waiting is not None and waiting.start() < other.start:
            yield from _picture(waiting)
            waiting = next(pictures, None)
        yield other
        while waiting is not None and waiting.start() < other.end:
            if other.kind == "table":
                yield from _picture(waiting)
            waiting = next(pictures, None)
    for found in filter(None, (waiting, *pictures)):
        yield from _picture(found)


def _picture(found: re.Match[str]) -> Iterator[Region]:
    if found["said"] is not None:
        name, said = found["wrapped"] or found["name"], " ".join(found["said"].split())
        yield Region("image", *found.span("said"), image=name, caption=said)


def _closing(lines: Sequence[Line], at: int, fence: str) -> int:
    """One past the line that closes a fence; all lines where none does."""
    for number in range(at + 1, len(lines)):
        line = lines[number].text.strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return number + 1
    return len(lines)


def _is_rule(line: str, columns: int) -> bool:
    return "-" in line and _RULE.fullmatch(line) is not None and len(cells(line)) == columns


def _end_of_table(lines: Sequence[Line], at: int) -> int:
    while at < len(lines) and "|" in lines[at].text:
        at += 1
    return at


def _end_of_formula(lines: Sequence[Line], at: int) -> int:
    if lines[at].text.count("$$") > 1:
        return at + 1
    for number in range(at + 1, len(lines)):
        if "$$" in lines[number].text:
            return number + 1
        if not lines[number].text:  # it was no formula
            break
    return at + 1
