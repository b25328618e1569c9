"""Where rules on a page make a grid, or stand above each other as those of a table in a paper do."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from spolia.indexing.readers.pdf.drawings import Drawn, Rule, merged
from spolia.indexing.readers.pdf.geometry import Area
from spolia.indexing.readers.pdf.letters import Row, phrases_of, words_of

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

    def parted_across(self, at: float, start: float, end: float) -> bool:
        """Whether a rule from left to right parts what is above a place from what is below it."""
        return any(abs(rule.at - at) < _NEAREST and _covers(rule, start, end) for rule in self.across)

    def parted_down(self, at: float, start: float, end: float) -> bool:
        """Whether a rule from top to bottom parts what is left of a place from what is right of it."""
        return any(abs(rule.at - at) < _NEAREST and _covers(rule, start, end) for rule in self.down)


def _covers(rule: Rule, start: float, end: float) -> bool:
    return min(rule.end, end) - max(rule.start, start) > 0.5 * (end - start)


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
"""Cells with what stands in them, and in which line."""
Homes = dict[tuple[int, int], tuple[int, int]]


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
        for down, (top, bottom) in enumerate(pairwise(self.grid.heights)) if self.ruled else ():
            for right, (left, end) in enumerate(pairwise(self.sides)):
                home = (down, right)
                if right and not self.grid.parted_down(left, top, bottom):
                    home = homes[down, right - 1]
                elif down and not self.grid.parted_across(top, left, end):
                    home = homes[down - 1, right]
                homes[down, right] = home
        return homes

    def home(self, letter_left: float, letter_right: float, middle: float) -> tuple[int, int]:
        """The cell of what stands at a place."""
        place = _between(middle, self.grid.heights), _between((letter_left + letter_right) / 2, self.sides)
        return self.homes.get(place, place)

    @cached_property
    def crossed(self) -> int:
        """How many lines have a word through a rule that parts columns."""
        return sum(any(len({self.home(a.left, a.right, a.middle) for a in word}) > 1 for word in words_of(line))
                   for line in self.lines) if self.ruled else 0  # fmt: skip

    def bands(self) -> list[Band]:
        """What stands between two rules next to each other, cell by cell; a cell over several bands is of the first.

        Where no rules part the columns, what stands together stays so.
        """
        bands: list[Band] = [[[] for _ in pairwise(self.sides)] for _ in pairwise(self.grid.heights)]
        for number, line in enumerate(self.lines):
            for piece in ([letter] for letter in line) if self.ruled else self.phrases[number]:
                down, right = self.home(piece[0].left, piece[0].right, piece[0].middle)
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
        rows: Cells = [[_letters(pieces) if number in tall else [] for number, pieces in enumerate(band)]]
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


def _letters(cell: Sequence[tuple[int, Row]]) -> Row:
    return [letter for _, piece in cell for letter in piece]


def _between(place: float, limits: Sequence[float]) -> int:
    return max(0, min(bisect_right(limits, place) - 1, len(limits) - 2))


def _width(letters: Row) -> float:
    return letters[-1].right - letters[0].left
