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
from spolia.types import lazy_property

Range: TypeAlias = tuple[float, float]
UNIT: Range = (0.0, 1.0)
SLACK = 1e-6
"""By which a score may lie outside of its range: cosines of single precision."""


class Sample:
    """Means and differences of scores, with intervals and tests. The method follows from the scores:

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
        """Return the mean of a column."""
        scores = _drop_missing(self.scores[:, flow])
        if self._binary[flow]:
            return wilson(int(scores.sum()), scores.size, self.level)
        estimate = self._estimate(scores, flow, lambda: self._means[:, flow])
        return estimate.clip(self.low, self.high)

    def difference(self, ours: int, theirs: int) -> Interval:
        """Return the mean of one column minus that of another."""
        differences, width = _drop_missing(self._subtract_columns(self.scores, ours, theirs)), self.high - self.low
        if self._binary[ours] and self._binary[theirs]:
            return tango(int((differences > 0).sum()), int((differences < 0).sum()), differences.size, self.level)
        estimate = self._estimate(
            differences, [ours, theirs], lambda: self._resampled_difference(self._means, ours, theirs)
        )
        return estimate.clip(-width, width)

    def p(self, ours: int, theirs: int) -> float:
        """Return how often a difference as large as this comes of random signs (`sign_flip`)."""
        differences = _drop_missing(self._subtract_columns(self.scores, ours, theirs))
        return sign_flip(differences, lambda: self._resampled_difference(self._flipped, ours, theirs))

    def _estimate(self, values: Floats, flows: int | list[int], resampled: Callable[[], Floats]) -> Interval:
        width, largest = self.high - self.low, float(np.nanmax(np.abs(self.scores[:, flows])))
        return interval_of(float(values.mean()), values, resampled, self.level, width=width, largest=largest)

    def _subtract_columns(self, columns: Floats, ours: int, theirs: int) -> Floats:
        return columns[:, ours] - columns[:, theirs]

    def _resampled_difference(self, draws: Floats, ours: int, theirs: int) -> Floats:
        """Return the difference under all draws: of two columns, or where values are missing, of the pair's column."""
        if self.complete:
            return self._subtract_columns(draws, ours, theirs)
        first, second = sorted((ours, theirs))
        column = draws[:, self.scores.shape[1] + self._pairs.index((first, second))]
        return column if ours < theirs else -column

    @lazy_property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(self.scores.shape[1]), 2))

    @lazy_property
    def _columns(self) -> Floats:
        """Return the columns that are drawn: the scores; where some are missing, also the differences of each pair."""
        # With scores missing, a mean of differences is not the difference of means, so pairs need columns.
        pairs = [] if self.complete else [self._subtract_columns(self.scores, *pair) for pair in self._pairs]
        return np.column_stack([self.scores, *pairs])

    @lazy_property
    def _binary(self) -> list[bool]:
        is_binary = ((self.scores == 0) | (self.scores == 1) | np.isnan(self.scores)).all(axis=0)
        return [bool(flag) and (self.low, self.high) == UNIT for flag in is_binary]

    @lazy_property
    def _means(self) -> Floats:
        return resampled_means(self._columns, self.resamples, self.seed)

    @lazy_property
    def _flipped(self) -> Floats:
        return flipped_sums(np.nan_to_num(self._columns), self.resamples, self.seed)


def _drop_missing(values: Floats) -> Floats:
    return np.asarray(values[~np.isnan(values)])


def interval(scores: Sequence[float], **options: Any) -> Interval:
    """Return the mean of scores, one a question; options as for `Sample`.

    >>> print(interval([0, 1, 1, 0, 1, 1, 1, 0, 1, 1]))
    0.700 [0.397, 0.892]
    """
    return Sample([[score] for score in scores], **options).interval(0)


def difference(ours: Sequence[float], theirs: Sequence[float], **options: Any) -> Interval:
    """Return by how much scores are higher than others of the same questions; options as for `Sample`."""
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
    """Totals of rows, with intervals and tests as `Sample` has them: BLEU, AURC, F1 of abstaining.

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
        """Return the total of a flow; None if it is not defined."""
        return self._estimate([self._shared_rows(flow)[0]], *self.range)

    def difference(self, ours: int, theirs: int) -> Interval | None:
        """Return the total of one flow minus that of another; None if one of them is not defined."""
        width = self.range[1] - self.range[0]
        return self._estimate(self._shared_rows(ours, theirs), -width, width)

    def p(self, ours: int, theirs: int) -> float:
        """Return how often a difference as large as this comes of exchanging the rows of two flows."""
        first, second = self._shared_rows(ours, theirs)
        n = sum(a != b for a, b in zip(first, second, strict=True))
        # Differences that equal the observed one but for rounding count as reaching it.
        threshold = abs(self.total(first) - self.total(second)) * (1 - ROUNDING)
        if not n or not threshold > 0:
            return 1.0
        reached_count = draw_count = 0
        for first_rows, second_rows in self._exchange_rows(first, second, n):
            reached_count += not abs(self.total(first_rows) - self.total(second_rows)) < threshold
            draw_count += 1
            # Further draws would only confirm that the p-value is not small.
            if n > ALL and reached_count == ENOUGH:
                return reached_count / draw_count
        return reached_count / draw_count if n <= ALL else (1 + reached_count) / (1 + draw_count)

    def total(self, rows: Rows) -> float:
        """Return the total of rows; NaN if it is not defined."""
        number = self._total(rows) if len(rows) else None
        return nan if number is None else float(number)

    def _shared_rows(self, *flows: int) -> list[list[Row]]:
        """Return the rows of questions that count for all of these flows, and add something for any of them."""
        questions = zip(*(self.rows[flow] for flow in flows), strict=True)
        counting = (rows for rows in questions if None not in rows and (not self.additive or any(map(any, rows))))
        return [list(column) for column in zip(*counting, strict=True)] or [[] for _ in flows]

    def _estimate(self, flows: Sequence[list[Row]], low: float, high: float) -> Interval | None:
        n, totals = len(flows[0]), [self.total(rows) for rows in flows]
        mean = _subtract_totals(totals)
        if isnan(mean):
            return None
        values = np.array([_subtract_totals([n * total for total in totals])]) - (n - 1) * self._changed_totals(
            flows, self._leave_one_out
        )
        if np.isnan(values).any():
            return Interval(mean, low, high, n, self.level, "range")
        # Rows of zeros do not move the total, so each other row stands for several questions.
        weight = n / max(1, min(sum(map(any, rows)) for rows in flows)) if self.additive else 1.0
        width, largest = self.range[1] - self.range[0], max(map(abs, totals))
        resampled = partial(self._changed_totals, flows, self._resample, defined=True)
        estimate = interval_of(mean, values, resampled, self.level, width=width, largest=largest, weight=weight)
        return estimate.clip(low, high)

    def _changed_totals(
        self, flows: Sequence[list[Row]], change: Callable[[list[Row]], Iterator[Rows]], defined: bool = False
    ) -> Floats:
        """Compute totals, or their differences, under all changes of the rows."""
        totals = np.array(
            [
                _subtract_totals([self.total(variant) for variant in rows])
                for rows in zip(*map(change, flows), strict=True)
            ]
        )
        return totals[~np.isnan(totals)] if defined else totals

    def _leave_one_out(self, rows: list[Row]) -> Iterator[Rows]:
        """Return all rows but one, for each in turn."""
        # A single row of sums has the same total as the rows, and is faster.
        if self.additive and len(rows) > 1:
            table = np.array(rows)
            return ([tuple(sums)] for sums in (table.sum(axis=0) - table).tolist())
        return (rows[:index] + rows[index + 1 :] for index in range(len(rows)))

    def _resample(self, rows: list[Row]) -> Iterator[Rows]:
        """Return as many rows, drawn again; the same questions for each flow."""
        if self.additive:
            means = resampled_means(np.array(rows), self.draws, self.seed) * len(rows)
            return ([tuple(sums)] for sums in means.tolist())
        places = np.random.default_rng(self.seed).integers(0, len(rows), (self.draws, len(rows)))
        return ([rows[index] for index in draw] for draw in places.tolist())

    def _exchange_rows(self, first: list[Row], second: list[Row], n: int) -> Iterator[tuple[Rows, Rows]]:
        """Yield both flows with the rows of some questions exchanged: in all ways if few differ, else by lot."""
        if self.additive and n > ALL:
            ours, theirs = np.array(first), np.array(second)
            # For a sum, exchanging rows is adding or subtracting half of their difference.
            sums, half = (ours + theirs).sum(axis=0), flipped_sums((ours - theirs) / 2, SUMS, self.seed)
            pairs = zip((sums / 2 + half).tolist(), (sums / 2 - half).tolist(), strict=True)
            yield from (([tuple(left)], [tuple(right)]) for left, right in pairs)
            return
        pairs_of = list(zip(first, second, strict=True))
        differing = [index for index, (left, right) in enumerate(pairs_of) if left != right]
        swap_draws = np.random.default_rng(self.seed).integers(0, 2, (self.draws, n))
        for swaps in product((0, 1), repeat=n) if n <= ALL else map(tuple, swap_draws.tolist()):
            swapped = {index for index, swap in zip(differing, swaps, strict=True) if swap}
            swapped_pairs = [pair[::-1] if index in swapped else pair for index, pair in enumerate(pairs_of)]
            yield [left for left, _ in swapped_pairs], [right for _, right in swapped_pairs]


def _subtract_totals(totals: Sequence[float]) -> float:
    return totals[0] if len(totals) == 1 else totals[0] - totals[1]
