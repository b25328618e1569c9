"""SQLite files that flows query."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from spolia.core.run_context import record_access
from spolia.databases.database import (
    SAMPLES,
    QueryLimits,
    QueryRows,
    ask_worker,
    format_columns,
    statement_worker,
    table_text,
)
from spolia.databases.read_only_check import load_parser, refuse_writes
from spolia.errors import StatementError, StoreError
from spolia.types import Value

_LARGEST = 1_000_000
"""Bytes of one text or row within it."""
_DESCRIBE_S = 60.0
_READS = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE))


@dataclass(frozen=True)
class SQLiteFile(Value):
    """A database in a file of SQLite, which is queried and never written.

    It is opened for reading (`mode=ro`) and lets no statement do anything but read (an authorizer), beside the check of
    the statement itself. Statements run in a process of their own, which is killed at its limit of time or memory.

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
        """Return None: nobody knows when its rows change."""

    def described(self) -> str:
        record_access(self)
        with statement_worker(QueryLimits()) as worker:
            return str(worker.call(_describe, *self._address, seconds=_DESCRIBE_S))

    def ask(self, statement: str, limits: QueryLimits) -> QueryRows:
        record_access(self)
        return ask_worker(_ask, *self._address, statement=statement, limits=limits, load=(load_parser,))

    @property
    def _address(self) -> tuple[str, tuple[str, ...]]:
        return str(Path(self.path).expanduser().absolute()), self.tables


def _describe(path: str, tables: Sequence[str]) -> str:
    with _open(path) as connection:
        definitions = _read_definitions(connection, path, tables)
        first_rows = {name: _read_first_rows(connection, name) for name in definitions}
    return "\n\n".join(table_text(name, text, first_rows[name]) for name, text in definitions.items())


def _ask(path: str, allowed_tables: Sequence[str], statement: str, rows: int, characters: int) -> list[Any]:
    with _open(path) as connection:
        tables = {
            name: _read_first_rows(connection, name, 0).columns
            for name in _read_definitions(connection, path, allowed_tables)
        }
        refuse_writes(statement, "sqlite", tables)
        other_tables = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema")} - tables.keys()
        # Last, since it denies what the lines above read: SQLite's own tables.
        connection.set_authorizer(_build_authorizer(frozenset(tables), frozenset(other_tables)))
        try:
            cursor = connection.execute(statement)
            columns = [str(column[0]) for column in cursor.description or ()]
            return QueryRows.read(columns, cursor, statement, QueryLimits(rows, characters)).plain
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise StatementError(f"SQLite says: {error}. There are: {format_columns(tables)}") from error


@contextmanager
def _open(path: str) -> Iterator[sqlite3.Connection]:
    try:
        address = f"{Path(path).as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)  # ATTACH would open, or make, other files
            connection.execute("PRAGMA query_only = ON")
            # views of a foreign file may not call functions with side effects
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} cannot be read as a database ({error}). Write the path of a file of SQLite."
        ) from error


def _read_definitions(connection: sqlite3.Connection, path: str, tables: Sequence[str]) -> dict[str, str]:
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
        "ESCAPE '\\' AND sql IS NOT NULL ORDER BY name"
    )
    definitions = {str(name): str(text) for name, text in rows if not tables or name in tables}
    if missing := [name for name in tables if name not in definitions]:
        raise StoreError(f"{path} has no table {missing[0]!r}. Write tables that it has, or none for all.")
    return definitions


def _read_first_rows(connection: sqlite3.Connection, table: str, count: int = SAMPLES) -> QueryRows:
    quoted = '"' + table.replace('"', '""') + '"'
    cursor = connection.execute(f"SELECT * FROM {quoted} LIMIT {count}")
    columns = [str(column[0]) for column in cursor.description]
    return QueryRows.read(columns, cursor, "", QueryLimits(rows=SAMPLES, characters=2_000))


def _build_authorizer(tables: frozenset[str], other_tables: frozenset[str]) -> Callable[..., int]:
    """Build the authorizer that SQLite calls before each action: only reading these tables, or within these views, is
    allowed.

    A table expression of the statement itself is named here too, with no column; it is none of the file's others.
    """

    def may_read(table: str, column: str, view: str | None) -> bool:
        # Tables of SQLite itself tell about the file and the process, whatever the statement calls them.
        own = column == "" and table not in other_tables and not table.startswith(("sqlite_", "pragma_", "dbstat"))
        return table in tables or view in tables or own

    def authorize(action: int, table: str, column: str, _: object, view: str | None) -> int:
        fine = action in _READS and (action != sqlite3.SQLITE_READ or may_read(table, column, view))
        return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

    return authorize
