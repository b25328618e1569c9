"""Precision, recall and F1 of all that was found, whatever its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import RetrievalMeasure, gold_ids, satisfied
from spolia.types import Item


@dataclass(frozen=True)
class SetPrecision(RetrievalMeasure):
    """Distinct gold passages found / places in the list; 0 when nothing was found.

    Source: as trec_eval's `set_P`; groups as in Kim et al. 2024 (AutoRAG).

    >>> str(SetPrecision()), SetPrecision().of(["p1", "p1", "p2", "p9"], Item("q", "?", gold=(("p1", "p2"),)))
    ('SetP', 0.5)
    """

    called: ClassVar[str] = "SetP"

    def of(self, found: Sequence[str], item: Item) -> float:
        return len(gold_ids(item).intersection(found)) / len(found) if found else 0.0


@dataclass(frozen=True)
class SetRecall(RetrievalMeasure):
    """Satisfied groups / groups.

    Source: as trec_eval's `set_recall`; groups as in Kim et al. 2024 (AutoRAG).

    >>> str(SetRecall()), SetRecall().of(["p1", "p9"], Item("q", "?", gold=(("p1", "p2"), ("p3",))))
    ('SetR', 0.5)
    """

    called: ClassVar[str] = "SetR"

    def of(self, found: Sequence[str], item: Item) -> float:
        return satisfied(found, item) / len(item.gold)


@dataclass(frozen=True)
class SetF1(RetrievalMeasure):
    """Harmonic mean of `SetP` and `SetR`; 0 when both are.

    Source: as trec_eval's `set_F`; van Rijsbergen 1979, chapter 7.

    >>> str(SetF1()), SetF1().of(["p1", "p9"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('SetF1', 0.5)
    """

    called: ClassVar[str] = "SetF1"

    def of(self, found: Sequence[str], item: Item) -> float:
        return harmonic(SetPrecision().of(found, item), SetRecall().of(found, item))


def harmonic(precision: float, recall: float) -> float:
    """F1.

    >>> harmonic(0.5, 1.0), harmonic(0.0, 0.0)
    (0.6666666666666666, 0.0)
    """
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
