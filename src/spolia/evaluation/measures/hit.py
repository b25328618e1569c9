"""Whether anything useful was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.ranked import ShownMeasure, gold_ids
from spolia.types import Item


@dataclass(frozen=True)
class AnyHit(ShownMeasure):
    """1 if any gold passage is among the first k, else 0; also called success.

    Args:
        k: how many places to look at.

    Source: as trec_eval's `success_k`.

    >>> str(AnyHit(5)), AnyHit(2).of(["p9", "p2"], Item("q", "?", gold=(("p1",), ("p2",))))
    ('Hit@5', 1.0)
    """

    called: ClassVar[str] = "Hit"

    def of_shown(self, found: Sequence[str], item: Item) -> float:
        return float(not gold_ids(item).isdisjoint(found))
