"""Keeping a share of the hits."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.operator import Operator
from spolia.post_retrieval.selection.kept import best_share, refuse_no_share
from spolia.types import Ranking


@dataclass(frozen=True)
class Percentile(Operator[Ranking, Ranking]):
    """The best max(1, ⌊n · share⌋) of n hits, by score; of equal ones the first.

    n is counted for each ranking anew.

    Args:
        share: of the hits that stay, above 0, up to 1.

    Source: `percentile_cutoff` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented
    Generation Pipeline", 2024.

    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(str(s), ""), s) for s in (0.9, 0.5, 0.4, 0.3, 0.2)))
    >>> [hit.score for hit in Percentile(0.5)(found)]
    [0.9, 0.5]
    """

    share: float = 0.6

    def __post_init__(self) -> None:
        refuse_no_share(self, "share")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=best_share(value.hits, [hit.score for hit in value.hits], self.share))
