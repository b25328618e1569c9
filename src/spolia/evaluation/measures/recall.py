"""Recall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import ShownMeasure, satisfied
from spolia.types import Item


@dataclass(frozen=True)
class Recall(ShownMeasure):
    """Share of what is needed that is among the first k.

    R@k = satisfied groups in the first k / groups, where a group is satisfied by any of its members; with one passage
    per group, the usual recall.

    Args:
        k: how many places to look at.

    Source: groups from Kim et al. 2024 (AutoRAG), section 3.

    >>> str(Recall(5)), Recall(2).of(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('R@5', 0.5)
    """

    called: ClassVar[str] = "R"

    def of_shown(self, found: Sequence[str], item: Item) -> float:
        return satisfied(found, item) / len(item.gold)
