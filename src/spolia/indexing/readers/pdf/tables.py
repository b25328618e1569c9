"""What stands below a picture or above a table and says what it is: `Figure 3: A column`."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from spolia.indexing.readers.pdf.geometry import Area
from spolia.indexing.readers.pdf.grids import CellGrid, Cells, Grid
from spolia.indexing.readers.pdf.letters import Letter, area_of, rows_of, written
from spolia.indexing.readers.pdf.lines import PageLine

_FIGURE = r"Fig(?:ure|ura)?|Abb(?:ildung)?|Bild|Рис(?:унок)?|图|圖|図|그림|Image|Chart|Diagram|Scheme|Plate"
_TABLE = r"Tab(?:le|elle|leau|la|ela)?|Таблица|表|표"
_BEGINS = {
    kind: re.compile(rf"(?:{words})s?\.?\s*[A-Z]?\.?[\dIVX]+(?:\.\d+)*\s*(?:[.:|—–-]|\s|$)", re.IGNORECASE)
    for kind, words in (("image", _FIGURE), ("table", _TABLE))
}
_FARTHEST = 60.0
_MOST_LINES = 12


def caption_of(area: Area, kind: str, lines: Sequence[PageLine]) -> Sequence[PageLine]:
    """The lines of the nearest caption above or below a region; none if there is none. `kind`: `image` or `table`.
    `lines`: of the page, in the order in which they are read."""
    found = [
        (distance, number)
        for number, line in enumerate(lines)
        if line.table is None and _BEGINS[kind].match(line.text) and area.beside(line.area) > 0.3
        if (distance := max(line.area.top - area.bottom, area.top - line.area.bottom)) < _FARTHEST
    ]
    return list(_paragraph(lines, min(found)[1])) if found else ()


def _paragraph(lines: Sequence[PageLine], first: int) -> Iterator[PageLine]:
    """A line and those that go on close below it."""
    yield lines[first]
    for before, line in zip(lines[first:], lines[first + 1 : first + _MOST_LINES], strict=False):
        there, height = line.area, max(before.area.height, 1.0)
        close = before.area.level(there) > 0.4 or there.top - before.area.bottom < 0.6 * height
        if line.table or not close or (before.area.beside(there) < 0.3 and before.area.level(there) <= 0.4):
            return
        if there.top < before.area.top - height or any(begins.match(line.text) for begins in _BEGINS.values()):
            return
        yield line


_LONGEST = 40
"""Characters of a cell, in the middle of all, where no rules part rows or columns: prose in two columns has more."""
_MOST_CELLS = 5_000


@dataclass(frozen=True)
class PageTable:
    """A table on a page; every row has the same number of cells, and `letters` are the numbers of its characters."""

    rows: tuple[tuple[str, ...], ...]
    areas: tuple[Area, ...]
    letters: frozenset[int]

    @property
    def area(self) -> Area:
        """All of it."""
        return Area.around(self.areas)


def tables_of(grids: Iterable[Grid], letters: Sequence[Letter], text: str) -> list[PageTable]:
    """The tables of a page, none within another."""
    found: list[PageTable] = []
    for grid in grids:
        table = table_of(grid, letters, text)
        if table and not any(table.letters & other.letters for other in found):
            found.append(table)
    return found


def table_of(grid: Grid, letters: Sequence[Letter], text: str) -> PageTable | None:
    """The table that a grid may be; None if there is none in it."""
    frame = CellGrid(grid, rows_of(_inside(letters, grid.area)))
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
    return PageTable(said, tuple(map(area_of, found)), frozenset(letter.at for row in found for letter in row))


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
