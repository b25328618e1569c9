"""Scores of the same questions by several flows: means or totals, differences and tests, all from the same draws."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, product
from math import isnan, nan
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from spolia.evaluation.statistics.interval import RESAMPLES, Interval, interval_of, resampled_means, tango, wilson
from spolia.evaluation.statistics.significance import ROUNDING, Floats, flipped_sums, sign_flip
from spolia.types import kept

Range: TypeAlias = tuple[float, float]
UNIT: Range = (0.0, 1.0)
SLACK = 1e-6
"""By which a score may lie outside of its range: cosines of single precision."""


class Sample:
    """How sure means and differences are. The method follows from the scores:

    - all 0 or 1: Wilson's interval of a share, Tango's of the difference of two;
    - else what `interval_of` says: the bootstrap, bias-corrected, accelerated and expanded, or, where fewer than 20
      differ from the most frequent one, Student's t with a pair unseen.

    How often they hold the true number was measured: benchmarks/results/experiments.json.

    Args:
        scores: one row a question, one column a flow; at least one row. NaN: the question is left
            out for that flow, and for each pair that it is in.
        range: where scores can lie, as the measure declares it; (0, inf) for costs.
        level: how often an interval should hold the true number.
        resamples: draws of the bootstrap, and of the signs of a test.
        seed: the same seed and scores give the same numbers.

    >>> two = Sample([[1, 0], [1, 1], [1, 0], [0, 0]])
    >>> print(two.interval(0), "and", two.difference(0, 1), "p =", two.p(0, 1))
    0.750 [0.301, 0.987] and 0.500 [-0.235, 0.850] p = 0.5
    """

    def __init__(
        self, scores: ArrayLike, *, range: Range = UNIT, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
    ) -> None:
        self.scores: Floats = np.asarray(scores, dtype=np.float64)
        if self.scores.ndim != 2 or not self.scores.size or not 0 < level < 1:
            raise ValueError(
                f"Got scores of shape {self.scores.shape} and level {level}. Give a row for each question with a "
                "number for each flow, and a level between 0 and 1, for example 0.95."
            )
        self.low, self.high = range
        if ((self.scores < self.low - SLACK) | (self.scores > self.high + SLACK)).any():
            raise ValueError(
                f"Got scores from {np.nanmin(self.scores):g} to {np.nanmax(self.scores):g}, which lie outside of the "
                f"range {range}. Give the range that they can have, for example range=(0, float('inf'))."
            )
        self.level, self.resamples, self.seed = level, resamples, seed
        self.complete = not np.isnan(self.scores).any()

    def interval(self, flow: int) -> Interval:
        """The mean of a column."""
        scores = _told(self.scores[:, flow])
        if self._binary[flow]:
            return wilson(int(scores.sum()), scores.size, self.level)
        found = self._of(scores, flow, lambda: self._means[:, flow])
        return found.within(self.low, self.high)

    def difference(self, ours: int, theirs: int) -> Interval:
        """The mean of one column minus that of another."""
        apart, width = _told(self._apart(self.scores, ours, theirs)), self.high - self.low
        if self._binary[ours] and self._binary[theirs]:
            return tango(int((apart > 0).sum()), int((apart < 0).sum()), apart.size, self.level)
        found = self._of(apart, [ours, theirs], lambda: self._drawn(self._means, ours, theirs))
        return found.within(-width, width)

    def p(self, ours: int, theirs: int) -> float:
        """How often a difference as large as this comes of signs drawn by lot (`sign_flip`)."""
        apart = _told(self._apart(self.scores, ours, theirs))
        return sign_flip(apart, lambda: self._drawn(self._flipped, ours, theirs))

    def _of(self, values: Floats, flows: int | list[int], resampled: Callable[[], Floats]) -> Interval:
        width, largest = self.high - self.low, float(np.nanmax(np.abs(self.scores[:, flows])))
        return interval_of(float(values.mean()), values, resampled, self.level, width=width, largest=largest)

    def _apart(self, columns: Floats, ours: int, theirs: int) -> Floats:
        return columns[:, ours] - columns[:, theirs]

    def _drawn(self, drawn: Floats, ours: int, theirs: int) -> Floats:
        """The difference under all draws: of two columns, or where some are missing of the column of that pair."""
        if self.complete:
            return self._apart(drawn, ours, theirs)
        first, second = sorted((ours, theirs))
        column = drawn[:, self.scores.shape[1] + self._pairs.index((first, second))]
        return column if ours < theirs else -column

    @kept
    def _pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(self.scores.shape[1]), 2))

    @kept
    def _columns(self) -> Floats:
        """What is drawn: the scores; where some are missing, also the differences of each pair."""
        pairs = [] if self.complete else [self._apart(self.scores, *pair) for pair in self._pairs]
        return np.column_stack([self.scores, *pairs])

    @kept
    def _binary(self) -> list[bool]:
        found = ((self.scores == 0) | (self.scores == 1) | np.isnan(self.scores)).all(axis=0)
        return [bool(one) and (self.low, self.high) == UNIT for one in found]

    @kept
    def _means(self) -> Floats:
        return resampled_means(self._columns, self.resamples, self.seed)

    @kept
    def _flipped(self) -> Floats:
        return flipped_sums(np.nan_to_num(self._columns), self.resamples, self.seed)


def _told(values: Floats) -> Floats:
    return np.asarray(values[~np.isnan(values)])


def interval(scores: Sequence[float], **options: Any) -> Interval:
    """The mean of scores, one a question; options as for `Sample`.

    >>> print(interval([0, 1, 1, 0, 1, 1, 1, 0, 1, 1]))
    0.700 [0.397, 0.892]
    """
    return Sample([[score] for score in scores], **options).interval(0)


def difference(ours: Sequence[float], theirs: Sequence[float], **options: Any) -> Interval:
    """By how much scores are higher than others of the same questions; options as for `Sample`."""
    if len(ours) != len(theirs):
        raise ValueError(f"Got {len(ours)} and {len(theirs)} scores. Pair two scores of every question.")
    return Sample(list(zip(ours, theirs, strict=True)), **options).difference(0, 1)


Row: TypeAlias = tuple[float, ...]
Rows: TypeAlias = Sequence[Row]
Total: TypeAlias = Callable[[Rows], float | None]
DRAWS = 2_000
SUMS = 10_000
"""Exchanges of rows that only need to be summed."""
ALL = 10
"""Where so few questions differ, they are exchanged in all ways."""
ENOUGH = 100
"""Exchanges that have reached the difference, after which it is certainly not rare."""


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
