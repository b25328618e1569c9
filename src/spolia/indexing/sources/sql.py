"""Rows of databases, over connections that cannot write."""

import json
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from spolia.core.run_context import check_cancelled
from spolia.deferred import sqlalchemy
from spolia.errors import DocumentError, SourceError, SourceUnavailable, require
from spolia.indexing.readers.reader import FileReader
from spolia.indexing.sources.records import RecordCollector, names_in, uri_of
from spolia.indexing.sources.source import (
    ITEMS_AT_ONCE,
    Memory,
    Source,
    refuse_name,
    with_secrets,
    without_secrets,
)
from spolia.indexing.sync.files import SourceChanges
from spolia.stores.backends import postgres
from spolia.stores.backends.postgres.address import holds_password, password_files
from spolia.stores.corpus import is_database_address

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


CONNECT_S = 10
_LIBPQ = {"connect_timeout": CONNECT_S, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A server that is gone without a word is noticed after a minute, not never."""
_PASSWORDS = (("postgres|cockroach|redshift", "PGPASSWORD"), ("mysql|mariadb", "MYSQL_PWD"))
"""By the kind of database, the variable from which its library takes a password that no address names."""


@contextmanager
def connect_read_only(source: "SQLRows") -> "Iterator[Connection]":
    """Open a connection that cannot write."""
    engine = _make_engine(source)
    try:
        with translate_errors(source, lambda: 0):
            connection = engine.connect()
        with connection:
            dialect = engine.dialect.name
            with translate_errors(source, lambda: 0):
                if dialect == "sqlite":
                    connection.exec_driver_sql("PRAGMA query_only = ON")
                elif dialect == "postgresql":
                    connection = connection.execution_options(postgresql_readonly=True)
                elif dialect in ("mysql", "mariadb"):
                    connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
            yield connection
    finally:
        engine.dispose()


def _make_engine(source: "SQLRows") -> "Engine":
    require(sqlalchemy, "Reading the rows of a database")
    try:
        url = sqlalchemy.make_url(_fill_secrets(source.url))
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == "sqlite" and url.database and not os.path.exists(url.database):
            raise SourceError(f"There is no file {url.database}. Write the path of a database: sqlite:///PATH")
        connect_args = {"connect_timeout": CONNECT_S} if url.get_backend_name() in ("mysql", "mariadb") else {}
        libpq = url.get_driver_name() in ("psycopg", "psycopg2")
        # One connection for one run: a pool would keep it open.
        return sqlalchemy.create_engine(
            url, connect_args=_LIBPQ if libpq else connect_args, poolclass=sqlalchemy.pool.NullPool
        )
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError, ValueError) as error:
        message = without_secrets(str(error), source.url)
        raise SourceError(f"{source.url!r} is not a database address ({message}). Write sqlite:///PATH.") from error
    except ImportError as error:
        problem = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded: {error}"
        raise SourceError(
            f"The database of {source.name!r} needs {error.name}, which {problem}. Install it, or write the "
            "driver that you have into the address: postgresql+DRIVER://…"
        ) from error


def _fill_secrets(url: str) -> str:
    """Fill in the variables of an address; a password may hold `@` or `/`, which stay within it."""
    scheme, slashes, rest = url.partition("://")
    user, at_sign, place = rest.partition("@")
    if not at_sign or "/" in user:
        return with_secrets(url)
    user = _VARIABLE.sub(lambda match: quote(with_secrets(match[0]), safe="%"), user)
    return f"{with_secrets(scheme)}{slashes}{user}{at_sign}{with_secrets(place)}"


@contextmanager
def translate_errors(source: "SQLRows", count_rows: Callable[[], int]) -> Iterator[None]:
    """Translate what the database raises into words; nothing of the password is in them."""
    try:
        yield
    except sqlalchemy.exc.SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        message = without_secrets(" ".join(str(cause).split())[:400], source.url)
        is_lost = isinstance(error, sqlalchemy.exc.DBAPIError) and _is_transient(error)
        name = f"The database of {source.name!r}"
        if not is_lost:
            raise SourceError(f"{name} refuses: {message}. Check rows, columns and rights.") from error
        raise SourceUnavailable(
            f"{name} is not there, or broke off after {count_rows()} rows: {message}. "
            "Published documents stay; the next run goes on."
        ) from error


def _is_transient(error: Any) -> bool:
    """Return whether a retry may succeed: the server is gone, starts or stops, is busy or locked."""
    if type(error.orig).__module__.partition(".")[0] == "psycopg":
        return postgres.dialect.is_unreachable(error.orig)
    if error.connection_invalidated:
        return True
    message = str(error.orig)
    if any(words in message for words in ("no such", "syntax", "Access denied", "Unknown database")):
        return False  # SQLite and MySQL call these operational too
    return isinstance(error, (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError))


_LEFT_OUT = ("url", "removals")
"""Fields that do not change the documents."""
_VARIABLE = re.compile(r"\$\{\w+\}")
_INFILE = re.compile(r"[?&][^=]*local_infile", re.IGNORECASE)
_QUERY = re.compile(r"\s*(--[^\n]*\n\s*)*(select|with|values)\b", re.IGNORECASE)


@dataclass(frozen=True)
class SQLRows(Source):
    """Rows of a table or query, each a document with the uri `sql://NAME/KEY`.

    They are read in a transaction that only reads, and are published as they come, 1,000 at a time, so memory does not
    grow with their number. Where a column says when a row was changed, only rows that were changed since the last run
    are read, those of the very last moment again; so is a row in which the column is empty. Then the keys are listed:
    what is not among them is removed.

    Args:
        name: of the source, in the uris.
        url: of the database, as SQLAlchemy writes it: `postgresql://ann:${DB_PASSWORD}@db.example/notes`. `${NAME}`
            stands for the environment variable; passwords are not written here.
        rows: a table, as `notes` or `public.notes`, or a SELECT.
        key: column that tells rows apart.
        text: column with the text, or a template: `"{question}\\n\\n{answer}"`.
        title: column with the title, or a template.
        metadata: columns whose values are metadata.
        updated: column that grows when a row is changed: a time or a number. Without it all rows are read each time.
        format: of the texts: `.txt`, `.md`, `.html`.
        removals: list the keys in each run, to find deleted rows.

    Raises:
        SourceError: the name or the address is none.

    >>> SQLRows("notes", "sqlite:///notes.db", "notes", key="id", text="body", updated="changed").id
    'sql://notes/'
    """

    name: str
    url: str
    rows: str
    key: str
    text: str
    title: str = ""
    metadata: tuple[str, ...] = ()
    updated: str = ""
    format: str = ".txt"
    removals: bool = True

    def __post_init__(self) -> None:
        refuse_name(self.name)
        is_address = is_database_address(self.url) or ("://" in self.url and not self.url.startswith("sqlite"))
        if is_address and holds_password(_VARIABLE.sub("", self.url)):
            raise SourceError(
                "The address of the database holds a password. Set an environment variable, and name it: "
                "postgresql://USER:${DB_PASSWORD}@HOST/DATABASE"
            )
        if _INFILE.search(self.url):
            raise SourceError(
                "The address of the database has local_infile, with which its server could read any file of this "
                "machine. Take it out."
            )

    @property
    def id(self) -> str:
        return f"sql://{self.name}/"

    @property
    def env_names(self) -> dict[str, bool]:
        """See `spolia.core.environment.env_of`; a database's own library reads one more where no password is named."""
        variables = super().env_names
        by_library = [] if _VARIABLE.search(self.url) else [v for kind, v in _PASSWORDS if re.match(kind, self.url)]
        return variables | dict.fromkeys(by_library, False) | password_files(self.url)

    def change_batches(self, memory: Memory, readers: Mapping[str, FileReader]) -> Iterator[SourceChanges]:
        with connect_read_only(self) as connection:
            yield from _RowStream(self, connection, memory, readers).change_batches()


class _RowStream:
    def __init__(
        self, source: SQLRows, connection: "Connection", memory: Memory, readers: Mapping[str, FileReader]
    ) -> None:
        self.source, self.connection, self.memory = source, connection, memory
        self.collector = RecordCollector(source.id, source.format, readers)
        self.cursor = memory.cursors.get("", "")
        self.since = None if memory.reread else _decode_cursor(self.cursor, source)

    def change_batches(self) -> Iterator[SourceChanges]:
        if not self.memory.is_labelled(self.source.id):
            self.since = None
        row_count = 0
        with translate_errors(self.source, lambda: row_count):
            for row in self._stream_rows(self._changed_rows_query()):
                self._add_row(row)
                row_count += 1
                if self.collector.is_full:
                    yield self.collector.take_batch(self._cursors)
            if self.source.removals:
                yield from self._remove_missing()
        yield self.collector.take_batch(self._cursors)

    # Rows that have changed.

    def _changed_rows_query(self) -> Any:
        """Return a query for rows changed since the last run, with those of its last moment, and those without a
        moment."""
        source = self.source
        columns = [source.key, *names_in(source.text), *(names_in(source.title) if source.title else ())]
        columns += [*source.metadata, *filter(None, [source.updated])]
        query = self._select(*dict.fromkeys(columns))
        if not source.updated:
            return query
        updated: Any = sqlalchemy.column(source.updated)
        if self.since is not None:
            query = query.where(sqlalchemy.or_(updated >= self.since, updated.is_(None)))
        # The cursor of a full batch is that of its last row, so rows come in its order.
        return query.order_by(updated, sqlalchemy.column(source.key))

    def _select(self, *names: str) -> Any:
        rows = self.source.rows
        if _QUERY.match(rows):
            plain = rows.rstrip().rstrip(";").replace(":", r"\:")  # else it would be taken for a parameter
            return sqlalchemy.select(*map(sqlalchemy.column, names)).select_from(
                # The line break ends a comment in the last line of the query.
                sqlalchemy.text(f"({plain}\n) AS spolia_rows")
            )
        schema, _, name = rows.rpartition(".")
        return sqlalchemy.select(*map(sqlalchemy.column, names)).select_from(
            sqlalchemy.table(name, schema=schema or None)
        )

    def _stream_rows(self, query: Any) -> Iterator[Any]:
        """Yield rows one after the other: the server holds the rest."""
        with self.connection.execution_options(stream_results=True, yield_per=ITEMS_AT_ONCE).execute(query) as result:
            for partition in result.mappings().partitions():
                check_cancelled()
                yield from partition

    def _add_row(self, row: Any) -> None:
        source = self.source
        try:
            if row[source.key] is None:
                raise DocumentError(f"A row has no {source.key}, so it has no identity.")
            uri = uri_of(source.id, row[source.key])
        except DocumentError as error:
            self.collector.skip(source.id, str(error))
            return
        changed = row[source.updated] if source.updated else None
        metadata = zip(source.metadata, source.metadata, strict=True)
        self.collector.add_record(uri, row.__getitem__, source.text, source.title, metadata, changed)
        if changed is not None:
            self.cursor = _encode_cursor(changed, source)

    @property
    def _cursors(self) -> dict[str, str]:
        return {"": self.cursor} if self.source.updated else {}

    # Rows that are gone.

    def _remove_missing(self) -> Iterator[SourceChanges]:
        """Remove what the store has and the database has not. Of each key only a hash of 8 bytes is in memory."""
        key_hashes = array("q")
        for row in self._stream_rows(self._select(self.source.key)):
            if (key := row[self.source.key]) is not None:
                key_hashes.append(hash(uri_of(self.source.id, key)))
        hashes = np.sort(np.frombuffer(key_hashes, dtype=np.int64)) if key_hashes else np.zeros(0, np.int64)
        if len(key_hashes) and not (np.diff(hashes) != 0).all():
            raise SourceError(
                f"{self.source.key!r} is not a key of {self.source.rows:.80}: several rows have the same. Name a "
                "column with unique values."
            )

        def is_there(uri: str) -> bool:
            position = np.searchsorted(hashes, hash(uri))
            return bool(position < len(hashes) and hashes[position] == hash(uri))

        gone = (uri for uri in self.memory.uris(self.source.id) if not is_there(uri))
        yield from self.collector.lose_all(gone, self._cursors)


_CURSORS: Mapping[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat, "date": date.fromisoformat, "decimal": Decimal, "bytes": bytes.fromhex
}  # fmt: skip
"""How a cursor of each kind is read."""


def _encode_cursor(value: Any, source: SQLRows) -> str:
    kinds: dict[type, str] = {datetime: "datetime", date: "date", Decimal: "decimal", bytes: "bytes"}
    kind = kinds.get(type(value), "")
    if kind == "bytes":
        value = value.hex()
    elif kind or not isinstance(value, (str, int, float)):
        value = value.isoformat() if isinstance(value, date) else str(value)
    return json.dumps([source.definition(*_LEFT_OUT), kind, value])


def _decode_cursor(cursor: str, source: SQLRows) -> Any:
    """Return the value of a cursor; None for a cursor of another definition."""
    if not cursor:
        return None
    definition, kind, value = json.loads(cursor)
    if definition != source.definition(*_LEFT_OUT):
        return None
    return _CURSORS[kind](value) if kind in _CURSORS else value
