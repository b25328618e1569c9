"""Several rankings become one, where their scores mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.operator import Operator
from spolia.orchestration.fusion import fused
from spolia.ranking import highest_score
from spolia.types import Ranking
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class HighestScore(Operator[Sequence[Ranking], Ranking]):
    """Fuse rankings by their scores as they are: score(d) = max_r s_r(d).

    For rankings whose scores can be compared: several groups or corpora searched by one embedder, or by one similarity.
    BM25 counts words of one group only, so its scores cannot.

    Args:
        top_k: hits to keep.

    Raises:
        StepFailed: when there is no ranking to fuse.

    Source: CombMAX in Fox, Shaw, "Combination of multiple searches", TREC-2, 1994.

    >>> from spolia.types import Hit, Node, Query
    >>> def found(**scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()))
    >>> [(hit.node.id, hit.score) for hit in HighestScore(top_k=2)((found(a=0.9, b=0.2), found(b=0.5, c=0.4)))]
    [('a', 0.9), ('b', 0.5)]
    """

    top_k: int = 10

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")

    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        return fused(value, highest_score, self.top_k)
