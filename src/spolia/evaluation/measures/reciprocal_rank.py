"""Reciprocal rank; its mean is MRR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import RetrievalMeasure, checked_k, gold_ids, group_firsts
from spolia.evaluation.measures.rules import checked_rule
from spolia.types import Item


@dataclass(frozen=True)
class ReciprocalRank(RetrievalMeasure):
    """1 / rank of the first gold passage, 0 when there is none.

    Args:
        k: look at the first k places only; None: at all that the flow returned.
        rule: `autorag`: the mean over the groups of 1 / rank of the group's first passage, so that a perfect ranking of
            two groups scores 0.75.

    Source: Voorhees, TREC-8 question answering track, 1999; the rule: Kim et al. 2024 (AutoRAG).

    >>> item = Item("q", "?", gold=(("p1",), ("p2",)))
    >>> str(ReciprocalRank()), ReciprocalRank().of(["p9", "p2"], item)
    ('MRR', 0.5)
    >>> ReciprocalRank(rule="autorag").of(["p1", "p2"], item)
    0.75
    """

    k: int | None = None
    rule: str = ""

    called: ClassVar[str] = "MRR"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_k(self.k)
        checked_rule(self.called, self.rule, ("autorag",))

    def of(self, found: Sequence[str], item: Item) -> float:
        if self.rule == "autorag":
            return sum(1 / rank for _, rank in group_firsts(found[: self.k], item)) / len(item.gold)
        gold = gold_ids(item)
        return next((1 / rank for rank, one in enumerate(found[: self.k], start=1) if one in gold), 0.0)
