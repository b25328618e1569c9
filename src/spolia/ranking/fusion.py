"""The order of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spolia.deferred import numpy as np
from spolia.ranking.alignment import Aligned, summed
from spolia.ranking.scalings import Scaling, finite

if TYPE_CHECKING:
    from spolia.ranking.alignment import Aligned, Numbers, Scored


def falling(score: float) -> float:
    """A key that sorts scores from the best to the worst; NaN, which no comparison holds for, is of the worst."""
    return math.inf if math.isnan(score) else -score


def best_first(scores: Sequence[float]) -> list[int]:
    """Places of scores, the best first; of equal ones the first."""
    keys = [math.inf if score != score else -score for score in scores]
    return sorted(range(len(keys)), key=keys.__getitem__)


def reciprocal_rank_fusion(
    lists: Sequence[Scored], *, k: float = 60.0, weights: Sequence[float] | None = None
) -> list[tuple[str, float]]:
    """Fuse by rank alone: score(d) = Σ_r w_r / (k + rank_r(d)), absent documents adding nothing.

    Only the order of each list matters, so that lists of any scale can be fused. Equal scores: the better rank first,
    then the id.

    Args:
        lists: best first; of an id that a list holds twice, the first counts.
        k: how slowly the value of a rank falls; 60 by default.
        weights: one for each list, 1 by default.

    Source: Cormack, Clarke, Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", SIGIR 2009.

    >>> [(name, round(score, 4)) for name, score in reciprocal_rank_fusion([[("a", 3), ("b", 1)], [("b", 0.9)]])]
    [('b', 0.0325), ('a', 0.0164)]
    """
    weighed = checked_weights(len(lists), weights)
    aligned = Aligned.of(lists)
    return _paired(aligned, by_rank(aligned, [k], np.array([weighed])), weighed)


def convex_combination(
    lists: Sequence[Scored], *, scaling: Scaling | Sequence[Scaling], weights: Sequence[float] | None = None
) -> list[tuple[str, float]]:
    """Fuse by score: score(d) = Σ_r w_r · φ_r(s_r(d)) / Σ_r w_r, with φ the scaling of list r.

    Args:
        lists: best first; of an id that a list holds twice, the first counts.
        scaling: φ, one for all lists or one for each.
        weights: one for each list, relative, equal by default. A list of weight 0 has no say, not even between equals.

    Source: Bruch, Gai, Ingber, "An analysis of fusion functions for hybrid retrieval", TOIS 2023.

    >>> from spolia.ranking.scalings import min_max
    >>> convex_combination([[("a", 8.0), ("b", 4.0)], [("b", 0.5), ("c", 0.1)]], scaling=min_max)
    [('a', 0.5), ('b', 0.5), ('c', 0.0)]
    """
    weighed = checked_weights(len(lists), weights)
    aligned = Aligned.of(lists)
    scalings = [scaling] * len(lists) if callable(scaling) else scaling
    return _paired(aligned, by_score(scaled(aligned, scalings), np.array([weighed])), weighed)


def highest_score(lists: Sequence[Scored]) -> list[tuple[str, float]]:
    """Fuse by the scores as they are: score(d) = max_r s_r(d), for lists whose scores can be compared.

    Equal scores: the better rank first, then the id.

    Source: CombMAX in Fox, Shaw, "Combination of multiple searches", TREC-2, 1994.

    >>> highest_score([[("a", 0.9), ("b", 0.2)], [("b", 0.5), ("c", 0.4)]])
    [('a', 0.9), ('b', 0.5), ('c', 0.4)]
    """
    aligned = Aligned.of(lists)
    return _paired(aligned, by_highest(aligned), [1.0] * len(lists))


def by_rank(aligned: Aligned, ks: Sequence[float], weights: Numbers) -> Numbers:
    """float64[ks, documents]: Σ_r w_r / (k + rank_r(d)) for each k, with w = weights: float64[ks, lists]."""
    column = np.asarray(ks, dtype=np.float64)[:, None]
    parts = [weights[:, at, None] / (column + ranks) for at, ranks in enumerate(aligned.ranks)]
    return summed(parts) if parts else np.zeros((len(ks), 0))


def scaled(aligned: Aligned, scalings: Sequence[Scaling]) -> Numbers:
    """float64[lists, documents]: φ_r(s_r(d)), absent documents as the scaling says."""
    found = [scale(scores.tolist()) for scale, scores in zip(scalings, aligned.scores, strict=True)]
    return aligned.spread([values for values, _ in found], [absent for _, absent in found])


def by_score(values: Numbers, weights: Numbers) -> Numbers:
    """float64[variants, documents]: Σ_r w_r · v_r(d) / Σ_r w_r for each row w of weights; 0 for a row of zeros."""
    if not len(values):
        return np.zeros((len(weights), 0))
    totals = summed(list(weights.T))[:, None]
    sums: Numbers = summed([weights[:, at, None] * row for at, row in enumerate(values)])
    return np.asarray(sums / np.where(totals > 0, totals, 1.0))


def by_highest(aligned: Aligned) -> Numbers:
    """float64[1, documents]: max_r s_r(d)."""
    values = aligned.spread([finite(scores) for scores in aligned.scores], [-np.inf] * len(aligned.scores))
    return np.asarray(values.max(axis=0, initial=-np.inf, keepdims=True))


def checked_weights(count: int, weights: Sequence[float] | None) -> Sequence[float]:
    """A weight for each list, 1 if none are given; raises `ValueError` for wrong numbers or too few of them."""
    found = [1.0] * count if weights is None else weights
    if len(found) != count:
        raise ValueError(f"{count} lists have {len(found)} weights. Write one weight for each list.")
    if any(not (0 <= weight < math.inf) for weight in found):
        raise ValueError(f"The weights are {list(found)}. Write numbers of at least 0.")
    return found


def _paired(aligned: Aligned, scores: Numbers, weights: Sequence[float]) -> list[tuple[str, float]]:
    (order,) = aligned.best(scores, weights).tolist()
    numbers = scores[0].tolist()
    return [(aligned.names[at], numbers[at]) for at in order]
