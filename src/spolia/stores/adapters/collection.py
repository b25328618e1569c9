"""What is the same for the vectors in every database: what is refused, how much goes at once, scores and their order.

Databases differ in what they call similar. Vectors of a cosine index are scaled to length 1 here and compared by dot
product there, so that each database needs two ways to compare only, and a vector of zeros has the cosine 0 in all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from spolia.errors import StoreError
from spolia.stores.adapters.engine import METRICS, Engine

if TYPE_CHECKING:
    from spolia.stores.indexes import Vectors

Near: TypeAlias = list[tuple[int, float]]
"""Keys, each with its dot product or squared distance."""

_SPARE = 16  # results beyond those wanted, to see whether the last one has equals
_DEEPER = 4
_RESULTS_AT_ONCE = 100_000
_INT64 = range(-(2**63), 2**63)


class Collection(ABC):
    """Base of the opened indexes.

    Args:
        engine: the settings.
        dimension: numbers in a vector.
        metric: how they are compared.
    """

    most_rows: ClassVar[int] = 10_000
    """Vectors, and keys, in one request."""
    most_numbers: ClassVar[int] = 4_000_000
    """Numbers in one request."""
    deepest: ClassVar[int] = 10_000
    """Results that the database gives for one query."""

    def __init__(self, engine: Engine[Any], dimension: int, metric: str) -> None:
        if metric not in METRICS or dimension < 1:
            raise StoreError(f"{dimension} numbers compared by {metric!r}. Write a dimension and one of {METRICS}.")
        self.engine, self.dimension, self.metric = engine, dimension, metric

    @abstractmethod
    def open(self, folder: Path, name: str) -> None:
        """Connect, and make the collection if it is not there.

        Args:
            folder: where an embedded database lies.
        """

    @abstractmethod
    def _put(self, keys: Sequence[int], vectors: Vectors) -> None:
        """Upsert distinct keys, at most `most_rows`."""

    @abstractmethod
    def _take(self, keys: Sequence[int]) -> None:
        """Delete, at most `most_rows`; a key that is not there is no error."""

    @abstractmethod
    def _near(self, queries: Vectors, top_k: int) -> list[Near]:
        """For each query, keys with the dot product, or for `euclidean` the squared distance; at most `deepest`."""

    @abstractmethod
    def _pages(self) -> Iterator[Sequence[int]]:
        """All keys, page by page."""

    @abstractmethod
    def close(self) -> None: ...

    def refuse_other(self, collection: str, dimension: int, metric: str) -> None:
        """Raise unless a collection that was found is the one that is wanted."""
        if (dimension, metric) != (self.dimension, self.metric):
            raise StoreError(
                f"The collection {collection!r} of {self.engine.where} holds vectors of {dimension} numbers compared "
                f"by {metric}, not of {self.dimension} by {self.metric}. Drop it, or give the new one another name."
            )

    def add(self, keys: Sequence[int], vectors: Vectors) -> None:
        checked = self._checked(vectors)
        rows = {int(key): row for row, key in enumerate(keys)}  # of a key that comes twice, the last
        if len(keys) != len(checked) or any(key not in _INT64 for key in rows):
            raise StoreError(f"{len(keys)} keys came with {len(checked)} vectors. Write one 64-bit number for each.")
        with self.engine.asking("add vectors"):
            for some in _cut(list(rows), min(self.most_rows, max(1, self.most_numbers // self.dimension))):
                self._put(some, checked[[rows[key] for key in some]])

    def remove(self, keys: Sequence[int]) -> None:
        with self.engine.asking("remove vectors"):
            for some in _cut(list(dict.fromkeys(map(int, keys))), self.most_rows):
                self._take(some)

    def search(self, queries: Vectors, top_k: int) -> list[Near]:
        checked = self._checked(queries)
        if top_k < 1:
            return [[] for _ in checked]
        wanted = min(top_k, self.deepest)
        found: list[Near] = [[] for _ in checked]
        rows, depth = list(range(len(checked))), min(wanted + _SPARE, self.deepest)
        with self.engine.asking("search"):
            while rows:
                for row, near in zip(rows, self._asked(checked[rows], depth), strict=True):
                    found[row] = near
                rows = [row for row in rows if depth < self.deepest and _undecided(found[row], wanted, depth)]
                depth = min(depth * _DEEPER, self.deepest)
        return [near[:wanted] for near in found]

    def keys(self) -> Iterator[int]:
        pages = self._pages()
        while True:
            with self.engine.asking("list its keys"):
                page = next(pages, None)
            if page is None:
                return
            yield from page

    def _asked(self, queries: Vectors, depth: int) -> Iterator[Near]:
        for some in _cut(range(len(queries)), max(1, min(100, _RESULTS_AT_ONCE // depth))):
            for near in self._near(queries[some[0] : some[-1] + 1], depth):
                scored = [(key, self._score(closeness)) for key, closeness in near]
                yield sorted(scored, key=lambda hit: (-hit[1], hit[0]))

    def _score(self, closeness: float) -> float:
        if self.metric == "euclidean":
            return -sqrt(max(closeness, 0.0))
        return min(1.0, max(-1.0, closeness)) if self.metric == "cosine" else closeness

    def _checked(self, vectors: Vectors) -> Vectors:
        """float32[n, d], of length 1 for cosine."""
        import numpy as np

        for row, vector in enumerate(vectors):
            if np.shape(vector) != (self.dimension,):
                raise StoreError(
                    f"Vector {row} has the shape {np.shape(vector)}, and {self.engine.where} holds vectors of "
                    f"{self.dimension} numbers. Give vectors by the embedder that the index was made for."
                )
        with np.errstate(over="ignore"):
            found: Vectors = np.asarray(vectors, dtype=np.float32).reshape(-1, self.dimension)
        if len(wrong := np.flatnonzero(~np.isfinite(found).all(axis=1))):
            raise StoreError(f"Vector {wrong[0]} holds NaN or infinity. Check what the embedder returned.")
        if self.metric == "cosine":
            lengths = np.linalg.norm(found.astype(np.float64), axis=1, keepdims=True)
            found = (found / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        return found


def _undecided(near: Near, wanted: int, depth: int) -> bool:
    """Whether there may be further results that are as good as the last one wanted."""
    return len(near) == depth > wanted and near[-1][1] == near[wanted - 1][1]


def _cut(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
