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

from spolia.indexing.readers.pdf.drawings import NO_RULES, PageDrawings, merge_rules
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

    def __getitem__(self, index: Any) -> "Letters":
        return Letters(self.numbers[index], self.sides[index])

    @cached_property
    def middles(self) -> Any:
        """The middle of each: n × 2."""
        return (self.sides[:, :2] + self.sides[:, 2:]) / 2

    @property
    def area(self) -> Area:
        """The smallest area around all."""
        return Area(*self.sides[:, :2].min(0).tolist(), *self.sides[:, 2:].max(0).tolist())

    def select_within(self, area: Area) -> "Letters":
        """Return those whose middle lies in an area."""
        x, y = self.middles.T
        return self[(x >= area.left) & (x <= area.right) & (y >= area.top) & (y <= area.bottom)]

    def rotate(self, turn: int) -> "Letters":
        """Return letters of rotated text as they stand for somebody who reads them upright. `turn`: 1 for text that
        goes up the page, -1 for text that goes down."""
        if not turn:
            return self
        left, top, right, bottom = self.sides.T
        return Letters(self.numbers, np.array(_rotate_sides(left, top, right, bottom, turn)).T)


NO_LETTERS = Letters(np.empty(0, np.intp), np.empty((0, 4)))


def _rotate_sides(left: Any, top: Any, right: Any, bottom: Any, turn: int) -> tuple[Any, Any, Any, Any]:
    return (-bottom, left, -top, right) if turn > 0 else (top, -right, bottom, -left)


def letters_of(text_page: Any, text: str, stretches: Iterable[tuple[int, int]], sheet: VisiblePage) -> Letters:
    """Return the characters of some stretches of a page, in the order of the file. `stretches`: their first characters,
    and the ends."""
    numbers = [
        number
        for start, end in stretches
        for number, character in enumerate(text[start:end], start)
        if character > " " and not character.isspace()
    ]
    if NO_TEXT.search(text):
        numbers = [number for number in numbers if not NO_TEXT.match(text[number])]
    sides, nowhere = boxes(text_page, numbers)
    return Letters(np.array(numbers, np.intp), sheet.shown_sides(sides))[~nowhere]


def row_numbers(letters: Letters) -> Any:
    """Return the row of each letter, from 0 at the top: letters at one height; small ones join large ones."""
    heights, middles = letters.sides[:, 3] - letters.sides[:, 1], letters.middles[:, 1]
    large = heights >= 0.8 * middle_value(heights)
    order = np.argsort(middles[large], kind="stable")
    sorted_middles = middles[large][order]
    reaches = (sorted_middles + 0.45 * np.minimum(heights[large][order], 20.0)).tolist()
    sorted_middles = sorted_middles.tolist()
    starts, index = list[float](), 0
    while index < len(sorted_middles):
        starts.append(sorted_middles[index])
        index = bisect_right(sorted_middles, reaches[index])
    tops = np.array(starts)
    nearest = np.searchsorted((tops[1:] + tops[:-1]) / 2, middles)
    return np.where(large, np.searchsorted(tops, middles, "right") - 1, nearest)


_PHRASE, _WORD = 0.42, 0.15
"""Blanks that part phrases and words, in heights of a letter."""


def _find_begins(sides: Any, groups: Any, blank: float) -> Any:
    """Find which letters begin a word or a phrase. `groups`: of letters next to each other, as the row of each."""
    gaps = sides[1:, 0] - sides[:-1, 2]
    minimum_gap = np.maximum(1.0, blank * np.maximum(4.0, sides[1:, 3] - sides[1:, 1]))
    return begins((groups[1:] != groups[:-1]) | (gaps > minimum_gap))


def write_letters(numbers: Any, text: str) -> str:
    """Write what letters say, in the order of the file; a blank stands where the file has one, ends a line within a
    cell, or goes on elsewhere."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == len(numbers) - 1:  # as in most cells
        return text[first : last + 1]
    breaks = (steps(numbers) > 1).nonzero()[0] + 1
    starts, ends = numbers[[0, *breaks]].tolist(), (numbers[[*(breaks - 1), -1]] + 1).tolist()
    pieces = [text[starts[0] : ends[0]]]
    for previous_end, start, end in zip(ends, starts[1:], ends[1:], strict=False):
        has_blank = text[previous_end - 1] != HYPHEN and (
            start - previous_end > 2 or text[previous_end:start].isspace()
        )
        pieces.append((" " if has_blank else "") + text[start:end])
    return "".join(pieces)


_TOUCH_TOLERANCE = 4.0
"""Points between rules that are meant to touch."""
_NEAREST = 3.0
_MOST_RULES = 400  # more are a drawing, and each is compared with each


@dataclass(frozen=True, eq=False)
class Grid:
    """Rules that belong together: n × 3. Without vertical ones, columns have to be found in the text."""

    horizontal: Any
    vertical: Any

    @cached_property
    def area(self) -> Area:
        """Return the area of all rules."""
        left = min(self.horizontal[:, 1].min(), self.vertical[:, 0].min(initial=np.inf))
        top = min(self.horizontal[:, 0].min(), self.vertical[:, 1].min(initial=np.inf))
        right = max(self.horizontal[:, 2].max(), self.vertical[:, 0].max(initial=-np.inf))
        bottom = max(self.horizontal[:, 0].max(), self.vertical[:, 2].max(initial=-np.inf))
        return Area(float(left), float(top), float(right), float(bottom))

    @cached_property
    def heights(self) -> list[float]:
        """Return where rows begin and end."""
        return _merge_places([self.area.top, *self.horizontal[:, 0].tolist(), self.area.bottom])

    @cached_property
    def sides(self) -> list[float]:
        """Return where columns begin and end."""
        return _merge_places([self.area.left, *self.vertical[:, 0].tolist(), self.area.right])

    def rotate(self, turn: int) -> "Grid":
        """Return rules around rotated text as they stand for somebody who reads it upright."""
        return Grid(_rotate_rules(self.vertical, turn), _rotate_rules(self.horizontal, -turn)) if turn else self


def _rotate_rules(rules: Any, sign: int) -> Any:
    return np.column_stack([sign * rules[:, 0], np.sort(-sign * rules[:, 1:], 1)])


def _merge_places(places: Sequence[float]) -> list[float]:
    merged_places: list[float] = []
    for place in sorted(places):
        if not merged_places or place - merged_places[-1] > _NEAREST:
            merged_places.append(place)
    return merged_places


def grids_of(drawings: PageDrawings) -> Iterator[Grid]:
    """Yield what may be tables: rules that cross, and sets of three or more of the same length above each other."""
    if len(drawings.horizontal) < 2:
        return
    horizontal, vertical = merge_rules(drawings.horizontal), merge_rules(drawings.vertical)
    if len(horizontal) + len(vertical) > _MOST_RULES:
        return
    flat, steep = _group_crossing(horizontal, vertical)
    single = np.ones(len(horizontal), bool)
    for group in sorted({*steep.tolist()} - {-1}):
        is_member = flat == group
        if is_member.sum() > 1:
            single &= ~is_member
            yield Grid(horizontal[is_member], vertical[steep == group])
    yield from _group_stacked(horizontal[single])


def _group_crossing(horizontal: Any, vertical: Any) -> tuple[Any, Any]:
    """Return the group of each horizontal and each vertical rule: of rules that touch each other, directly or through
    others. It has the number of its last horizontal rule; -1 for a rule that touches none."""
    height, start, end = horizontal.T[:, :, None]
    touching = (start - _TOUCH_TOLERANCE <= vertical[:, 0]) & (vertical[:, 0] <= end + _TOUCH_TOLERANCE)
    touching &= (vertical[:, 1] - _TOUCH_TOLERANCE <= height) & (height <= vertical[:, 2] + _TOUCH_TOLERANCE)
    flat = np.arange(len(horizontal))
    while True:
        steep = np.where(touching, flat[:, None], -1).max(0, initial=-1)
        joined_groups = np.maximum(flat, np.where(touching, steep, -1).max(1, initial=-1))
        if (joined_groups == flat).all():
            return flat, steep
        flat = joined_groups


def _group_stacked(horizontal: Any) -> Iterator[Grid]:
    """Yield rules of the same length, each below the one before it."""
    while len(horizontal) > 2:
        is_same = (abs(horizontal[:, 1:] - horizontal[0, 1:]) < _NEAREST).all(1)
        if is_same.sum() > 2:
            yield Grid(horizontal[is_same], NO_RULES)
        horizontal = horizontal[~is_same]


_GAP = 5.0
"""Points between columns that no rule parts."""
_FILLED_SHARE = 0.9
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
    """Rules around a possible table, and the letters between them: line by line, each from left to right."""

    grid: Grid
    letters: Letters
    lines: Any
    """The line of each letter."""

    @classmethod
    def from_letters(cls, letters: Letters, grid: Grid) -> "CellGrid":
        lines = row_numbers(letters)
        order = np.lexsort((letters.sides[:, 0], lines))
        return cls(grid, letters[order], lines[order])

    @property
    def has_column_rules(self) -> bool:
        """Return whether rules separate the columns."""
        return len(self.grid.sides) > 2

    @cached_property
    def phrases(self) -> Any:
        """Return whether each letter begins a phrase."""
        return _find_begins(self.letters.sides, self.lines, _PHRASE)

    @cached_property
    def sides(self) -> list[float]:
        """Return where columns begin and end: rules, else white space that nearly all lines leave, split where it is
        freest."""
        if self.has_column_rules:
            return self.grid.sides
        starts = self.letters.sides[self.phrases, 0]
        ends = self.letters.sides[np.concatenate([self.phrases[1:], [True]]), 2]
        places, turns = np.concatenate([starts, ends]), np.repeat([1, -1], len(starts))
        order = np.lexsort((turns, places))
        most_crossing = (int(self.lines[-1]) + 1) // 3
        sides = [self.grid.area.left]
        free: list[tuple[int, float, float]] = []  # how many cross it, its width below 0, its middle
        edges = zip(np.cumsum(turns[order]).tolist(), pairwise(places[order].tolist()), strict=False)
        for depth, (place, following) in edges:
            if depth <= most_crossing:
                free.append((depth, place - following, (place + following) / 2))
                continue
            if -sum(width for _, width, _ in free) >= _GAP and free[0][2] > sides[0]:
                sides.append(min(free)[2])
            free = []
        return [*sides, self.grid.area.right]

    @cached_property
    def homes(self) -> Any:
        """Return for each cell, band by band, the number of the upper left of those that no rule separates from it."""
        bands, columns = len(self.grid.heights) - 1, len(self.sides) - 1
        homes = np.arange(bands * columns).reshape(bands, columns)
        if self.has_column_rules:
            to_left = ~_find_separators(self.grid.vertical, self.sides[:-1], self.grid.heights).T
            to_top = ~_find_separators(self.grid.horizontal, self.grid.heights[:-1], self.sides)
            to_left[:, 0] = to_top[0] = False
            for band, column in np.argwhere(to_left | to_top).tolist():
                neighbour = (band, column - 1) if to_left[band, column] else (band - 1, column)
                homes[band, column] = homes[neighbour]
        return homes

    @cached_property
    def cell_of_letter(self) -> Any:
        """Return the number of the cell of each letter. Without rules between the columns, phrases stay together."""
        x, y = self.letters.middles.T
        cells = self.homes[_interval_numbers(y, self.grid.heights), _interval_numbers(x, self.sides)]
        return cells if self.has_column_rules else cells[self.phrases][np.cumsum(self.phrases) - 1]

    def straighten(self, turns: Mapping[int, int]) -> Letters:
        """Return the letters, those of cells whose text is rotated as if it were not, within their cells. `turns`: of
        such cells, by the number of one of their letters."""
        sides = self.letters.sides.copy()
        for number, turn in turns.items():
            cell = self.cell_of_letter[self.letters.numbers == number][0]
            band, column = divmod(int(cell), len(self.sides) - 1)
            is_own = self.cell_of_letter == cell
            turned = self.letters[is_own].rotate(max(-1, min(1, turn))).sides
            low, high = turned[:, :2].min(0), turned[:, 2:].max(0)
            left, top = self.sides[column], self.grid.heights[band]
            room = np.array([self.sides[column + 1] - left, self.grid.heights[band + 1] - top])
            scale = min(1.0, float((0.9 * room / np.maximum(high - low, 1.0)).min()))
            corner = np.array([left, top]) + (room - scale * (high - low)) / 2
            sides[is_own] = scale * (turned - np.tile(low, 2)) + np.tile(corner, 2)
        numbers = np.argsort(self.letters.numbers)
        return Letters(self.letters.numbers[numbers], sides[numbers])

    @property
    def crossing_lines(self) -> int:
        """Return how many lines have a word through a rule that separates columns."""
        inside_word = ~_find_begins(self.letters.sides, self.lines, _WORD)[1:]
        return (
            len(np.unique(self.lines[1:][inside_word & (steps(self.cell_of_letter) != 0)]))
            if self.has_column_rules
            else 0
        )

    def number_rows(self) -> tuple[Any, Any]:
        """Return the row and the column of each letter. Between two rules there may be several rows."""
        band, column = np.divmod(self.cell_of_letter, len(self.sides) - 1)
        order = np.lexsort((column, self.lines, band))
        keys = np.array([band, self.lines, column])[:, order]
        firsts = begins((keys[:, 1:] != keys[:, :-1]).any(0))
        number, starts = np.cumsum(firsts) - 1, firsts.nonzero()[0]
        sides = self.letters.sides[order]
        words = np.concatenate([_find_begins(sides, number, _WORD).nonzero()[0], [len(order)]])
        ends = np.concatenate([starts[1:], [len(order)]]), words[np.searchsorted(words, starts, "right")]
        widths = (sides[end - 1, 2] - sides[starts, 0] for end in ends)
        tall = np.zeros(self.homes.size, bool)
        tall[self.homes[self.homes // len(self.homes[0]) < np.arange(len(self.homes))[:, None]]] = True
        columns = *keys[:, starts], *widths, tall[self.cell_of_letter[order][starts]]
        pieces = map(CellLine, *(values.tolist() for values in columns))
        rows = np.empty(len(order), np.intp)
        rows[order] = np.fromiter(self._row_numbers(pieces), np.intp, len(starts))[number]
        return rows, column

    def _row_numbers(self, pieces: Iterable[CellLine]) -> Iterator[int]:
        """Yield the row of each piece. A line begins a row if in one of its columns its first word had fit above."""
        row = -1
        for _, group in groupby(pieces, attrgetter("band")):
            band = list(group)
            row += 1
            top, widths_above = row, dict[int, float]()
            columns = len({piece.column for piece in band})
            minimum_cells = max(2.0, columns / 2) if self.has_column_rules else 1.0
            for _, line in groupby(band, attrgetter("line")):
                pieces = list(line)
                cells = [piece for piece in pieces if not piece.tall]
                if widths_above and len(cells) >= minimum_cells and self._begins_row(cells, widths_above, columns):
                    row += 1
                    widths_above = {}
                widths_above |= {piece.column: piece.width for piece in cells}
                yield from (top if piece.tall else row for piece in pieces)

    def _begins_row(self, cells: Sequence[CellLine], widths_above: dict[int, float], columns: int) -> bool:
        """Return whether a line is a row of its own, not the rest of wrapped cells. `widths_above`: the width of the
        line before it in each column. `columns`: how many have letters."""
        fits = [
            widths_above[cell.column] + _BLANK + cell.word
            < _FILLED_SHARE * (self.sides[cell.column + 1] - self.sides[cell.column])
            for cell in cells
            if cell.column in widths_above
        ]
        return not fits or any(fits) or len(cells) > max(2, columns // 2 + 1)


def _find_separators(rules: Any, places: Sequence[float], limits: Sequence[float]) -> Any:
    """Find whether a rule at each place parts what is on both sides of it, for each stretch between two limits."""
    place, start, end = rules.T[:, :, None]
    low, high = np.array(limits[:-1]), np.array(limits[1:])
    is_near = abs(place - np.array(places)) < _NEAREST
    return is_near.T @ (np.minimum(end, high) - np.maximum(start, low) > 0.5 * (high - low))


def _interval_numbers(places: Any, limits: Sequence[float]) -> Any:
    """Return between which limits each place lies, from 0."""
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
    """Return the lines of the nearest caption above or below a region, if any. `kind`: `image` or `table`. `lines`: of
    the page, in the order in which they are read."""
    candidates = [
        (distance, number)
        for number, line in enumerate(lines)
        if line.table is None and _BEGINS[kind].match(line.text) and area.horizontal_overlap(line.area) > 0.3
        if (distance := max(line.area.top - area.bottom, area.top - line.area.bottom)) < _FARTHEST
    ]
    return list(_caption_lines(lines, min(candidates)[1])) if candidates else ()


def _caption_lines(lines: Sequence[PageLine], first: int) -> Iterator[PageLine]:
    """Yield a line and the lines that go on close below it."""
    yield lines[first]
    for previous, line in zip(lines[first:], lines[first + 1 : first + _MOST_LINES], strict=False):
        area, height = line.area, max(previous.area.height, 1.0)
        is_close = previous.area.vertical_overlap(area) > 0.4 or area.top - previous.area.bottom < 0.6 * height
        if (
            line.table
            or not is_close
            or (previous.area.horizontal_overlap(area) < 0.3 and previous.area.vertical_overlap(area) <= 0.4)
        ):
            return
        if area.top < previous.area.top - height or any(begins.match(line.text) for begins in _BEGINS.values()):
            return
        yield line


_LONGEST = 40
"""Characters of a cell, in the middle of all, where no rules part rows or columns: prose in two columns has more."""
_MOST_CELLS = 5_000
_LEAST_LETTERS = 4
"""Two rows of two cells."""


def tables_of(grids: Iterable[Grid], letters: Letters, text: str, attempt: Attempt) -> list[PageTable]:
    """Return the tables of a page, none within another."""
    page_tables: list[PageTable] = []
    for grid in grids:
        table: PageTable | None = attempt("table", partial(table_of, grid, letters, text), None)
        if table and not any(np.isin(table.letters, page_table.letters).any() for page_table in page_tables):
            page_tables.append(table)
    return page_tables


def table_of(grid: Grid, letters: Letters, text: str) -> PageTable | None:
    """Return the table in a grid, or None."""
    inner_letters = letters.select_within(grid.area)
    if len(inner_letters) < _LEAST_LETTERS:
        return None
    turn, turns = _turns_of(grid, inner_letters) if len(grid.vertical) else (0, {})
    frame = CellGrid.from_letters(inner_letters.rotate(turn), grid.rotate(turn))
    if turns:
        frame = CellGrid.from_letters(frame.straighten(turns), frame.grid)
    heights, count = frame.grid.heights, frame.lines[-1] + 1
    if count < (2 if frame.has_column_rules and len(heights) > 2 else 3) or len(heights) < 2:
        return None
    sides = frame.sides
    # Shaded lines of a listing have two columns: their numbers, and code.
    minimum_sides = 3 if frame.has_column_rules or not len(grid.vertical) else 4
    if not minimum_sides <= len(sides) <= _MOST_CELLS // len(heights) or frame.crossing_lines * 4 > count:
        return None
    rows, columns = frame.number_rows()
    filled = np.zeros((rows.max() + 1, len(sides) - 1), bool)
    filled[rows, columns] = True
    full = (filled.sum(1) > 1).nonzero()[0]
    if len(full) < 2:
        return None
    is_kept = (rows >= full[0]) & (rows <= full[-1])  # not a frame around, a line of notes
    (_, rows), (_, columns) = (
        np.unique(numbers_along[is_kept], return_inverse=True) for numbers_along in (rows, columns)
    )
    cells = _write_cells(rows, columns, frame.letters.numbers[is_kept], text)
    parted = frame.has_column_rules and len(heights) > len(cells)  # by rules, row by row
    if not _is_table(cells, parted=parted):
        return None
    numbers = frame.letters.numbers[is_kept]
    shown_letters = inner_letters[
        np.searchsorted(inner_letters.numbers, numbers)
    ]  # where they stand on the page, straightened or not
    areas = [shown_letters[rows == row].area for row in range(len(cells))]
    return PageTable(cells, tuple(areas), np.sort(numbers))


def _turns_of(grid: Grid, letters: Letters) -> tuple[int, dict[int, int]]:
    """Return how letters follow each other in most cells (0: along a line, 1: upwards, -1: downwards), and how in each
    cell that differs, by the number of one of its letters. Cells of one letter say nothing."""
    steps_along, down = map(steps, letters.middles.T)
    next_letters = steps(letters.numbers) == 1
    steep = (abs(down) > abs(steps_along)) & next_letters
    if not steep.any():
        return 0, {}
    cells = CellGrid(grid, letters, np.zeros(len(letters))).cell_of_letter
    follows = next_letters & (steps(cells) == 0)
    cell = cells[1:]
    count, steep_count = np.bincount(cell, follows), np.bincount(cell, follows & steep)
    rise = -np.bincount(cell, down * (follows & steep))
    turns = np.where(steep_count * 2 > count, np.sign(rise), 0).astype(int)
    (known_cells,) = count.nonzero()
    if not len(known_cells):
        return 0, {}
    values, counts = np.unique(turns[known_cells], return_counts=True)
    turn = int(values[counts.argmax()])
    numbers = {
        cell: int(letters.numbers[cells.tolist().index(cell)])
        for cell in known_cells[turns[known_cells] != turn].tolist()
    }
    return turn, {number: int(turns[cell]) - turn for cell, number in numbers.items()}


def _write_cells(rows: Any, columns: Any, numbers: Any, text: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each cell. `rows`, `columns`, `numbers`: of its letters."""
    cells = [[""] * (columns.max() + 1) for _ in range(rows.max() + 1)]
    order = np.lexsort((numbers, columns, rows))
    rows, columns, numbers = rows[order], columns[order], numbers[order]
    starts = begins((steps(rows) != 0) | (steps(columns) != 0)).nonzero()[0]
    places = zip(rows[starts].tolist(), columns[starts].tolist(), pairwise([*starts.tolist(), len(order)]), strict=True)
    for row, column, (start, stop) in places:
        cells[row][column] = write_letters(numbers[start:stop], text)
    return tuple(map(tuple, cells))


def _is_table(rows: Sequence[Sequence[str]], *, parted: bool) -> bool:
    filled = [cell for row in rows for cell in row if cell]
    several = sum(1 for row in rows if sum(map(bool, row)) > 1)
    if len(rows) < 2 or several < 2 or several * 2 < len(rows) or len(rows[0]) < 2:
        return False
    dense = len(filled) * 3 > len(rows) * len(rows[0])
    return parted or (len(rows) > 2 and median(map(len, filled)) <= _LONGEST and dense)
