"""Searching the vectors of a group, by whatever means: the same question and the same kind of answer."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.snapshot.hit_order import Ids, best_hits
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.metrics import Scores

Q = TypeVar("Q", contravariant=True)
Found = list[list[tuple[int, float]]]


class Search(Protocol[Q]):
    """Finds the nodes of one group at one generation that are nearest to queries. Any thread may use it."""

    def search(self, queries: Q, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Found:
        """For each query, keys and scores of the best nodes, best first; a higher score is better.

        Args:
            ids: gives the ids of nodes by their keys, by which those of one score are ordered; by key without it.

        There are always `min(top_k, allowed.count)`, and each of them is allowed. A query's answer does not depend on
        those that are asked with it.

        Raises:
            StoreError: a query of another dimension, or one that holds NaN or infinity.
        """
        ...


VectorSearch = Search[Vectors]
"""`Search` by dense vectors, float32[m, d]."""


def ordered_scores(keys: Keys, scores: Scores, top_k: int, ids: Ids | None = None) -> list[tuple[int, float]]:
    """The best of these keys, as `ordered` puts them; of many, only those that may be among the best are looked at.

    >>> ordered_scores(np.array([4, 5, 6]), np.array([0.5, 0.7, 0.5]), 2, lambda keys: {4: "later", 6: "earlier"})
    [(5, 0.7), (6, 0.5)]
    """
    if 0 < top_k < len(keys):
        near = np.flatnonzero(scores >= np.partition(scores, len(scores) - top_k)[len(scores) - top_k])
        keys, scores = keys[near], scores[near]
    return best_hits(zip(keys.tolist(), scores.tolist(), strict=True), top_k, ids)
