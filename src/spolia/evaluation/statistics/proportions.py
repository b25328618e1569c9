"""Intervals for shares of questions, and for differences of two shares of the same questions."""

from __future__ import annotations

from math import sqrt

from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.quantiles import NORMAL

HALVINGS = 50


def wilson(right: int, n: int, level: float = 0.95) -> Interval:
    """The share `right` of `n`, and the shares that a score test does not refuse.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    It has width where all or none are right, and its level is right on average also for 30 questions.

    Source: Wilson 1927; compared with others by Brown, Cai and DasGupta 2001.

    >>> print(wilson(30, 30))
    1.000 [0.886, 1.000]
    """
    z = NORMAL.inv_cdf((1 + level) / 2)
    p = right / n
    middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    found = Interval(p, (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n), n, level, "Wilson")
    return found.within(0, 1)


def tango(only_ours: int, only_theirs: int, n: int, level: float = 0.95) -> Interval:
    """The difference of two shares of the same `n` questions, and the differences that a score test does not refuse.

    With b and c the questions that only one has right, the test of the difference δ is
    (b - c - nδ) / √(n(2q + δ(1 - δ))), q being the most likely probability of c for that δ.

    Args:
        only_ours: questions that only the first has right.
        only_theirs: questions that only the second has right.

    Source: Tango 1998.

    >>> print(tango(8, 2, 100))
    0.060 [-0.002, 0.134]
    """
    z, mean = NORMAL.inv_cdf((1 + level) / 2), (only_ours - only_theirs) / n

    def score(delta: float) -> float:
        b = (2 * n - only_ours + only_theirs) * delta - only_ours - only_theirs
        q = (sqrt(max(b * b + 8 * n * only_theirs * delta * (1 - delta), 0.0)) - b) / (4 * n)
        return (only_ours - only_theirs - n * delta) / sqrt(max(n * (2 * q + delta * (1 - delta)), 1e-300))

    def end(inside: float, outside: float) -> float:
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if abs(score(middle)) <= z else (inside, middle)
        return inside

    return Interval(mean, end(mean, -1.0), end(mean, 1.0), n, level, "Tango")
