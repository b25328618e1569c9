"""Keeping the share that is most alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.post_retrieval.selection.kept import best_share, cosines, refuse_no_share
from spolia.types import Ranking


@dataclass(frozen=True)
class SimilarityPercentile(Operator[Ranking, Ranking]):
    """The max(1, ⌊n · share⌋) of n hits whose vectors are nearest to the query's, by cos(q, d).

    Order and scores stay as they were, whatever retriever gave them.

    Args:
        embedder: gives the vectors; each hit costs one text.
        share: of the hits that stay, above 0, up to 1.

    Raises:
        ModelError: what the embedder gives are no vectors.

    Source: `similarity_percentile_cutoff` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval
    Augmented Generation Pipeline", 2024.

    >>> from spolia.testing import HashingEmbedder
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "blue sea"), 2.0), Hit(Node("b", "old red stones"), 1.0)))
    >>> [hit.node.id for hit in SimilarityPercentile(HashingEmbedder(), 0.5)(found)]
    ['b']
    """

    embedder: Embedder
    share: float = 0.6

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_no_share(self, "share")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=best_share(value.hits, cosines(value, self.embedder), self.share))
