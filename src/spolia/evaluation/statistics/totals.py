"""How sure a measure is that is no mean: the same questions drawn again for all flows, and totalled each time."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import isnan, nan
from typing import TypeAlias

import numpy as np

from spolia.evaluation.statistics.bootstrap import interval_of, resampled_means
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.sample import UNIT, Range
from spolia.evaluation.statistics.significance import ROUNDING, Floats, flipped_sums

Row: TypeAlias = tuple[float, ...]
Rows: TypeAlias = Sequence[Row]
Total: TypeAlias = Callable[[Rows], float | None]
DRAWS = 2_000
SUMS = 10_000
"""Exchanges of rows that only need to be summed."""
ALL = 10
"""Where so few questions differ, they are exchanged in all ways."""
ENOUGH = 100
"""When so many exchanges have reached the difference, it is known how rare that is not."""


class Totals:
    """As `Sample`, for rows of which a total is made: BLEU, AURC, F1 of abstaining.

    What each question does to the total are its pseudo-values, n θ - (n - 1) θ without it. Of them an interval is made
    as of scores (`interval_of`), with totals of questions drawn again. Where a total is undefined without one question,
    nothing is known but its range. The p-value is how often a difference as large as this comes of exchanging what two
    flows gave for questions drawn by lot.

    Args:
        rows: by flow, one row of numbers for each question, the same questions for all; None where it does not count.
        total: what a measure makes of rows; None where it is not defined.
        additive: whether the total follows from the sums of the columns, so that a row of zeros does nothing.
        range: where totals can lie.
        draws: of questions, and of exchanges that are no sums.

    Source: Tukey 1958 for pseudo-values; Efron 1987 for intervals with them; Noreen 1989 for exchanging, Besag and
    Clifford 1991 for stopping early.

    >>> both = [[(1.0,), (0.0,), (1.0,)], [(0.0,), (0.0,), (1.0,)]]
    >>> two = Totals(both, lambda rows: max(number for number, in rows))
    >>> two.interval(0).mean, two.p(0, 1)
    (1.0, 1.0)
    """

    def __init__(
        self,
        rows: Sequence[Sequence[Row | None]],
        total: Total,
        *,
        additive: bool = False,
        range: Range = UNIT,
        level: float = 0.95,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> None:
        if not rows or not rows[0]:
            raise ValueError("There are no rows to total. Give at least one for each flow.")
        self.rows, self._total, self.additive, self.range = rows, total, additive, range
        self.level, self.draws, self.seed = level, draws, seed

    def interval(self, flow: int) -> Interval | None:
        """The total of a flow; None where it is not defined."""
        return self._of([self._known(flow)[0]], *self.range)

    def difference(self, ours: int, theirs: int) -> Interval | None:
        """The total of one flow minus that of another; None where one of them is not defined."""
        width = self.range[1] - self.range[0]
        return self._of(self._known(ours, theirs), -width, width)

    def p(self, ours: int, theirs: int) -> float:
        """How often a difference as large as this comes of exchanging the rows of two flows."""
        first, second = self._known(ours, theirs)
        n = sum(a != b for a, b in zip(first, second, strict=True))
        least = abs(self.total(first) - self.total(second)) * (1 - ROUNDING)
        if not n or not least > 0:
            return 1.0
        reached = drawn = 0
        for one, other in self._exchanged(first, second, n):
            reached += not abs(self.total(one) - self.total(other)) < least
            drawn += 1
            if n > ALL and reached == ENOUGH:
                return reached / drawn
        return reached / drawn if n <= ALL else (1 + reached) / (1 + drawn)

    def total(self, rows: Rows) -> float:
        """NaN where it is not defined."""
        found = self._total(rows) if len(rows) else None
        return nan if found is None else float(found)

    def _known(self, *flows: int) -> list[list[Row]]:
        """Rows of questions that count for all of these flows, and add something for any of them."""
        told = zip(*(self.rows[flow] for flow in flows), strict=True)
        counted = (rows for rows in told if None not in rows and (not self.additive or any(map(any, rows))))
        return [list(column) for column in zip(*counted, strict=True)] or [[] for _ in flows]

    def _of(self, flows: Sequence[list[Row]], low: float, high: float) -> Interval | None:
        n, wholes = len(flows[0]), [self.total(rows) for rows in flows]
        mean = _apart(wholes)
        if isnan(mean):
            return None
        values = np.array([_apart([n * whole for whole in wholes])]) - (n - 1) * self._each(flows, self._without)
        if np.isnan(values).any():
            return Interval(mean, low, high, n, self.level, "range")
        weight = n / max(1, min(sum(map(any, rows)) for rows in flows)) if self.additive else 1.0
        width, largest = self.range[1] - self.range[0], max(map(abs, wholes))
        resampled = partial(self._each, flows, self._resampled, defined=True)
        found = interval_of(mean, values, resampled, self.level, width=width, largest=largest, weight=weight)
        return found.within(low, high)

    def _each(
        self, flows: Sequence[list[Row]], changed: Callable[[list[Row]], Iterator[Rows]], defined: bool = False
    ) -> Floats:
        """Totals, or their differences, under all changes of the rows."""
        found = np.array([_apart([self.total(one) for one in rows]) for rows in zip(*map(changed, flows), strict=True)])
        return found[~np.isnan(found)] if defined else found

    def _without(self, rows: list[Row]) -> Iterator[Rows]:
        """All but one, for each."""
        if self.additive and len(rows) > 1:
            table = np.array(rows)
            return ([tuple(one)] for one in (table.sum(axis=0) - table).tolist())
        return (rows[:at] + rows[at + 1 :] for at in range(len(rows)))

    def _resampled(self, rows: list[Row]) -> Iterator[Rows]:
        """As many, drawn again; the same questions for each flow."""
        if self.additive:
            drawn = resampled_means(np.array(rows), self.draws, self.seed) * len(rows)
            return ([tuple(one)] for one in drawn.tolist())
        places = np.random.default_rng(self.seed).integers(0, len(rows), (self.draws, len(rows)))
        return ([rows[at] for at in draw] for draw in places.tolist())

    def _exchanged(self, first: list[Row], second: list[Row], n: int) -> Iterator[tuple[Rows, Rows]]:
        """Both with the rows of some questions exchanged: in all ways for few that differ, else by lot."""
        if self.additive and n > ALL:
            ours, theirs = np.array(first), np.array(second)
            both, half = (ours + theirs).sum(axis=0), flipped_sums((ours - theirs) / 2, SUMS, self.seed)
            pairs = zip((both / 2 + half).tolist(), (both / 2 - half).tolist(), strict=True)
            yield from (([tuple(one)], [tuple(other)]) for one, other in pairs)
            return
        pairs_of = list(zip(first, second, strict=True))
        differ = [at for at, (one, other) in enumerate(pairs_of) if one != other]
        drawn = np.random.default_rng(self.seed).integers(0, 2, (self.draws, n))
        for swaps in product((0, 1), repeat=n) if n <= ALL else map(tuple, drawn.tolist()):
            swapped = {at for at, swap in zip(differ, swaps, strict=True) if swap}
            exchanged = [pair[::-1] if at in swapped else pair for at, pair in enumerate(pairs_of)]
            yield [one for one, _ in exchanged], [other for _, other in exchanged]


def _apart(totals: Sequence[float]) -> float:
    return totals[0] if len(totals) == 1 else totals[0] - totals[1]
