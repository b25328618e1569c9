"""Tables: the text between rules as rows of cells. What is not clearly a table stays running text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from statistics import median

from spolia.indexing.readers.pages.area import Area
from spolia.indexing.readers.pages.grids import Grid
from spolia.indexing.readers.pages.letters import Letter, Row, area_of, phrases_of, rows_of, words_of, written

_GAP = 5.0
"""Points between columns that no rule parts."""
_LONGEST = 40
"""Characters of a cell, in the middle of all, where no rules part the columns: prose in two columns has more."""
_MOST_CELLS = 5_000
Cells = list[list[Row]]
Homes = dict[tuple[int, int], tuple[int, int]]
_left, _right = itemgetter(2), itemgetter(4)


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


def table_of(grid: Grid, letters: Sequence[Letter], text: str) -> Table | None:
    """The table that a grid may be; None if there is none in it."""
    lines = rows_of([letter for letter in letters if _inside(letter, grid.area)])
    ruled = len(grid.sides) > 2
    sides = grid.sides if ruled else _sides(lines, grid.area)
    if len(sides) < (3 if ruled or not grid.down else 4) or len(sides) * len(grid.heights) > _MOST_CELLS:
        return None
    homes = _homes(grid, sides) if ruled else {}
    line_of = {letter.at: number for number, line in enumerate(lines) for letter in line}
    bands = _bands(grid.heights, sides, lines, homes)
    rows = _filled(
        [row for number, band in enumerate(bands) for row in _parted(band, _tall(homes, number), ruled, line_of)]
    )
    said = tuple(tuple(written(cell, text) for cell in row) for row in rows)
    if not _is_table(said, ruled=ruled):
        return None
    found = [[letter for cell in row for letter in cell] for row in rows]
    return Table(said, tuple(map(area_of, found)), frozenset(letter.at for row in found for letter in row))


def _inside(letter: Letter, area: Area) -> bool:
    _, _, left, top, right, bottom = letter
    return 2 * area.left <= left + right <= 2 * area.right and 2 * area.top <= top + bottom <= 2 * area.bottom


def _bands(heights: Sequence[float], sides: Sequence[float], lines: Sequence[Row], homes: Homes) -> Cells:
    """What stands between two rules next to each other, cell by cell; a cell over several bands is of the first.

    Where no rules part the columns, what stands together stays so.
    """
    bands: Cells = [[[] for _ in pairwise(sides)] for _ in pairwise(heights)]
    for line in lines:
        for word in ([letter] for letter in line) if homes else phrases_of(line):
            first = word[0]
            place = _between(first.middle, heights), _between((first.left + first.right) / 2, sides)
            down, right = homes.get(place, place)
            bands[down][right] += word
    return bands


def _between(place: float, limits: Sequence[float]) -> int:
    return max(0, min(bisect_right(limits, place) - 1, len(limits) - 2))


def _homes(grid: Grid, sides: Sequence[float]) -> Homes:
    """For each cell the one at the upper left of those that no rule parts from it."""
    homes: Homes = {}
    for down, (top, bottom) in enumerate(pairwise(grid.heights)):
        for right, (left, end) in enumerate(pairwise(sides)):
            home = (down, right)
            if right and not grid.parted_down(left, top, bottom):
                home = homes[down, right - 1]
            elif down and not grid.parted_across(top, left, end):
                home = homes[down - 1, right]
            homes[down, right] = home
    return homes


def _tall(homes: Homes, band: int) -> set[int]:
    """Columns of a band whose cell goes on in the next one."""
    return {home[1] for cell, home in homes.items() if home[0] == band < cell[0]}


def _parted(band: Sequence[Row], tall: set[int], ruled: bool, line_of: dict[int, int]) -> Cells:
    """The rows within a band: a line begins one if in one of its columns its first word had fitted above."""
    lines: dict[int, dict[int, Row]] = {}
    for number, cell in enumerate(band):
        for letter in cell if number not in tall else ():
            lines.setdefault(line_of[letter.at], {}).setdefault(number, []).append(letter)
    widths = [max(map(_right, cell)) - min(map(_left, cell)) if cell else 0.0 for cell in band]
    least = max(2.0, sum(map(bool, band)) / 2) if ruled else 1.0
    rows: Cells = [[list(cell) if number in tall else [] for number, cell in enumerate(band)]]
    above: dict[int, Row] = {}
    for _, cells in sorted(lines.items()):
        if above and len(cells) >= least and _begins(cells, above, widths):
            rows.append([[] for _ in band])
            above = {}
        for number, cell in cells.items():
            rows[-1][number] += cell
            above[number] = cell
    return rows


def _begins(cells: dict[int, Row], above: dict[int, Row], widths: Sequence[float]) -> bool:
    """Whether a line is a row of its own, not the rest of wrapped cells."""
    fits = [
        _width(above[number]) + _width(next(words_of(cell))) + 3.0 < widths[number]
        for number, cell in cells.items()
        if number in above
    ]
    return not fits or any(fits) or len(cells) > max(2, sum(map(bool, widths)) // 2 + 1)


def _width(letters: Row) -> float:
    return letters[-1].right - letters[0].left


def _sides(lines: Sequence[Row], area: Area) -> list[float]:
    """Columns without rules: white space that nearly all rows leave free, parted where the fewest cross it."""
    rows = [list(phrases_of(line)) for line in lines]
    edges = sorted(edge for row in rows for word in row for edge in ((word[0].left, 1), (word[-1].right, -1)))
    found, depth = [area.left], 0
    free: list[tuple[int, float, float]] = []  # how many cross it, its width, its middle
    for (place, step), (following, _) in pairwise(edges):
        depth += step
        if depth <= len(rows) // 3:
            free.append((depth, place - following, (place + following) / 2))
            continue
        if -sum(width for _, width, _ in free) >= _GAP and free[0][2] > found[0]:
            found.append(min(free)[2])
        free = []
    return [*found, area.right]


def _filled(rows: Cells) -> Cells:
    """Without empty columns, and rows at the top and the bottom with one cell: a frame around, a line of notes."""
    full = [number for number, row in enumerate(rows) if sum(map(bool, row)) > 1]
    inner = [row for row in rows[full[0] : full[-1] + 1] if any(row)] if full else []
    columns = [number for number in range(len(rows[0])) if any(row[number] for row in inner)]
    return [[row[number] for number in columns] for row in inner]


def _is_table(rows: Sequence[Sequence[str]], *, ruled: bool) -> bool:
    filled = [cell for row in rows for cell in row if cell]
    several = sum(1 for row in rows if sum(map(bool, row)) > 1)
    if len(rows) < 2 or several < 2 or several * 2 < len(rows) or len(rows[0]) < 2:
        return False
    dense = len(filled) * 3 > len(rows) * len(rows[0])
    return ruled or (len(rows) > 2 and median(map(len, filled)) <= _LONGEST and dense)


def tables_of(grids: Iterable[Grid], letters: Sequence[Letter], text: str) -> list[Table]:
    """The tables of a page, none within another."""
    found: list[Table] = []
    for grid in grids:
        table = table_of(grid, letters, text)
        if table and not any(table.letters & other.letters for other in found):
            found.append(table)
    return found
