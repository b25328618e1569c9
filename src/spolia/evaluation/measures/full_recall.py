"""Full recall: whether everything needed was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import ShownMeasure, satisfied
from spolia.types import Item


@dataclass(frozen=True)
class FullRecall(ShownMeasure):
    """1 if all that is needed is among the first k, else 0: what a question of several hops depends on.

    Args:
        k: how many places to look at.

    >>> str(FullRecall(5)), FullRecall(2).of(["p1", "p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('full@5', 0.0)
    """

    called: ClassVar[str] = "full"

    def of_shown(self, found: Sequence[str], item: Item) -> float:
        return float(satisfied(found, item) == len(item.gold))
