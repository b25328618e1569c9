"""Several rankings become one, where their scores mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.orchestration.side_by_side import Fusion, SideBySide
from spolia.ranking.fusing import by_highest

if TYPE_CHECKING:
    from spolia.ranking.aligned import Numbers


@dataclass(frozen=True)
class HighestScore(Fusion):
    """Fuse rankings by their scores as they are: score(d) = max_r s_r(d).

    For rankings whose scores can be compared: several groups or corpora searched by one embedder, or by one similarity.
    BM25 counts words of one group only, so its scores cannot.

    Args:
        top_k: hits to keep.

    Raises:
        StepFailed: when there is no ranking to fuse.

    Source: CombMAX in Fox, Shaw, "Combination of multiple searches", TREC-2, 1994.

    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> def found(**scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()))
    >>> [(hit.node.id, hit.score) for hit in HighestScore(top_k=2)((found(a=0.9, b=0.2), found(b=0.5, c=0.4)))]
    [('a', 0.9), ('b', 0.5)]
    """

    top_k: int = 10

    version: ClassVar[int] = 2

    def scores(self, side_by_side: SideBySide, variants: Sequence[HighestScore], weights: Numbers, /) -> Numbers:
        import numpy as np

        return np.tile(by_highest(side_by_side.aligned), (len(variants), 1))
