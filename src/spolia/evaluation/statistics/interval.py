"""Intervals of a mean or of a difference of means: by formulas for shares, by the bootstrap for other scores."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, factorial, inf, isfinite, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from spolia.evaluation.statistics.significance import CELLS, Floats
from spolia.types import Value


@dataclass(frozen=True)
class Interval(Value):
    """A number measured on questions that were drawn, and where it may lie for all questions of their kind.

    Args:
        mean: of the scores, or of the differences; of a measure that is not a mean, its total.
        low: lower end; -inf if unknown.
        high: upper end; inf if unknown.
        n: number of questions.
        level: how often such intervals hold the true number.

    >>> print(Interval(0.7, 0.4, 0.9, 10))
    0.700 [0.400, 0.900]
    """

    mean: float
    low: float
    high: float
    n: int
    level: float = 0.95
    method: str = ""

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def reversed(self) -> "Interval":
        """Return the interval of the opposite difference."""
        return self.but(mean=-self.mean, low=-self.high, high=-self.low)

    def widen(self, margin: float) -> "Interval":
        """Move both ends outwards: the measurement itself may be wrong by as much."""
        return self.but(low=self.low - margin, high=self.high + margin)

    def clip(self, lowest: float = -inf, highest: float = inf) -> "Interval":
        """Clip the interval to possible values, always around the mean."""
        return self.but(low=min(self.mean, max(self.low, lowest)), high=max(self.mean, min(self.high, highest)))

    def json(self) -> dict[str, Any]:
        """Return plain data; unknown ends are null."""
        numbers = {name: getattr(self, name) for name in ("mean", "low", "high")}
        return {name: number if isfinite(number) else None for name, number in numbers.items()} | {"n": self.n}

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


NORMAL = NormalDist()
EXPANSION = ((4, (0, 1, 1)), (96, (0, 3, 16, 5)), (384, (0, -15, 17, 19, 3)), (92160, (0, -945, -1920, 1482, 776, 79)))
"""Of each power of 1/ν: what it is divided by, and the coefficients of z⁻¹, z¹, z³, z⁵, …"""


def student_t(level: float, freedom: int) -> float:
    """Return the t within which a share `level` of the two-sided distribution with `freedom` degrees lies.

    By the expansion of Fisher and Cornish in powers of 1/ν: to a percent for ν = 2, to 1e-4 from ν = 10.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, 26.7.5.

    >>> round(student_t(0.95, 2), 2), round(student_t(0.95, 29), 4)  # 4.30, 2.0452
    (4.27, 2.0452)
    """
    z = NORMAL.inv_cdf((1 + level) / 2)
    t = z
    for power, (divisor, coefficients) in enumerate(EXPANSION, start=1):
        terms = sum(coefficient * z ** (2 * i - 1) for i, coefficient in enumerate(coefficients))
        t += terms / divisor / float(freedom) ** power
    return t


# The widest interval that is halved, of width 10, is then narrower than 1e-14.
HALVINGS = 50
RARE, SMALL = 3, 50
"""So few right or wrong are rare, one less with at most fifty questions."""


def wilson(right: int, n: int, level: float = 0.95) -> Interval:
    """Return the share `right` of `n`, and the interval of shares that a score test does not reject.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    It has width where all or none are right, and its level is right on average also for 30 questions. Where one to
    three are wrong or right (up to two of fifty questions) it would hold a share of 0.995 nine times in ten only; there
    the end goes on to where so few come of Poisson's distribution.

    Source: Wilson 1927; Brown, Cai and DasGupta 2001, 4.1.1, for the modified ends.

    >>> print(wilson(30, 30), wilson(99, 100))
    1.000 [0.886, 1.000] 0.990 [0.946, 0.999]
    """
    z = NORMAL.inv_cdf((1 + level) / 2)
    p = right / n
    middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    rare = RARE if n > SMALL else RARE - 1
    if 0 < right <= rare:
        low = min(low, _expected_count(right, 1 - level) / n)
    if 0 < n - right <= rare:
        high = max(high, 1 - _expected_count(n - right, 1 - level) / n)
    return Interval(p, low, high, n, level, "Wilson").clip(0, 1)


def _expected_count(count: int, chance: float) -> float:
    """Return the expected count for which `count` or more come with a probability of `chance`."""
    low, high = 0.0, 10.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        chance_of_fewer = exp(-middle) * sum(middle**k / factorial(k) for k in range(count))
        low, high = (middle, high) if 1 - chance_of_fewer < chance else (low, middle)
    return low


def tango(only_ours: int, only_theirs: int, n: int, level: float = 0.95) -> Interval:
    """Return the difference of two shares of the same `n` questions, and the interval that a score test does not
    reject.

    With b and c the questions that only one has right, the test of the difference δ is
    (b - c - nδ) / √(n(2q + δ(1 - δ))), q being the most likely probability of c for that δ.

    Source: Tango 1998.

    >>> print(tango(8, 2, 100))
    0.060 [-0.002, 0.134]
    """
    z, mean = NORMAL.inv_cdf((1 + level) / 2), (only_ours - only_theirs) / n

    def score(delta: float) -> float:
        b = (2 * n - only_ours + only_theirs) * delta - only_ours - only_theirs
        # Rounding may make the term under the root slightly negative.
        q = (sqrt(max(b * b + 8 * n * only_theirs * delta * (1 - delta), 0.0)) - b) / (4 * n)
        # Where the variance is 0, the test divides by almost nothing in place of nothing.
        return (only_ours - only_theirs - n * delta) / sqrt(max(n * (2 * q + delta * (1 - delta)), 1e-300))

    def end(inside: float, outside: float) -> float:
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if abs(score(middle)) <= z else (inside, middle)
        return inside

    return Interval(mean, end(mean, -1.0), end(mean, 1.0), n, level, "Tango")


RESAMPLES = 10_000
FEW = 20
"""Where fewer values than this differ from the usual one, a bootstrap has too little to draw from."""
HARDLY_ANY = 5
"""Where fewer than this do, those seen do not tell how far others may lie."""
ROUNDING = 9
"""Digits, as shares of the largest score, that distinguish values."""


def count_differing(values: Floats, largest: float) -> int:
    """Count the values that differ from the most frequent one, by more than rounding beside the `largest` score."""
    _, counts = np.unique(np.round(values / (largest or 1.0), ROUNDING), return_counts=True)
    return int(values.size - counts.max())


def resampled_means(scores: Floats, resamples: int, seed: int) -> Floats:
    """Compute the means of every column in resamples of the rows, the same rows for all columns, by matrix products.
    NaN does not count."""
    n, random = len(scores), np.random.default_rng(seed)
    # Blocks of resamples bound the memory that their counts take.
    blocks, size = [], max(1, CELLS // n)
    present = ~np.isnan(scores)
    filled, present = np.where(present, scores, 0.0), present.astype(np.float64)
    for start in range(0, resamples, size):
        rows = min(size, resamples - start)
        # With an offset for each resample, one bincount counts the rows of all of them.
        draws = random.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(draws.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        blocks.append(counts @ filled / (n if present.all() else np.maximum(counts @ present, 1)))
    return np.concatenate(blocks)


def interval_of(
    mean: float,
    values: Floats,
    resample: Callable[[], Floats],
    level: float,
    *,
    width: float,
    largest: float,
    weight: float = 1.0,
) -> Interval:
    """Return the interval of a mean of `values` (scores, differences, or pseudo-values of a total), by the method that
    they allow.

    Where at least 20 of them differ from the most frequent one it is the bootstrap's, else Student's with a pair
    unseen. What was not seen is as far away as the farthest seen; where fewer than 5 differ, by half of the range;
    without a range, by the largest score. Where that is nothing too, the interval is unknown. One value stands for
    `weight` questions.
    """
    deviations = np.abs(values - mean)
    differing_count = count_differing(values - mean, largest)
    if differing_count >= FEW:
        return expanded_bca(mean, values, resample(), level)
    deviation = float(deviations.max())
    if differing_count < HARDLY_ANY:
        deviation = width / 2 if isfinite(width) else max(deviation, largest)
    if not deviation or (values.size == 1 and not isfinite(width)):
        return Interval(mean, -inf, inf, values.size, level, "nothing differs")
    return student_with_pair(mean, values, deviation * weight, level)


def expanded_bca(mean: float, values: Floats, means: Floats, level: float) -> Interval:
    """Return the interval of a mean from its resampled means, shifted for bias and skew, and widened for few questions.

    Its ends are quantiles of the resampled means. Which ones, says BCa: z0 is how far the mean is from their median,
    a how skewed the values are, by the jackknife. They start from Φ(-√(n / (n - 1)) · t) in place of 0.025, since a
    resample varies less than a sample, by n - 1 of n.

    Source: Efron 1987; Hesterberg 2015 for the widening.
    """
    n = values.size
    share_below = float((means < mean).mean() + (means == mean).mean() / 2)
    # The quantile stays finite where all resampled means lie on one side of the mean.
    z0 = NORMAL.inv_cdf(min(max(share_below, 1 / means.size), 1 - 1 / means.size))
    deviations = values - values.mean()
    a = float((deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5))
    half = sqrt(n / (n - 1)) * student_t(level, n - 1)
    # A strong skew would turn the denominator negative.
    ends = [NORMAL.cdf(z0 + z / max(1 - a * z, 1e-9)) for z in (z0 - half, z0 + half)]
    low, high = np.quantile(means, ends)
    return Interval(mean, float(low), float(high), n, level, "expanded BCa bootstrap").clip()


def student_with_pair(mean: float, values: Floats, deviation: float, level: float) -> Interval:
    """Return Student's interval of a mean of which nearly all values are the same, with two more values that were not
    seen.

    A bootstrap draws nothing that was not seen, so that of three values in thirty that differ it makes an interval that
    holds the true mean three times in four. One value `deviation` above the mean and one below stand for the unseen.

    Source: Agresti and Coull 1998, for shares; measured for graded scores in benchmarks/results/experiments.json.
    """
    extended = np.append(values, (mean - deviation, mean + deviation))
    half = student_t(level, extended.size - 1) * float(extended.std(ddof=1)) / sqrt(extended.size)
    return Interval(mean, mean - half, mean + half, values.size, level, "t with a pair unseen")
