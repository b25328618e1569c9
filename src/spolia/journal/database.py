"""The file behind traces and cache: one writer thread, a bounded queue, errors that are counted instead of raised."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spolia.errors import NotAStore, StoreTooNew

APPLICATION_ID = 0x53504A31
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE spans (
    run TEXT NOT NULL, span INTEGER NOT NULL, parent INTEGER NOT NULL, lane INTEGER NOT NULL,
    step TEXT NOT NULL, started REAL NOT NULL, seconds REAL NOT NULL, cached INTEGER NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, embedded INTEGER NOT NULL,
    cost_usd REAL NOT NULL, error TEXT NOT NULL, notes TEXT NOT NULL, result TEXT NOT NULL,
    PRIMARY KEY (run, span)
) WITHOUT ROWID;
CREATE TABLE cache (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, usage TEXT NOT NULL, used REAL NOT NULL, size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX cache_used ON cache (used);
"""
Write = tuple[str, Callable[[], Sequence[Sequence[Any]]]]


class Database:
    """Writes are queued and made by one thread; reads have a connection per thread.

    Args:
        path: the file; made when it is not there.
        pending: rows waiting at most; what comes beyond that is dropped and counted.
    """

    def __init__(self, path: Path, *, pending: int = 20_000) -> None:
        self.path, self.pending = path, pending
        self.dropped = 0
        self.problem = ""
        self._queue: deque[Write] = deque()
        self._waiting = 0
        self._wake, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        prepared(path).close()

    def write(self, statement: str, rows: Callable[[], Sequence[Sequence[Any]]], count: int = 1) -> None:
        """Queue a statement and `count` rows for it, which the writer thread makes."""
        if self._waiting + count > self.pending or self._closed:
            self.dropped += count
            return
        self._waiting += count
        self._queue.append((statement, rows))
        if not self._wake.is_set():
            self._idle.clear()
            self._wake.set()
            if self._thread is None:
                self._start()

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connected(self.path)
        return connection.execute(statement, values).fetchall()

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything queued has been written; whether it was within the time."""
        return self._idle.wait(timeout_s)

    def close(self) -> None:
        """Write what is queued and end the writer thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(10.0)
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=_write_on, args=(weakref.ref(self),), daemon=True)
                self._thread.start()

    def _drain(self, connection: sqlite3.Connection) -> None:
        """Write everything that is queued in one transaction."""
        self._wake.clear()
        while self._queue:
            by_statement: dict[str, list[Sequence[Any]]] = {}
            self._waiting = 0
            for _ in range(len(self._queue)):
                statement, rows = self._queue.popleft()
                by_statement.setdefault(statement, []).extend(rows())
            try:
                with connection:
                    for statement, all_rows in by_statement.items():
                        connection.executemany(statement, all_rows)
            except sqlite3.Error as error:
                self.dropped += sum(map(len, by_statement.values()))
                self.problem = f"{self.path} could not be written: {error}"
        if not self._wake.is_set():
            self._idle.set()


def _write_on(reference: weakref.ref[Database]) -> None:
    """The writer thread; it ends with the database that it writes for."""
    database = reference()
    if database is None:
        return
    wake, connection = database._wake, connected(database.path)
    while True:
        database = None
        wake.wait(5.0)
        database = reference()
        if database is None:
            break
        database._drain(connection)
        if database._closed and not database._queue:
            break
    connection.close()


def connected(path: Path) -> sqlite3.Connection:
    """A connection that waits for others instead of failing."""
    connection = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def prepared(path: Path) -> sqlite3.Connection:
    """Open the file, making its tables when it is new, and refuse what is something else."""
    try:
        connection = connected(path)
        connection.execute("PRAGMA journal_mode = WAL")
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _create(connection)
        elif found != APPLICATION_ID:
            raise NotAStore(f"{path} is the database of another application. Name another file for traces and cache.")
        elif version > SCHEMA_VERSION:
            raise StoreTooNew(
                f"{path} has schema {version}; this version knows {SCHEMA_VERSION}. Upgrade: pip install -U spolia"
            )
    except sqlite3.DatabaseError as error:
        raise NotAStore(
            f"{path} cannot hold traces and cache: {error}. Delete it, or name another file; nothing else is lost."
        ) from error
    return connection


def _create(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        for statement in SCHEMA.strip().split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
