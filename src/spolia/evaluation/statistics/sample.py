"""Scores of the same questions by several flows: their means, differences and tests, all from the same draws."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from spolia.evaluation.statistics.bootstrap import RESAMPLES, interval_of, resampled_means
from spolia.evaluation.statistics.interval import Interval, tango, wilson
from spolia.evaluation.statistics.significance import Floats, flipped_sums, sign_flip
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

    def known(self, *flows: int) -> int:
        """How many questions count for all of these."""
        return int((~np.isnan(self.scores[:, list(flows)])).all(axis=1).sum())

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
        return sign_flip(_told(self._apart(self.scores, ours, theirs)), self._drawn(self._flipped, ours, theirs))

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
    found: Floats = values[~np.isnan(values)]
    return found


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
