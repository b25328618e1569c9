"""Scores of the same questions by several flows: their means, differences and tests, all from the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from spolia.evaluation.statistics.flips import flipped_sums, sign_flip
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.proportions import tango, wilson
from spolia.evaluation.statistics.resampling import RESAMPLES, expanded_bca, resampled_means, with_a_pair
from spolia.types import kept

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]

FEW = 20
"""Where fewer values than this differ from the usual one, a bootstrap has too little to draw from."""
HARDLY_ANY = 5
"""Where fewer than this do, those seen do not tell how far others may lie: half of the range is taken."""
HALF = 0.5


class Sample:
    """How sure means and differences are. The method follows from the scores:

    - all 0 or 1: Wilson's interval of a share, Tango's of the difference of two;
    - fewer than 20 that differ from the most frequent one: Student's t with a pair unseen (`with_a_pair`);
    - else: the bootstrap, bias-corrected, accelerated and expanded (`expanded_bca`).

    How often they hold the true number was measured: benchmarks/results/experiments.json.

    Args:
        scores: one row a question, one column a flow; nothing missing, at least one row.
        scale: whether scores that all lie between 0 and 1 can lie nowhere else; not so for costs.
        level: how often an interval should hold the true number.
        resamples: draws of the bootstrap, and of the signs of a test.
        seed: the same seed and scores give the same numbers.

    Raises:
        ValueError: there are no scores, or the level lies outside (0, 1).

    >>> two = Sample([[1, 0], [1, 1], [1, 0], [0, 0]])
    >>> print(two.interval(0), "and", two.difference(0, 1), "p =", two.p(0, 1))
    0.750 [0.301, 0.954] and 0.500 [-0.235, 0.850] p = 0.5
    """

    def __init__(
        self, scores: ArrayLike, *, scale: bool = True, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
    ) -> None:
        import numpy as np

        self.scores: Floats = np.asarray(scores, dtype=np.float64)
        if self.scores.ndim != 2 or not self.scores.size or not 0 < level < 1:
            raise ValueError(
                f"Got scores of shape {self.scores.shape} and level {level}. Give a row for each question with a "
                "number for each flow, and a level between 0 and 1, for example 0.95."
            )
        self.level, self.resamples, self.seed = level, resamples, seed
        self.bounded = scale and bool(((self.scores >= 0) & (self.scores <= 1)).all())

    @property
    def n(self) -> int:
        return len(self.scores)

    def interval(self, flow: int) -> Interval:
        """The mean of a column."""
        scores = self.scores[:, flow]
        if self._binary[flow]:
            return wilson(int(scores.sum()), self.n, self.level)
        found = self._of(scores, (flow, None))
        return found.within(0, 1) if self.bounded else found

    def difference(self, ours: int, theirs: int) -> Interval:
        """The mean of one column minus that of another."""
        differences = self._differences(ours, theirs)
        if self._binary[ours] and self._binary[theirs]:
            return tango(int((differences > 0).sum()), int((differences < 0).sum()), self.n, self.level)
        found = self._of(differences, (ours, theirs))
        return found.within(-1, 1) if self.bounded else found

    def p(self, ours: int, theirs: int) -> float:
        """How often a difference as large as this comes of signs drawn by lot (`sign_flip`)."""
        drawn = self._flipped[:, ours] - self._flipped[:, theirs]
        return sign_flip(self._differences(ours, theirs), drawn)

    def _of(self, values: Floats, columns: tuple[int, int | None]) -> Interval:
        import numpy as np

        _, counts = np.unique(values, return_counts=True)
        differ, mean = int(values.size - counts.max()), float(values.mean())
        if differ >= FEW:
            ours, theirs = columns
            means = self._means[:, ours] if theirs is None else self._means[:, ours] - self._means[:, theirs]
            return expanded_bca(values, means, self.level)
        if self.n == 1 and not self.bounded:
            return Interval(mean, -inf, inf, 1, self.level, "one value")
        reach = HALF if self.bounded and differ < HARDLY_ANY else float(np.abs(values - mean).max())
        return with_a_pair(values, reach, self.level)

    def _differences(self, ours: int, theirs: int) -> Floats:
        return self.scores[:, ours] - self.scores[:, theirs]

    @kept
    def _binary(self) -> list[bool]:
        found = ((self.scores == 0) | (self.scores == 1)).all(axis=0) & self.bounded
        return [bool(one) for one in found]

    @kept
    def _means(self) -> Floats:
        return resampled_means(self.scores, self.resamples, self.seed)

    @kept
    def _flipped(self) -> Floats:
        return flipped_sums(self.scores, self.resamples, self.seed)


def interval(scores: Sequence[float], **options: float) -> Interval:
    """The mean of scores, one a question; options as for `Sample`.

    >>> print(interval([0, 1, 1, 0, 1, 1, 1, 0, 1, 1]))
    0.700 [0.397, 0.892]
    """
    return Sample([[score] for score in scores], **options).interval(0)  # type: ignore[arg-type]


def difference(ours: Sequence[float], theirs: Sequence[float], **options: float) -> Interval:
    """By how much scores are higher than others of the same questions; options as for `Sample`.

    Raises:
        ValueError: the two are not about the same number of questions.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"Got {len(ours)} and {len(theirs)} scores. Pair two scores of every question.")
    return Sample(list(zip(ours, theirs, strict=True)), **options).difference(0, 1)  # type: ignore[arg-type]
