"""Precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import CutMeasure, gold_ids
from spolia.types import Item


@dataclass(frozen=True)
class Precision(CutMeasure):
    """Share of the first k places that hold gold: distinct gold passages in the first k / k.

    The divisor is k also where fewer were found.

    Args:
        k: how many places to look at.

    Source: as trec_eval's `P_k`; Manning, Raghavan and Schütze 2008, section 8.4.

    >>> str(Precision(5)), Precision(5).of(["p1", "p1", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('P@5', 0.4)
    """

    called: ClassVar[str] = "P"

    def of(self, found: Sequence[str], item: Item) -> float:
        return len(gold_ids(item).intersection(found[: self.k])) / self.k
