"""Search by a measure of likeness of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.retrieval.embedded import read, refuse_other, vectors_of
from spolia.retrieval.group_search import GroupSearch
from spolia.retrieval.searched import searched
from spolia.retrieval.similarity import Compared, Scores, Similarity
from spolia.stores.corpus import NodeGroup
from spolia.stores.reading.allowed import Allowed
from spolia.stores.snapshot import Snapshot
from spolia.types import Filter, Hit, Query

AT_ONCE = 2_048
"""Nodes that are in memory at the same time, unless the similarity wants them all."""


@dataclass(frozen=True)
class BySimilarity(GroupSearch):
    """The nodes that are most alike the query by a plain function: every node that may be found is compared.

    The function never sees a node that the asker may not read or that the filters leave out. Equal scores go
    by the nodes' ids. For a distance the score is its negative.

    Args:
        group: the node group to search.
        similarity: a function under `@similarity`.
        top_k: hits to return, at most.
        embedder: whose vectors are compared, for a similarity of embeddings; one that the group was built with.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        ManifestMismatch: when the group was built with another embedder, or none.
        StoreError: when the store cannot be read, or has no such group.
        WiringError: a similarity of embeddings without an embedder or with what is none, or one of texts with one;
            when it runs, for a function that returns what is no score.

    >>> from spolia.retrieval.similarity import similarity
    >>> from spolia.stores.corpus import Corpus
    >>> @similarity
    ... def shared_words(query, node):
    ...     return len(set(query.split()) & set(node.text.split()))
    >>> BySimilarity(Corpus("notes.spolia").group(), shared_words, top_k=5).short
    "BySimilarity(top_k=5, source='similarity')"
    """

    group: NodeGroup
    similarity: Similarity
    top_k: int = 10
    embedder: Embedder | None = None
    source: str = "similarity"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.similarity, Similarity):
            raise WiringError(
                f"{self.similarity!r:.80} is no similarity. Write @similarity above a function of query and node."
            )
        if (self.embedder is None) is (self.similarity.mode == "embedding"):
            wanted = "Write embedder=." if self.embedder is None else "Leave the embedder out."
            raise WiringError(f"{self.similarity.name} compares {self.similarity.mode}s. {wanted}")
        if self.embedder is not None:
            refuse_no_embedder(self.embedder, "BySimilarity", Embedder)

    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        import numpy as np

        from spolia.stores.vectors.best import ordered_scores

        allowed = snapshot.allowed(self.group.name, who, wanted)
        if self.embedder is not None:
            parts = self._of_vectors(self.embedder, query, snapshot, allowed)
        else:
            parts = self._of_nodes(query, snapshot, allowed, who)
        scores = np.array([score for part in parts for score in part], dtype=np.float64)
        found = ordered_scores(allowed.keys[allowed.positions()], scores, self.top_k, snapshot.ids)
        return snapshot.hits(found, who)

    def reads(self, value: Query, /) -> object:
        return (value.text if value.vector is None or self.embedder is None else value.vector), value.filter

    def _of_vectors(self, embedder: Embedder, query: Query, snapshot: Snapshot, allowed: Allowed) -> Iterator[Scores]:
        refuse_other(self.group, snapshot, embedder)
        asked = vectors_of([query], [read(query, embedder)], embedder)[0]
        yield self.similarity(Compared(asked, snapshot.vectors(self.group.name, embedder.name, allowed)))

    def _of_nodes(self, query: Query, snapshot: Snapshot, allowed: Allowed, who: frozenset[str]) -> Iterator[Scores]:
        text, keys = searched(query), [int(key) for key in allowed.keys[allowed.positions()]]
        size = len(keys) if self.similarity.at_once else AT_ONCE
        for start in range(0, len(keys), max(1, size)):
            yield self.similarity(Compared(text, snapshot.nodes(keys[start : start + size], who)))
