"""Where rules on a page make a grid, or stand above each other as those of a table in a paper do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from spolia.indexing.readers.pages.area import Area
from spolia.indexing.readers.pages.drawn import Drawn, Rule, merged

_REACH = 4.0
"""Points between rules that are meant to touch."""
_NEAREST = 3.0
_MOST_RULES = 400


@dataclass(frozen=True)
class Grid:
    """Rules that belong together.

    Args:
        across, down: the rules. Without those that go down, columns have to be found in the text.
    """

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
