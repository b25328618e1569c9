"""The interface of a store's backend: SQLite in a folder, or a schema of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

from spolia.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from spolia.filters import Schema
    from spolia.models.vectors import SparseRows
    from spolia.stores.backends.searches import DenseSearch, Search, StoredVectors, VectorSink
    from spolia.stores.manifest import Manifest

T = TypeVar("T")
Manifests: TypeAlias = "Mapping[str, Manifest]"
"""What each group is made of, by its name."""


class StatementRows(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A session with a backend, used by one thread at a time; outside of a transaction every statement is one."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statement: str, values: Any = ..., /) -> StatementRows: ...
    def executemany(self, statement: str, values: Iterable[Any], /) -> Any:
        """Run a statement for each row of values; SQLite's result has a `rowcount`, the number of changed rows."""

    def stream_rows(self, statement: str, values: Any = ..., /) -> Iterator[Any]:
        """Yield the rows of a query in bounded memory; other statements may run in between."""

    def close(self) -> None: ...


class Lease(Protocol):
    """Lease that keeps a published generation from being swept as long as it lives."""

    can_be_lost: ClassVar[bool]

    def is_held(self) -> bool:
        """Return whether the lease still holds; one that depends on a connection ends with it."""


class WriteSession(Protocol):
    """Session that holds the right to write, with the connection to write with."""

    @property
    def connection(self) -> Connection: ...
    def close(self) -> None:
        """Take back what was not committed, and let the next one write."""


class OpenedStore(Protocol):
    """Open store, as its backend and what reads it see it."""

    @property
    def store(self) -> Backend: ...
    @property
    def identity(self) -> object: ...
    @property
    def uuid(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    @property
    def connection(self) -> Connection: ...
    def row(self, statement: str, values: Any = ...) -> Any: ...
    def rows(self, statement: str, values: Any = ...) -> list[Any]: ...
    def stream_rows(self, statement: str, values: Any = ...) -> Iterator[Any]: ...
    def was_published(self, version: Any) -> bool:
        """Return whether the store still continues this version; it does not after a backup was restored."""

    def share(self, key: object, open: Callable[[], T]) -> T:
        """Return what is open under `key` as long as some snapshot uses it; open it for the first."""


class OpenedPlaces(Protocol):
    """What a snapshot keeps open, as those see it who search vectors: by group and embedder, where vectors stand."""

    @property
    def places(self) -> dict[tuple[str, str], Any]: ...


class PinnedSnapshot(Protocol):
    """Snapshot, as its backend sees it: one generation, and the groups in it."""

    @property
    def open_store(self) -> OpenedStore: ...
    @property
    def generation(self) -> int: ...
    @property
    def indexes(self) -> dict[str, tuple[int, int]]: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def open(self) -> OpenedPlaces: ...
    def manifest(self, group: str) -> Manifest: ...


class Backend(Protocol):
    """Interface of the backends, SQLite and PostgreSQL; its text is the address of the store, without secrets."""

    @property
    def place(self) -> str:
        """Return the address in a canonical form: two backends of one place are the same store."""

    @property
    def folder(self) -> Path:
        """Return the folder of derived data."""

    # What is there.

    def exists(self) -> bool:
        """Return whether a store seems to exist; opening it checks that."""

    def create(self) -> None:
        """Make an empty store, whole or not at all, unless there is one."""

    def connect_for_reading(self) -> Connection:
        """Open a connection that can only read; raise NotAStore if something else is there."""

    def begin_writing(self, timeout_s: float, connection: Connection | None = None) -> WriteSession:
        """Acquire the right to write, one writer at a time; raise StoreBusy with the holder's name after the timeout.

        Args:
            connection: one that `read_after` gave, to write with where that can be; it stays open.
        """

    def read_after(self, session: WriteSession) -> Connection:
        """Let the next one write, and return a connection that can only read: that of the session, if it may."""
        session.close()
        return self.connect_for_reading()

    def identity(self) -> object:
        """Return a value that changes when another store takes its place."""
        return None

    def is_current(self, open_store: OpenedStore) -> bool:
        """Return whether the open store is still the published one."""

    def translate_error(self, doing: str, error: Exception) -> StoreError | None:
        """Translate an exception into a StoreError, or None; `doing` is a participle: `opened`, `written` …."""

    # Generations.

    def lease(self, generation: int) -> Lease | None:
        """Lease a generation; return None if it is being swept or has been."""

    def lease_exclusively(self, connection: Connection, generation: int) -> object | None:
        """Lease a generation exclusively until the commit; return None if somebody reads it."""

    def pin(self, generation: int) -> None:
        """Prepare a generation for leases."""
        return

    # Lexical indexes.

    def published_index(self, group: str, generation: int) -> Path | None:
        """Return the folder in which a writer freezes the lexical index of a group; None if readers build it."""
        return None

    def lexical_index(self, snapshot: PinnedSnapshot, group: str) -> Path:
        """Return the folder with the lexical index of a group; build it if it is missing."""

    # Vectors.

    def make_vector_writer(self, connection: Connection) -> VectorSink:
        """Return the writer that takes new vectors."""

    def follow(
        self, connection: Connection, manifests: Manifests, last_keys: Mapping[str, int], published: int
    ) -> None:
        """Bring external vector databases to the next generation; `last_keys` are the last keys that they took in."""

    def recover(
        self, connection: Connection, manifests: Manifests, last_keys: Mapping[str, int], published: int
    ) -> None:
        """Bring external vector databases back to what is published, after a killed writer; see `follow`."""
        return

    def derive(self, connection: Connection, manifests: Manifests) -> list[str]:
        """Index what was published, with the right to write; return in words what was out of order."""

    def compact(
        self, manifests: Manifests, *, has_ended: bool, waits: bool, connection: Connection | None = None
    ) -> bool:
        """Join the small pieces that many commits left, while others may write; see `writer.compact`.

        Args:
            connection: to read with, if there is one.
        """
        return False

    def vector_search(self, snapshot: PinnedSnapshot, group: str, embedder: str) -> DenseSearch | Search[SparseRows]:
        """Return the search over a group's vectors at a generation."""

    def stored_vectors(self, snapshot: PinnedSnapshot, group: str, embedder: str) -> StoredVectors:
        """Return the vectors of a group's nodes at a generation."""

    # Order.

    def sweep(self, connection: Connection) -> list[str]:
        """Remove what no generation needs, and take over what a killed writer has left; return the damage in words."""
        return []

    def repair(self, connection: Connection) -> list[str]:
        """Forget damaged vectors, so that their texts count as not embedded; return what was forgotten, in words."""

    def problems(self, connection: Connection) -> Iterator[str]:
        """Yield in words what is wrong with rows and vectors; reads all of them."""

    def salvage(self, timeout_s: float) -> tuple[list[str], bool]:
        """Rewrite a database of damaged structure; return the damage in words, and whether the last commit is lost."""
        return [], False

    def row_problems(self, share: int = 0) -> list[str]:
        """List in words the rows that differ from what was written; see `spolia.stores.backends.rows.damaged_rows`."""

    def bytes(self, connection: Connection) -> int:
        """Size of the store."""
