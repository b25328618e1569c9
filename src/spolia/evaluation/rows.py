"""The rows of an experiment in a file of their own, each kept as soon as it is there."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spolia.errors import DataError, NotAStore, StoreBusy, StoreTooNew
from spolia.evaluation.identity import changes
from spolia.evaluation.row import Row

APPLICATION_ID = 0x53504A32
FORM = 1
SCHEMA = """
CREATE TABLE experiment (identity TEXT NOT NULL);
CREATE TABLE rows (flow TEXT NOT NULL, item TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (flow, item)) WITHOUT ROWID
"""


class Rows:
    """What was asked so far. A killed process loses the questions that it was at, and no other.

    One process at a time: whoever opens the file has it until it is closed, or the process ends.

    Args:
        path: by habit `NAME.experiment`; None keeps the rows in memory.

    Raises:
        StoreBusy: another process has it open.
        NotAStore: the file is something else.
        StoreTooNew: it was written by a newer version.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection = _opened(path)
        try:
            found = self._connection.execute("SELECT flow, item, row FROM rows").fetchall()
            identities = self._connection.execute("SELECT identity FROM experiment").fetchall()
            self.rows = {(flow, item): Row.read(flow, item, row) for flow, item, row in found}
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            self._connection.close()
            raise NotAStore(f"{path} is damaged: {error}. Delete it and ask again.") from error
        self.identity: Mapping[str, Any] | None = json.loads(identities[0][0]) if identities else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def belong_to(self, identity: Mapping[str, Any]) -> None:
        """Take the rows for those of an experiment.

        Raises:
            DataError: they were made by another one; says what has changed.
        """
        if self.identity is None:
            with self._lock, self._connection:
                self._connection.execute("INSERT INTO experiment VALUES (?)", (json.dumps(identity),))
            self.identity = identity
        elif differences := changes(self.identity, identity):
            raise DataError(
                f"{self.path} holds another experiment: {'; '.join(differences)}. "
                "Name another file, or delete this one to ask everything again."
            )

    def forget(self) -> None:
        """Drop all rows."""
        self.drop(list(self.rows.values()))

    def drop(self, rows: Iterable[Row]) -> None:
        """Drop these rows."""
        keys = [(row.flow, row.item) for row in rows]
        with self._lock, self._connection:
            self._connection.executemany("DELETE FROM rows WHERE flow = ? AND item = ?", keys)
            for key in keys:
                del self.rows[key]

    def keep(self, row: Row) -> None:
        """Write a row; it is in the file when this returns."""
        with self._lock, self._connection:
            self._connection.execute("INSERT OR REPLACE INTO rows VALUES (?,?,?)", (row.flow, row.item, row.text()))
            self.rows[row.flow, row.item] = row


def _opened(path: str | Path | None) -> sqlite3.Connection:
    try:
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(":memory:" if path is None else path, timeout=0.2, check_same_thread=False)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with connection:
            connection.execute("BEGIN EXCLUSIVE")
            _claim(connection, path)
    except sqlite3.OperationalError as error:
        raise StoreBusy(
            f"{path} cannot be opened: {error}. If another process is at this experiment, wait for it; else look at "
            "the permissions, or name another file."
        ) from error
    except sqlite3.DatabaseError as error:
        raise NotAStore(f"{path} holds no experiment: {error}. Name another file.") from error
    return connection


def _claim(connection: sqlite3.Connection, path: str | Path | None) -> None:
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORM}")
    elif application != APPLICATION_ID:
        raise NotAStore(f"{path} is the database of something else. Name another file.")
    elif version > FORM:
        raise StoreTooNew(f"{path} has form {version}; this version knows {FORM}. Upgrade: pip install -U spolia")
