"""Scores of a query among a few nodes of a group: those that a search has come to by another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spolia.models.protocols import Embedder
from spolia.retrieval.embedded import read, refuse_other, vectors_of
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.stores.reading.ordered import ordered
from spolia.types import Query

if TYPE_CHECKING:
    from spolia.stores.reading.allowed import Allowed
    from spolia.stores.snapshot import Snapshot


def best(
    snapshot: Snapshot, group: NodeGroup, query: Query, embedder: Embedder | None, allowed: Allowed, top_k: int
) -> list[tuple[int, float]]:
    """Keys and scores of the best allowed nodes, best first, ties by node id.

    Args:
        embedder: one that the group was embedded with; None for BM25, which finds only what shares a term with the
            query.

    Raises:
        QueryError: for an empty query.
        ManifestMismatch: when the group was not embedded with the embedder.
    """
    if embedder is None:
        return snapshot.lexical(group.name).search(searched(query), top_k, None, allowed, ids=snapshot.ids)
    scores = by_meaning(snapshot, group, query, embedder, allowed)
    return ordered(scores.items(), top_k, snapshot.ids)


def by_meaning(
    snapshot: Snapshot, group: NodeGroup, query: Query, embedder: Embedder, allowed: Allowed
) -> dict[int, float]:
    """The score of each allowed node by its key, in the metric of the group; raises as `best` does."""
    from spolia.stores.vectors.metrics import exact, questions

    refuse_other(group, snapshot, embedder)
    how = snapshot.manifest(group.name).embedded(embedder.name)
    assert how is not None
    vectors = vectors_of([query], [read(query, embedder)], embedder)
    (asked,) = questions(how.metric, vectors, embedder.dimension)
    keys = allowed.keys[allowed.positions()].tolist()
    if not keys:
        return {}
    scores = exact(how.metric, asked, snapshot.vectors(group.name, embedder.name, allowed))
    return dict(zip(keys, scores.tolist(), strict=True))
