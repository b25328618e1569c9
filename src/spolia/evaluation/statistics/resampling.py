"""The bootstrap of means: many columns by one set of resamples, and the interval of one of them."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, TypeAlias

from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.quantiles import NORMAL, student

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

RESAMPLES = 10_000
CELLS = 1 << 20
"""Draws that are in memory at the same time."""


def resampled_means(scores: Floats, resamples: int, seed: int) -> Floats:
    """Means of every column in resamples of the rows: the same rows for all columns, so that differences are paired.

    How often each row was drawn, times the scores, is one matrix product for all columns.

    Args:
        scores: shape (questions, columns).

    Returns:
        Shape (resamples, columns).
    """
    import numpy as np

    n, random = len(scores), np.random.default_rng(seed)
    found, size = [], max(1, CELLS // n)
    for start in range(0, resamples, size):
        rows = min(size, resamples - start)
        drawn = random.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        found.append(counts @ scores / n)
    return np.concatenate(found)


def expanded_bca(values: Floats, means: Floats, level: float) -> Interval:
    """The interval of a mean from its resampled means, shifted for bias and skew, and widened for few questions.

    Its ends are quantiles of the resampled means. Which ones, says BCa: z0 is how far the mean is from their median,
    a how skewed the values are, by the jackknife. They start from Φ(-√(n / (n - 1)) · t) in place of 0.025, since a
    resample varies less than a sample, by n - 1 of n.

    Args:
        values: of the questions.
        means: of resamples of them.

    Source: Efron 1987; Hesterberg 2015 for the widening.
    """
    import numpy as np

    n, mean = values.size, float(values.mean())
    below = float((means < mean).mean() + (means == mean).mean() / 2)
    z0 = NORMAL.inv_cdf(min(max(below, 1 / means.size), 1 - 1 / means.size))
    off = values - mean
    a = float((off**3).sum() / (6 * (off**2).sum() ** 1.5))
    half = sqrt(n / (n - 1)) * student(level, n - 1)
    ends = [NORMAL.cdf(z0 + z / max(1 - a * z, 1e-9)) for z in (z0 - half, z0 + half)]
    low, high = np.quantile(means, ends)
    return Interval(mean, float(low), float(high), n, level, "expanded BCa bootstrap").within()


def with_a_pair(values: Floats, reach: float, level: float) -> Interval:
    """The interval of a mean of which nearly all values are the same: Student's, of them and two that were not seen.

    A bootstrap draws nothing that was not seen, so that of three values in thirty that differ it makes an interval that
    holds the true mean three times in four. One value `reach` above the mean and one below stand for what was not seen.

    Args:
        reach: how far such a value may lie from the mean.

    Source: Agresti and Coull 1998, for shares; measured for graded scores in benchmarks/results/experiments.json.
    """
    import numpy as np

    mean = float(values.mean())
    more = np.append(values, (mean - reach, mean + reach))
    half = student(level, more.size - 1) * float(more.std(ddof=1)) / sqrt(more.size)
    return Interval(mean, mean - half, mean + half, values.size, level, "t with a pair unseen")
