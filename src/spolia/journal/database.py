"""File behind traces and cache: one writer thread, a bounded queue, errors that are counted instead of raised."""

import atexit
import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from spolia.errors import NotAStore, StoreBusy, StoreCorrupt, StoreTooNew, pip_install
from spolia.private_files import set_aside
from spolia.record_files import connect, guard, is_guarded

APPLICATION_ID = 0x53504A31  # "SPJ1"
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE spans (
    run TEXT NOT NULL, span INTEGER NOT NULL, parent INTEGER NOT NULL, lane INTEGER NOT NULL,
    step TEXT NOT NULL, started REAL NOT NULL, seconds REAL NOT NULL, cached INTEGER NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, embedded INTEGER NOT NULL,
    cost_usd REAL NOT NULL, error TEXT NOT NULL, notes TEXT NOT NULL, result TEXT NOT NULL,
    PRIMARY KEY (run, span)
) WITHOUT ROWID;
CREATE INDEX spans_started ON spans (started);
CREATE TABLE cache (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, usage TEXT NOT NULL, used REAL NOT NULL, size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX cache_used ON cache (used);
"""
VALUES = """
CREATE TABLE IF NOT EXISTS trace_details (
    run TEXT NOT NULL, span INTEGER NOT NULL, operator TEXT NOT NULL, input TEXT NOT NULL, output TEXT NOT NULL,
    exchanges TEXT NOT NULL, PRIMARY KEY (run, span)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trace_values (
    hash TEXT PRIMARY KEY, value BLOB NOT NULL, used REAL NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS trace_runs (run TEXT PRIMARY KEY, principals TEXT NOT NULL) WITHOUT ROWID;
"""
"""Tables of values. Older files lack these tables and get them with the first value."""
REMEDY = (
    "It holds traces and cached results. Set it aside: spolia repair --store STORE. The next run begins a new file."
)
PAGE_BYTES = 8192
"""Of a new file: the span of a ranking of 50 hits takes 1.4 kB, which in pages of 4 kB would need one of its own."""
SOON_S = 0.05
"""Seconds in which writes are collected: one transaction for all of them takes a fraction of the CPU time."""
IDLE_S = 5.0  # how often the writer looks whether somebody still holds its journal
Rows = Callable[[], Sequence[Sequence[Any]]]
Write = tuple[str, Rows, int]


class JournalFile:
    """File whose writes are queued, at most `pending` rows, and made by one thread; reads share one connection."""

    def __init__(self, path: Path, *, pending: int = 20_000) -> None:
        self.path, self.pending = path, pending
        self.dropped = 0
        self.problem = ""
        self.damaged: Path | None = None
        """The damaged file that was here, where it is now."""
        self._process = os.getpid()
        self._reset()
        try:
            open_journal_file(path).close()
        except StoreCorrupt as error:  # traces and cached results can be lost
            if not _is_ours(path):
                raise NotAStore(f"{error} Or name another file.") from error
            self.damaged = set_aside(path)
            open_journal_file(path).close()
        self._at_exit = partial(_close, weakref.ref(self))  # weak, or `atexit` would keep every journal alive
        atexit.register(self._at_exit)

    def _reset(self) -> None:
        self._queue: deque[Write] = deque()
        self._scheduled: set[Callable[[], None]] = set()
        self._waiting = 0
        self._wake, self._hurry, self._idle = threading.Event(), threading.Event(), threading.Event()
        self._idle.set()
        self._made_tables: set[str] = set()
        self._lock, self._reading = threading.Lock(), threading.Lock()  # the queue; the one connection that reads
        self._reader: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def _reset_after_fork(self) -> None:
        """Start again after a fork: the child has neither the writer thread nor a connection that it may use."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._reset()

    def write(self, statement: str, rows: Rows, count: int = 1) -> bool:
        """Queue a statement and `count` rows for it, which the writer thread makes within `SOON_S`; return whether
        there was room. A statement that makes a table is executed once."""
        self._reset_after_fork()
        with self._lock:
            if self._waiting + count > self.pending or self._closed:
                self.dropped += count
                return False
            self._waiting += count
            self._queue.append((statement, rows, count))
            self._idle.clear()
            if self._thread is None:
                self._start()
            is_half_full = self._waiting > self.pending // 2
        self._notify(is_half_full)
        return True

    def schedule(self, call: Callable[[], None]) -> None:
        """Have the writer thread call this once, within `SOON_S`; closing the file calls it before."""
        self._reset_after_fork()
        if call in self._scheduled:  # without the lock: at worst it is added to a set that has it
            return
        with self._lock:
            is_closed = self._closed
            if not is_closed:
                self._scheduled.add(call)
                if self._thread is None:
                    self._start()
        if is_closed:
            call()
        self._notify()

    def _notify(self, hurries: bool = False) -> None:
        """Tell the writer thread that there is something to write; in a hurry, it collects no more."""
        for event, is_due in ((self._hurry, hurries), (self._wake, True)):
            if is_due and not event.is_set():  # to look takes a tenth of the time of `set`
                event.set()

    def _run_scheduled(self) -> None:
        with self._lock:
            calls, self._scheduled = self._scheduled, set()
        for call in calls:
            call()  # outside the lock, which `hand_over` takes to write

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._reset_after_fork()
        with self._reading:
            if self._reader is None:
                self._reader = open_connection(self.path)
            return self._reader.execute(statement, values).fetchall()

    def size(self) -> int:
        """Return the bytes in use without free pages; 0 if the file cannot be read."""
        try:
            ((pages,),), ((free,),), ((bytes_each,),) = (
                self.read(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
            )
        except (sqlite3.Error, StoreCorrupt) as error:
            self.problem = f"{self.path} could not be read: {error}"
            return 0
        return int((pages - free) * bytes_each)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything queued has been written; return whether it was within the time."""
        self._hurry.set()
        return self._idle.wait(timeout_s)

    def close(self) -> None:
        """Write what is queued and end the writer thread."""
        atexit.unregister(self._at_exit)
        self._reset_after_fork()
        self._run_scheduled()
        with self._lock:
            self._closed = True
        self._notify(hurries=True)
        if self._thread is not None:
            self._thread.join(10.0)  # not for ever: a disk may hang
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _start(self) -> None:
        thread = threading.Thread(target=_run_writer, args=(weakref.ref(self),), daemon=True, name="spolia-journal")
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            self._drop(f"no thread to write: {error}")
        else:
            self._thread = thread

    def _drop(self, reason: str) -> None:
        """Give up the queue. The caller holds the lock."""
        self.dropped += self._waiting
        self.problem = f"{self.path} could not be written: {reason}"
        self._queue.clear()
        self._waiting = 0
        self._idle.set()

    def _drain(self, connection: sqlite3.Connection | None) -> bool:
        """Write everything queued, in one transaction each time; return whether more may come."""
        self._wake.clear()
        self._hurry.clear()
        while True:
            with self._lock:
                # taken as a whole, so that steps go on queueing while it is written
                batch, self._queue = self._queue, deque()
                if not batch:
                    self._idle.set()
                    return not self._closed
                if connection is None:
                    self._queue = batch
                    self._drop("it cannot be opened")
                    continue
            self._write(connection, batch)
            with self._lock:
                self._waiting -= sum(count for _, _, count in batch)

    def _write(self, connection: sqlite3.Connection, batch: deque[Write]) -> None:
        count = sum(count for _, _, count in batch)
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                tables = {statement for statement, _, _ in batch if statement.startswith("CREATE")}
                for statement, rows, _ in batch:
                    if statement not in self._made_tables:
                        connection.executemany(statement, rows())
                if tables - self._made_tables:
                    guard(connection)
            self._made_tables |= tables
        except Exception as error:  # a row that cannot be described or written must not end the journal
            # One bad row must not cost the others. A full disk or a lock would: each alone fails as well.
            if len(batch) > 1 and not isinstance(error, sqlite3.OperationalError):
                for item in batch:
                    self._write(connection, deque((item,)))
                return
            with self._lock:
                self.dropped += count
                self.problem = f"{self.path} could not be written: {type(error).__name__}: {error}"


def _close(reference: weakref.ref[JournalFile]) -> None:
    """Write the queue when the interpreter ends, for callers who did not close."""
    if (database := reference()) is not None:
        database.close()


def _run_writer(reference: weakref.ref[JournalFile]) -> None:
    """Run the writer thread, which ends with the database that it writes for."""
    database = reference()
    if database is None:
        return
    wake, hurry, connection = database._wake, database._hurry, None
    with suppress(sqlite3.Error, StoreCorrupt):
        connection = open_connection(database.path)
    while True:
        database = None  # holds none while it waits, so that one that nobody uses any more can be collected
        if wake.wait(IDLE_S):
            hurry.wait(SOON_S)
        database = reference()
        if database is None:
            break
        database._run_scheduled()
        if not database._drain(connection):
            break
    if connection is not None:
        connection.close()


def open_connection(path: Path) -> sqlite3.Connection:
    """Open a connection that waits for others instead of failing."""
    connection = connect(path, REMEDY, timeout_s=5.0)
    connection.execute("PRAGMA synchronous = NORMAL")  # with a log, a power cut costs the last spans, never the file
    return connection


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(72)[68:] == APPLICATION_ID.to_bytes(4, "big")  # where SQLite's header has the application's id


def open_journal_file(path: Path) -> sqlite3.Connection:
    """Open the file, make its tables if it is new, and refuse a file of another kind."""
    try:
        connection = open_connection(path)
        # first: with a log or a table it changes nothing any more
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application_id == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _create(connection)
        elif application_id != APPLICATION_ID:
            raise NotAStore(f"{path} is the database of another application. Name another file for traces and cache.")
        elif version > SCHEMA_VERSION:
            raise StoreTooNew(
                f"{path} has schema {version}; this version knows {SCHEMA_VERSION}. Upgrade: {pip_install('', '-U')}"
            )
        else:
            _guard(connection)
    except sqlite3.OperationalError as error:
        raise StoreBusy(
            f"{path} cannot hold traces and cache now: {error}. "
            "Wait for who writes to it, look at its permissions and the free space, or name another file."
        ) from error
    except sqlite3.DatabaseError as error:
        raise NotAStore(
            f"{path} cannot hold traces and cache: {error}. Delete it, or name another file; nothing else is lost."
        ) from error
    return connection


def _create(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # another process has made them in between
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        for statement in split_statements(SCHEMA):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        guard(connection)


def _guard(connection: sqlite3.Connection) -> None:
    """Guard the tables of a file of an earlier version."""
    if not is_guarded(connection):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            guard(connection)


def split_statements(script: str) -> list[str]:
    """Return the statements of a script, without their semicolons."""
    return [statement for statement in script.strip().rstrip(";").split(";\n") if statement.strip()]
