"""Recall."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.retrieval_measure import CutMeasure, RetrievalMeasure, ShownMeasure, gold_ids, satisfied
from spolia.types import Item


@dataclass(frozen=True)
class Recall(ShownMeasure):
    """Share of what is needed that is among the first k.

    R@k = satisfied groups in the first k / groups, where a group is satisfied by any of its members; with one passage
    per group, the usual recall.

    Source: groups from Kim et al. 2024 (AutoRAG), section 3.

    >>> str(Recall(5)), Recall(2).of(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('R@5', 0.5)
    """

    called: ClassVar[str] = "R"

    def of_shown(self, found: Sequence[str], item: Item) -> float:
        return satisfied(found, item) / len(item.gold)


@dataclass(frozen=True)
class FullRecall(ShownMeasure):
    """1 if all that is needed is among the first k, else 0: what a question of several hops depends on.

    >>> str(FullRecall(5)), FullRecall(2).of(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('full@5', 0.0)
    """

    called: ClassVar[str] = "full"

    def of_shown(self, found: Sequence[str], item: Item) -> float:
        return float(satisfied(found, item) == len(item.gold))


@dataclass(frozen=True)
class Precision(CutMeasure):
    """Share of the first k places that hold gold: distinct gold passages in the first k / k.

    The divisor is k also where fewer were found.

    Source: as trec_eval's `P_k`; Manning, Raghavan and Schütze 2008, section 8.4.

    >>> str(Precision(5)), Precision(5).of(["p1", "p1", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('P@5', 0.4)
    """

    called: ClassVar[str] = "P"

    def of(self, found: Sequence[str], item: Item) -> float:
        return len(gold_ids(item).intersection(found[: self.k])) / self.k


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


@dataclass(frozen=True)
class AnyHit(ShownMeasure):
    """1 if any gold passage is among the first k, else 0; also called success.

    Source: as trec_eval's `success_k`.

    >>> str(AnyHit(5)), AnyHit(2).of(["p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('Hit@5', 1.0)
    """

    called: ClassVar[str] = "Hit"

    def of_shown(self, found: Sequence[str], item: Item) -> float:
        return float(not gold_ids(item).isdisjoint(found))


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
