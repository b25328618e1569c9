"""What is the same for all vector databases: settings, errors, open clients, batches, scores and their order.

An embedded engine locks its folder, so all its users in this process share one client. Vectors of a cosine index are
scaled to length 1 here and compared by dot product there, so that a vector of zeros has the cosine 0 in all databases.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields
from math import sqrt
from pathlib import Path
from shutil import rmtree
from threading import Lock, RLock
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from spolia.deferred import numpy as np
from spolia.errors import MissingExtra, SpoliaError, StoreBusy, StoreError, StoreUnavailable, text_of
from spolia.stores.backends.rows import in_batches
from spolia.stores.definition import Metric
from spolia.stores.indexes import Database, Vectors

T = TypeVar("T")


@dataclass
class Shared(Generic[T]):
    """A client of a folder. `lock`: for engines whose clients are not safe to use from several threads."""

    client: T
    close: Callable[[], None]
    lock: RLock = field(default_factory=RLock)
    users: int = 0


class OpenEngines(Generic[T]):
    """Clients by folder: opened for the first user, closed after the last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Path, Shared[T]] = {}

    def take(self, place: Path, open: Callable[[], Shared[T]]) -> Shared[T]:
        """The client of a folder, which is given back once."""
        with self._lock:
            found = self._found.get(place.resolve()) or open()
            self._found[place.resolve()] = found
            found.users += 1
            return found

    def give_back(self, place: Path) -> None:
        with self._lock:
            found = self._found[place.resolve()]
            found.users -= 1
            if not found.users:
                del self._found[place.resolve()]
                found.close()

    def remove(self, place: Path) -> None:
        """Delete a folder, if it is there and nobody has it open."""
        with self._lock:
            if place.resolve() in self._found:
                raise StoreBusy(f"{place} is open in this process. Close its indexes, then repeat.")
            rmtree(place, ignore_errors=True)


C = TypeVar("C", bound="Collection")

METRICS: tuple[str, ...] = get_args(Metric)
_NAME = re.compile(r"[a-z0-9_]{1,60}")
_QUOTED = 300


@dataclass(frozen=True)
class Engine(Database, ABC, Generic[C]):
    """Base of the settings of databases. A subclass is a frozen dataclass whose numbers are all positive.

    A field that ends with `_env` names the environment variable of a secret, which no field and no error holds.

    Args:
        connectivity: neighbours of a node in the graph (M); fixed when a collection is made, as the next one.
        expansion_add: candidates while building (ef construction).
        expansion_search: candidates while searching (ef).
    """

    _: KW_ONLY
    connectivity: int = 16
    expansion_add: int = 128
    expansion_search: int = 128

    beside: ClassVar[tuple[str, ...]] = ()
    """What else the extra installs and is imported."""

    def __post_init__(self) -> None:
        for name, number in self._settings().items():
            if isinstance(number, (int, float)) and not isinstance(number, bool) and not 0 < number <= 1e9:
                raise StoreError(f"{type(self).__name__} got {name}={number}. Write 0 < number <= 1000000000.")
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and (value := getattr(self, name)) not in get_args(hint):
                known = ", ".join(map(repr, get_args(hint)))
                raise StoreError(f"{type(self).__name__} got {name}={value!r}. Write one of: {known}.")

    def open(self, folder: Path, collection: str, dimension: int, metric: str) -> C:
        found = self._collection(dimension, metric)
        with self.asking(f"open {collection!r}"):
            found.open(folder, stored_name(collection))
        return found

    def drop(self, folder: Path, collection: str) -> None:
        with self.asking(f"drop {collection!r}"):
            self._drop(folder, stored_name(collection))

    @abstractmethod
    def _collection(self, dimension: int, metric: str) -> C:
        """What is opened."""

    @abstractmethod
    def _drop(self, folder: Path, name: str) -> None:
        """Forget the collection that has this name in the database, if it is there."""

    @property
    def where(self) -> str:
        """The database, for errors."""
        return type(self).__name__

    def secret(self, field: str) -> str:
        """What the environment holds under the name in a field; empty where nothing."""
        return os.environ.get(getattr(self, field), "")

    def kind_of(self, error: Exception) -> type[StoreError]:
        """What an error of the database's package becomes: `StoreUnavailable` where repeating may help."""
        return StoreError

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Translate what the database's package raises. Every package has exceptions of its own, without a base."""
        try:
            yield
        except SpoliaError:
            raise
        except Exception as error:
            lacking = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
            if lacking in (self.module, *self.beside):
                cause = "" if isinstance(error, ModuleNotFoundError) else text_of(error)
                raise MissingExtra(self.extra, lacking, f"Keeping vectors in {type(self).__name__}", cause) from error
            kind = self.kind_of(error)
            advice = " Repeat when it is back." if kind is StoreUnavailable else ""
            raise kind(f"{self.where} could not {what}: {self._quoted(error)}.{advice}") from error

    def _quoted(self, error: Exception) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        for name in self._settings():
            if name.endswith("_env") and (secret := self.secret(name)):
                text = text.replace(secret, "…")
        return text[:_QUOTED].rstrip(". ")

    def _settings(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Served(Engine[C]):
    """Base of the settings of databases that can be on a server.

    Args:
        url: of the server; empty for an embedded database.
        timeout_s: seconds without an answer of the server.
    """

    url: str = ""
    _: KW_ONLY
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.url:
            object.__setattr__(self, "url", _checked(self.url))
        super().__post_init__()

    @property
    def where(self) -> str:
        return f"{type(self).__name__} at {self.url}" if self.url else type(self).__name__


def stored_name(collection: str) -> str:
    """What a collection is called in a database: recognised beside others' there, and valid in all of them."""
    if not _NAME.fullmatch(collection):
        raise StoreError(f"A collection is called {collection!r}. Write 1 to 60 of the characters a-z, 0-9 and _.")
    return f"spolia_{collection}_v1"


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        secret = bool(parts.username or parts.password or parts.query or parts.fragment)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        secret = valid = False
    if secret:
        raise StoreError(
            "url holds more than an address (a user, a password, a query), which would be stored with the group. "
            "Write the address alone, and name the secret's variable in the field for it."
        )
    if not valid:
        raise StoreError(f"url is {url!r}, no web address. Write for example 'http://127.0.0.1:8000'.")
    return url.rstrip("/")


Near: TypeAlias = list[tuple[int, float]]
"""Keys, each with its dot product or squared distance."""

_SPARE = 16  # results beyond those wanted, to see whether the last one has equals
_DEEPER = 4
_RESULTS_AT_ONCE = 100_000
_INT64 = range(-(2**63), 2**63)


class Collection(ABC):
    """Base of the opened indexes."""

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
        """Connect, and make the collection if it is not there; an embedded database lies in `folder`."""

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
            for some in in_batches(rows, min(self.most_rows, max(1, self.most_numbers // self.dimension))):
                self._put(some, checked[[rows[key] for key in some]])

    def remove(self, keys: Sequence[int]) -> None:
        with self.engine.asking("remove vectors"):
            for some in in_batches(dict.fromkeys(map(int, keys)), self.most_rows):
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
        for some in in_batches(range(len(queries)), max(1, min(100, _RESULTS_AT_ONCE // depth))):
            for near in self._near(queries[some[0] : some[-1] + 1], depth):
                scored = [(key, self._score(closeness)) for key, closeness in near]
                yield sorted(scored, key=lambda hit: (-hit[1], hit[0]))

    def _score(self, closeness: float) -> float:
        if self.metric == "euclidean":
            return -sqrt(max(closeness, 0.0))
        return min(1.0, max(-1.0, closeness)) if self.metric == "cosine" else closeness

    def _checked(self, vectors: Vectors) -> Vectors:
        """float32[n, d], of length 1 for cosine."""
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
