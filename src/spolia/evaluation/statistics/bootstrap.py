"""The bootstrap: many columns by one set of resamples, and the interval of a number that follows from values."""

from collections.abc import Callable
from math import inf, isfinite, sqrt

import numpy as np

from spolia.evaluation.statistics.interval import NORMAL, Interval, student
from spolia.evaluation.statistics.significance import CELLS, Floats

RESAMPLES = 10_000
FEW = 20
"""Where fewer values than this differ from the usual one, a bootstrap has too little to draw from."""
HARDLY_ANY = 5
"""Where fewer than this do, those seen do not tell how far others may lie."""
ROUNDING = 9
"""Digits, as shares of the largest score, by which values are told apart."""


def resampled_means(scores: Floats, resamples: int, seed: int) -> Floats:
    """Means of every column in resamples of the rows, the same rows for all columns: one matrix product. NaN does not
    count."""
    n, random = len(scores), np.random.default_rng(seed)
    found, size = [], max(1, CELLS // n)
    known = ~np.isnan(scores)
    filled, known = np.where(known, scores, 0.0), known.astype(np.float64)
    for start in range(0, resamples, size):
        rows = min(size, resamples - start)
        drawn = random.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        found.append(counts @ filled / (n if known.all() else np.maximum(counts @ known, 1)))
    return np.concatenate(found)


def interval_of(
    mean: float,
    values: Floats,
    resampled: Callable[[], Floats],
    level: float,
    *,
    width: float,
    largest: float,
    weight: float = 1.0,
) -> Interval:
    """The interval of a mean of `values` (scores, differences, or pseudo-values of a total), by the method that they
    allow.

    Where at least 20 of them differ from the most frequent one it is the bootstrap's, else Student's with a pair
    unseen. What was not seen is as far away as the farthest seen; where fewer than 5 differ, by half of the range;
    without a range, by the largest score. Where that is nothing too, nothing can be said. One value stands for `weight`
    questions.
    """
    off = np.abs(values - mean)
    _, counts = np.unique(np.round((values - mean) / (largest or 1.0), ROUNDING), return_counts=True)
    differ = int(values.size - counts.max())
    if differ >= FEW:
        return expanded_bca(mean, values, resampled(), level)
    reach = float(off.max())
    if differ < HARDLY_ANY:
        reach = width / 2 if isfinite(width) else max(reach, largest)
    if not reach or (values.size == 1 and not isfinite(width)):
        return Interval(mean, -inf, inf, values.size, level, "nothing differs")
    return with_a_pair(mean, values, reach * weight, level)


def expanded_bca(mean: float, values: Floats, means: Floats, level: float) -> Interval:
    """The interval of a mean from its resampled means, shifted for bias and skew, and widened for few questions.

    Its ends are quantiles of the resampled means. Which ones, says BCa: z0 is how far the mean is from their median,
    a how skewed the values are, by the jackknife. They start from Φ(-√(n / (n - 1)) · t) in place of 0.025, since a
    resample varies less than a sample, by n - 1 of n.

    Source: Efron 1987; Hesterberg 2015 for the widening.
    """
    n = values.size
    below = float((means < mean).mean() + (means == mean).mean() / 2)
    z0 = NORMAL.inv_cdf(min(max(below, 1 / means.size), 1 - 1 / means.size))
    off = values - values.mean()
    a = float((off**3).sum() / (6 * (off**2).sum() ** 1.5))
    half = sqrt(n / (n - 1)) * student(level, n - 1)
    ends = [NORMAL.cdf(z0 + z / max(1 - a * z, 1e-9)) for z in (z0 - half, z0 + half)]
    low, high = np.quantile(means, ends)
    return Interval(mean, float(low), float(high), n, level, "expanded BCa bootstrap").within()


def with_a_pair(mean: float, values: Floats, reach: float, level: float) -> Interval:
    """The interval of a mean of which nearly all values are the same: Student's, of them and two that were not seen.

    A bootstrap draws nothing that was not seen, so that of three values in thirty that differ it makes an interval that
    holds the true mean three times in four. One value `reach` above the mean and one below stand for what was not seen.

    Source: Agresti and Coull 1998, for shares; measured for graded scores in benchmarks/results/experiments.json.
    """
    more = np.append(values, (mean - reach, mean + reach))
    half = student(level, more.size - 1) * float(more.std(ddof=1)) / sqrt(more.size)
    return Interval(mean, mean - half, mean + half, values.size, level, "t with a pair unseen")
