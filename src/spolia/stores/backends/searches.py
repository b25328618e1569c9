"""Interfaces of a backend's vectors: written, searched, and read as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from spolia.models.vectors import SparseRows, Vectors
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.snapshot.hit_order import Ids

Q = TypeVar("Q", contravariant=True)
Rankings = list[list[tuple[int, float]]]


class Search(Protocol[Q]):
    """Search for the nodes of one group at one generation that are nearest to queries. Any thread may use it."""

    def search(self, queries: Q, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Rankings:
        """Return for each query keys and scores of exactly `min(top_k, allowed.count)` best nodes, best first.

        Nodes of one score are ordered by their ids, which `ids` gives; by key without it.

        Raises:
            StoreError: a query of another dimension, or one that holds NaN or infinity.
        """


DenseSearch = Search[Vectors]
"""`Search` by dense vectors, float32[m, d]."""


class StoredVectors(Protocol):
    """Vectors of a group's nodes as they are stored."""

    def vectors_at(self, positions: npt.NDArray[np.int64]) -> Vectors:
        """Return the vectors float32[n, d] of the nodes at these positions among the live nodes of the group."""


class VectorSink(Protocol):
    """Writer of vectors; what is written stays even if the writer's transaction is taken back."""

    def is_pending(self, embedder: str, hash: bytes) -> bool: ...
    def add(
        self, embedder: str, hashes: Sequence[bytes], vectors: Vectors, *, unit: bool = True, dimension: int = 0
    ) -> None:
        """Add vectors; vectors with a known key stay as they are. The first one has `dimension`, if not 0."""

    def add_sparse(self, embedder: str, hashes: Sequence[bytes], rows: SparseRows) -> None: ...
    def replace(
        self,
        embedder: str,
        hashes: Sequence[bytes],
        parts: Sequence[Vectors | SparseRows],
        generation: int,
        *,
        unit: bool = True,
    ) -> None:
        """Put vectors, in several parts, in the place of those with these keys, with the writer's transaction."""

    def keep(self) -> None:
        """Write what was collected, before the writer ends without publishing."""

    def flush(self) -> None: ...
