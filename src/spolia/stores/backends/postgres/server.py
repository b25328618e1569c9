"""A store in PostgreSQL: rows and vectors in a schema, lexical indexes in a folder of each machine that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import errors

from spolia.errors import NotAStore, StoreError
from spolia.models.file_hash import cache_folder
from spolia.private_files import make_folder
from spolia.stores.backends import postgres as postgres_package
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection
from spolia.stores.backends.postgres import dialect
from spolia.stores.backends.postgres.address import Address, address_of
from spolia.stores.backends.postgres.dialect import problem
from spolia.stores.backends.postgres.session import (
    READ_S,
    WRITE_S,
    PostgresSession,
    PostgresWriteSession,
    SessionLease,
    connected,
    lock_number,
)
from spolia.stores.backends.rows import deep_problems
from spolia.stores.backends.sqlite.connection import begin, is_earlier, migrate
from spolia.stores.files import fail_point, size_of, translated
from spolia.stores.integrity import rows_problems
from spolia.stores.lexical.index_replica import followed, forget_damaged

if TYPE_CHECKING:
    from spolia.stores.backends.backend import Manifests, Stored
    from spolia.stores.open_store import OpenStore
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.vectors.search import DenseSearch
    from spolia.stores.vectors.segments import VectorWriter
    from spolia.stores.vectors.sparse import SparseSearch


@lru_cache(maxsize=64)
def postgres(text: str) -> PostgresBackend:
    return PostgresBackend(address_of(text))


class PostgresBackend(Backend):
    def __init__(self, address: Address) -> None:
        self.address = address

    def __str__(self) -> str:
        return str(self.address)

    @property
    def place(self) -> str:
        return str(self.address)

    @property
    def folder(self) -> Path:
        with closing(self._opened()[0]) as session, translated(self, "read"):
            folder = cache_folder() / "postgres" / str(session.one(sql.UUID)[0])
            make_folder(folder)  # on a machine that uses the store for the first time
            return folder

    def exists(self) -> bool:
        with translated(self, "opened"), closing(PostgresSession(connected(self.address, READ_S))) as session:
            return session.one(dialect.FIND, {"schema": self.address.schema})[0] is not None

    def create(self) -> None:
        with translated(self, "made"):
            create(self.address)
        self._opened()[0].close()

    def reading(self) -> PostgresSession:
        return self._opened("default_transaction_read_only=on")[0]

    def writing(self, timeout_s: float, connection: Connection | None = None) -> PostgresWriteSession:
        with translated(self, "opened for writing"):
            return PostgresWriteSession(self.address, lambda: self._opened(timeout_s=WRITE_S), timeout_s)

    def _opened(self, *settings: str, timeout_s: float = READ_S) -> tuple[PostgresSession, int]:
        """A session in the schema, and the object id of the store's table."""
        with translated(self, "opened"):
            session = PostgresSession(connected(self.address, timeout_s, *settings))
            try:
                return session, self._entered(session)
            except BaseException:
                session.close()
                raise

    def _entered(self, session: PostgresSession) -> int:
        """Name the schema for all statements, unless it holds something else."""
        table, _, others = session.one(dialect.FIND, {"schema": self.address.schema})
        if table is None:
            there = f"the schema holds {others}; it was not touched" if others else "the schema holds none"
            raise NotAStore(
                f"Store not found at {self}: {there}. Make one: spolia index FOLDER --store {self}, or in Python "
                f"sync(FOLDER, Corpus({str(self)!r}))."
            )
        session.ask(dialect.SET_PATH, {"schema": self.address.schema})
        if self._is_earlier(session):
            self._bring_up_to_date()
        return int(table)

    def _is_earlier(self, session: PostgresSession) -> bool:
        rebuild = f"DROP SCHEMA {self.address.schema} CASCADE, then spolia index FOLDER --store {self}"
        return is_earlier(self, session.one(dialect.VERSION)[0], rebuild)

    def _bring_up_to_date(self) -> None:
        """One process does it while others wait; one that is killed or fails changes nothing."""
        with closing(PostgresSession(connected(self.address, WRITE_S))) as session, session.unhurried():
            session.ask(dialect.ONE_MAKER, (self.address.schema,))
            session.ask(dialect.SET_PATH, {"schema": self.address.schema})
            if self._is_earlier(session):
                migrate(session, session.one(dialect.VERSION)[0])
                session.ask(dialect.SET_VERSION)

    def is_current(self, opened: OpenStore) -> bool:
        try:
            return bool(opened.row(sql.UUID)[0] == opened.uuid)
        except StoreError:  # another connection may do; if not, opening it again says why
            return False

    def problem(self, doing: str, error: Exception) -> StoreError | None:
        return problem(self.address, doing, error)

    def leased(self, generation: int) -> SessionLease | None:
        with translated(self, "read"):
            session, table = self._opened()
            session.ask(dialect.SHARE, (lock_number(table), generation))  # waits while somebody sweeps it
            return SessionLease(session)

    def unleased(self, connection: Connection, generation: int) -> object | None:
        assert isinstance(connection, PostgresSession)
        (table,) = connection.one(dialect.FIND, {"schema": self.address.schema})[:1]
        return connection.one(dialect.TRY_LOCK_TO_COMMIT, (lock_number(table), generation))[0] or None

    def lexical(self, snapshot: Snapshot, group: str) -> Path:
        return followed(snapshot, group)

    def embedding(self, connection: Connection) -> VectorWriter:
        assert isinstance(connection, PostgresSession)
        return postgres_package.vectors.VectorTableWriter(self._opened(timeout_s=WRITE_S)[0], connection)

    def follow(self, connection: Connection, manifests: Manifests, known: Mapping[str, int], published: int) -> None:
        for group, manifest in manifests.items():
            if beside := [how for how in manifest.embeddings if how.is_beside]:
                raise StoreError(
                    f"Group {group!r} has the index {beside[0].index}, and {self} keeps and searches its vectors "
                    "itself. Write index=HNSW() or index=Exact()."
                )

    def derive(self, connection: Connection, manifests: Manifests) -> list[str]:
        if not any(manifest.embeddings for manifest in manifests.values()):
            return []

        assert isinstance(connection, PostgresSession)
        return postgres_package.vectors.index_large(connection, manifests)

    def vector_search(self, snapshot: Snapshot, group: str, embedder: str) -> DenseSearch | SparseSearch:
        how = snapshot.manifest(group).embedded(embedder)
        return (
            postgres_package.vectors.sparse_search_of
            if how is not None and how.is_sparse
            else postgres_package.vectors.search_of
        )(snapshot, group, embedder)

    def stored(self, snapshot: Snapshot, group: str, embedder: str) -> Stored:
        return postgres_package.vectors.search_of(snapshot, group, embedder)

    def repair(self, connection: Connection) -> list[str]:
        return forget_damaged(self.folder)

    def row_problems(self, share: int = 0) -> list[str]:
        with closing(self.reading()) as session, translated(self, "read"):
            return list(deep_problems(session, "the database", share))

    def problems(self, connection: Connection) -> Iterator[str]:
        assert isinstance(connection, PostgresSession)
        yield from rows_problems(connection, "the database")
        for embedder, dimensions, _ in connection.ask(dialect.DIMENSIONS):  # all vectors are read, checksums compared
            if dimensions > 1:
                yield f"the database: vectors by {embedder!r} have {dimensions} different lengths"

    def bytes(self, connection: Connection) -> int:
        assert isinstance(connection, PostgresSession)
        return int(connection.one(dialect.BYTES)[0]) + size_of(self.folder)


def create(address: Address) -> None:
    with closing(PostgresSession(connected(address, WRITE_S))) as session, session.raw.transaction():
        session.ask(dialect.ONE_MAKER, (address.schema,))
        if not _is_there(session, address):
            _fill(session, address)
            fail_point("postgres.create_commit")


def _is_there(session: PostgresSession, address: Address) -> bool:
    table, encoding, others = session.one(dialect.FIND, {"schema": address.schema})
    if encoding != "UTF8":
        raise StoreError(
            f"The database of {address} is encoded in {encoding}, and a store holds any text. Make one: "
            "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )
    if table is None and others:
        raise NotAStore(
            f"Store not found at {address}: the schema holds {others}; it was not touched. Name another schema."
        )
    return table is not None


def _fill(session: PostgresSession, address: Address) -> None:
    fail_point("postgres.create")
    if session.one(dialect.THERE_IS_A_SCHEMA, (address.schema,)) is None:
        session.ask(dialect.MAKE_SCHEMA.format(schema=address.schema))
    _extend(session, address)
    session.ask(dialect.SET_PATH, {"schema": address.schema})
    for statement in dialect.TABLES:
        session.ask(statement)
    begin(session)


def _extend(session: PostgresSession, address: Address) -> None:
    if session.one(dialect.HAS_EXTENSION):
        return
    try:
        session.ask(dialect.EXTENSION)
    except (errors.UndefinedFile, errors.FeatureNotSupported) as error:
        raise StoreError(
            f"The server of {address} does not have pgvector, in which the vectors are kept. Install it there "
            "(https://github.com/pgvector/pgvector), then repeat."
        ) from error
    except errors.InsufficientPrivilege as error:
        raise StoreError(
            f"The user of {address} may not install pgvector in the database. Have a superuser write there: "
            "CREATE EXTENSION vector"
        ) from error
