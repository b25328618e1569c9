"""Normalised discounted cumulative gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import ClassVar

from spolia.evaluation.measures.ranked import CutMeasure, first_ranks, gold_ids, group_firsts
from spolia.evaluation.measures.rules import checked_rule
from spolia.types import Gold, Item


@dataclass(frozen=True)
class NDCG(CutMeasure):
    """How much of the relevance is found, and how early.

    DCG@k = sum over ranks r <= k of gain(r) / log2(r + 1); nDCG@k = DCG@k / DCG@k of the best possible order. The gain
    is the grade itself, as in trec_eval; without grades every gold passage counts 1. Each group gains once, by the
    passage that first satisfies it; the best possible order has the best member of every group.

    Args:
        k: how many places to look at.
        rule: `exponential`: a gain of 2^grade - 1. `autorag`: every gold passage gains 1, and the best possible order
            is as long as the list that was found, so that what is missing from a short list is not punished.

    Source: Järvelin and Kekäläinen, ACM TOIS 20(4), 2002, with the logarithm's base 2 and discount log2(rank + 1). The
    rules: Burges et al., ICML 2005; Kim et al. 2024 (AutoRAG).

    >>> item = Item("q", "?", gold=(("p1",), ("p2",)), grades=(("p1", 3.0), ("p2", 1.0)))
    >>> str(NDCG(10)), round(NDCG(10).of(["p2", "p1"], item), 4)
    ('nDCG@10', 0.7967)
    >>> str(NDCG(rule="exponential")), round(NDCG(rule="exponential").of(["p2", "p1"], item), 4)
    ('nDCG@10(rule="exponential")', 0.7098)
    """

    rule: str = ""

    called: ClassVar[str] = "nDCG"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_rule(self.called, self.rule, ("exponential", "autorag"))

    def of(self, found: Sequence[str], item: Item) -> float:
        if self.rule == "autorag":
            return _autorag(found[: self.k], item)
        gains = self._gains(item)
        best = sorted((max(gains[one] for one in group) for group in item.gold), reverse=True)
        ideal = discounted(best[: self.k])
        firsts = [(rank, gains[one]) for one, rank in group_firsts(found[: self.k], item)]
        return sum(gain / log2(rank + 1) for rank, gain in _apart(firsts) if rank <= self.k) / ideal if ideal else 0.0

    def _gains(self, item: Item) -> dict[Gold, float]:
        gains = dict.fromkeys(gold_ids(item), 1.0) | dict[Gold, float](item.grades)
        return {one: 2**gain - 1 for one, gain in gains.items()} if self.rule else gains


def _apart(firsts: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Ranks and gains of groups, no two at one rank: a passage that satisfies two stands for two, as in the best order.

    >>> list(_apart([(2, 1.0), (2, 3.0), (9, 1.0)]))
    [(2, 3.0), (3, 1.0), (9, 1.0)]
    """
    taken = 0
    for rank, gain in sorted(firsts, key=lambda one: (one[0], -one[1])):
        taken = max(rank, taken + 1)
        yield taken, gain


def _autorag(found: Sequence[str], item: Item) -> float:
    ideal = discounted([1.0] * min(len(gold_ids(item)), len(found)))
    got = sum(1 / log2(rank + 1) for rank in first_ranks(found, item).values())
    return got / ideal if ideal else 0.0


def discounted(gains: Sequence[float]) -> float:
    """Gains in the order of their ranks, each divided by log2(rank + 1).

    >>> discounted([1, 0, 1])
    1.5
    """
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1))
