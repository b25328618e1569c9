"""Tables: the text between rules as rows of cells. What is not clearly a table stays running text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from spolia.indexing.readers.pages.area import Area
from spolia.indexing.readers.pages.cells import Cells, Frame
from spolia.indexing.readers.pages.grids import Grid
from spolia.indexing.readers.pages.letters import Letter, area_of, rows_of, written

_LONGEST = 40
"""Characters of a cell, in the middle of all, where no rules part rows or columns: prose in two columns has more."""
_MOST_CELLS = 5_000


@dataclass(frozen=True)
class Table:
    """A table on a page.

    Args:
        rows: what its cells say; as many in every row.
        areas: where each row stands.
        letters: numbers of the characters that belong to it.
    """

    rows: tuple[tuple[str, ...], ...]
    areas: tuple[Area, ...]
    letters: frozenset[int]

    @property
    def area(self) -> Area:
        """All of it."""
        return Area.around(self.areas)


def tables_of(grids: Iterable[Grid], letters: Sequence[Letter], text: str) -> list[Table]:
    """The tables of a page, none within another."""
    found: list[Table] = []
    for grid in grids:
        table = table_of(grid, letters, text)
        if table and not any(table.letters & other.letters for other in found):
            found.append(table)
    return found


def table_of(grid: Grid, letters: Sequence[Letter], text: str) -> Table | None:
    """The table that a grid may be; None if there is none in it."""
    frame = Frame(grid, rows_of(_inside(letters, grid.area)))
    least = 3 if frame.ruled or not grid.down else 4  # shaded lines of a listing have two: their numbers, and code
    if len(grid.heights) < 2 or not least <= len(frame.sides) <= _MOST_CELLS // len(grid.heights):
        return None
    if frame.crossed * 4 > len(frame.lines):
        return None
    rows = _filled(list(frame.rows()))
    said = tuple(tuple(written(cell, text) for cell in row) for row in rows)
    parted = frame.ruled and len(grid.heights) > len(rows)  # by rules, row by row
    if not _is_table(said, parted=parted):
        return None
    found = [[letter for cell in row for letter in cell] for row in rows]
    return Table(said, tuple(map(area_of, found)), frozenset(letter.at for row in found for letter in row))


def _inside(letters: Iterable[Letter], area: Area) -> list[Letter]:
    """Those whose middle lies in an area."""
    left, top, right, bottom = (2 * side for side in area)
    return [each for each in letters if left <= each[2] + each[4] <= right and top <= each[3] + each[5] <= bottom]


def _filled(rows: Cells) -> Cells:
    """Without empty columns, and rows at the top and the bottom with one cell: a frame around, a line of notes."""
    full = [number for number, row in enumerate(rows) if sum(map(bool, row)) > 1]
    inner = [row for row in rows[full[0] : full[-1] + 1] if any(row)] if full else []
    columns = [number for number in range(len(rows[0])) if any(row[number] for row in inner)]
    return [[row[number] for number in columns] for row in inner]


def _is_table(rows: Sequence[Sequence[str]], *, parted: bool) -> bool:
    filled = [cell for row in rows for cell in row if cell]
    several = sum(1 for row in rows if sum(map(bool, row)) > 1)
    if len(rows) < 2 or several < 2 or several * 2 < len(rows) or len(rows[0]) < 2:
        return False
    dense = len(filled) * 3 > len(rows) * len(rows[0])
    return parted or (len(rows) > 2 and median(map(len, filled)) <= _LONGEST and dense)
