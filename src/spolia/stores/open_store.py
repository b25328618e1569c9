"""Data that a process keeps open of a store: connections per thread, the latest snapshot, indexes of snapshots."""

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
from spolia.stores.files import store_errors

if TYPE_CHECKING:
    from spolia.filters import Field, Leaf
    from spolia.stores.backends.backend import StoredVectors
    from spolia.stores.lexical.analysis import Analyzer
    from spolia.stores.lexical.index import Lexical
    from spolia.stores.snapshot.records import DocumentMetadata, Records
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.vectors.placement import VectorPlaces

T = TypeVar("T")


class OpenStore:
    def __init__(self, store: Backend) -> None:
        self.store, self.identity = store, store.identity()
        self._threads = threading.local()  # a session is used by one thread at a time
        self._lock = threading.RLock()
        self._leases: WeakSet[Lease] = WeakSet()  # a lease ends with the snapshot that holds it
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
        connection: Connection | None = getattr(self._threads, "connection", None)
        if connection is None:
            connection = self._threads.connection = self.store.connect_for_reading()
        return connection

    def lease(self, generation: int) -> Lease | None:
        lease = self.store.lease(generation)
        if lease is not None and lease.can_be_lost:
            with self._lock:
                self._leases.add(lease)
        return lease

    def rows(self, statement: str, values: Any = ()) -> list[Any]:
        with store_errors(self.store, "read"):
            return self.connection.execute(statement, values).fetchall()

    def stream_rows(self, statement: str, values: Any = ()) -> Iterator[Any]:
        with store_errors(self.store, "read"):
            yield from self.connection.stream_rows(statement, values)

    def row(self, statement: str, values: Any = ()) -> Any:
        with store_errors(self.store, "read"):
            return self.connection.execute(statement, values).fetchone()

    def count_terms(self, keys: Sequence[int], analyzer: Analyzer) -> list[int]:
        texts = dict(indexed_texts(self.rows(sql.TEXTS_OF_KEYS, {"keys": json.dumps(keys)})))
        return [len(analyzer.terms(texts[key])) for key in keys]

    def was_published(self, version: StoreVersion) -> bool:
        """Return whether the store still continues this version; it does not after a backup was restored."""
        return self.row(sql.WAS_PUBLISHED, version) is not None

    def reopen(self) -> OpenStore:
        """Open the same place again, without anything that was read of it before."""
        with _guard:
            if _open.get(self.store.place) in (self, None):  # else another thread has opened it again already
                _open[self.store.place] = OpenStore(self.store)
            return _open[self.store.place]

    def share(self, key: object, open: Callable[[], T]) -> T:
        """Return what is open under `key` as long as some snapshot uses it; open it for the first."""
        with self._lock:
            value: T | None = self._shared.get(key)
            if value is None:
                value = self._shared[key] = open()
            return value


_open: dict[str, OpenStore] = {}
# Keeps the parent's connections referenced in a forked child, so that it never closes one.
_left_behind: list[object] = []
_guard = threading.Lock()


def get_open_store(store: Backend) -> OpenStore:
    """Return the open store at a place; a new one as soon as the place holds another store."""
    # Fast path without the lock: each question asks for its store.
    current = _open.get(store.place)
    if current is not None and store.is_current(current):
        return current
    with _guard:
        _open.pop(store.place, None)
        if current is not None and not store.exists():
            raise NotAStore(
                f"{store} was deleted while it was open. Write: spolia index FOLDER --store {store}, "
                "or put it back from a backup."
            )
        _open[store.place] = OpenStore(store)
        return _open[store.place]


def forget(store: Backend) -> None:
    """Drop a store that is about to be deleted; snapshots of it that are still held keep what they need open."""
    with _guard:
        _open.pop(store.place, None)


def _forget_after_fork() -> None:
    """Forget the connections of the parent: a child may neither use nor close them, since SQLite's locks belong to a
    process."""
    global _open, _guard
    _left_behind.append(_open)
    _open, _guard = {}, threading.Lock()  # a thread that the child does not have may have held the parent's lock


os.register_at_fork(after_in_child=_forget_after_fork)


class OpenIndexes:
    """Indexes and vectors opened for a snapshot; `places` says by group and embedder where vectors stand."""

    def __init__(self, snapshot: Snapshot, previous: OpenIndexes | None) -> None:
        self._snapshot_ref = ref(snapshot)  # which owns this: it ends, with its lease, as soon as nobody holds it
        self._indexes: dict[object, Any] = {}
        self._inherited: DocumentMetadata | None = None
        self._records: dict[str | None, Records] = {}
        self.places: dict[tuple[str, str], VectorPlaces] = {}
        if previous is not None:
            self._take_over(snapshot, previous)

    @property
    def _snapshot(self) -> Snapshot:
        snapshot = self._snapshot_ref()
        assert snapshot is not None
        return snapshot

    def lexical(self, group: str) -> Lexical:
        return self._open_once(group, lambda: self._open_lexical(self._snapshot, group))

    def _open_lexical(self, snapshot: Snapshot, group: str) -> Lexical:
        open_store, analyzer = snapshot.open_store, snapshot.manifest(group).analyzer
        folder = open_store.store.lexical_index(snapshot, group)
        return open_store.share(
            folder,
            lambda: lexical_package.index.Lexical(
                folder, analyzer, lambda keys: open_store.count_terms(keys, analyzer)
            ),
        )

    def _open_once(self, key: object, open: Callable[[], T]) -> T:
        index: T | None = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = open()
        return index

    def records(self, group: str | None) -> Records:
        """Return what filters and access read of the nodes of a group; for None, of the documents themselves."""
        records = self._records.get(group)
        if records is None:
            if group is not None:
                self._snapshot.manifest(group)
            records = self._records[group] = snapshot_package.records.Records(
                self._snapshot.open_store.rows, group, self._document_metadata(), self._snapshot.schema
            )
        return records

    def holders(self, group: str, leaf: Leaf, field: Field) -> list[int] | None:
        """Return the keys of the nodes that fulfil a condition; None where the lexical index cannot say, or is not
        there yet: it would take longer to make it than to read the metadata."""
        snapshot = self._snapshot
        if group not in self._indexes and snapshot.open_store.store.published_index(group, snapshot.generation) is None:
            return None
        try:
            return self.lexical(group).holders(leaf, field)
        except StoreCorrupt:  # who searches it says so
            return None

    def _document_metadata(self, previous: snapshot_package.records.DocumentMetadata | None = None) -> DocumentMetadata:
        if self._inherited is None:
            self._inherited = snapshot_package.records.DocumentMetadata(
                self._snapshot.open_store.rows, self._snapshot.generation, previous
            )
        return self._inherited

    def _take_over(self, snapshot: Snapshot, previous: OpenIndexes) -> None:
        """Take over what an earlier snapshot has computed of metadata and places, and has not changed since."""
        # A copy: other threads may search the earlier snapshot, and add entries, meanwhile.
        for group, records in previous._records.copy().items():
            if group is None or group in snapshot.indexes:
                self._records[group] = records.for_generation(
                    self._document_metadata(previous._inherited), snapshot.schema
                )
        for (group, embedder), places in previous.places.copy().items():
            if group in snapshot.indexes and snapshot.manifests[group].find_embedding(embedder):
                self.places[group, embedder] = places.for_generation(snapshot.generation)

    def stored_vectors(self, group: str, embedder: str) -> StoredVectors:
        return self._open_once(
            (group, embedder, "stored"), lambda: self._backend_of(group).stored_vectors(self._snapshot, group, embedder)
        )

    def vectors(self, group: str, embedder: str) -> Any:
        return self._open_once(
            (group, embedder), lambda: self._backend_of(group).vector_search(self._snapshot, group, embedder)
        )

    def _backend_of(self, group: str) -> Backend:
        self._snapshot.manifest(group)
        return self._snapshot.open_store.store
