"""What a process keeps open of a store: connections per thread, the latest snapshot, indexes that snapshots share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from spolia.errors import NotAStore, StoreUnavailable
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection, Lease, translated
from spolia.stores.backends.rows import StoreVersion

T = TypeVar("T")


class OpenStore:
    """A store that this process has open; `opened` gives the one of a place."""

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
        """This thread's connection.

        Raises:
            StoreUnavailable: a lease has ended, so that what snapshots hold on to may have been swept.
        """
        with self._lock:
            if not all(lease.is_held() for lease in self._leases):
                raise StoreUnavailable(
                    f"The connection to {self.store} was lost, and with it the hold on what was read from it. Repeat: "
                    "a new snapshot is taken of it then."
                )
        found: Connection | None = getattr(self._threads, "connection", None)
        if found is None:
            found = self._threads.connection = self.store.reading()
        return found

    def leased(self, generation: int) -> Lease | None:
        """A lease on a generation; None when it is being swept or has been."""
        lease = self.store.leased(generation)
        if lease is not None:
            with self._lock:
                self._leases.add(lease)
        return lease

    def rows(self, statement: str, values: Any = ()) -> list[Any]:
        """All rows of a query."""
        with translated(self.store, "read"):
            return self.connection.execute(statement, values).fetchall()

    def each(self, statement: str, values: Any = ()) -> Iterator[Any]:
        """The rows of a query one after the other, where all of them would need much memory."""
        with translated(self.store, "read"):
            yield from self.connection.each(statement, values)

    def row(self, statement: str, values: Any = ()) -> Any:
        """The first row of a query, or None."""
        with translated(self.store, "read"):
            return self.connection.execute(statement, values).fetchone()

    def was_published(self, version: StoreVersion) -> bool:
        """Whether what is there goes on from this version: not so where a backup was put back since."""
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
    """The open store at a place; another one as soon as the place holds another store.

    Raises:
        NotAStore: nothing is there any more, or something else.
    """
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
