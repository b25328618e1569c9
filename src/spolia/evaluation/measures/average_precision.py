"""Average precision; its mean is MAP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import RetrievalMeasure, checked_k, first_ranks, group_firsts
from spolia.evaluation.measures.rules import checked_rule
from spolia.types import Item


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
    >>> str(AveragePrecision()), AveragePrecision().of(["p1", "p8", "p9", "p2"], item)
    ('MAP', 0.75)
    >>> AveragePrecision(rule="ragas").of(["p1", "p8", "p9"], item)
    1.0
    """

    k: int | None = None
    rule: str = ""

    called: ClassVar[str] = "MAP"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_k(self.k)
        checked_rule(self.called, self.rule, ("ragas", "autorag"))

    def of(self, found: Sequence[str], item: Item) -> float:
        ranks = first_ranks(found[: self.k], item)
        if self.rule == "ragas":
            return _of_found(list(ranks.values()))
        if self.rule == "autorag":
            of_groups = (sorted(ranks[one] for one in group if one in ranks) for group in item.gold)
            return sum(map(_of_found, of_groups)) / len(item.gold)
        precision = {one: number / rank for number, (one, rank) in enumerate(ranks.items(), start=1)}
        return sum(precision[first] for first, _ in group_firsts(found[: self.k], item)) / len(item.gold)


def _of_found(ranks: Sequence[int]) -> float:
    """Precision at each of some ranks, averaged over them.

    >>> _of_found([1, 3])
    0.8333333333333333
    """
    return sum(number / rank for number, rank in enumerate(ranks, start=1)) / len(ranks) if ranks else 0.0
