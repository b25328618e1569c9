"""Settings of vector indexes, by which the vectors of a group are searched. Indexes are derived, and hold keys and
vectors only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from spolia.core.type_compatibility import refuse_counts
from spolia.types import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Vectors: TypeAlias = "npt.NDArray[np.float32]"


class IndexSettings(Value):
    """Base of the settings of an index: frozen dataclasses without secrets, which come from the environment by name."""


@dataclass(frozen=True)
class Exact(IndexSettings):
    """Exact search, which compares the query with every vector: fast up to some hundred thousand nodes."""


@dataclass(frozen=True)
class HNSW(IndexSettings):
    """A graph of near neighbours for each large vector segment, beside exact search over the small ones.

    Args:
        connectivity: neighbours of a node in the graph (M).
        expansion_add: candidates while building (ef construction).
        expansion_search: candidates while searching (ef).
        above: vectors of a group, and of a segment, below which there is no graph. One is faster from 4,000 on (384
            numbers each, one core); up to 20,000 exact search takes 2.5 ms, is always right and needs no building.

    Raises:
        WiringError: one of them is not a whole number, or too small.

    Source: Malkov, Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable
    Small World graphs", 2018.
    """

    connectivity: int = 16
    expansion_add: int = 128
    expansion_search: int = 128
    above: int = 20_000

    def __post_init__(self) -> None:
        refuse_counts(self, "connectivity", "expansion_add", "expansion_search")
        refuse_counts(self, "above", minimum=0)


DEFAULT_INDEX = HNSW()


class Database(IndexSettings):
    """Base of the settings of vector databases: subclasses are frozen dataclasses in `spolia.stores.adapters`.

    Class attributes:
        extra: the optional dependency that it needs.
        module: the module to import from it, for the error when it is missing.
    """

    extra: ClassVar[str]
    module: ClassVar[str]

    def open(self, folder: Path, collection: str, dimension: int, metric: str) -> "VectorIndex":
        """Open the index of this collection, and make it if it is not there.

        Args:
            folder: a folder of the store that embedded databases may use; a server does not.
            collection: a name that no other group, embedder or store has, of `a-z0-9_`, at most 60 characters.
            dimension: numbers in a vector.
            metric: `cosine`, `dot` or `euclidean`.

        Raises:
            MissingExtra: the package is not installed.
            StoreError: it cannot be reached, or the collection has another dimension or metric; naming both.
        """
        raise NotImplementedError

    def drop(self, folder: Path, collection: str) -> None:
        """Forget a collection, if it is there."""
        raise NotImplementedError


class VectorIndex(Protocol):
    """Opened index in a database. Used by one writer and many threads that search."""

    def add(self, keys: Sequence[int], vectors: "Vectors") -> None:
        """Keep vectors float32[n, d] under their keys, in place of earlier ones; durable when it returns.

        Adding the same again changes nothing, so that it can be repeated after a kill in the middle.

        Raises:
            StoreError: the database could not; what it had kept before is still there.
        """

    def remove(self, keys: Sequence[int]) -> None:
        """Forget these keys; unknown keys are ignored."""

    def search(self, queries: "Vectors", top_k: int) -> list[list[tuple[int, float]]]:
        """Return for each row of float32[m, d] at most `top_k` keys and scores, best first; higher is better."""

    def keys(self) -> Iterator[int]:
        """Yield all keys that the index holds, in any order."""

    def close(self) -> None:
        """Let go of connections and files."""
