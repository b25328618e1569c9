"""Data that a process keeps open of a store: connections per thread, the latest snapshot."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from spolia.errors import NotAStore, StoreUnavailable
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection, Lease
from spolia.stores.backends.rows import StoreVersion, indexed_texts
from spolia.stores.files import store_errors

if TYPE_CHECKING:
    from spolia.stores.lexical.analysis import Analyzer

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
