"""Exact search: the query is compared with every vector that is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.definition import Metric
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.metrics import questions, rough, slack
from spolia.stores.vectors.placement import PlacedVectors, Rows
from spolia.stores.vectors.search import Found

_SCORED_AT_ONCE = 4_000_000
_BLOCK_ROWS = 512
"""Gathered at a time: at 384 numbers they stay in a core's second cache from the gathering to the product."""
_DENSE = 2
"""A block that spans at most so many times its rows is multiplied where it stands, and what is not wanted left out."""


class ExactSearch:
    """Compares queries with the vectors of a group's nodes, in bounded memory.

    Time grows with what is allowed: few rows are gathered from the segments, many are multiplied where they stand.

    Args:
        placed: the vectors; of length 1 for the cosine.
        metric: `cosine`, `dot` or `euclidean`.

    >>> vectors = np.eye(3, dtype=np.float32)
    >>> placed = PlacedVectors(np.array([10, 20, 30]), [vectors], np.arange(3))
    >>> ExactSearch(placed).search(vectors[1:2], 2, Allowed(placed.keys))
    [[(20, 1.0), (10, 0.0)]]
    >>> ExactSearch(placed).search(vectors[1:2], 2, Allowed(placed.keys, np.array([False, False, True])))
    [[(30, 0.0)]]
    """

    is_exact = True

    def __init__(self, placed: PlacedVectors, metric: Metric = "cosine") -> None:
        self.placed, self.metric = placed, metric

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Found:
        """See `Search`."""
        positions = self.placed.positions(allowed)
        wanted = min(top_k, allowed.count)
        if wanted <= 0:
            return [[] for _ in queries]
        queries = questions(self.metric, queries, self.placed.dimension)
        near = self.near(queries, positions, wanted)
        return [self.placed.best(self.metric, *pair, wanted, ids) for pair in zip(queries, near, strict=True)]

    def near(self, queries: Vectors, positions: Rows | None, wanted: int) -> Iterator[Rows]:
        """For each query, the positions that may be among the best; some more than are wanted."""
        rows, which = self.placed.rows(positions)
        at_once = max(1, _SCORED_AT_ONCE // len(which))
        for start in range(0, len(queries), at_once):
            some = queries[start : start + at_once]
            for query, scores in zip(some, self._rough(some, rows), strict=True):
                near = self._within_slack(query, scores[which], wanted)
                yield near if positions is None else positions[near]

    def _within_slack(self, query: Vectors, scores: Vectors, wanted: int) -> Rows:
        if wanted >= len(scores):
            return np.arange(len(scores))
        lowest = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
        return np.flatnonzero(scores >= lowest - slack(self.metric, query, self._radius))

    def _rough(self, queries: Vectors, rows: Rows) -> Vectors:
        found = np.empty((len(queries), len(rows)), dtype=np.float32)
        ends = np.searchsorted(rows, self.placed.starts)
        for segment, vectors in enumerate(self.placed.segments):
            first = self.placed.starts[segment]
            for start in range(ends[segment], ends[segment + 1], _BLOCK_ROWS):
                end = min(start + _BLOCK_ROWS, ends[segment + 1])
                found[:, start:end] = _products(queries, vectors, rows[start:end] - first)
        return rough(self.metric, found, self._squares[rows]) if self.metric == "euclidean" else found

    @cached_property
    def _squares(self) -> Vectors:
        """Squared length of every row."""
        blocks = [
            segment[start : start + _BLOCK_ROWS]
            for segment in self.placed.segments
            for start in range(0, len(segment), _BLOCK_ROWS)
        ]
        return np.concatenate([(block.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) for block in blocks])

    @cached_property
    def _radius(self) -> float:
        return 1.0 if self.metric == "cosine" else float(np.sqrt(self._squares.max()))


def _products(queries: Vectors, vectors: Vectors, rows: Rows) -> Vectors:
    """Products float32[m, n] of queries with some rows, which ascend."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    if last - first > _DENSE * len(rows):
        return queries @ vectors.take(rows, axis=0, mode="clip").T
    products: Vectors = queries @ vectors[first:last].T
    return products if last - first == len(rows) else products[:, rows - first]
