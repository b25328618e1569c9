"""Fusion of ranked lists by rank or by score, and the order of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spolia.deferred import numpy as np
from spolia.ranking.alignment import AlignedLists, sum_exactly
from spolia.ranking.scalings import Scaling, to_finite

if TYPE_CHECKING:
    from spolia.ranking.alignment import AlignedLists, Numbers, Scored


def descending_key(score: float) -> float:
    """Return a key that sorts scores from the best to the worst, with NaN among the worst."""
    return math.inf if math.isnan(score) else -score


def sort_best_first(scores: Sequence[float]) -> list[int]:
    """Return the positions of scores, best first; equal scores keep their order."""
    # Keys in a list are looked up in C: `key=lambda …: descending_key(…)` takes 1.7 times as long.
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
    list_weights = check_weights(len(lists), weights)
    aligned = AlignedLists.from_lists(lists)
    return _pair_scores(aligned, compute_rank_scores(aligned, [k], np.array([list_weights])), list_weights)


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
    list_weights = check_weights(len(lists), weights)
    aligned = AlignedLists.from_lists(lists)
    scalings = [scaling] * len(lists) if callable(scaling) else scaling
    return _pair_scores(
        aligned, compute_convex_scores(scale_scores(aligned, scalings), np.array([list_weights])), list_weights
    )


def highest_score(lists: Sequence[Scored]) -> list[tuple[str, float]]:
    """Fuse by the scores as they are: score(d) = max_r s_r(d), for lists whose scores can be compared.

    Equal scores: the better rank first, then the id.

    Source: CombMAX in Fox, Shaw, "Combination of multiple searches", TREC-2, 1994.

    >>> highest_score([[("a", 0.9), ("b", 0.2)], [("b", 0.5), ("c", 0.4)]])
    [('a', 0.9), ('b', 0.5), ('c', 0.4)]
    """
    aligned = AlignedLists.from_lists(lists)
    return _pair_scores(aligned, compute_highest_scores(aligned), [1.0] * len(lists))


def compute_rank_scores(aligned: AlignedLists, ks: Sequence[float], weights: Numbers) -> Numbers:
    """Return float64[ks, documents]: Σ_r w_r / (k + rank_r(d)) for each k, with w = weights: float64[ks, lists]."""
    column = np.asarray(ks, dtype=np.float64)[:, None]
    parts = [weights[:, index, None] / (column + ranks) for index, ranks in enumerate(aligned.ranks)]
    return sum_exactly(parts) if parts else np.zeros((len(ks), 0))


def scale_scores(aligned: AlignedLists, scalings: Sequence[Scaling]) -> Numbers:
    """Return float64[lists, documents]: φ_r(s_r(d)), with absent documents as the scaling says."""
    scaled_lists = [scale(scores.tolist()) for scale, scores in zip(scalings, aligned.scores, strict=True)]
    return aligned.spread([values for values, _ in scaled_lists], [absent for _, absent in scaled_lists])


def compute_convex_scores(values: Numbers, weights: Numbers) -> Numbers:
    """Return float64[variants, documents]: Σ_r w_r · v_r(d) / Σ_r w_r for each row w of weights; 0 if all are 0."""
    if not len(values):
        return np.zeros((len(weights), 0))
    totals = sum_exactly(list(weights.T))[:, None]
    sums: Numbers = sum_exactly([weights[:, index, None] * row for index, row in enumerate(values)])
    return np.asarray(sums / np.where(totals > 0, totals, 1.0))


def compute_highest_scores(aligned: AlignedLists) -> Numbers:
    """Return float64[1, documents]: max_r s_r(d)."""
    values = aligned.spread([to_finite(scores) for scores in aligned.scores], [-np.inf] * len(aligned.scores))
    return np.asarray(values.max(axis=0, initial=-np.inf, keepdims=True))


def check_weights(count: int, weights: Sequence[float] | None) -> Sequence[float]:
    """Return a weight for each list, 1 by default; raise `ValueError` if numbers are wrong or missing."""
    list_weights = [1.0] * count if weights is None else weights
    if len(list_weights) != count:
        raise ValueError(f"{count} lists have {len(list_weights)} weights. Write one weight for each list.")
    if any(not (0 <= weight < math.inf) for weight in list_weights):
        raise ValueError(f"The weights are {list(list_weights)}. Write numbers of at least 0.")
    return list_weights


def _pair_scores(aligned: AlignedLists, scores: Numbers, weights: Sequence[float]) -> list[tuple[str, float]]:
    (order,) = aligned.select_best(scores, weights).tolist()
    numbers = scores[0].tolist()
    return [(aligned.names[index], numbers[index]) for index in order]
