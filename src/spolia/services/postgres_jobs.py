"""Table of jobs in a store's schema in PostgreSQL: workers on many machines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import psycopg

from spolia.services.jobs import OTHER_TABLES, TABLE
from spolia.stores.backends.postgres.address import Address
from spolia.stores.backends.postgres.dialect import translate_error
from spolia.stores.backends.postgres.session import WRITE_S, connect

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")  # not the casts of PostgreSQL, `::float8`


@contextmanager
def _translate_errors(address: Address) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translate_error(address, "used", error) or error from error


class PostgresTable:
    """Table of jobs in a schema. Its connection is opened again after the server was away."""

    # `clock_timestamp()` goes on during a transaction, `now()` does not.
    now, skip = "extract(epoch FROM clock_timestamp())::float8", "FOR UPDATE SKIP LOCKED"
    lock_statement = "SELECT pg_advisory_xact_lock(hashtextextended('spolia changes ' || current_schema(), 0))"

    def __init__(self, address: Address) -> None:
        self.address, self._lock, self._depth = address, RLock(), 0
        self._connection = connect(address, WRITE_S, f"search_path={address.schema}")
        with self.transaction():
            # `IF NOT EXISTS` alone fails when two processes create a table at the same time.
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('spolia jobs', 0))")
            for statement in (TABLE, *OTHER_TABLES):
                sql = statement.format(key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", bytes="BYTEA")
                self._connection.execute(sql)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock, _translate_errors(self.address):
            if self._connection.closed and not self._depth:  # not inside a transaction, whose first half is lost
                self._connection = connect(self.address, WRITE_S, f"search_path={self.address.schema}")
            self._depth += 1
            try:
                with self._connection.transaction():
                    yield
            finally:
                self._depth -= 1

    def ask(self, statement: str, rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
        results: list[tuple[Any, ...]] = []
        with self._connection.cursor() as cursor:
            cursor.executemany(_PARAMETER.sub(r"%(\1)s", statement), rows, returning=True)  # sent in one go
            while cursor.pgresult is not None:  # None without rows
                results += cursor.fetchall()
                if not cursor.nextset():
                    break
        return results

    def clean(self) -> bool:
        with self._lock:
            self._connection.execute("VACUUM attachments")  # deleted bytes stay in the table's file until then
        return True

    def close(self) -> None:
        self._connection.close()
