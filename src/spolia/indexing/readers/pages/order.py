"""In which order the lines of a page are read.

Most writers of PDF write text in the order in which it is read, columns included, so that their order is kept. Where it
cannot be (a line that stands above the one before it, in the same column), blocks of lines are ordered by cutting the
page along its white space: Nagy and Seth, Hierarchical representation of optically scanned documents, ICPR 1984.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from spolia.indexing.readers.pages.area import Area
from spolia.indexing.readers.pages.line import Line

_GUTTER = 6.0
"""Points between columns, at least."""
_DEEPEST = 60
Block = list[Line]


def in_order(lines: Sequence[Line]) -> list[Line]:
    """The lines as a person reads them.

    >>> head, low = Line("Head", Area(0, 0, 90, 10)), Line("Below", Area(0, 80, 90, 90))
    >>> [line.text for line in in_order([low, head])]
    ['Head', 'Below']
    """
    upright = [line for line in lines if not line.vertical]
    if not any(_goes_back(here, there) for here, there in pairwise([line.area for line in upright])):
        return list(lines)
    stamps = [line for line in lines if line.vertical]
    return [line for block in _cut(_blocks(upright), _DEEPEST) for line in block] + stamps


def _goes_back(here: Area, there: Area) -> bool:
    """Whether the second stands above the first, in the same column, more than a note above a letter does."""
    return there[3] < 3 * here[1] - 2 * here[3] and here.beside(there) > 0.1


def _blocks(lines: Sequence[Line]) -> list[Block]:
    """Lines that follow each other in the file, each close below the one before it or beside it, stay together."""
    found: list[Block] = []
    for line in lines:
        if found and _follows(found[-1][-1], line):
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _follows(before: Line, after: Line) -> bool:
    if before.table or after.table:
        return before.table is after.table
    here, there = before.area, after.area
    height = max(min(here.height, there.height), 1.0)
    if here.level(there) > 0.5:
        return -height < there.left - here.right < 3 * height
    return -0.5 * height <= there.top - here.bottom < 1.2 * height and here.beside(there) > 0.5


def _cut(blocks: list[Block], depth: int) -> Iterator[Block]:
    """Left of the first gutter before right of it; without a gutter above the widest gap before below it."""
    if len(blocks) < 2 or not depth:
        yield from sorted(blocks, key=lambda block: (block[0].area.top, block[0].area.left))
        return
    areas = [Area.around(line.area for line in block) for block in blocks]
    at = _gap([(area.left, area.right) for area in areas], _GUTTER)
    sides = [area.left for area in areas]
    if at is None:
        at, sides = _gap([(area.top, area.bottom) for area in areas], 0.0), [area.top for area in areas]
    if at is None:
        yield from _cut(blocks, 0)
        return
    yield from _cut([block for block, side in zip(blocks, sides, strict=True) if side < at], depth - 1)
    yield from _cut([block for block, side in zip(blocks, sides, strict=True) if side >= at], depth - 1)


def _gap(stretches: Sequence[tuple[float, float]], least: float) -> float | None:
    """Where the widest gap between stretches ends, if it is wide enough."""
    widest, found, end = least, None, float("-inf")
    for start, stop in sorted(stretches):
        if start - end > widest and end > float("-inf"):
            widest, found = start - end, start
        end = max(end, stop)
    return found
