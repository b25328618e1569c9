"""The index of a vector database as a search of a store: what it finds is looked at again, what it lacks is compared.

A database knows keys and vectors, and nothing of generations, readers and filters. So more is asked for than is wanted,
what is not allowed is passed over, and scores are computed from the store's own vectors, which are the truth: a node
has the same score, whatever found it. Where too little is allowed or found, exact search over the store answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np

from spolia.core.run_context import note
from spolia.errors import StoreUnavailable
from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.definition import Metric
from spolia.stores.indexes import VectorIndex
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.exact_search import ExactSearch
from spolia.stores.vectors.metrics import questions
from spolia.stores.vectors.placement import PlacedVectors, Rows
from spolia.stores.vectors.search import Found

_COMPARED = 5_000
"""Allowed nodes up to which they are compared: that takes as long as asking a database."""
_MOST = 4_096
"""What is fetched at most; some servers give no more than 10,000."""
_GROWTH = 4
_BATCH = 1_000
_SHOWN = 3

T = TypeVar("T")


class SearchableIndex(Protocol):
    """As much of a `VectorIndex` as searching needs."""

    def search(self, queries: Vectors, top_k: int) -> list[list[tuple[int, float]]]: ...


class AdaptedSearch:
    """Searches a group's vectors in a database, and exactly where that does not do.

    Args:
        index: holds the vectors of the group's nodes, or more.
        placed: the same in the store.
        metric: `cosine`, `dot` or `euclidean`.
    """

    def __init__(self, index: SearchableIndex, placed: PlacedVectors, metric: Metric) -> None:
        self.index, self.placed, self.metric = index, placed, metric
        self._exact = ExactSearch(placed, metric)

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Found:
        """See `Search`. When the database cannot be reached, exact search answers, with a note."""
        self.placed.positions(allowed)
        wanted, count = min(top_k, allowed.count), allowed.count
        fetch = -(-4 * wanted * len(allowed.keys) // max(count, 1))
        if wanted <= 0 or count <= _COMPARED or fetch > _MOST:
            return self._exact.search(queries, top_k, allowed, ids)
        asked = questions(self.metric, queries, self.placed.dimension)
        near = self._fetched(asked, allowed, wanted, fetch)
        return [
            self._exact.search(asked[row][None], top_k, allowed, ids)[0]
            if row not in near
            else self.placed.best(self.metric, asked[row], near[row], wanted, ids)
            for row in range(len(asked))
        ]

    def _fetched(self, queries: Vectors, allowed: Allowed, wanted: int, fetch: int) -> dict[int, Rows]:
        """For each query that the database answers well enough, positions of the allowed nodes that it found."""
        near: dict[int, Rows] = {}
        while fetch <= _MOST and (open_ := [row for row in range(len(queries)) if row not in near]):
            try:
                found = self.index.search(queries[open_], fetch)
            except StoreUnavailable as error:
                note(f"{error} Vectors were compared one by one instead, which is slower.")
                break
            for row, hits in zip(open_, found, strict=True):
                keys = np.fromiter((key for key, _ in hits), dtype=np.int64)
                held = allowed.holds(keys)
                if np.count_nonzero(held[: -(-len(held) // 2)]) >= wanted:
                    near[row] = np.searchsorted(self.placed.keys, np.unique(keys[held]))
            fetch *= _GROWTH
        return near


def follow(index: VectorIndex, added: Iterable[tuple[int, Vectors]], dead: Iterable[int]) -> None:
    """Bring a database to where the truth is; repeated after a kill, it changes nothing twice.

    Args:
        added: keys and vectors float32[d] of the nodes that are new.
        dead: keys of nodes that no generation needs any more.
    """
    for batch in _batches(added):
        index.add([key for key, _ in batch], np.stack([vector for _, vector in batch]))
    for keys in _batches(dead):
        index.remove(keys)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    each = iter(items)
    while batch := list(islice(each, _BATCH)):
        yield batch


def disagreement(index: VectorIndex, keys: Keys) -> str:
    """How the keys in a database differ from those that it should hold, in words; empty if they do not."""
    held = np.fromiter(index.keys(), dtype=np.int64)
    differing = {"are missing": np.setdiff1d(keys, held), "should not be there": np.setdiff1d(held, keys)}
    said = [f"{len(found)} {what} ({_some(found.tolist())})" for what, found in differing.items() if len(found)]
    if len(held) != len(np.unique(held)):
        said.append(f"{len(held) - len(np.unique(held))} are there more than once")
    return f"Of the keys in the database, {' and '.join(said)}." if said else ""


def _some(keys: Sequence[int]) -> str:
    return ", ".join(map(str, keys[:_SHOWN])) + (" …" if len(keys) > _SHOWN else "")
