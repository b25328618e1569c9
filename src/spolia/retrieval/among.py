"""Scores of a query among a few nodes of a group: those that a search has come to by another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spolia.models.protocols import Embedder
from spolia.retrieval.embedded import read, refuse_other, vectors_of
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.types import Query

if TYPE_CHECKING:
    from spolia.stores.allowed import Allowed
    from spolia.stores.snapshot import Snapshot


def by_meaning(
    snapshot: Snapshot, group: NodeGroup, embedder: Embedder, query: Query, allowed: Allowed
) -> dict[int, float]:
    """The score of each allowed node by its key, in the metric of the group.

    Raises:
        QueryError: for an empty query.
        ManifestMismatch: when the group was not embedded with the embedder.
    """
    from spolia.stores.metrics import exact, questions

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


def by_words(snapshot: Snapshot, group: NodeGroup, query: Query, allowed: Allowed) -> dict[int, float]:
    """The BM25 score by its key of each allowed node that shares a term with the query.

    Raises:
        QueryError: for an empty query.
    """
    return dict(snapshot.lexical(group.name).search(searched(query), allowed.count, None, allowed))
