"""Several rankings become one: each gives as many hits as the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.operator import Operator
from spolia.orchestration.side_by_side import SideBySide
from spolia.ranking.order import falling
from spolia.types import Hit, Ranking
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class EvenSplit(Operator[Sequence[Ranking], Ranking]):
    """Take the best ⌊top_k / n⌋ hits of each of n rankings, one more of the first top_k mod n, by their scores.

    As AutoRAG puts together what several rewritings of a question have found. `ReciprocalRankFusion` is better where a
    node that several have found is to count more. The scores stay as they are, so that they should be of one retriever.

    Args:
        top_k: hits of all rankings together, at most.
        once: a node that several have found is one hit, with the best of its scores, so that there may be fewer; else
            it stands there several times, as in AutoRAG.

    Raises:
        StepFailed: when there is no ranking.

    Source: Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented Generation Pipeline",
    2024.

    >>> from spolia.types import Node, Query
    >>> def found(**scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()))
    >>> both = (found(a=0.9, b=0.4, c=0.3), found(a=0.8, d=0.7))
    >>> [hit.node.id for hit in EvenSplit(3)(both)], [hit.node.id for hit in EvenSplit(3, once=False)(both)]
    (['a', 'b'], ['a', 'a', 'b'])
    """

    top_k: int = 10
    once: bool = True

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")

    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        side_by_side = SideBySide.of(value)
        each, more = divmod(self.top_k, len(value))
        taken: list[tuple[int, Hit]] = []
        for row, (ranking, places) in enumerate(zip(value, side_by_side.aligned.places, strict=True)):
            taken += list(zip(places.tolist(), ranking.hits, strict=True))[: each + (row < more)]
        taken.sort(key=lambda one: falling(one[1].score))
        if self.once:
            best: dict[int, Hit] = {}
            for place, hit in taken:
                best.setdefault(place, hit)
            taken = list(best.items())
        return side_by_side.ranked([hit for _, hit in taken])
