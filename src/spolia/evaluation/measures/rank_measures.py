"""Measures of retrieval: recall, precision, reciprocal rank, average precision, nDCG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import ClassVar

from spolia.evaluation.measures.retrieval_measure import (
    CutMeasure,
    RetrievalMeasure,
    ShownMeasure,
    count_satisfied,
    first_ranks,
    gold_ids,
    group_firsts,
)
from spolia.types import Gold, Item


@dataclass(frozen=True)
class Recall(ShownMeasure):
    """Share of what is needed that is among the first k.

    R@k = satisfied groups in the first k / groups, where a group is satisfied by any of its members; with one passage
    per group, the usual recall.

    Source: groups from Kim et al. 2024 (AutoRAG), section 3.

    >>> str(Recall(5)), Recall(2).score_ids(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('R@5', 0.5)
    """

    notation: ClassVar[str] = "R"

    def score_shown(self, ids: Sequence[str], item: Item) -> float:
        return count_satisfied(ids, item) / len(item.gold)


@dataclass(frozen=True)
class FullRecall(ShownMeasure):
    """1 if all that is needed is among the first k, else 0: what a question of several hops depends on.

    >>> str(FullRecall(5)), FullRecall(2).score_ids(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('full@5', 0.0)
    """

    notation: ClassVar[str] = "full"

    def score_shown(self, ids: Sequence[str], item: Item) -> float:
        return float(count_satisfied(ids, item) == len(item.gold))


@dataclass(frozen=True)
class Precision(CutMeasure):
    """Share of the first k places that hold gold: distinct gold passages in the first k / k.

    The divisor is k also where fewer were found.

    Source: as trec_eval's `P_k`; Manning, Raghavan and Schütze 2008, section 8.4.

    >>> str(Precision(5)), Precision(5).score_ids(["p1", "p1", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('P@5', 0.4)
    """

    notation: ClassVar[str] = "P"

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        return len(gold_ids(item).intersection(ids[: self.k])) / self.k


@dataclass(frozen=True)
class RPrecision(RetrievalMeasure):
    """Recall in as many places as are needed: groups satisfied in the first R / R, R = number of groups.

    Source: as trec_eval's `Rprec`; Manning, Raghavan and Schütze 2008, section 8.4.

    >>> str(RPrecision()), RPrecision().score_ids(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('Rprec', 0.5)
    """

    notation: ClassVar[str] = "Rprec"

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        return count_satisfied(ids[: len(item.gold)], item) / len(item.gold)


@dataclass(frozen=True)
class AnyHit(ShownMeasure):
    """1 if any gold passage is among the first k, else 0; also called success.

    Source: as trec_eval's `success_k`.

    >>> str(AnyHit(5)), AnyHit(2).score_ids(["p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('Hit@5', 1.0)
    """

    notation: ClassVar[str] = "Hit"

    def score_shown(self, ids: Sequence[str], item: Item) -> float:
        return float(not gold_ids(item).isdisjoint(ids))


@dataclass(frozen=True)
class SetPrecision(RetrievalMeasure):
    """Distinct gold passages found / places in the list; 0 when nothing was found.

    Source: as trec_eval's `set_P`; groups as in Kim et al. 2024 (AutoRAG).

    >>> str(SetPrecision()), SetPrecision().score_ids(["p1", "p1", "p2", "p9"], Item("q", "?", gold=(("p1", "p2"),)))
    ('SetP', 0.5)
    """

    notation: ClassVar[str] = "SetP"

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        return len(gold_ids(item).intersection(ids)) / len(ids) if ids else 0.0


@dataclass(frozen=True)
class SetRecall(RetrievalMeasure):
    """Satisfied groups / groups.

    Source: as trec_eval's `set_recall`; groups as in Kim et al. 2024 (AutoRAG).

    >>> str(SetRecall()), SetRecall().score_ids(["p1", "p9"], Item("q", "?", gold=(("p1", "p2"), ("p3",))))
    ('SetR', 0.5)
    """

    notation: ClassVar[str] = "SetR"

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        return count_satisfied(ids, item) / len(item.gold)


@dataclass(frozen=True)
class SetF1(RetrievalMeasure):
    """Harmonic mean of `SetP` and `SetR`; 0 when both are.

    Source: as trec_eval's `set_F`; van Rijsbergen 1979, chapter 7.

    >>> str(SetF1()), SetF1().score_ids(["p1", "p9"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('SetF1', 0.5)
    """

    notation: ClassVar[str] = "SetF1"

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        return harmonic_mean(SetPrecision().score_ids(ids, item), SetRecall().score_ids(ids, item))


def harmonic_mean(precision: float, recall: float) -> float:
    """Return the harmonic mean of precision and recall: F1.

    >>> harmonic_mean(0.5, 1.0), harmonic_mean(0.0, 0.0)
    (0.6666666666666666, 0.0)
    """
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True)
class ReciprocalRank(RetrievalMeasure):
    """1 / rank of the first gold passage, 0 without one.

    Args:
        k: look at the first k places only; None: at all that the flow returned.
        rule: `autorag`: the mean over the groups of 1 / rank of the group's first passage, so that a perfect ranking of
            two groups scores 0.75.

    Source: Voorhees, TREC-8 question answering track, 1999; the rule: Kim et al. 2024 (AutoRAG).

    >>> item = Item("q", "?", gold=(("p1",), ("p2",)))
    >>> str(ReciprocalRank()), ReciprocalRank().score_ids(["p9", "p2"], item)
    ('MRR', 0.5)
    >>> ReciprocalRank(rule="autorag").score_ids(["p1", "p2"], item)
    0.75
    """

    k: int | None = None
    rule: str = ""

    notation: ClassVar[str] = "MRR"
    rules: ClassVar[tuple[str, ...]] = ("autorag",)

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        if self.rule == "autorag":
            return sum(1 / rank for _, rank in group_firsts(ids[: self.k], item)) / len(item.gold)
        gold = gold_ids(item)
        return next((1 / rank for rank, id in enumerate(ids[: self.k], start=1) if id in gold), 0.0)


@dataclass(frozen=True)
class AveragePrecision(RetrievalMeasure):
    """Precision at the rank where each group is first satisfied, averaged over all groups; 0 for one that never is.

    AP = 1 / groups · sum over satisfied groups of P@r, r = the rank of the group's first passage, P@r = gold passages
    in the first r / r. With one passage in each group: the sum of P@r over the relevant, divided by all relevant.

    Args:
        k: look at the first k places only; None: at all that the flow returned.
        rule: two variants that divide by what was *found*, and so do not punish what is missing. `ragas`: the mean of
            P@r over the gold passages found (context precision with ids). `autorag`: that for each group by itself,
            averaged over the groups; with one passage in each group the same as `MRR(rule="autorag")`.

    Source: Manning, Raghavan and Schütze 2008, section 8.4; as trec_eval's `map`. The rules: Es et al. 2024 (RAGAS),
    Kim et al. 2024 (AutoRAG).

    >>> item = Item("q", "?", gold=(("p1",), ("p2",)))
    >>> str(AveragePrecision()), AveragePrecision().score_ids(["p1", "p8", "p9", "p2"], item)
    ('MAP', 0.75)
    >>> AveragePrecision(rule="ragas").score_ids(["p1", "p8", "p9"], item)
    1.0
    """

    k: int | None = None
    rule: str = ""

    notation: ClassVar[str] = "MAP"
    rules: ClassVar[tuple[str, ...]] = ("ragas", "autorag")

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        ranks = first_ranks(ids[: self.k], item)
        if self.rule == "ragas":
            return mean_precision(list(ranks.values()))
        if self.rule == "autorag":
            ranks_by_group = (sorted(ranks[passage] for passage in group if passage in ranks) for group in item.gold)
            return sum(map(mean_precision, ranks_by_group)) / len(item.gold)
        precision = {passage: number / rank for number, (passage, rank) in enumerate(ranks.items(), start=1)}
        return sum(precision[first] for first, _ in group_firsts(ids[: self.k], item)) / len(item.gold)


def mean_precision(ranks: Sequence[int]) -> float:
    """Return the precision at each of some ranks, averaged over them.

    >>> mean_precision([1, 3])
    0.8333333333333333
    """
    return sum(number / rank for number, rank in enumerate(ranks, start=1)) / len(ranks) if ranks else 0.0


@dataclass(frozen=True)
class NDCG(CutMeasure):
    """Discounted gain of the first k places, as a share of that of the best possible order.

    DCG@k = sum over ranks r <= k of gain(r) / log2(r + 1); nDCG@k = DCG@k / DCG@k of the best possible order. The gain
    is the grade itself, as in trec_eval; without grades every gold passage counts 1. Each group gains once, by the
    passage that first satisfies it; the best possible order has the best member of every group.

    Args:
        rule: `exponential`: a gain of 2^grade - 1. `autorag`: every gold passage gains 1, and the best possible order
            is as long as the list that was found, so that what is missing from a short list is not punished.

    Source: Järvelin and Kekäläinen, ACM TOIS 20(4), 2002, with the logarithm's base 2 and discount log2(rank + 1). The
    rules: Burges et al., ICML 2005; Kim et al. 2024 (AutoRAG).

    >>> item = Item("q", "?", gold=(("p1",), ("p2",)), grades=(("p1", 3.0), ("p2", 1.0)))
    >>> str(NDCG(10)), round(NDCG(10).score_ids(["p2", "p1"], item), 4)
    ('nDCG@10', 0.7967)
    >>> str(NDCG(rule="exponential")), round(NDCG(rule="exponential").score_ids(["p2", "p1"], item), 4)
    ('nDCG@10(rule="exponential")', 0.7098)
    """

    rule: str = ""

    notation: ClassVar[str] = "nDCG"
    rules: ClassVar[tuple[str, ...]] = ("exponential", "autorag")

    def score_ids(self, ids: Sequence[str], item: Item) -> float:
        if self.rule == "autorag":
            return _autorag_ndcg(ids[: self.k], item)
        gains = self._gains(item)
        best = sorted((max(gains[passage] for passage in group) for group in item.gold), reverse=True)
        ideal = discount_gains(best[: self.k])
        firsts = [(rank, gains[passage]) for passage, rank in group_firsts(ids[: self.k], item)]
        # Ranks that are moved apart may leave the first k.
        return (
            sum(gain / log2(rank + 1) for rank, gain in _separate_ranks(firsts) if rank <= self.k) / ideal
            if ideal
            else 0.0
        )

    def _gains(self, item: Item) -> dict[Gold, float]:
        gains = dict.fromkeys(gold_ids(item), 1.0) | dict[Gold, float](item.grades)
        return {passage: 2**gain - 1 for passage, gain in gains.items()} if self.rule else gains


def _separate_ranks(firsts: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield ranks and gains of groups, no two at one rank: a passage that satisfies two stands for two, as in the best
    order.

    >>> list(_separate_ranks([(2, 1.0), (2, 3.0), (9, 1.0)]))
    [(2, 3.0), (3, 1.0), (9, 1.0)]
    """
    last_rank = 0
    for rank, gain in sorted(firsts, key=lambda pair: (pair[0], -pair[1])):
        last_rank = max(rank, last_rank + 1)
        yield last_rank, gain


def _autorag_ndcg(ids: Sequence[str], item: Item) -> float:
    ideal = discount_gains([1.0] * min(len(gold_ids(item)), len(ids)))
    gain = sum(1 / log2(rank + 1) for rank in first_ranks(ids, item).values())
    return gain / ideal if ideal else 0.0


def discount_gains(gains: Sequence[float]) -> float:
    """Sum gains in the order of their ranks, each divided by log2(rank + 1).

    >>> discount_gains([1, 0, 1])
    1.5
    """
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1))
