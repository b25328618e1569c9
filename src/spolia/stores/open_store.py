"""What a process keeps open of a store: connections per thread, the latest snapshot, indexes of snapshots."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, WeakValueDictionary, ref

from spolia.errors import NotAStore, StoreCorrupt, StoreUnavailable
from spolia.stores import lexical as lexical_package
from spolia.stores import snapshot as snapshot_package
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection, Lease
from spolia.stores.backends.rows import StoreVersion, indexed_texts
from spolia.stores.files import translated

if TYPE_CHECKING:
    from spolia.filters import Field, Leaf
    from spolia.stores.backends.backend import Stored
    from spolia.stores.lexical.analysis import Analyzer
    from spolia.stores.lexical.index import Lexical
    from spolia.stores.snapshot.records import DocumentMetadata, Records
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.vectors.placement import VectorPlaces

T = TypeVar("T")


class OpenStore:
    def __init__(self, store: Backend) -> None:
        self.store, self.identity = store, store.identity()
        self._threads = threading.local()
        self._lock = threading.RLock()
        self._leases: WeakSet[Lease] = WeakSet()
        self._shared: WeakValueDictionary[object, Any] = WeakValueDictionary()
        self.latest: Any = None
        self.uuid: str = self.row(sql.UUID)[0]
        self.folder: Path = store.folder

    @property
    def connection(self) -> Connection:
        if self._leases:  # of SQLite none can be lost
            with self._lock:
                if not all(lease.is_held() for lease in self._leases):
                    raise StoreUnavailable(
                        f"The connection to {self.store} was lost, and with it the snapshot. Repeat: "
                        "a new snapshot is taken of it then."
                    )
        found: Connection | None = getattr(self._threads, "connection", None)
        if found is None:
            found = self._threads.connection = self.store.reading()
        return found

    def leased(self, generation: int) -> Lease | None:
        lease = self.store.leased(generation)
        if lease is not None and lease.can_be_lost:
            with self._lock:
                self._leases.add(lease)
        return lease

    def rows(self, statement: str, values: Any = ()) -> list[Any]:
        with translated(self.store, "read"):
            return self.connection.execute(statement, values).fetchall()

    def each(self, statement: str, values: Any = ()) -> Iterator[Any]:
        with translated(self.store, "read"):
            yield from self.connection.each(statement, values)

    def row(self, statement: str, values: Any = ()) -> Any:
        with translated(self.store, "read"):
            return self.connection.execute(statement, values).fetchone()

    def lengths(self, keys: Sequence[int], analyzer: Analyzer) -> list[int]:
        found = dict(indexed_texts(self.rows(sql.TEXTS_OF_KEYS, {"keys": json.dumps(keys)})))
        return [len(analyzer.terms(found[key])) for key in keys]

    def was_published(self, version: StoreVersion) -> bool:
        """Whether the store still continues this version: not so after a backup was restored."""
        return self.row(sql.WAS_PUBLISHED, version) is not None

    def again(self) -> OpenStore:
        """The same place, without anything that was read of it before."""
        with _guard:
            if _open.get(self.store.place) in (self, None):
                _open[self.store.place] = OpenStore(self.store)
            return _open[self.store.place]

    def shared(self, key: object, open: Callable[[], T]) -> T:
        """What is open under `key` as long as some snapshot uses it."""
        with self._lock:
            found: T | None = self._shared.get(key)
            if found is None:
                found = self._shared[key] = open()
            return found


_open: dict[str, OpenStore] = {}
_left_behind: list[object] = []
_guard = threading.Lock()


def opened(store: Backend) -> OpenStore:
    """The open store at a place; another one as soon as the place holds another store."""
    found = _open.get(store.place)
    if found is not None and store.is_current(found):
        return found
    with _guard:
        _open.pop(store.place, None)
        if found is not None and not store.exists():
            raise NotAStore(
                f"{store} was deleted while it was open. Write: spolia index FOLDER --store {store}, "
                "or put it back from a backup."
            )
        _open[store.place] = OpenStore(store)
        return _open[store.place]


def forget(store: Backend) -> None:
    """Let go of a store that is about to be deleted; snapshots of it that are still held keep what they need open."""
    with _guard:
        _open.pop(store.place, None)


def _forget_after_fork() -> None:
    """A child process may neither use nor close the connections of its parent: SQLite's locks belong to a process."""
    global _open, _guard
    _left_behind.append(_open)
    _open, _guard = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


class OpenIndexes:
    """What is open of a snapshot; `places` says by group and embedder where vectors stand."""

    def __init__(self, snapshot: Snapshot, before: OpenIndexes | None) -> None:
        self._of = ref(snapshot)  # which owns this: it ends, with its lease, as soon as nobody holds it
        self._indexes: dict[object, Any] = {}
        self._inherited: DocumentMetadata | None = None
        self._records: dict[str | None, Records] = {}
        self.places: dict[tuple[str, str], VectorPlaces] = {}
        if before is not None:
            self._take_over(snapshot, before)

    @property
    def _snapshot(self) -> Snapshot:
        found = self._of()
        assert found is not None
        return found

    def lexical(self, group: str) -> Lexical:
        return self._once(group, lambda: self._lexical(self._snapshot, group))

    def _lexical(self, snapshot: Snapshot, group: str) -> Lexical:
        opened, analyzer = snapshot.opened, snapshot.manifest(group).analyzer
        folder = opened.store.lexical(snapshot, group)
        return opened.shared(
            folder, lambda: lexical_package.index.Lexical(folder, analyzer, lambda keys: opened.lengths(keys, analyzer))
        )

    def _once(self, key: object, open: Callable[[], T]) -> T:
        found: T | None = self._indexes.get(key)
        if found is None:
            found = self._indexes[key] = open()
        return found

    def records(self, group: str | None) -> Records:
        """What filters and access look at, of the nodes of a group; of None, of the documents themselves."""
        found = self._records.get(group)
        if found is None:
            if group is not None:
                self._snapshot.manifest(group)
            found = self._records[group] = snapshot_package.records.Records(
                self._snapshot.opened.rows, group, self._inheritance(), self._snapshot.schema
            )
        return found

    def holders(self, group: str, leaf: Leaf, field: Field) -> list[int] | None:
        """Return the keys of the nodes that fulfil a condition; None where the lexical index cannot say, or is not
        there yet: it would take longer to make it than to read the metadata."""
        snapshot = self._snapshot
        if group not in self._indexes and snapshot.opened.store.published_index(group, snapshot.generation) is None:
            return None
        try:
            return self.lexical(group).holders(leaf, field)
        except StoreCorrupt:  # who searches it says so
            return None

    def _inheritance(self, before: snapshot_package.records.DocumentMetadata | None = None) -> DocumentMetadata:
        if self._inherited is None:
            self._inherited = snapshot_package.records.DocumentMetadata(
                self._snapshot.opened.rows, self._snapshot.generation, before
            )
        return self._inherited

    def _take_over(self, snapshot: Snapshot, before: OpenIndexes) -> None:
        """What an earlier snapshot has computed of metadata and places, and has not changed since."""
        for group, records in before._records.copy().items():
            if group is None or group in snapshot.indexes:
                self._records[group] = records.at(self._inheritance(before._inherited), snapshot.schema)
        for (group, embedder), places in before.places.copy().items():
            if group in snapshot.indexes and snapshot.manifests[group].embedded(embedder):
                self.places[group, embedder] = places.at(snapshot.generation)

    def stored(self, group: str, embedder: str) -> Stored:
        return self._once(
            (group, embedder, "stored"), lambda: self._backend_of(group).stored(self._snapshot, group, embedder)
        )

    def vectors(self, group: str, embedder: str) -> Any:
        return self._once(
            (group, embedder), lambda: self._backend_of(group).vector_search(self._snapshot, group, embedder)
        )

    def _backend_of(self, group: str) -> Backend:
        self._snapshot.manifest(group)
        return self._snapshot.opened.store
