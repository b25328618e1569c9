"""Tables between rules: the letters on a page, the grids that rules make, and their cells."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress, pairwise
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from spolia.indexing.readers.pdf.drawings import Drawn, Rule, merged
from spolia.indexing.readers.pdf.geometry import Area, VisiblePage, boxes
from spolia.indexing.readers.pdf.lines import HYPHEN, NO_TEXT, PageLine
from spolia.indexing.readers.unit_failures import Attempt


class Letter(NamedTuple):
    """A character that is no blank: its number on the page, and where it stands."""

    at: int
    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        """Of its height."""
        return (self.top + self.bottom) / 2


_letter = partial(tuple.__new__, Letter)
Row = list[Letter]
_left = itemgetter(2)


def letters_of(text_page: Any, text: str, stretches: Iterable[tuple[int, int]], sheet: VisiblePage) -> list[Letter]:
    """The characters of some stretches of a page, in the order of the file."""
    numbers = [
        at
        for start, end in stretches
        for at, character in enumerate(text[start:end], start)
        if character > " " and not character.isspace()
    ]
    if NO_TEXT.search(text):
        numbers = [at for at in numbers if not NO_TEXT.match(text[at])]
    sides, nowhere = boxes(text_page, numbers)
    said = [text[at] for at in numbers]
    letters = list(map(_letter, zip(numbers, said, *sheet.shown(sides).T.tolist(), strict=True)))
    return list(compress(letters, ~nowhere)) if nowhere.any() else letters


def area_of(letters: Iterable[Letter]) -> Area:
    """The smallest area around some letters."""
    _, _, lefts, tops, rights, bottoms = zip(*letters, strict=True)
    return Area(min(lefts), min(tops), max(rights), max(bottoms))


def rows_of(letters: Sequence[Letter]) -> list[Row]:
    """Letters at one height, from top to bottom, each row from left to right; small ones join large ones."""
    if not letters:
        return []
    heights = [bottom - top for _, _, _, top, _, bottom in letters]
    middles = [(top + bottom) / 2 for _, _, _, top, _, bottom in letters]
    usual = 0.8 * median(heights)
    large, small = ([at for at, height in enumerate(heights) if (height < usual) is low] for low in (False, True))
    rows: list[Row] = []
    reach, starts = float("-inf"), list[float]()
    for number in sorted(large, key=middles.__getitem__):
        middle = middles[number]
        if middle > reach:
            rows.append([])
            starts.append(middle)
            reach = middle + 0.45 * min(heights[number], 20.0)
        rows[-1].append(letters[number])
    for number in small:
        middle = middles[number]
        rows[min(range(len(rows)), key=lambda row: abs(starts[row] - middle))].append(letters[number])
    return [sorted(row, key=_left) for row in rows]


def phrases_of(row: Row) -> Iterator[Row]:
    """What stands together in a row: letters with less than two blanks between them."""
    return _pieces(row, 0.42)


def words_of(row: Row) -> Iterator[Row]:
    """The words of a row: letters with less than a blank between them."""
    return _pieces(row, 0.15)


def _pieces(row: Row, ems: float) -> Iterator[Row]:
    start, end = 0, float("inf")
    for number, (_, _, left, top, right, bottom) in enumerate(row):
        if left - end > 1.0 and left - end > ems * max(4.0, bottom - top):
            yield row[start:number]
            start = number
        end = right
    if row:
        yield row[start:]


def written(letters: Sequence[Letter], text: str) -> str:
    """What letters say, in the order of the file, with a blank where the file has one or goes on elsewhere."""
    ordered = sorted(letters)
    if ordered and ordered[-1].at - ordered[0].at == len(ordered) - 1:
        return text[ordered[0].at : ordered[-1].at + 1]
    pieces = [letter.text for letter in ordered[:1]]
    for before, after in pairwise(ordered):
        skipped = after.at - before.at - 1
        apart = skipped and before.text != HYPHEN and (skipped > 2 or text[before.at + 1 : after.at].isspace())
        pieces.append(" " + after.text if apart else after.text)
    return "".join(pieces)


_REACH = 4.0
"""Points between rules that are meant to touch."""
_NEAREST = 3.0
_MOST_RULES = 400


@dataclass(frozen=True)
class Grid:
    """Rules that belong together. Without those that go down, columns have to be found in the text."""

    across: tuple[Rule, ...]
    down: tuple[Rule, ...] = ()

    @cached_property
    def area(self) -> Area:
        """All of it."""
        sides = [rule.at for rule in self.down]
        ends = [rule.at for rule in self.across]
        return Area(
            min(min(rule.start for rule in self.across), *sides, float("inf")),
            min(min(ends), *(rule.start for rule in self.down), float("inf")),
            max(max(rule.end for rule in self.across), *sides, float("-inf")),
            max(max(ends), *(rule.end for rule in self.down), float("-inf")),
        )

    @cached_property
    def heights(self) -> list[float]:
        """Where rows begin and end."""
        area = self.area
        return _apart([area.top, *(rule.at for rule in self.across), area.bottom])

    @cached_property
    def sides(self) -> list[float]:
        """Where columns begin and end."""
        area = self.area
        return _apart([area.left, *(rule.at for rule in self.down), area.right])


def _parted(rules: Iterable[Rule], start: float, end: float) -> bool:
    """Whether one of the rules at a place parts what is on both sides of it."""
    least = 0.5 * (end - start)
    return any(min(rule.end, end) - max(rule.start, start) > least for rule in rules)


def _near(rules: Iterable[Rule], places: Sequence[float]) -> list[list[Rule]]:
    """The rules at each place."""
    return [[rule for rule in rules if abs(rule.at - place) < _NEAREST] for place in places]


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
    crossing = list(_crossing(across, down))
    yield from crossing
    used = {rule for grid in crossing for rule in grid.across}
    yield from _stacked([rule for rule in across if rule not in used])


def _crossing(across: list[Rule], down: list[Rule]) -> Iterator[Grid]:
    """Rules that touch each other, directly or through others."""
    group = list(range(len(across) + len(down)))

    def root(number: int) -> int:
        while group[number] != number:
            group[number] = group[group[number]]
            number = group[number]
        return number

    for i, flat in enumerate(across):
        for j, steep in enumerate(down, len(across)):
            if _within(steep.at, flat) and _within(flat.at, steep):
                group[root(j)] = root(i)
    for each in sorted({root(number) for number in range(len(across))}):
        flats = tuple(rule for number, rule in enumerate(across) if root(number) == each)
        steeps = tuple(rule for number, rule in enumerate(down, len(across)) if root(number) == each)
        if len(flats) > 1 and steeps:
            yield Grid(flats, steeps)


def _within(place: float, rule: Rule) -> bool:
    return rule.start - _REACH <= place <= rule.end + _REACH


def _stacked(across: list[Rule]) -> Iterator[Grid]:
    """Rules of the same length, each below the one before it."""
    left = list(across)
    while left:
        first = left[0]
        same = [r for r in left if abs(r.start - first.start) < _NEAREST and abs(r.end - first.end) < _NEAREST]
        left = [rule for rule in left if rule not in same]
        if len(same) > 2:
            yield Grid(tuple(same))


_GAP = 5.0
"""Points between columns that no rule parts."""
_FILLED = 0.9
"""Share of its column that a wrapped line can take."""
_BLANK = 3.0
Cells = list[list[Row]]
"""Rows of cells, each with its letters."""
Band = list[list[tuple[int, Row]]]
"""Cells with their content, and its line."""
Cell = tuple[int, int]
"""Its band from the top and its column from the left, from 0."""
Homes = dict[Cell, Cell]


@dataclass(frozen=True)
class CellGrid:
    """The rules around a possible table and the lines of text between them, from top to bottom."""

    grid: Grid
    lines: Sequence[Row]

    @property
    def ruled(self) -> bool:
        """Whether rules part the columns."""
        return len(self.grid.sides) > 2

    @cached_property
    def phrases(self) -> list[list[Row]]:
        """Of each line what stands together."""
        return [list(phrases_of(line)) for line in self.lines]

    @cached_property
    def sides(self) -> list[float]:
        """Where columns begin and end: rules, else white space that nearly all lines leave, parted at its freest."""
        if self.ruled:
            return self.grid.sides
        phrases = self.phrases
        edges = sorted(edge for line in phrases for one in line for edge in ((one[0].left, 1), (one[-1].right, -1)))
        found, depth = [self.grid.area.left], 0
        free: list[tuple[int, float, float]] = []  # how many cross it, its width below 0, its middle
        for (place, step), (following, _) in pairwise(edges):
            depth += step
            if depth <= len(phrases) // 3:
                free.append((depth, place - following, (place + following) / 2))
                continue
            if -sum(width for _, width, _ in free) >= _GAP and free[0][2] > found[0]:
                found.append(min(free)[2])
            free = []
        return [*found, self.grid.area.right]

    @cached_property
    def homes(self) -> Homes:
        """For each cell the one at the upper left of those that no rule parts from it; none without rules."""
        homes: Homes = {}
        if not self.ruled:
            return homes
        steep, flat = _near(self.grid.down, self.sides), _near(self.grid.across, self.grid.heights)
        for down, (top, bottom) in enumerate(pairwise(self.grid.heights)):
            for right, (left, end) in enumerate(pairwise(self.sides)):
                home = (down, right)
                if right and not _parted(steep[right], top, bottom):
                    home = homes[down, right - 1]
                elif down and not _parted(flat[down], left, end):
                    home = homes[down - 1, right]
                homes[down, right] = home
        return homes

    @cached_property
    def cells(self) -> dict[int, Cell]:
        """The cell of each letter, by the letter's number."""
        letters = [letter for line in self.lines for letter in line]
        area = np.array([letter[2:] for letter in letters]).reshape(-1, 4)
        down = _between((area[:, 1] + area[:, 3]) / 2, self.grid.heights)
        right = _between((area[:, 0] + area[:, 2]) / 2, self.sides)
        homes = self.homes
        places = zip(down.tolist(), right.tolist(), strict=True)
        return {letter[0]: homes.get(place, place) for letter, place in zip(letters, places, strict=True)}

    @cached_property
    def crossed(self) -> int:
        """How many lines have a word through a rule that parts columns."""
        cells = self.cells
        lines = self.lines if self.ruled else ()
        return sum(any(len({cells[letter[0]] for letter in word}) > 1 for word in words_of(line)) for line in lines)

    def bands(self) -> list[Band]:
        """What stands between two rules next to each other, cell by cell; a cell over several bands is of the first.

        Where no rules part the columns, what stands together stays so.
        """
        bands: list[Band] = [[[] for _ in pairwise(self.sides)] for _ in pairwise(self.grid.heights)]
        cells = self.cells
        for number, line in enumerate(self.lines):
            for piece in ([letter] for letter in line) if self.ruled else self.phrases[number]:
                down, right = cells[piece[0].at]
                bands[down][right].append((number, piece))
        return bands

    def rows(self) -> Iterator[list[Row]]:
        """The rows, of which there may be several in a band."""
        for number, band in enumerate(self.bands()):
            tall = {home[1] for cell, home in self.homes.items() if home[0] == number < cell[0]}
            yield from self._parted(band, tall)

    def _parted(self, band: Band, tall: set[int]) -> Cells:
        """The rows of a band: a line begins one if in one of its columns its first word had fitted above."""
        lines: dict[int, dict[int, Row]] = {}
        for number, pieces in enumerate(band):
            for line, piece in pieces if number not in tall else ():
                lines.setdefault(line, {}).setdefault(number, []).extend(piece)
        least = max(2.0, sum(map(bool, band)) / 2) if self.ruled else 1.0
        rows: Cells = [[[] for _ in band]]
        for number in tall:
            rows[0][number] = [letter for _, piece in band[number] for letter in piece]
        above: dict[int, Row] = {}
        for _, cells in sorted(lines.items()):
            if above and len(cells) >= least and self._begins(cells, above, sum(map(bool, band))):
                rows.append([[] for _ in band])
                above = {}
            for number, cell in cells.items():
                rows[-1][number] += cell
                above[number] = cell
        return rows

    def _begins(self, cells: dict[int, Row], above: dict[int, Row], columns: int) -> bool:
        """Whether a line is a row of its own, not the rest of wrapped cells."""
        fits = [
            _width(above[number]) + _BLANK + _width(next(words_of(cell)))
            < _FILLED * (self.sides[number + 1] - self.sides[number])
            for number, cell in cells.items()
            if number in above
        ]
        return not fits or any(fits) or len(cells) > max(2, columns // 2 + 1)


def _between(places: Any, limits: Sequence[float]) -> Any:
    """Between which limits each place lies, from 0."""
    return np.clip(np.searchsorted(limits, places, "right") - 1, 0, len(limits) - 2)


def _width(letters: Row) -> float:
    return letters[-1].right - letters[0].left


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


def tables_of(grids: Iterable[Grid], letters: Sequence[Letter], text: str, attempt: Attempt) -> list[PageTable]:
    """The tables of a page, none within another."""
    found: list[PageTable] = []
    middles = _middles(letters)
    for grid in grids:
        table: PageTable | None = attempt("table", partial(table_of, grid, letters, middles, text), None)
        if table and not any(table.letters & other.letters for other in found):
            found.append(table)
    return found


def table_of(grid: Grid, letters: Sequence[Letter], middles: Any, text: str) -> PageTable | None:
    """The table in a grid, or None. `middles`: of the letters, n × 2."""
    inside = _inside(letters, middles, grid.area)
    turn = _turn_of(inside) if grid.down else 0
    grid = _turned_grid(grid, turn)
    frame = CellGrid(grid, rows_of([_turned(letter, turn) for letter in inside] if turn else inside))
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
    if turn:
        upright = {letter.at: letter for letter in inside}
        found = [[upright[letter.at] for letter in row] for row in found]
    return PageTable(said, tuple(map(area_of, found)), frozenset(letter.at for row in found for letter in row))


def _turn_of(letters: Sequence[Letter]) -> int:
    """How most letters follow each other: 0 along a line, 1 upwards, -1 downwards."""
    if len(letters) < 2:
        return 0
    numbers, x, y = np.array([(at, left + right, top + bottom) for at, _, left, top, right, bottom in letters]).T
    next_to = np.diff(numbers) == 1
    along, upwards = np.diff(x)[next_to], -np.diff(y)[next_to]
    steep = abs(upwards) > abs(along)
    return int(np.sign(upwards[steep].sum())) if steep.sum() * 2 > len(steep) else 0


def _turned(letter: Letter, turn: int) -> Letter:
    """A letter of rotated text, as it stands for who reads it upright."""
    at, text, left, top, right, bottom = letter
    sides = (-bottom, left, -top, right) if turn > 0 else (top, -right, bottom, -left)
    return Letter(at, text, *sides)


def _turned_grid(grid: Grid, turn: int) -> Grid:
    if not turn:
        return grid
    across, down = (
        tuple(Rule(sign * rule.at, *sorted((-sign * rule.start, -sign * rule.end))) for rule in rules)
        for rules, sign in ((grid.down, turn), (grid.across, -turn))
    )
    return Grid(across, down)


def _middles(letters: Sequence[Letter]) -> Any:
    """Where the middles of letters lie: n × 2."""
    sides = np.array([letter[2:] for letter in letters]).reshape(-1, 4)
    return (sides[:, :2] + sides[:, 2:]) / 2


def _inside(letters: Sequence[Letter], middles: Any, area: Area) -> list[Letter]:
    """The letters whose middle lies in an area."""
    held = ((middles >= area[:2]) & (middles <= area[2:])).all(1)
    return list(compress(letters, held.tolist()))


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
