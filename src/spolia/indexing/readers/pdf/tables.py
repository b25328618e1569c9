"""Tables between rules: the letters on a page, the grids that rules make, and their cells."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from spolia.indexing.readers.pdf.drawings import NO_RULES, Drawn, merged
from spolia.indexing.readers.pdf.geometry import Area, VisiblePage, begins, boxes, middle_value, steps
from spolia.indexing.readers.pdf.lines import HYPHEN, NO_TEXT, PageLine, PageTable
from spolia.indexing.readers.unit_failures import Attempt


@dataclass(frozen=True, eq=False)
class Letters:
    """Characters that are no blanks: their numbers on the page, rising, and where they stand, n × 4."""

    numbers: Any
    sides: Any

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: Any) -> "Letters":
        return Letters(self.numbers[which], self.sides[which])

    @cached_property
    def middles(self) -> Any:
        """The middle of each: n × 2."""
        return (self.sides[:, :2] + self.sides[:, 2:]) / 2

    @property
    def area(self) -> Area:
        """The smallest area around all."""
        return Area(*self.sides[:, :2].min(0).tolist(), *self.sides[:, 2:].max(0).tolist())

    def within(self, area: Area) -> "Letters":
        """Return those whose middle lies in an area."""
        x, y = self.middles.T
        return self[(x >= area.left) & (x <= area.right) & (y >= area.top) & (y <= area.bottom)]

    def turned(self, turn: int) -> "Letters":
        """Letters of rotated text, as they stand for who reads them upright. `turn`: 1 for text that goes up the page,
        -1 for text that goes down."""
        if not turn:
            return self
        left, top, right, bottom = self.sides.T
        return Letters(self.numbers, np.array(_turned_sides(left, top, right, bottom, turn)).T)


NO_LETTERS = Letters(np.empty(0, np.intp), np.empty((0, 4)))


def _turned_sides(left: Any, top: Any, right: Any, bottom: Any, turn: int) -> tuple[Any, Any, Any, Any]:
    return (-bottom, left, -top, right) if turn > 0 else (top, -right, bottom, -left)


def letters_of(text_page: Any, text: str, stretches: Iterable[tuple[int, int]], sheet: VisiblePage) -> Letters:
    """The characters of some stretches of a page, in the order of the file. `stretches`: their first characters, and
    the ends."""
    numbers = [
        at
        for start, end in stretches
        for at, character in enumerate(text[start:end], start)
        if character > " " and not character.isspace()
    ]
    if NO_TEXT.search(text):
        numbers = [at for at in numbers if not NO_TEXT.match(text[at])]
    sides, nowhere = boxes(text_page, numbers)
    return Letters(np.array(numbers, np.intp), sheet.shown(sides))[~nowhere]


def rows_of(letters: Letters) -> Any:
    """The row of each letter, from 0 at the top: letters at one height; small ones join large ones."""
    heights, middles = letters.sides[:, 3] - letters.sides[:, 1], letters.middles[:, 1]
    large = heights >= 0.8 * middle_value(heights)
    order = np.argsort(middles[large], kind="stable")
    sorted_middles = middles[large][order]
    reaches = (sorted_middles + 0.45 * np.minimum(heights[large][order], 20.0)).tolist()
    sorted_middles = sorted_middles.tolist()
    starts, at = list[float](), 0
    while at < len(sorted_middles):
        starts.append(sorted_middles[at])
        at = bisect_right(sorted_middles, reaches[at])
    tops = np.array(starts)
    nearest = np.searchsorted((tops[1:] + tops[:-1]) / 2, middles)
    return np.where(large, np.searchsorted(tops, middles, "right") - 1, nearest)


_PHRASE, _WORD = 0.42, 0.15
"""Blanks that part phrases and words, in heights of a letter."""


def _begins(sides: Any, groups: Any, blank: float) -> Any:
    """Find which letters begin a word or a phrase. `groups`: of letters next to each other, as the row of each."""
    gaps = sides[1:, 0] - sides[:-1, 2]
    least = np.maximum(1.0, blank * np.maximum(4.0, sides[1:, 3] - sides[1:, 1]))
    return begins((groups[1:] != groups[:-1]) | (gaps > least))


def written(numbers: Any, text: str) -> str:
    """Write what letters say, in the order of the file, with a blank where the file has one or goes on elsewhere.
    `numbers`: theirs, rising."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == len(numbers) - 1:  # as in most cells
        return text[first : last + 1]
    breaks = (steps(numbers) > 1).nonzero()[0] + 1
    starts, ends = numbers[[0, *breaks]].tolist(), (numbers[[*(breaks - 1), -1]] + 1).tolist()
    pieces = [text[starts[0] : ends[0]]]
    for before, start, end in zip(ends, starts[1:], ends[1:], strict=False):
        apart = text[before - 1] != HYPHEN and (start - before > 2 or text[before:start].isspace())
        pieces.append((" " if apart else "") + text[start:end])
    return "".join(pieces)


_REACH = 4.0
"""Points between rules that are meant to touch."""
_NEAREST = 3.0
_MOST_RULES = 400


@dataclass(frozen=True, eq=False)
class Grid:
    """Rules that belong together: n × 3. Without those that go down, columns have to be found in the text."""

    across: Any
    down: Any

    @cached_property
    def area(self) -> Area:
        """All of it."""
        left = min(self.across[:, 1].min(), self.down[:, 0].min(initial=np.inf))
        top = min(self.across[:, 0].min(), self.down[:, 1].min(initial=np.inf))
        right = max(self.across[:, 2].max(), self.down[:, 0].max(initial=-np.inf))
        bottom = max(self.across[:, 0].max(), self.down[:, 2].max(initial=-np.inf))
        return Area(float(left), float(top), float(right), float(bottom))

    @cached_property
    def heights(self) -> list[float]:
        """Where rows begin and end."""
        return _apart([self.area.top, *self.across[:, 0].tolist(), self.area.bottom])

    @cached_property
    def sides(self) -> list[float]:
        """Where columns begin and end."""
        return _apart([self.area.left, *self.down[:, 0].tolist(), self.area.right])

    def turned(self, turn: int) -> "Grid":
        """Rules around rotated text, as they stand for who reads it upright."""
        return Grid(_turned_rules(self.down, turn), _turned_rules(self.across, -turn)) if turn else self


def _turned_rules(rules: Any, sign: int) -> Any:
    return np.column_stack([sign * rules[:, 0], np.sort(-sign * rules[:, 1:], 1)])


def _apart(places: Sequence[float]) -> list[float]:
    found: list[float] = []
    for place in sorted(places):
        if not found or place - found[-1] > _NEAREST:
            found.append(place)
    return found


def grids_of(drawn: Drawn) -> Iterator[Grid]:
    """What may be tables: rules that cross, and sets of three or more of the same length above each other."""
    if len(drawn.across) < 2:
        return
    across, down = merged(drawn.across), merged(drawn.down)
    if len(across) + len(down) > _MOST_RULES:
        return
    flat, steep = _crossing(across, down)
    single = np.ones(len(across), bool)
    for group in sorted({*steep.tolist()} - {-1}):
        own = flat == group
        if own.sum() > 1:
            single &= ~own
            yield Grid(across[own], down[steep == group])
    yield from _stacked(across[single])


def _crossing(across: Any, down: Any) -> tuple[Any, Any]:
    """The group of each rule across, and of each that goes down: of rules that touch each other, directly or through
    others. It has the number of its last rule across; -1 for what touches none."""
    at, start, end = across.T[:, :, None]
    touching = (start - _REACH <= down[:, 0]) & (down[:, 0] <= end + _REACH)
    touching &= (down[:, 1] - _REACH <= at) & (at <= down[:, 2] + _REACH)
    flat = np.arange(len(across))
    while True:
        steep = np.where(touching, flat[:, None], -1).max(0, initial=-1)
        joined = np.maximum(flat, np.where(touching, steep, -1).max(1, initial=-1))
        if (joined == flat).all():
            return flat, steep
        flat = joined


def _stacked(across: Any) -> Iterator[Grid]:
    """Rules of the same length, each below the one before it."""
    while len(across) > 2:
        same = (abs(across[:, 1:] - across[0, 1:]) < _NEAREST).all(1)
        if same.sum() > 2:
            yield Grid(across[same], NO_RULES)
        across = across[~same]


_GAP = 5.0
"""Points between columns that no rule parts."""
_FILLED = 0.9
"""Share of its column that a wrapped line can take."""
_BLANK = 3.0


class CellLine(NamedTuple):
    """Letters of one line in one cell: band and column of the cell, the width of all and of their first word, and
    whether the cell goes on in the next band."""

    band: int
    line: int
    column: int
    width: float
    word: float
    tall: bool


@dataclass(frozen=True, eq=False)
class CellGrid:
    """The rules around a possible table, and the letters between them: line by line, each from left to right."""

    grid: Grid
    letters: Letters
    lines: Any
    """The line of each letter."""

    @classmethod
    def around(cls, letters: Letters, grid: Grid) -> "CellGrid":
        lines = rows_of(letters)
        order = np.lexsort((letters.sides[:, 0], lines))
        return cls(grid, letters[order], lines[order])

    @property
    def ruled(self) -> bool:
        """Whether rules part the columns."""
        return len(self.grid.sides) > 2

    @cached_property
    def phrases(self) -> Any:
        """Whether each letter begins what stands together."""
        return _begins(self.letters.sides, self.lines, _PHRASE)

    @cached_property
    def sides(self) -> list[float]:
        """Where columns begin and end: rules, else white space that nearly all lines leave, parted at its freest."""
        if self.ruled:
            return self.grid.sides
        starts = self.letters.sides[self.phrases, 0]
        ends = self.letters.sides[np.concatenate([self.phrases[1:], [True]]), 2]
        places, turns = np.concatenate([starts, ends]), np.repeat([1, -1], len(starts))
        order = np.lexsort((turns, places))
        most = (int(self.lines[-1]) + 1) // 3
        found = [self.grid.area.left]
        free: list[tuple[int, float, float]] = []  # how many cross it, its width below 0, its middle
        edges = zip(np.cumsum(turns[order]).tolist(), pairwise(places[order].tolist()), strict=False)
        for depth, (place, following) in edges:
            if depth <= most:
                free.append((depth, place - following, (place + following) / 2))
                continue
            if -sum(width for _, width, _ in free) >= _GAP and free[0][2] > found[0]:
                found.append(min(free)[2])
            free = []
        return [*found, self.grid.area.right]

    @cached_property
    def homes(self) -> Any:
        """For each cell, band by band, the number of the one at the upper left of those that no rule parts from it."""
        bands, columns = len(self.grid.heights) - 1, len(self.sides) - 1
        homes = np.arange(bands * columns).reshape(bands, columns)
        if self.ruled:
            to_left = ~_parted(self.grid.down, self.sides[:-1], self.grid.heights).T
            to_top = ~_parted(self.grid.across, self.grid.heights[:-1], self.sides)
            to_left[:, 0] = to_top[0] = False
            for band, column in np.argwhere(to_left | to_top).tolist():
                neighbour = (band, column - 1) if to_left[band, column] else (band - 1, column)
                homes[band, column] = homes[neighbour]
        return homes

    @cached_property
    def cells(self) -> Any:
        """The number of the cell of each letter. Where no rules part the columns, what stands together stays so."""
        x, y = self.letters.middles.T
        cells = self.homes[_between(y, self.grid.heights), _between(x, self.sides)]
        return cells if self.ruled else cells[self.phrases][np.cumsum(self.phrases) - 1]

    def straightened(self, turns: Mapping[int, int]) -> Letters:
        """Return the letters, those of cells whose text is rotated as if it were not, within their cells. `turns`: of
        such cells, by the number of one of their letters."""
        sides = self.letters.sides.copy()
        for number, turn in turns.items():
            cell = self.cells[self.letters.numbers == number][0]
            band, column = divmod(int(cell), len(self.sides) - 1)
            own = self.cells == cell
            turned = self.letters[own].turned(max(-1, min(1, turn))).sides
            low, high = turned[:, :2].min(0), turned[:, 2:].max(0)
            left, top = self.sides[column], self.grid.heights[band]
            room = np.array([self.sides[column + 1] - left, self.grid.heights[band + 1] - top])
            scale = min(1.0, float((0.9 * room / np.maximum(high - low, 1.0)).min()))
            shown = np.array([left, top]) + (room - scale * (high - low)) / 2
            sides[own] = scale * (turned - np.tile(low, 2)) + np.tile(shown, 2)
        numbers = np.argsort(self.letters.numbers)
        return Letters(self.letters.numbers[numbers], sides[numbers])

    @property
    def crossed(self) -> int:
        """How many lines have a word through a rule that parts columns."""
        inside_word = ~_begins(self.letters.sides, self.lines, _WORD)[1:]
        return len(np.unique(self.lines[1:][inside_word & (steps(self.cells) != 0)])) if self.ruled else 0

    def rows(self) -> tuple[Any, Any]:
        """The row and the column of each letter; between two rules there may be several rows."""
        band, column = np.divmod(self.cells, len(self.sides) - 1)
        order = np.lexsort((column, self.lines, band))
        keys = np.array([band, self.lines, column])[:, order]
        firsts = begins((keys[:, 1:] != keys[:, :-1]).any(0))
        number, starts = np.cumsum(firsts) - 1, firsts.nonzero()[0]
        sides = self.letters.sides[order]
        words = np.concatenate([_begins(sides, number, _WORD).nonzero()[0], [len(order)]])
        ends = np.concatenate([starts[1:], [len(order)]]), words[np.searchsorted(words, starts, "right")]
        widths = (sides[end - 1, 2] - sides[starts, 0] for end in ends)
        tall = np.zeros(self.homes.size, bool)
        tall[self.homes[self.homes // len(self.homes[0]) < np.arange(len(self.homes))[:, None]]] = True
        columns = *keys[:, starts], *widths, tall[self.cells[order][starts]]
        pieces = map(CellLine, *(values.tolist() for values in columns))
        rows = np.empty(len(order), np.intp)
        rows[order] = np.fromiter(self._row_numbers(pieces), np.intp, len(starts))[number]
        return rows, column

    def _row_numbers(self, pieces: Iterable[CellLine]) -> Iterator[int]:
        """The row of each piece: a line begins one if in one of its columns its first word had fitted above."""
        row = -1
        for _, group in groupby(pieces, attrgetter("band")):
            band = list(group)
            row += 1
            top, above = row, dict[int, float]()
            columns = len({piece.column for piece in band})
            least = max(2.0, columns / 2) if self.ruled else 1.0
            for _, line in groupby(band, attrgetter("line")):
                pieces = list(line)
                cells = [piece for piece in pieces if not piece.tall]
                if above and len(cells) >= least and self._begins_row(cells, above, columns):
                    row += 1
                    above = {}
                above |= {piece.column: piece.width for piece in cells}
                yield from (top if piece.tall else row for piece in pieces)

    def _begins_row(self, cells: Sequence[CellLine], above: dict[int, float], columns: int) -> bool:
        """Whether a line is a row of its own, not the rest of wrapped cells. `above`: the width of the line before it
        in each column. `columns`: how many have letters."""
        fits = [
            above[cell.column] + _BLANK + cell.word < _FILLED * (self.sides[cell.column + 1] - self.sides[cell.column])
            for cell in cells
            if cell.column in above
        ]
        return not fits or any(fits) or len(cells) > max(2, columns // 2 + 1)


def _parted(rules: Any, places: Sequence[float], limits: Sequence[float]) -> Any:
    """Find whether a rule at each place parts what is on both sides of it, for each stretch between two limits."""
    at, start, end = rules.T[:, :, None]
    low, high = np.array(limits[:-1]), np.array(limits[1:])
    near = abs(at - np.array(places)) < _NEAREST
    return near.T @ (np.minimum(end, high) - np.maximum(start, low) > 0.5 * (high - low))


def _between(places: Any, limits: Sequence[float]) -> Any:
    """Between which limits each place lies, from 0."""
    return np.clip(np.searchsorted(limits, places, "right") - 1, 0, len(limits) - 2)


_FIGURE = r"Fig(?:ure|ura)?|Abb(?:ildung)?|Bild|Рис(?:унок)?|图|圖|図|그림|Image|Chart|Diagram|Scheme|Plate"
_TABLE = r"Tab(?:le|elle|leau|la|ela)?|Таблица|表|표"
_BEGINS = {
    kind: re.compile(rf"(?:{words})s?\.?\s*[A-Z]?\.?[\dIVX]+(?:\.\d+)*\s*(?:[.:|—–-]|\s|$)", re.IGNORECASE)
    for kind, words in (("image", _FIGURE), ("table", _TABLE))
}
_FARTHEST = 60.0
_MOST_LINES = 12


def caption_of(area: Area, kind: str, lines: Sequence[PageLine]) -> Sequence[PageLine]:
    """The lines of the nearest caption above or below a region, if any. `kind`: `image` or `table`.
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
_LEAST_LETTERS = 4
"""Two rows of two cells."""


def tables_of(grids: Iterable[Grid], letters: Letters, text: str, attempt: Attempt) -> list[PageTable]:
    """The tables of a page, none within another."""
    found: list[PageTable] = []
    for grid in grids:
        table: PageTable | None = attempt("table", partial(table_of, grid, letters, text), None)
        if table and not any(np.isin(table.letters, other.letters).any() for other in found):
            found.append(table)
    return found


def table_of(grid: Grid, letters: Letters, text: str) -> PageTable | None:
    """The table in a grid, or None."""
    inside = letters.within(grid.area)
    if len(inside) < _LEAST_LETTERS:
        return None
    turn, turns = _turns_of(grid, inside) if len(grid.down) else (0, {})
    frame = CellGrid.around(inside.turned(turn), grid.turned(turn))
    if turns:
        frame = CellGrid.around(frame.straightened(turns), frame.grid)
    heights, count = frame.grid.heights, frame.lines[-1] + 1
    if count < (2 if frame.ruled and len(heights) > 2 else 3) or len(heights) < 2:
        return None
    sides = frame.sides
    least = 3 if frame.ruled or not len(grid.down) else 4  # shaded lines of a listing have two: their numbers, and code
    if not least <= len(sides) <= _MOST_CELLS // len(heights) or frame.crossed * 4 > count:
        return None
    rows, columns = frame.rows()
    filled = np.zeros((rows.max() + 1, len(sides) - 1), bool)
    filled[rows, columns] = True
    full = (filled.sum(1) > 1).nonzero()[0]
    if len(full) < 2:
        return None
    own = (rows >= full[0]) & (rows <= full[-1])  # not a frame around, a line of notes
    (_, rows), (_, columns) = (np.unique(each[own], return_inverse=True) for each in (rows, columns))
    cells = _written_cells(rows, columns, frame.letters.numbers[own], text)
    parted = frame.ruled and len(heights) > len(cells)  # by rules, row by row
    if not _is_table(cells, parted=parted):
        return None
    numbers = frame.letters.numbers[own]
    shown = inside[np.searchsorted(inside.numbers, numbers)]  # where they stand on the page, straightened or not
    areas = [shown[rows == row].area for row in range(len(cells))]
    return PageTable(cells, tuple(areas), np.sort(numbers))


def _turns_of(grid: Grid, letters: Letters) -> tuple[int, dict[int, int]]:
    """Return how letters follow each other in most cells (0: along a line, 1: upwards, -1: downwards), and how in each
    cell that differs, by the number of one of its letters. Cells of one letter say nothing."""
    along, down = map(steps, letters.middles.T)
    next_letters = steps(letters.numbers) == 1
    steep = (abs(down) > abs(along)) & next_letters
    if not steep.any():
        return 0, {}
    cells = CellGrid(grid, letters, np.zeros(len(letters))).cells
    follows = next_letters & (steps(cells) == 0)
    cell = cells[1:]
    count, steep_count = np.bincount(cell, follows), np.bincount(cell, follows & steep)
    rise = -np.bincount(cell, down * (follows & steep))
    turns = np.where(steep_count * 2 > count, np.sign(rise), 0).astype(int)
    (told,) = count.nonzero()
    if not len(told):
        return 0, {}
    values, counts = np.unique(turns[told], return_counts=True)
    turn = int(values[counts.argmax()])
    numbers = {cell: int(letters.numbers[cells.tolist().index(cell)]) for cell in told[turns[told] != turn].tolist()}
    return turn, {number: int(turns[cell]) - turn for cell, number in numbers.items()}


def _written_cells(rows: Any, columns: Any, numbers: Any, text: str) -> tuple[tuple[str, ...], ...]:
    """The words of each cell. `rows`, `columns`, `numbers`: of its letters."""
    cells = [[""] * (columns.max() + 1) for _ in range(rows.max() + 1)]
    order = np.lexsort((numbers, columns, rows))
    rows, columns, numbers = rows[order], columns[order], numbers[order]
    starts = begins((steps(rows) != 0) | (steps(columns) != 0)).nonzero()[0]
    places = zip(rows[starts].tolist(), columns[starts].tolist(), pairwise([*starts.tolist(), len(order)]), strict=True)
    for row, column, (start, stop) in places:
        cells[row][column] = written(numbers[start:stop], text)
    return tuple(map(tuple, cells))


def _is_table(rows: Sequence[Sequence[str]], *, parted: bool) -> bool:
    filled = [cell for row in rows for cell in row if cell]
    several = sum(1 for row in rows if sum(map(bool, row)) > 1)
    if len(rows) < 2 or several < 2 or several * 2 < len(rows) or len(rows[0]) < 2:
        return False
    dense = len(filled) * 3 > len(rows) * len(rows[0])
    return parted or (len(rows) > 2 and median(map(len, filled)) <= _LONGEST and dense)
