"""Correction of a score by which a flow was chosen, and a bound on what the choice may have lost."""

from math import e, inf, isfinite, sqrt

import numpy as np
from numpy.typing import ArrayLike

from spolia.evaluation.statistics.interval import HARDLY_ANY, Interval, count_differing, student_with_pair
from spolia.evaluation.statistics.significance import ROUNDING, Floats

DRAWS = 2_000
LEFT_OUT = 1 / e
"""Share of the questions that a draw with replacement leaves out."""
# The factor √(r / (n - r)) for the share that a draw leaves out.
NEARER = sqrt(LEFT_OUT / (1 - LEFT_OUT))


def correct_for_choice(
    scores: ArrayLike, *, width: float = inf, level: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Estimate the score of the best of many flows on the questions that it was chosen by, without what the choice
    adds.

    In each of many draws of the questions with replacement, the flow that is best on the drawn questions is scored on
    the others, about r = .368 n. The mean of these scores is the estimate. Their quantiles are the interval, nearer to
    the mean by √(r / (n - r)): means of r of n questions vary more than means of n. Where fewer than 5 scores of the
    best flow differ from its usual one, the interval is at least Student's with a pair unseen.

    Args:
        scores: one row a question, one column a flow, higher is better; NaN where a flow was not asked.
        width: from the lowest score that can be to the highest.

    Source: bootstrap bias-corrected cross-validation, Tsamardinos, Greasidou and Borboudakis 2018, whose interval is
    the quantiles themselves and covers too much; Shao and Wu 1989 for the factor, that of the delete-d jackknife.

    >>> lucky = np.random.default_rng(0).integers(0, 2, (50, 100))  # flows that are right by chance
    >>> float(lucky.mean(axis=0).max()), round(correct_for_choice(lucky, draws=500).mean, 2)
    (0.66, 0.46)
    """
    table = np.asarray(scores, dtype=np.float64)
    present = (~np.isnan(table)).astype(np.float64)
    filled, random, n = np.where(present > 0, table, 0.0), np.random.default_rng(seed), len(table)
    if n < 2:
        mean = float(filled.sum() / max(1, present.sum()))
        return Interval(mean, -np.inf, np.inf, n, level, "nothing differs")
    held_out_scores = []
    for _ in range(draws):
        weights = np.bincount(random.integers(0, n, n), minlength=n).astype(np.float64)
        left_out = (weights == 0).astype(np.float64)
        best = int(np.argmax(_weighted_means(weights, filled, present)))
        score = _weighted_means(left_out, filled[:, best : best + 1], present[:, best : best + 1])[0]
        # A draw may leave out no question that the best flow was asked.
        if np.isfinite(score):
            held_out_scores.append(score)
    estimates = np.array(held_out_scores)
    mean = float(estimates.mean())
    low, high = mean + NEARER * (np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2]) - mean)
    best = int(np.argmax(_weighted_means(np.ones(n), filled, present)))
    values = table[present[:, best] > 0, best]
    largest = float(np.abs(values).max())
    if count_differing(values, largest) < HARDLY_ANY:
        pair = student_with_pair(mean, values, width / 2 if isfinite(width) else largest, level)
        low, high = min(low, pair.low), max(high, pair.high)
    return Interval(mean, float(low), float(high), n, level, "bootstrap corrected for the choice")


def bound_loss(scores: ArrayLike, chosen: int, *, level: float = 0.95, draws: int = DRAWS, seed: int = 0) -> float:
    """Bound by how much any of some flows may be better than the chosen one: the largest upper end of one-sided
    intervals of the paired differences that hold together.

    A bound for the flows that were compared, on questions that chose none of them; it says nothing of others.

    Args:
        scores: one row a question, one column a flow, higher is better, all known.
        chosen: the column of the chosen flow.

    Source: the max-t bootstrap; White 2000, Romano and Wolf 2005.

    >>> random = np.random.default_rng(0)
    >>> scores = random.random((400, 1)) / 2 + random.random((400, 3)) / 4 + [0.2, 0.1, 0.0]
    >>> bound_loss(scores, 0), round(bound_loss(scores, 1), 2)
    (0.0, 0.11)
    """
    table = np.asarray(scores, dtype=np.float64)
    n, flows = table.shape
    if flows < 2:
        return 0.0
    if n < 2:
        return float("inf")
    gaps = np.delete(table, chosen, axis=1) - table[:, [chosen]]
    means, error = gaps.mean(axis=0), np.maximum(gaps.std(axis=0, ddof=1) / sqrt(n), 1e-300)
    # Gaps that do not vary are left out: scaled by their error they would be rounding divided by rounding.
    varies = error > ROUNDING
    critical = 0.0
    if varies.any():
        weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws) / n
        critical = float(np.quantile(((means - weights @ gaps) / error)[:, varies].max(axis=1), level))
    return max(0.0, round(float((means + critical * error).max()), 9))  # what rounding leaves is no loss


def _weighted_means(weights: Floats, filled: Floats, present: Floats) -> Floats:
    """Return the mean of every column, weighted by how often each row counts; -inf where nothing counts."""
    counts = weights @ present
    return np.where(counts > 0, weights @ filled / np.maximum(counts, 1), -np.inf)
