"""Shared parts of all vector databases: settings, errors, open clients, batches, scores and their order.

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
        self._shared: dict[Path, Shared[T]] = {}

    def take(self, place: Path, open: Callable[[], Shared[T]]) -> Shared[T]:
        """Return the client of a folder, which the caller gives back once."""
        with self._lock:
            # Opened under the lock: an embedded database locks its folder, and can be opened once.
            shared = self._shared.get(place.resolve()) or open()
            self._shared[place.resolve()] = shared
            shared.users += 1
            return shared

    def give_back(self, place: Path) -> None:
        with self._lock:
            shared = self._shared[place.resolve()]
            shared.users -= 1
            if not shared.users:
                del self._shared[place.resolve()]
                shared.close()

    def remove(self, place: Path) -> None:
        """Delete a folder, if it is there and nobody has it open."""
        with self._lock:
            if place.resolve() in self._shared:
                raise StoreBusy(f"{place} is open in this process. Close its indexes, then repeat.")
            rmtree(place, ignore_errors=True)


C = TypeVar("C", bound="Collection")

METRICS: tuple[str, ...] = get_args(Metric)
_NAME = re.compile(r"[a-z0-9_]{1,60}")
# A database's error may hold whole requests.
_QUOTED_CHARACTERS = 300


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

    companion_modules: ClassVar[tuple[str, ...]] = ()
    """What else the extra installs and is imported."""

    def __post_init__(self) -> None:
        for name, number in self._settings().items():
            if isinstance(number, (int, float)) and not isinstance(number, bool) and not 0 < number <= 1e9:
                raise StoreError(f"{type(self).__name__} got {name}={number}. Write 0 < number <= 1000000000.")
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and (value := getattr(self, name)) not in get_args(hint):
                choices = ", ".join(map(repr, get_args(hint)))
                raise StoreError(f"{type(self).__name__} got {name}={value!r}. Write one of: {choices}.")

    def open(self, folder: Path, collection: str, dimension: int, metric: str) -> C:
        opened_collection = self._make_collection(dimension, metric)
        with self.translate_errors(f"open {collection!r}"):
            opened_collection.open(folder, stored_name(collection))
        return opened_collection

    def drop(self, folder: Path, collection: str) -> None:
        with self.translate_errors(f"drop {collection!r}"):
            self._drop(folder, stored_name(collection))

    @abstractmethod
    def _make_collection(self, dimension: int, metric: str) -> C:
        """Return the collection that `open` connects."""

    @abstractmethod
    def _drop(self, folder: Path, name: str) -> None:
        """Forget the collection that has this name in the database, if it is there."""

    @property
    def location(self) -> str:
        """The database, for errors."""
        return type(self).__name__

    def secret(self, field: str) -> str:
        """Return the environment variable that a field names; empty if it is not set."""
        return os.environ.get(getattr(self, field), "")

    def error_type(self, error: Exception) -> type[StoreError]:
        """Return the type of an error of the database's package: `StoreUnavailable` if a repetition may help."""
        return StoreError

    @contextmanager
    def translate_errors(self, action: str) -> Iterator[None]:
        """Translate the exceptions of the database's package; every package has its own, without a common base."""
        try:
            yield
        except SpoliaError:
            raise
        except Exception as error:
            lacking = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
            if lacking in (self.module, *self.companion_modules):
                cause = "" if isinstance(error, ModuleNotFoundError) else text_of(error)
                raise MissingExtra(self.extra, lacking, f"Keeping vectors in {type(self).__name__}", cause) from error
            kind = self.error_type(error)
            advice = " Repeat when it is back." if kind is StoreUnavailable else ""
            raise kind(f"{self.location} could not {action}: {self._quoted(error)}.{advice}") from error

    def _quoted(self, error: Exception) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        for name in self._settings():
            if name.endswith("_env") and (secret := self.secret(name)):
                # No error shows a secret, whatever the package quotes.
                text = text.replace(secret, "…")
        return text[:_QUOTED_CHARACTERS].rstrip(". ")

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
            object.__setattr__(self, "url", _check_url(self.url))
        super().__post_init__()

    @property
    def location(self) -> str:
        return f"{type(self).__name__} at {self.url}" if self.url else type(self).__name__


def stored_name(collection: str) -> str:
    """Return a collection's name in a database: recognisable beside other applications' collections, valid in all
    databases."""
    if not _NAME.fullmatch(collection):
        raise StoreError(f"A collection is called {collection!r}. Write 1 to 60 of the characters a-z, 0-9 and _.")
    return f"spolia_{collection}_v1"


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        has_secret = bool(parts.username or parts.password or parts.query or parts.fragment)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_secret = is_valid = False
    if has_secret:
        raise StoreError(
            "url holds more than an address (a user, a password, a query), which would be stored with the group. "
            "Write the address alone, and name the secret's variable in the field for it."
        )
    if not is_valid:
        raise StoreError(f"url is {url!r}, no web address. Write for example 'http://127.0.0.1:8000'.")
    return url.rstrip("/")


NearestKeys: TypeAlias = list[tuple[int, float]]
"""Keys, each with its dot product or squared distance."""

_SPARE = 16  # results beyond those wanted, to see whether the last one has equals
_DEPTH_GROWTH = 4  # each try asks for all results again
_RESULTS_AT_ONCE = 100_000  # of all queries in one request
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
    def _upsert(self, keys: Sequence[int], vectors: Vectors) -> None:
        """Upsert distinct keys, at most `most_rows`."""

    @abstractmethod
    def _delete(self, keys: Sequence[int]) -> None:
        """Delete, at most `most_rows`; a key that is not there is no error."""

    @abstractmethod
    def _query(self, queries: Vectors, top_k: int) -> list[NearestKeys]:
        """Return for each query keys with dot products, or for `euclidean` squared distances; at most `deepest`."""

    @abstractmethod
    def _key_pages(self) -> Iterator[Sequence[int]]:
        """Yield all keys, page by page."""

    @abstractmethod
    def close(self) -> None: ...

    def refuse_other(self, collection: str, dimension: int, metric: str) -> None:
        """Raise unless a collection that was found is the one that is wanted."""
        if (dimension, metric) != (self.dimension, self.metric):
            raise StoreError(
                f"The collection {collection!r} of {self.engine.location} holds vectors of {dimension} numbers "
                f"compared by {metric}, not of {self.dimension} by {self.metric}. Drop it, or give the new one another "
                "name."
            )

    def add(self, keys: Sequence[int], vectors: Vectors) -> None:
        valid_vectors = self._check_vectors(vectors)
        rows = {int(key): row for row, key in enumerate(keys)}  # of a key that comes twice, the last
        if len(keys) != len(valid_vectors) or any(key not in _INT64 for key in rows):
            raise StoreError(
                f"{len(keys)} keys came with {len(valid_vectors)} vectors. Write one 64-bit number for each."
            )
        with self.engine.translate_errors("add vectors"):
            for batch in in_batches(rows, min(self.most_rows, max(1, self.most_numbers // self.dimension))):
                self._upsert(batch, valid_vectors[[rows[key] for key in batch]])

    def remove(self, keys: Sequence[int]) -> None:
        with self.engine.translate_errors("remove vectors"):
            for batch in in_batches(dict.fromkeys(map(int, keys)), self.most_rows):
                self._delete(batch)

    def search(self, queries: Vectors, top_k: int) -> list[NearestKeys]:
        valid_queries = self._check_vectors(queries)
        if top_k < 1:
            return [[] for _ in valid_queries]
        limit = min(top_k, self.deepest)
        results: list[NearestKeys] = [[] for _ in valid_queries]
        rows, depth = list(range(len(valid_queries))), min(limit + _SPARE, self.deepest)
        with self.engine.translate_errors("search"):
            while rows:
                for row, hits in zip(rows, self._search(valid_queries[rows], depth), strict=True):
                    results[row] = hits
                rows = [row for row in rows if depth < self.deepest and _may_have_ties(results[row], limit, depth)]
                # Ask for more until the last result has no equals beyond it: equals are ordered by key.
                depth = min(depth * _DEPTH_GROWTH, self.deepest)
        return [hits[:limit] for hits in results]

    def keys(self) -> Iterator[int]:
        pages = self._key_pages()
        while True:
            with self.engine.translate_errors("list its keys"):
                page = next(pages, None)
            if page is None:
                return
            yield from page

    def _search(self, queries: Vectors, depth: int) -> Iterator[NearestKeys]:
        # The results of one request are in memory together.
        for batch in in_batches(range(len(queries)), max(1, min(100, _RESULTS_AT_ONCE // depth))):
            for near in self._query(queries[batch[0] : batch[-1] + 1], depth):
                hits = [(key, self._score(closeness)) for key, closeness in near]
                yield sorted(hits, key=lambda hit: (-hit[1], hit[0]))

    def _score(self, closeness: float) -> float:
        if self.metric == "euclidean":
            return -sqrt(max(closeness, 0.0))
        # Rounding may lead beyond the range of a cosine.
        return min(1.0, max(-1.0, closeness)) if self.metric == "cosine" else closeness

    def _check_vectors(self, vectors: Vectors) -> Vectors:
        """Return the vectors as float32[n, d], of length 1 for cosine; raise StoreError for others."""
        for row, vector in enumerate(vectors):
            if np.shape(vector) != (self.dimension,):
                raise StoreError(
                    f"Vector {row} has the shape {np.shape(vector)}, and {self.engine.location} holds vectors of "
                    f"{self.dimension} numbers. Give vectors by the embedder that the index was made for."
                )
        # Numbers too large for float32 become infinity, which is reported below.
        with np.errstate(over="ignore"):
            rows: Vectors = np.asarray(vectors, dtype=np.float32).reshape(-1, self.dimension)
        if len(invalid := np.flatnonzero(~np.isfinite(rows).all(axis=1))):
            raise StoreError(f"Vector {invalid[0]} holds NaN or infinity. Check what the embedder returned.")
        if self.metric == "cosine":
            lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
            rows = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        return rows


def _may_have_ties(hits: NearestKeys, limit: int, depth: int) -> bool:
    """Return whether results that were not asked for may be as good as the last one to return."""
    return len(hits) == depth > limit and hits[-1][1] == hits[limit - 1][1]
