"""Reciprocal rank; its mean is MRR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import RetrievalMeasure
from spolia.types import Item


@dataclass(frozen=True)
class ReciprocalRank(RetrievalMeasure):
    """1 / rank of the first gold passage, 0 when there is none.

    Args:
        k: look at the first k places only; None: at all that the flow returned.

    Source: Voorhees, TREC-8 question answering track, 1999.

    >>> str(ReciprocalRank()), ReciprocalRank().of(["p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('MRR', 0.5)
    """

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise MeasureError(f"MRR of the first {self.k} places measures nothing. Write k = 1 or more.")

    def of(self, found: Sequence[str], item: Item) -> float:
        gold = {one for group in item.gold for one in group}
        return next((1 / rank for rank, one in enumerate(found[: self.k], start=1) if one in gold), 0.0)

    def __str__(self) -> str:
        return "MRR" if self.k is None else f"MRR@{self.k}"
