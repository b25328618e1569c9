"""R-precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import RetrievalMeasure, satisfied
from spolia.types import Item


@dataclass(frozen=True)
class RPrecision(RetrievalMeasure):
    """Recall in as many places as are needed: groups satisfied in the first R / R, R = number of groups.

    Source: as trec_eval's `Rprec`; Manning, Raghavan and Schütze 2008, section 8.4.

    >>> str(RPrecision()), RPrecision().of(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('Rprec', 0.5)
    """

    called: ClassVar[str] = "Rprec"

    def of(self, found: Sequence[str], item: Item) -> float:
        return satisfied(found[: len(item.gold)], item) / len(item.gold)
