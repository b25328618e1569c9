"""How sure a mean is: bootstrap intervals over questions, plain and paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, TypeAlias

from spolia.types import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]

RESAMPLES = 10_000
CELLS = 4_000_000
Method: TypeAlias = Literal["percentile", "bca"]


@dataclass(frozen=True)
class Interval(Value):
    """A mean and where it may lie.

    Args:
        mean: of the scores, or of the differences.
        low: lower end.
        high: upper end.
        n: how many questions stand behind it.
        level: how often such intervals hold the true mean.
    """

    mean: float
    low: float
    high: float
    n: int
    level: float = 0.95

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is shown."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(
    scores: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    method: Method = "percentile",
) -> Interval:
    """The mean of scores with its bootstrap interval.

    A resample draws n scores with replacement; how often each distinct score is drawn is multinomial, so that a
    resampled mean costs as many multiplications as there are distinct scores. The interval runs between the
    (1 - level) / 2 and (1 + level) / 2 quantiles of the resampled means; `bca` shifts them for bias and skew.
    Scores that are all the same give an interval without width, which says too much when n is small.

    Args:
        scores: one number per question, shape (n,), n >= 1.
        level: between 0 and 1.
        resamples: how many.
        seed: the same seed and scores give the same interval, whatever the order of the scores.
        method: `percentile` or `bca`.

    Raises:
        ValueError: there are no scores, or the level lies outside (0, 1).

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, sections 13.3 and 14.3.

    >>> print(bootstrap([0, 1, 1, 0, 1, 1, 1, 0, 1, 1]))
    0.700 [0.400, 1.000]
    """
    import numpy as np

    found = np.asarray(scores, dtype=np.float64)
    if found.ndim != 1 or not found.size or not 0 < level < 1:
        raise ValueError(
            f"Got scores of shape {found.shape} and level {level}. Give at least one score in a flat sequence, "
            "and a level between 0 and 1, for example 0.95."
        )
    values, counts = np.unique(found, return_counts=True)
    mean = float(values @ counts / found.size)
    if values.size == 1:
        return Interval(float(values[0]), float(values[0]), float(values[0]), found.size, level)
    means = _resampled(values, counts, resamples, seed)
    ends = ((1 - level) / 2, (1 + level) / 2)
    if method == "bca":
        ends = _corrected(ends, values, counts, means, mean)
    low, high = np.quantile(means, ends)
    return Interval(mean, min(float(low), mean), max(float(high), mean), found.size, level)


def paired(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    method: Method = "percentile",
) -> Interval:
    """The mean of `ours - theirs` over the same questions, with its bootstrap interval.

    Raises:
        ValueError: the two are not about the same number of questions.

    >>> print(paired([1, 1, 1, 0], [0, 1, 0, 0]))
    0.500 [0.000, 1.000]
    """
    import numpy as np

    if len(ours) != len(theirs):
        raise ValueError(f"Got {len(ours)} and {len(theirs)} scores. Pair two scores of every question.")
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    return bootstrap(differences, level=level, resamples=resamples, seed=seed, method=method)


def _resampled(values: Floats, counts: NDArray[np.int64], resamples: int, seed: int) -> Floats:
    """Means of resamples, shape (resamples,), in blocks of bounded memory."""
    import numpy as np

    n, random = int(counts.sum()), np.random.default_rng(seed)
    block = max(1, CELLS // values.size)
    sizes = [min(block, resamples - start) for start in range(0, resamples, block)]
    return np.concatenate([random.multinomial(n, counts / n, size=size) @ values / n for size in sizes])


def _corrected(
    ends: tuple[float, float], values: Floats, counts: NDArray[np.int64], means: Floats, mean: float
) -> tuple[float, float]:
    """Quantiles corrected for bias (z0) and skew (a, by the jackknife): Efron and Tibshirani 1993, section 14.3."""
    normal, below = NormalDist(), float((means < mean).mean() + (means == mean).mean() / 2)
    z0 = normal.inv_cdf(min(max(below, 1 / means.size), 1 - 1 / means.size))
    off = values - mean
    a = float(counts @ off**3 / (6 * (counts @ off**2) ** 1.5))
    z = [z0 + normal.inv_cdf(end) for end in ends]
    low, high = (normal.cdf(z0 + one / (1 - a * one)) for one in z)
    return low, high
