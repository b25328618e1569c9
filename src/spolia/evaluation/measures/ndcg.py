"""Normalised discounted cumulative gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from spolia.evaluation.measures.measure import CutMeasure
from spolia.types import Item


@dataclass(frozen=True)
class NDCG(CutMeasure):
    """How much of the relevance is found, and how early.

    DCG@k = sum over ranks r <= k of gain(r) / log2(r + 1); nDCG@k = DCG@k / DCG@k of the best possible order.
    The gain is the grade itself, as in trec_eval (no 2^grade - 1); without grades every gold passage counts 1. Every
    member of every group counts by itself, and a passage that comes again counts nothing.

    Args:
        k: how many places to look at.

    Source: Järvelin and Kekäläinen, ACM TOIS 20(4), 2002, with the logarithm's base 2 and discount log2(rank + 1).

    >>> item = Item("q", "?", gold=(("p1",), ("p2",)), grades=(("p1", 3.0), ("p2", 1.0)))
    >>> str(NDCG(10)), round(NDCG(10).of(["p2", "p1"], item), 4)
    ('nDCG@10', 0.7967)
    """

    def of(self, found: Sequence[str], item: Item) -> float:
        gains = {one: 1.0 for group in item.gold for one in group} | dict(item.grades)
        ideal = discounted(sorted(gains.values(), reverse=True)[: self.k])
        first = {one: rank for rank, one in reversed(list(enumerate(found[: self.k])))}
        got = [gains.get(one, 0.0) if first[one] == rank else 0.0 for rank, one in enumerate(found[: self.k])]
        return min(discounted(got) / ideal, 1.0) if ideal else 0.0

    def __str__(self) -> str:
        return f"nDCG@{self.k}"


def discounted(gains: Sequence[float]) -> float:
    """Gains in the order of their ranks, each divided by log2(rank + 1).

    >>> discounted([1, 0, 1])
    1.5
    """
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1))
