"""Exact search by cosine over the live nodes of a group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spolia.errors import StoreError
from spolia.stores.allowed import Allowed
from spolia.stores.vectors import Vectors

_MARGIN = 1e-4  # more than float32 products of unit vectors differ between two ways of adding them up
_SCORED_AT_ONCE = 4_000_000


class Nearest:
    """Vectors of the nodes of one group at one generation.

    Args:
        keys: node keys, ascending.
        segments: memory-mapped vectors, float32[n, d] each.
        places: for each key, the row in all segments put one below the other.
    """

    def __init__(
        self,
        keys: npt.NDArray[np.int64],
        segments: Sequence[Vectors],
        places: npt.NDArray[np.int64],
    ) -> None:
        self.keys, self.segments, self.places = keys, segments, places
        self.starts = np.cumsum([0, *(len(segment) for segment in segments)])

    def search(self, queries: Vectors, top_k: int, allowed: Allowed) -> list[list[tuple[int, float]]]:
        """For each row of float32[m, d], keys and cosines of the best readable nodes; equal scores by key."""
        if not len(self.keys) or top_k <= 0:
            return [[] for _ in queries]
        if queries.shape[1] != self.segments[0].shape[1]:
            raise StoreError(
                f"The query's vector has {queries.shape[1]} numbers, those of the store have "
                f"{self.segments[0].shape[1]}. Search with the embedder that the group was built with."
            )
        at_once = max(1, _SCORED_AT_ONCE // int(self.starts[-1]))
        found = []
        for start in range(0, len(queries), at_once):
            some = unit(queries[start : start + at_once])
            below = np.concatenate([some @ segment.T for segment in self.segments], axis=1)
            scores = np.take(below, self.places, axis=1)
            found += [self._best(query, row, top_k, allowed) for query, row in zip(some, scores, strict=True)]
        return found

    def _best(self, query: Vectors, scores: Vectors, top_k: int, allowed: Allowed) -> list[tuple[int, float]]:
        if allowed.mask is not None:
            scores = np.where(allowed.mask, scores, np.float32(-np.inf))
        if top_k < len(scores):
            lowest = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
        else:
            lowest = np.float32(-2.0)
        near = np.flatnonzero(scores >= max(lowest, np.float32(-2.0)) - np.float32(_MARGIN))
        # Once more in double precision, row by row: the same whether one or many queries were asked at once.
        rows = np.stack([self._row(place) for place in self.places[near]]) if len(near) else np.zeros((0, len(query)))
        exact = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        keys = self.keys[near]
        order = np.lexsort((keys, -exact))[:top_k]
        return [(int(keys[i]), float(exact[i])) for i in order]

    def _row(self, place: int) -> Vectors:
        segment = int(np.searchsorted(self.starts, place, side="right")) - 1
        row: Vectors = self.segments[segment][place - int(self.starts[segment])]
        return row


def unit(vectors: Vectors) -> Vectors:
    """Rows scaled to length 1; zeros stay zeros."""
    vectors = np.asarray(vectors, dtype=np.float32)
    if not np.isfinite(vectors).all():
        raise StoreError(
            "A vector holds NaN or infinity. Check what the embedder returned before searching or storing."
        )
    lengths = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
