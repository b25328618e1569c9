"""A file of SQLite that is asked."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spolia.core.run_context import on_cancel, reach
from spolia.databases.database import SAMPLES, QueryLimits, QueryRows, named, table_text
from spolia.databases.read_only import refuse_writes
from spolia.errors import StatementError, StoreError
from spolia.types import Value

_EVERY = 1_000
"""Steps of SQLite's machine between two looks at the clock."""
_LARGEST = 1_000_000
"""Bytes of one text or row within it."""
_UNSTOPPABLE = frozenset(("printf", "format"))
"""Functions that compute a text of any length before SQLite looks at its limits."""
_READS = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE))


@dataclass(frozen=True)
class SQLiteFile(Value):
    """A database in a file of SQLite, which is asked and never written.

    It is opened for reading (`mode=ro`), lets no statement do anything but read (an authorizer), and breaks off what
    takes too long (a progress handler), beside the check of the statement itself.

    Args:
        path: the file.
        tables: those that may be asked for, views too; none for all.

    >>> SQLiteFile("people.db", tables=("person",)).language
    'SQL of SQLite'
    """

    path: str
    tables: tuple[str, ...] = ()

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False
    language: ClassVar[str] = "SQL of SQLite"

    @property
    def place(self) -> str:
        return self.path

    def fingerprint(self) -> None:
        """Nobody knows when its rows change."""

    def described(self) -> str:
        with self._opened() as connection:
            created = self._created(connection)
            first = {name: self._first(connection, name) for name in created}
        return "\n\n".join(table_text(name, text, first[name]) for name, text in created.items())

    def ask(self, statement: str, limits: QueryLimits) -> QueryRows:
        with self._opened() as connection:
            tables = {name: self._first(connection, name).columns for name in self._created(connection)}
            refuse_writes(statement, "sqlite", tables)
            others = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema")} - tables.keys()
            connection.set_authorizer(_reading(frozenset(tables), frozenset(others)))
            with self._within(connection, limits.timeout_s, tables), closing(connection.cursor()) as cursor:
                cursor.execute(statement)
                columns = [str(column[0]) for column in cursor.description or ()]
                return QueryRows.read(columns, cursor, statement, limits)

    @contextmanager
    def _within(
        self, connection: sqlite3.Connection, timeout_s: float, tables: Mapping[str, tuple[str, ...]]
    ) -> Iterator[None]:
        end = time.monotonic() + timeout_s
        connection.set_progress_handler(lambda: time.monotonic() > end, _EVERY)
        try:
            with on_cancel(connection.interrupt):
                yield
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            if time.monotonic() > end:
                raise StatementError(
                    f"The statement took more than {timeout_s} s. Write one that reads less: with a condition, or "
                    "without joining everything with everything."
                ) from error
            raise StatementError(f"SQLite says: {error}. There are: {named(tables)}") from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        reach(self)
        try:
            address = f"{Path(self.path).expanduser().absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)) as opened:
                opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
                opened.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                opened.execute("PRAGMA query_only = ON")
                opened.execute("PRAGMA trusted_schema = OFF")
                yield opened
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path} cannot be read as a database ({error}). Write the path of a file of SQLite."
            ) from error

    def _created(self, connection: sqlite3.Connection) -> dict[str, str]:
        found = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
            "ESCAPE '\\' AND sql IS NOT NULL ORDER BY name"
        )
        created = {str(name): str(text) for name, text in found if not self.tables or name in self.tables}
        if missing := [name for name in self.tables if name not in created]:
            raise StoreError(f"{self.path} has no table {missing[0]!r}. Write tables that it has, or none for all.")
        return created

    def _first(self, connection: sqlite3.Connection, table: str) -> QueryRows:
        quoted = '"' + table.replace('"', '""') + '"'
        cursor = connection.execute(f"SELECT * FROM {quoted} LIMIT {SAMPLES}")
        columns = [str(column[0]) for column in cursor.description]
        return QueryRows.read(columns, cursor, "", QueryLimits(rows=SAMPLES, characters=2_000))


def _reading(tables: frozenset[str], others: frozenset[str]) -> Callable[..., int]:
    """What SQLite asks before it does anything: only reading of these tables, or within these views, is allowed.

    A table expression of the statement itself is named here too, with no column; it is none of the file's others.
    """

    def may_read(table: str, column: str, view: str | None) -> bool:
        own = column == "" and table not in others and not table.startswith(("sqlite_", "pragma_", "dbstat"))
        return table in tables or view in tables or own

    def allowed(action: int, table: str, column: str, _: object, view: str | None) -> int:
        if action == sqlite3.SQLITE_FUNCTION and column.lower() in _UNSTOPPABLE:
            return sqlite3.SQLITE_DENY
        fine = action in _READS and (action != sqlite3.SQLITE_READ or may_read(table, column, view))
        return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

    return allowed
