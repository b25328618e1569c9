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
from spolia.stores.backends.postgres.address import Address, parse_address
from spolia.stores.backends.postgres.dialect import translate_error
from spolia.stores.backends.postgres.session import (
    READ_S,
    WRITE_S,
    PostgresSession,
    PostgresWriteSession,
    SessionLease,
    connect,
    lock_number,
)
from spolia.stores.backends.rows import deep_problems
from spolia.stores.backends.sqlite.connection import is_earlier_schema, migrate, write_first_generation
from spolia.stores.files import fail_point, size_of, store_errors
from spolia.stores.integrity import find_row_problems
from spolia.stores.lexical.index_replica import ensure_index, forget_damaged

if TYPE_CHECKING:
    from spolia.stores.backends.backend import Manifests, OpenedStore, PinnedSnapshot
    from spolia.stores.backends.searches import DenseSearch, StoredVectors
    from spolia.stores.vectors.segments import VectorWriter
    from spolia.stores.vectors.sparse import SparseSearch


# Each question asks for its backend again.
@lru_cache(maxsize=64)
def postgres_backend(text: str) -> PostgresBackend:
    return PostgresBackend(parse_address(text))


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
        with closing(self._open_session()[0]) as session, store_errors(self, "read"):
            folder = cache_folder() / "postgres" / str(session.fetch_one(sql.UUID)[0])
            make_folder(folder)  # on a machine that uses the store for the first time
            return folder

    def exists(self) -> bool:
        with store_errors(self, "opened"), closing(PostgresSession(connect(self.address, READ_S))) as session:
            return session.fetch_one(dialect.FIND, {"schema": self.address.schema})[0] is not None

    def create(self) -> None:
        with store_errors(self, "made"):
            create(self.address)
        # Opening checks, and migrates, a store that was there before.
        self._open_session()[0].close()

    def connect_for_reading(self) -> PostgresSession:
        return self._open_session("default_transaction_read_only=on")[0]

    def begin_writing(self, timeout_s: float, connection: Connection | None = None) -> PostgresWriteSession:
        with store_errors(self, "opened for writing"):
            return PostgresWriteSession(self.address, lambda: self._open_session(timeout_s=WRITE_S), timeout_s)

    def _open_session(self, *settings: str, timeout_s: float = READ_S) -> tuple[PostgresSession, int]:
        """Open a session in the schema; return it with the object id of the store's table."""
        with store_errors(self, "opened"):
            session = PostgresSession(connect(self.address, timeout_s, *settings))
            try:
                return session, self._enter_schema(session)
            except BaseException:
                session.close()
                raise

    def _enter_schema(self, session: PostgresSession) -> int:
        """Set the schema for all statements, unless it holds something else."""
        table, _, other_tables = session.fetch_one(dialect.FIND, {"schema": self.address.schema})
        if table is None:
            content = (
                f"the schema holds {other_tables}; it was not touched" if other_tables else "the schema holds none"
            )
            raise NotAStore(
                f"Store not found at {self}: {content}. Make one: spolia index FOLDER --store {self}, or in Python "
                f"sync(FOLDER, Corpus({str(self)!r}))."
            )
        session.ask(dialect.SET_PATH, {"schema": self.address.schema})
        if self._is_earlier(session):
            self._migrate()
        return int(table)

    def _is_earlier(self, session: PostgresSession) -> bool:
        rebuild = f"DROP SCHEMA {self.address.schema} CASCADE, then spolia index FOLDER --store {self}"
        return is_earlier_schema(self, session.fetch_one(dialect.VERSION)[0], rebuild)

    def _migrate(self) -> None:
        """Migrate the schema; other processes wait meanwhile, and a kill or failure changes nothing."""
        with closing(PostgresSession(connect(self.address, WRITE_S))) as session, session.without_timeout():
            # The version is checked again after the lock: another process may have migrated the store.
            session.ask(dialect.LOCK_CREATION, (self.address.schema,))
            session.ask(dialect.SET_PATH, {"schema": self.address.schema})
            if self._is_earlier(session):
                migrate(session, session.fetch_one(dialect.VERSION)[0])
                session.ask(dialect.SET_VERSION)

    def is_current(self, open_store: OpenedStore) -> bool:
        try:
            return bool(open_store.row(sql.UUID)[0] == open_store.uuid)
        except StoreError:  # another connection may do; if not, opening it again says why
            return False

    def translate_error(self, doing: str, error: Exception) -> StoreError | None:
        return translate_error(self.address, doing, error)

    def lease(self, generation: int) -> SessionLease | None:
        with store_errors(self, "read"):
            session, table = self._open_session()
            session.ask(dialect.SHARE, (lock_number(table), generation))  # waits while somebody sweeps it
            return SessionLease(session)

    def lease_exclusively(self, connection: Connection, generation: int) -> object | None:
        assert isinstance(connection, PostgresSession)
        (table,) = connection.fetch_one(dialect.FIND, {"schema": self.address.schema})[:1]
        return connection.fetch_one(dialect.TRY_LOCK_TO_COMMIT, (lock_number(table), generation))[0] or None

    def lexical_index(self, snapshot: PinnedSnapshot, group: str) -> Path:
        return ensure_index(snapshot, group)

    def make_vector_writer(self, connection: Connection) -> VectorWriter:
        assert isinstance(connection, PostgresSession)
        return postgres_package.vectors.VectorTableWriter(self._open_session(timeout_s=WRITE_S)[0], connection)

    def follow(
        self, connection: Connection, manifests: Manifests, last_keys: Mapping[str, int], published: int
    ) -> None:
        for group, manifest in manifests.items():
            if external := [embedding for embedding in manifest.embeddings if embedding.is_external]:
                raise StoreError(
                    f"Group {group!r} has the index {external[0].index}, and {self} keeps and searches its vectors "
                    "itself. Write index=HNSW() or index=Exact()."
                )

    def derive(self, connection: Connection, manifests: Manifests) -> list[str]:
        if not any(manifest.embeddings for manifest in manifests.values()):
            return []

        assert isinstance(connection, PostgresSession)
        return postgres_package.vectors.index_large(connection, manifests)

    def vector_search(self, snapshot: PinnedSnapshot, group: str, embedder: str) -> DenseSearch | SparseSearch:
        embedding = snapshot.manifest(group).find_embedding(embedder)
        return (
            postgres_package.vectors.open_sparse_search
            if embedding is not None and embedding.is_sparse
            else postgres_package.vectors.open_search
        )(snapshot, group, embedder)

    def stored_vectors(self, snapshot: PinnedSnapshot, group: str, embedder: str) -> StoredVectors:
        return postgres_package.vectors.open_search(snapshot, group, embedder)

    def repair(self, connection: Connection) -> list[str]:
        return forget_damaged(self.folder)

    def row_problems(self, share: int = 0) -> list[str]:
        with closing(self.connect_for_reading()) as session, store_errors(self, "read"):
            return list(deep_problems(session, "the database", share))

    def problems(self, connection: Connection) -> Iterator[str]:
        assert isinstance(connection, PostgresSession)
        yield from find_row_problems(connection, "the database")
        for embedder, dimensions, _ in connection.ask(dialect.DIMENSIONS):  # all vectors are read, checksums compared
            if dimensions > 1:
                yield f"the database: vectors by {embedder!r} have {dimensions} different lengths"

    def bytes(self, connection: Connection) -> int:
        assert isinstance(connection, PostgresSession)
        return int(connection.fetch_one(dialect.BYTES)[0]) + size_of(self.folder)


def create(address: Address) -> None:
    with closing(PostgresSession(connect(address, WRITE_S))) as session, session.raw.transaction():
        # Two processes that create one store at a time take turns; the second finds it.
        session.ask(dialect.LOCK_CREATION, (address.schema,))
        if not _has_store(session, address):
            _fill(session, address)
            fail_point("postgres.create_commit")


def _has_store(session: PostgresSession, address: Address) -> bool:
    table, encoding, other_tables = session.fetch_one(dialect.FIND, {"schema": address.schema})
    if encoding != "UTF8":
        raise StoreError(
            f"The database of {address} is encoded in {encoding}, and a store holds any text. Make one: "
            "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )
    if table is None and other_tables:
        raise NotAStore(
            f"Store not found at {address}: the schema holds {other_tables}; it was not touched. Name another schema."
        )
    return table is not None


def _fill(session: PostgresSession, address: Address) -> None:
    fail_point("postgres.create")
    if session.fetch_one(dialect.HAS_SCHEMA, (address.schema,)) is None:
        session.ask(dialect.MAKE_SCHEMA.format(schema=address.schema))
    _extend(session, address)
    session.ask(dialect.SET_PATH, {"schema": address.schema})  # after the extension, which the path names too
    for statement in dialect.TABLES:
        session.ask(statement)
    write_first_generation(session)


def _extend(session: PostgresSession, address: Address) -> None:
    if session.fetch_one(dialect.HAS_EXTENSION):
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
