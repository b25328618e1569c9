"""Search by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.retrieval.vector_search import VectorSearch, read, vectors_of
from spolia.stores.corpus import NodeGroup
from spolia.types import Filter, Query

if TYPE_CHECKING:
    from spolia.retrieval.vector_search import Found, Vectors
    from spolia.stores.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Dense(VectorSearch["Vectors"]):
    """The nodes whose vectors are nearest to the query's, by the group's index for the embedder.

    The query is embedded, unless it brings its vector. Many queries are embedded together and searched with one matrix
    product. There is always a nearest node, so that `top_k` are found wherever the group has as many.

    Args:
        group: the node group to search.
        embedder: one that the group was built with.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        ManifestMismatch: when the group was built with another embedder, or none.
        StoreError: when the store cannot be read, or has no such group.
        WiringError: what stands for the embedder is none, and what it lacks.

    Source: Karpukhin et al., "Dense passage retrieval for open-domain question answering", EMNLP 2020.

    >>> from spolia import Corpus, MiniLM
    >>> Dense(Corpus("notes.spolia").group(), MiniLM(), top_k=5).short
    "Dense(top_k=5, source='dense')"
    """

    group: NodeGroup
    embedder: Embedder
    top_k: int = 10
    source: str = "dense"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "Dense", Embedder)

    def reads(self, value: Query, /) -> object:
        return (value.text if value.vector is None else value.vector), value.filter

    def is_nested(self) -> bool:
        return self.snapshot().is_exact(self.group.name, self.embedder.name)

    def read(self, query: Query, row: int | None, /) -> str | None:
        return read(query, self.embedder, row)

    def vectors(self, queries: Sequence[Query], texts: Sequence[str | None], /) -> Vectors:
        return vectors_of(queries, texts, self.embedder)

    def nearest(
        self, snapshot: Snapshot, vectors: Vectors, rows: list[int], who: frozenset[str], wanted: Filter | None, /
    ) -> Found:
        return snapshot.nearest_batch(self.group.name, self.embedder.name, vectors[rows], self.top_k, who, wanted)
