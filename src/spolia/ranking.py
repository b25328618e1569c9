"""The arithmetic of fusing ranked lists: pure, over plain sequences, best first.

A list is a sequence of (id, score) pairs; higher is better. What a document that is absent from a list counts is said
for each formula: never more than any document that is present.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

Scored: TypeAlias = Sequence[tuple[str, float]]
Scaling: TypeAlias = Callable[[Sequence[float]], tuple[list[float], float]]
"""From the scores of a list to their values on a common scale, and the value of a document that is absent."""


def competition_ranks(scores: Sequence[float]) -> list[int]:
    """Ranks from 1 of scores in the order of their list; neighbours with equal scores share the better rank.

    >>> competition_ranks([9.0, 7.0, 7.0, 1.0])
    [1, 2, 2, 4]
    """
    ranks: list[int] = []
    for index, score in enumerate(scores):
        ranks.append(ranks[-1] if index and score == scores[index - 1] else index + 1)
    return ranks


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
    weighed = _weights(lists, weights)
    ranked = [_by_id(list_, competition_ranks([score for _, score in list_])) for list_ in lists]
    scores = {
        name: math.fsum(w / (k + ranks[name]) for w, ranks in zip(weighed, ranked, strict=True) if name in ranks)
        for name in _names(ranked)
    }
    return _sorted(scores, ranked, weighed)


def convex_combination(
    lists: Sequence[Scored], *, scaling: Scaling | Sequence[Scaling], weights: Sequence[float] | None = None
) -> list[tuple[str, float]]:
    """Fuse by score: score(d) = Σ_r w_r · φ_r(s_r(d)) / Σ_r w_r, with φ the scaling of list r.

    Args:
        lists: best first; of an id that a list holds twice, the first counts.
        scaling: φ, one for all lists or one for each.
        weights: one for each list, relative, equal by default. A list of weight 0 has no say, not even between equals.

    Source: Bruch, Gai, Ingber, "An analysis of fusion functions for hybrid retrieval", TOIS 2023.

    >>> convex_combination([[("a", 8.0), ("b", 4.0)], [("b", 0.5), ("c", 0.1)]], scaling=min_max)
    [('a', 0.5), ('b', 0.5), ('c', 0.0)]
    """
    weighed = _weights(lists, weights)
    scalings = [scaling] * len(lists) if callable(scaling) else scaling
    total = math.fsum(weighed) or 1.0
    scaled, absent, ranked = [], [], []
    for list_, scale in zip(lists, scalings, strict=True):
        raw = [score for _, score in list_]
        values, floor = scale(raw)
        scaled.append(_by_id(list_, values))
        ranked.append(_by_id(list_, competition_ranks(raw)))
        absent.append(floor)
    scores = {
        name: math.fsum(w * v.get(name, floor) for w, v, floor in zip(weighed, scaled, absent, strict=True)) / total
        for name in _names(ranked)
    }
    return _sorted(scores, ranked, weighed)


def highest_score(lists: Sequence[Scored]) -> list[tuple[str, float]]:
    """Fuse by the scores as they are: score(d) = max_r s_r(d), for lists whose scores can be compared.

    Equal scores: the better rank first, then the id.

    Source: CombMAX in Fox, Shaw, "Combination of multiple searches", TREC-2, 1994.

    >>> highest_score([[("a", 0.9), ("b", 0.2)], [("b", 0.5), ("c", 0.4)]])
    [('a', 0.9), ('b', 0.5), ('c', 0.4)]
    """
    ranked = [_by_id(list_, competition_ranks([score for _, score in list_])) for list_ in lists]
    scored = [_by_id(list_, [score for _, score in list_]) for list_ in lists]
    scores = {name: max(found[name] for found in scored if name in found) for name in _names(ranked)}
    return _sorted(scores, ranked, [1.0] * len(lists))


# ------------------------------------------------------------------------------------------------------- scalings


def min_max(scores: Sequence[float]) -> tuple[list[float], float]:
    """(s - min) / (max - min), so that the list's best is 1 and its worst 0; absent 0. All equal, or only one: all 1.

    >>> min_max([4.0, 3.0, 2.0]), min_max([5.0])
    (([1.0, 0.5, 0.0], 0.0), ([1.0], 0.0))
    """
    return theoretical_min_max(scores, min(scores, default=0.0))


def theoretical_min_max(scores: Sequence[float], minimum: float) -> tuple[list[float], float]:
    """(s - m) / (max - m) with m the least score that the retriever could give; absent 0. No score above m: all 1.

    Keeps what min-max loses: how much better the best is than the worst found.

    Args:
        scores: of one list.
        minimum: m, -1 for a cosine, 0 for BM25. Scores below it are taken as m.

    >>> theoretical_min_max([4.0, 3.0], 0.0)
    ([1.0, 0.75], 0.0)
    """
    span = max(scores, default=minimum) / 2 - minimum / 2  # halves, so that no difference is too large for a float
    if not span > 0:
        return [1.0] * len(scores), 0.0
    return [max(0.0, score / 2 - minimum / 2) / span for score in scores], 0.0


def z_score(scores: Sequence[float]) -> tuple[list[float], float]:
    """(s - μ) / σ over the list; absent: 3 below the mean, or the list's least if that is lower. All equal: all 0.

    >>> z_score([3.0, 1.0]), z_score([5.0])
    (([1.0, -1.0], -3.0), ([0.0], -3.0))
    """
    values, _ = min_max(scores)  # affine, so z is the same, and squares neither overflow nor vanish
    if not values or min(values) == max(values):
        return [0.0] * len(values), -3.0
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    found = [(v - mean) / deviation for v in values]
    return found, min(-3.0, *found)


def three_sigma(scores: Sequence[float]) -> tuple[list[float], float]:
    """(s - (μ - 3σ)) / 6σ, cut to 0 … 1; absent 0. All equal: all 0.5. Also called distribution-based score fusion.

    >>> three_sigma([5.0])
    ([0.5], 0.0)
    """
    values, _ = z_score(scores)
    return [min(1.0, max(0.0, (value + 3) / 6)) for value in values], 0.0


# --------------------------------------------------------------------------------------------------------- inside


def _weights(lists: Sequence[Scored], weights: Sequence[float] | None) -> Sequence[float]:
    found = [1.0] * len(lists) if weights is None else weights
    if len(found) != len(lists):
        raise ValueError(f"{len(lists)} lists have {len(found)} weights. Write one weight for each list.")
    if any(not (0 <= weight < math.inf) for weight in found):
        raise ValueError(f"The weights are {list(found)}. Write numbers of at least 0.")
    return found


def _by_id(list_: Scored, values: Sequence[float]) -> dict[str, float]:
    """Value by id; the first of an id that occurs twice."""
    return {name: value for (name, _), value in zip(reversed(list_), reversed(values), strict=True)}


def _names(ranked: Sequence[dict[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for ranks in ranked for name in ranks))


def _sorted(
    scores: dict[str, float], ranked: Sequence[dict[str, float]], weights: Sequence[float]
) -> list[tuple[str, float]]:
    counted = [ranks for ranks, weight in zip(ranked, weights, strict=True) if weight > 0]

    def place(item: tuple[str, float]) -> tuple[float, float, str]:
        name, score = item
        return -score, min((ranks[name] for ranks in counted if name in ranks), default=math.inf), name

    return sorted(scores.items(), key=place)
