"""Sparse vectors in the database: kept there, and searched by this process as those of a store in a folder are.

pgvector's own sparse vectors hold no more than 16,000 terms that are not 0, and no index of its goes by terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spolia.errors import StoreError
from spolia.models.vectors import SparseRows
from spolia.stores.postgres import dialect
from spolia.stores.vectors.sparse import SparseSearch, SparseSegment, lists_of, unpacked

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot


def sparse_search_of(snapshot: Snapshot, group: str, embedder: str) -> SparseSearch:
    """What searches a group's sparse vectors at a generation; they are held in memory as long as the snapshot.

    Raises:
        StoreError: nodes without a vector.
    """
    places: dict[bytes, int] = {}
    rows: list[SparseRows] = []
    keys: list[int] = []
    at: list[int] = []
    values: dict[str, Any] = {"embedder": embedder, "grp": group, "at": snapshot.generation}
    for key, hash, entries in snapshot.opened.each(dialect.SPARSE_OF_GROUP, values):
        if entries is None:
            raise StoreError(f"Node {key} of group {group!r} has no vector from {embedder!r}. Index the store again.")
        if hash not in places:
            places[hash] = len(rows)
            rows.append(unpacked(entries))
        keys.append(key)
        at.append(places[hash])
    together = SparseRows.together(rows)
    entries_of = (together.offsets, together.terms, together.weights)
    segment = SparseSegment(embedder, list(places), entries_of, lists_of(together))
    return SparseSearch(np.array(keys, dtype=np.int64), [segment], np.array(at, dtype=np.int64))
