"""Keeping what is alike enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.post_retrieval.selection.kept import cosines, reaching, refuse_nan
from spolia.types import Ranking


@dataclass(frozen=True)
class SimilarityThreshold(Operator[Ranking, Ranking]):
    """The hits whose vectors are near enough to the query's, cos(q, d) ≥ at_least; the nearest one where none is.

    Order and scores stay as they were, whatever retriever gave them.

    Args:
        embedder: gives the vectors; each hit costs one text.
        at_least: the least cosine, from -1 to 1.

    Raises:
        ModelError: what the embedder gives are no vectors.

    Source: `similarity_threshold_cutoff` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval
    Augmented Generation Pipeline", 2024.

    >>> from spolia.testing import HashingEmbedder
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "blue sea"), 2.0), Hit(Node("b", "old red stones"), 1.0)))
    >>> [hit.node.id for hit in SimilarityThreshold(HashingEmbedder(), 0.5)(found)]
    ['b']
    """

    embedder: Embedder
    at_least: float = 0.5

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_nan(self, "at_least")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=reaching(value.hits, cosines(value, self.embedder), self.at_least))
