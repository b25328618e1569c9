"""Databases of PostgreSQL that flows query."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import on_cancel, record_access
from spolia.databases.database import SAMPLES, QueryLimits, QueryRows, ask_worker, format_columns, table_text
from spolia.databases.read_only_check import load_parser, refuse_writes
from spolia.deferred import psycopg
from spolia.errors import StatementError, StoreError, StoreUnavailable, require
from spolia.stores.backends.postgres.address import parse_address
from spolia.stores.backends.postgres.dialect import is_unreachable
from spolia.types import Value

if TYPE_CHECKING:
    from psycopg import Connection

_CONNECT_S = 10


@dataclass(frozen=True)
class PostgresDatabase(Value):
    """Tables of a schema in PostgreSQL, which are queried and never written.

    Each statement runs in a read-only transaction of its own, behind a cursor that gives only the rows of the limit,
    with a `statement_timeout`, beside the check of the statement itself; its rows are read in a process of limited
    memory. Give it a user who may read these tables and
    nothing else: functions of the database may do more than their names say.

    Args:
        url: `postgresql://user@host/database`, without a password: see `stores.md` for where Spolia finds it.
        schema: whose tables may be asked for.
        tables: those of them, views too; none for all.

    Raises:
        StoreError: the address holds a password.

    >>> PostgresDatabase("postgresql://reader@db.example/shop").language
    'SQL of PostgreSQL'
    """

    url: str
    schema: str = "public"
    tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_address(self.url)

    @property
    def env_names(self) -> dict[str, bool]:
        """Return the variables that it reads; see `spolia.core.environment.env_of`."""
        return parse_address(self.url).env_names

    scoped: ClassVar[bool] = False
    language: ClassVar[str] = "SQL of PostgreSQL"

    @property
    def place(self) -> str:
        return self.url

    def fingerprint(self) -> None:
        """Return None: nobody knows when its rows change."""

    def described(self) -> str:
        with self._connect(QueryLimits()) as connection:
            columns = self._read_columns(connection)
            first = {table: self._read_first_rows(connection, table) for table in columns}
        return "\n\n".join(
            table_text(table, f"CREATE TABLE {table} ({', '.join(map(' '.join, pairs.items()))})", first[table])
            for table, pairs in columns.items()
        )

    def ask(self, statement: str, limits: QueryLimits) -> QueryRows:
        record_access(self)
        # libpq itself reads variables that begin with PG.
        env = {name: text for name, text in os.environ.items() if name in self.env_names or name.startswith("PG")}
        killed = limits.but(timeout_s=2 * limits.timeout_s + _CONNECT_S)  # the server ends a statement before
        place = (self.url, self.schema, self.tables, env, limits.timeout_s)
        return ask_worker(_ask, *place, statement=statement, limits=killed, load=(load_parser,))

    def _run(self, statement: str, limits: QueryLimits) -> QueryRows:
        with self._connect(limits) as connection:
            tables = {table: tuple(pairs) for table, pairs in self._read_columns(connection).items()}
            refuse_writes(statement, "postgres", tables, self.schema)
            with self._reword_errors(limits, tables), connection.cursor(name="asked") as cursor:
                # one row more than the limit tells that the result was cut
                cursor.itersize = min(limits.rows + 1, 1000)
                cursor.execute(statement.encode())
                first = cursor.fetchmany(1)  # what a named cursor has for columns is known with its first row
                names = [str(column.name) for column in cursor.description or ()]
                return QueryRows.read(names, chain(first, cursor), statement, limits)

    @contextmanager
    def _reword_errors(self, limits: QueryLimits, tables: dict[str, tuple[str, ...]]) -> Iterator[None]:
        """Reword errors of the database for the author of the statement."""
        try:
            yield
        except psycopg.errors.QueryCanceled as error:
            raise StatementError(
                f"The statement took longer than {limits.timeout_s:g} s. Write one that reads less: with a condition, "
                "or without joining everything with everything."
            ) from error
        except psycopg.Error as error:
            if error.sqlstate is None and not isinstance(error, psycopg.InternalError):  # which is want of memory
                raise
            message = " ".join(str(error).split())[:300]
            if error.sqlstate is None:
                message = f"the rows need more memory than QueryLimits(memory_mb=…) allows ({message})"
            raise StatementError(f"PostgreSQL says: {message}. There are: {format_columns(tables)}") from error

    @contextmanager
    def _connect(self, limits: QueryLimits) -> "Iterator[Connection[Any]]":
        record_access(self)
        require(psycopg, "Asking a database in PostgreSQL")
        address = parse_address(self.url)
        timeout_ms = max(1, round(limits.timeout_s * 1000))  # 0 would mean no limit at all
        try:
            connect_options: dict[str, Any] = {"connect_timeout": _CONNECT_S, **address.secrets()}
            with psycopg.connect(address.server, **connect_options) as connection:
                connection.read_only = True
                connection.execute(f"SET LOCAL statement_timeout = {timeout_ms}")
                search_path = '"' + self.schema.replace('"', '""') + '"'
                connection.execute("SELECT set_config('search_path', %s, true)", (search_path,))
                with on_cancel(connection.cancel):  # ends the statement on the server too, where it would run on
                    yield connection
                connection.rollback()
        except psycopg.Error as error:
            message = " ".join(str(error).split())[:300]
            kind, advice = (StoreUnavailable, ", and repeat") if is_unreachable(error) else (StoreError, "")
            raise kind(f"{self.url} could not be asked: {message}. Check the address{advice}.") from error

    def _read_columns(self, connection: "Connection[Any]") -> dict[str, dict[str, str]]:
        """Return the columns and their types, of each table that may be queried."""
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in connection.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s "
            "ORDER BY table_name, ordinal_position",
            (self.schema,),
        ):
            if not self.tables or table in self.tables:
                columns.setdefault(str(table), {})[str(column)] = str(kind)
        if missing := [table for table in self.tables if table not in columns]:
            raise StoreError(f"{self.url} has no table {missing[0]!r} in {self.schema}. Write tables that it has.")
        return columns

    def _read_first_rows(self, connection: "Connection[Any]", table: str) -> QueryRows:
        sql = psycopg.sql
        query = sql.SQL("SELECT * FROM {} LIMIT {}")
        cursor = connection.execute(query.format(sql.Identifier(table), sql.Literal(SAMPLES)))
        columns = [str(column.name) for column in cursor.description or ()]
        return QueryRows.read(columns, cursor, "", QueryLimits(rows=SAMPLES, characters=2_000))


def _ask(
    url: str,
    schema: str,
    tables: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    statement: str,
    rows: int,
    characters: int,
) -> list[Any]:
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]  # a worker is reused, and must not keep the password of a former call
    os.environ.update(env)
    database = PostgresDatabase(url, schema, tuple(tables))
    return database._run(statement, QueryLimits(rows, characters, timeout_s)).plain
