"""The interface of a store's backend: SQLite in a folder, or a schema of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from spolia.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from spolia.stores.manifest import Manifest
    from spolia.stores.open_store import OpenStore
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.vectors.dense import Vectors
    from spolia.stores.vectors.search import DenseSearch
    from spolia.stores.vectors.segments import VectorWriter
    from spolia.stores.vectors.sparse import SparseSearch

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
        """SQLite gives something whose `rowcount` says how many rows were changed."""

    def each(self, statement: str, values: Any = ..., /) -> Iterator[Any]:
        """The rows of a query one after the other, in bounded memory; other statements may come in between."""

    def close(self) -> None: ...


class Lease(Protocol):
    """Keeps a published generation from being swept as long as it lives."""

    can_be_lost: ClassVar[bool]

    def is_held(self) -> bool:
        """Whether it still does: one that hangs on a connection ends with it."""


class WriteSession(Protocol):
    """The right to write, and the connection to write with."""

    @property
    def connection(self) -> Connection: ...
    def close(self) -> None:
        """Take back what was not committed, and let the next one write."""


class Stored(Protocol):
    """Vectors of a group's nodes as they are kept."""

    def at(self, positions: npt.NDArray[np.int64]) -> Vectors:
        """Those of the nodes at these positions among the live ones of the group, float32[n, d]."""


class Backend(Protocol):
    """All in which SQLite and PostgreSQL differ. Its text is the address of the store, without secrets."""

    @property
    def place(self) -> str:
        """The address, written in one way: two backends of one place are the same store."""

    @property
    def folder(self) -> Path:
        """Where what is derived is kept."""

    # What is there.

    def exists(self) -> bool:
        """Whether something that calls itself a store is there."""

    def create(self) -> None:
        """Make an empty store, whole or not at all, unless there is one."""

    def reading(self) -> Connection:
        """A connection that can only read; refused when something else is there."""

    def writing(self, timeout_s: float, connection: Connection | None = None) -> WriteSession:
        """The right to write, for one at a time; `StoreBusy`, naming the holder, when it was not free in time.

        Args:
            connection: one that `read_after` gave, to write with where that can be; it stays open.
        """

    def read_after(self, session: WriteSession) -> Connection:
        """Let the next one write, and return a connection that can only read: that of the session, if it may."""
        session.close()
        return self.reading()

    def identity(self) -> object:
        """What tells a store from another one that is put in its place."""
        return None

    def is_current(self, opened: OpenStore) -> bool:
        """Whether the open store is still the published one."""

    def problem(self, doing: str, error: Exception) -> StoreError | None:
        """The `StoreError` for an exception, or None; `doing` is a participle: `opened`, `written`, `published`."""

    # Generations.

    def leased(self, generation: int) -> Lease | None:
        """A lease on a generation; None when it is being swept or has been."""

    def unleased(self, connection: Connection, generation: int) -> object | None:
        """An exclusive lease on a generation, which lasts until the commit; None when somebody reads it."""

    def pin(self, generation: int) -> None:
        """Make ready what leases on a generation hang on."""
        return

    # Lexical indexes.

    def published_index(self, group: str, generation: int) -> Path | None:
        """The folder in which a writer freezes the lexical index of a group; None where readers make it."""
        return None

    def lexical(self, snapshot: Snapshot, group: str) -> Path:
        """The folder with the lexical index of a group, made if need be."""

    # Vectors.

    def embedding(self, connection: Connection) -> VectorWriter:
        """What a writer gives vectors to."""

    def follow(self, connection: Connection, manifests: Manifests, known: Mapping[str, int], published: int) -> None:
        """Bring vector databases beside the store to the next generation; `known`: the last keys they took in."""

    def recover(self, connection: Connection, manifests: Manifests, known: Mapping[str, int], published: int) -> None:
        """Bring vector databases beside the store back to what is published, after a killed writer; see `follow`."""
        return

    def derive(self, connection: Connection, manifests: Manifests) -> list[str]:
        """Index what was published, with the right to write; what was out of order, in words."""

    def compact(self, manifests: Manifests, *, ended: bool, waits: bool, connection: Connection | None = None) -> bool:
        """Join the small pieces that many commits left, while others may write; see `writer.compact`.

        Args:
            connection: to read with, if there is one.
        """
        return False

    def vector_search(self, snapshot: Snapshot, group: str, embedder: str) -> DenseSearch | SparseSearch:
        """What searches a group's vectors at a generation."""

    def stored(self, snapshot: Snapshot, group: str, embedder: str) -> Stored:
        """The vectors of a group's nodes at a generation."""

    # Order.

    def sweep(self, connection: Connection) -> list[str]:
        """Remove what no generation needs, and take over what a killed writer has left; what was damaged, in words."""
        return []

    def repair(self, connection: Connection) -> list[str]:
        """Forget damaged vectors, so that their texts count as not embedded; in words."""

    def problems(self, connection: Connection) -> Iterator[str]:
        """What is wrong with rows and vectors, in words. All of them are read."""

    def salvage(self, timeout_s: float) -> tuple[list[str], bool]:
        """Rewrite a database with a damaged structure; says what was damaged, and whether the last commit is lost."""
        return [], False

    def row_problems(self, share: int = 0) -> list[str]:
        """Which rows are not as they were written, in words; see `spolia.stores.backends.rows.damaged_rows`."""

    def bytes(self, connection: Connection) -> int:
        """Size of the store."""
