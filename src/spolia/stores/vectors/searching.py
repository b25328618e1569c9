"""Searching the vectors of a group, by whatever means: the same question and the same kind of answer."""

from __future__ import annotations

from typing import Protocol, TypeVar

from spolia.stores.reading.allowed import Allowed
from spolia.stores.reading.ordered import Ids
from spolia.stores.vectors.dense import Vectors

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
