"""What a process keeps open of a store: connections per thread, the latest snapshot, indexes that snapshots share."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from spolia.errors import NotAStore
from spolia.stores import sql
from spolia.stores.connection import Immutable, connect, is_written, translated
from spolia.stores.layout import DATABASE

T = TypeVar("T")
Identity = tuple[int, int, int, int]
_NOTHING: Identity = (0, 0, 0, 0)


class Opened:
    """A store that this process has open; `opened` gives the one of a path."""

    def __init__(self, store: Path, identity: Identity) -> None:
        self.store, self.identity = store, identity
        self._threads = threading.local()
        self._lock = threading.RLock()
        self._shared: WeakValueDictionary[object, Any] = WeakValueDictionary()
        self.latest: Any = None
        self.uuid: str = self.row(sql.UUID)[0]

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        found: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if found is None:
            found = self._threads.connection = connect(self.store, writing=False)
        return found

    def rows(self, statement: str, values: Any = ()) -> list[Any]:
        """All rows of a query."""
        with translated(self.store, "read"):
            return self.connection.execute(statement, values).fetchall()

    def each(self, statement: str, values: Any = ()) -> Iterator[Any]:
        """The rows of a query one after the other, where all of them would need much memory."""
        with translated(self.store, "read"):
            yield from self.connection.execute(statement, values)

    def row(self, statement: str, values: Any = ()) -> Any:
        """The first row of a query, or None."""
        with translated(self.store, "read"):
            return self.connection.execute(statement, values).fetchone()

    def shared(self, key: object, open: Callable[[], T]) -> T:
        """What is open under `key` as long as some snapshot uses it."""
        with self._lock:
            found: T | None = self._shared.get(key)
            if found is None:
                found = self._shared[key] = open()
            return found

    def is_current(self, identity: Identity) -> bool:
        """Whether this is still what the path holds, and what is read from it is up to date."""
        if self.identity[:2] != identity[:2]:
            return False
        if not isinstance(self.connection, Immutable):
            return True
        return self.identity == identity and not is_written(self.store)


_open: dict[str, Opened] = {}
_left_behind: list[object] = []
_guard = threading.Lock()


def opened(path: str) -> Opened:
    """The open store at a path; another one as soon as the path holds another store.

    Raises:
        NotAStore: nothing is there any more, or something else.
    """
    place = os.path.abspath(path)
    found = _open.get(place)
    identity = _identity(place)
    if found is not None and found.is_current(identity):
        return found
    with _guard:
        _open.pop(place, None)
        if found is not None and identity == _NOTHING:
            raise NotAStore(
                f"{place} was deleted while it was open. Write: spolia index FOLDER --store {place}, "
                "or put it back from a backup."
            )
        _open[place] = Opened(Path(place), identity)
        return _open[place]


def _identity(place: str) -> Identity:
    """Which file the database is, and whether it has changed."""
    try:
        there = os.stat(f"{place}/{DATABASE}")
    except OSError:
        return _NOTHING
    return (there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns)


def _forget_after_fork() -> None:
    """A child process may neither use nor close the connections of its parent: SQLite's locks belong to a process."""
    global _open, _guard
    _left_behind.append(_open)
    _open, _guard = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
