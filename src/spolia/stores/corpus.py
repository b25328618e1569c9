"""Addresses of a store and of its node groups: plain values, opened where and when they are used."""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from spolia import stores
from spolia.core.run_context import pin, record_access
from spolia.core.validation import validate
from spolia.errors import GroupError, StoreError, require_extra
from spolia.stores import groups
from spolia.stores import snapshot as snapshot_package
from spolia.stores.backends import postgres, sqlite
from spolia.stores.backends.backend import Backend
from spolia.stores.backends.postgres.address import parse_address
from spolia.stores.definition import DOCUMENT, Definition
from spolia.stores.groups.addresses import refuse_no_group as refuse_no_group
from spolia.stores.groups.addresses import refuse_no_groups as refuse_no_groups
from spolia.types import Value, lazy_property

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.writer import Writer


@dataclass(frozen=True)
class Corpus(Value):
    """A store of documents and their node groups.

    Args:
        path: its folder, usually `NAME.spolia`; or a schema of a PostgreSQL database,
            `postgresql://user@host/database?schema=notes`, whose password is in the environment or in `~/.pgpass`.
        wait_s: default time that a writer waits for another writer, in seconds. It also bounds a search
            that has to build its group first.

    Raises:
        StoreError: it is not a path; or the address holds a password, or a schema that cannot be.

    >>> Corpus("notes.spolia").group()
    NodeGroup(corpus=Corpus(path='notes.spolia'), name='chunk', definition=None)
    """

    path: str
    wait_s: float = field(default=10.0, compare=False, repr=False)  # not compared: caches are shared whatever the wait

    if TYPE_CHECKING:

        def __init__(self, path: str | PathLike[str], wait_s: float = 10.0) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.path, PathLike):
            object.__setattr__(self, "path", str(self.path))  # a frozen class
        if not isinstance(self.path, str):
            raise StoreError(f"Corpus({self.path!r:.60}) is in no place. Write its folder: Corpus('notes.spolia').")
        # Raises for a password before the address is written into flows and traces.
        if is_database_address(self.path):
            parse_address(self.path)

    @property
    def backend(self) -> Backend:
        """Return the backend that stores its documents, nodes and vectors."""
        return backend_of(self.path)

    @property
    def env_names(self) -> dict[str, bool]:
        """See `spolia.core.environment.env_of`."""
        return parse_address(self.path).env_names if self.path.startswith(POSTGRES) else {}

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = True

    def fingerprint(self) -> str | None:
        """Identify the store, and the generation of it that this run sees; None if the store does not exist."""
        return self.snapshot().fingerprint if self.exists() else None

    def group(self, name: str = "chunk", definition: Definition | None = None) -> "NodeGroup":
        """Return the address of a node group.

        Args:
            name: of a group that the store has, that is built in (`document`, `page`, `sentence`, `fine`, `medium`,
                `coarse`), or that `definition` defines. One that is not built yet is built when it is first searched.
            definition: what it is made of; None for what the store says, which keeps it once the group is built: by its
                first search, `materialise` or `sync`. Until then it is in this address, and groups of this corpus that
                are made from it find it.
        """
        group = NodeGroup(self, name, definition)
        if group.definition is not None and name != DOCUMENT:
            self.definitions[name] = group.definition
        return group

    @lazy_property
    def definitions(self) -> dict[str, Definition]:
        """Return the definitions that were passed for groups of this very object, by name."""
        return {}

    def exists(self) -> bool:
        """Return whether a store seems to exist; opening it checks that."""
        return self.backend.exists()

    def create(self) -> "Corpus":
        """Make an empty store, unless there is one; returns itself.

        Raises:
            NotAStore: something else is there.
        """
        self.backend.create()
        return self

    def snapshot(self) -> "Snapshot":
        """Return the generation that the current run has pinned; without a run the published one.

        Raises:
            NotAStore, StoreTooNew, StoreCorrupt, StoreError: it cannot be read, and why.
        """
        record_access(self)
        return pin(self.pinned_under, self.latest)

    @property
    def pinned_under(self) -> tuple[str, str]:
        return "snapshot", self.backend.place

    def latest(self) -> "Snapshot":
        """Return the published generation, whatever the current run has pinned."""
        record_access(self)
        return snapshot_package.snapshot.latest_snapshot(stores.open_store.get_open_store(self.backend))

    @contextmanager
    def writer(self, timeout_s: float | None = None) -> "Iterator[Writer]":
        """Open the store for writing, one writer at a time.

        Leaving it publishes what was written; leaving it by an exception takes back what was not yet published.

        Args:
            timeout_s: how long to wait for another writer, seconds; by default `wait_s`.

        Raises:
            StoreBusy: another process writes, and which.
            NotAStore, StoreTooNew, StoreCorrupt, StoreError: it cannot be written, and why.
        """
        wait_s = self.wait_s if timeout_s is None else timeout_s
        with closing(stores.writer.Writer(self.backend, wait_s)) as writer:
            yield writer
            writer.publish()
        # After the lock is released: others may commit while large files are written.
        stores.writer.compact(self.backend, writer.manifests, wait_s, waits=False)


def refuse_no_corpus(value: object, call: str) -> None:
    """Raise StoreError for a value that is not a Corpus.

    >>> refuse_no_corpus("a.spolia", "sync(folder, corpus)")
    Traceback (most recent call last):
    spolia.errors.StoreError: 'a.spolia' (str) is not a Corpus. Write sync(folder, corpus), with Corpus('a.spolia').
    """
    if not isinstance(value, Corpus):
        suggestion = f", with Corpus({str(value)!r})" if isinstance(value, (str, PathLike)) else ""
        raise StoreError(f"{value!r:.80} ({type(value).__name__}) is not a Corpus. Write {call}{suggestion}.")


@dataclass(frozen=True)
class NodeGroup(Value):
    """A named group of nodes in a store: the same documents, cut in one way.

    Args:
        corpus: the store.
        name: of the group.
        definition: what it is made of; None for what the store says, or for a built-in group.
    """

    corpus: Corpus
    name: str = "chunk"
    definition: Definition | None = None

    def __post_init__(self) -> None:
        validate(self, GroupError)

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = True

    def fingerprint(self) -> str | None:
        return self.corpus.fingerprint()

    def snapshot(self) -> "Snapshot":
        """Return the generation that the current run has pinned, with this group; build the group at its first use.

        Then the run goes on with the generation that has it, which is recorded. A built group is searched while others
        write; an unbuilt one waits for another writer, at most `wait_s` of the corpus.

        Raises:
            GroupError: nobody says what it is made of.
            ManifestMismatch: a group of this name is made of something else, or its vectors are searched otherwise.
            StoreBusy: it is not there, and another process writes, and which.
            NotAStore, StoreTooNew, StoreCorrupt, StoreError: the store cannot be read, or not be written, and why.
        """

        def find_snapshot() -> "Snapshot":
            if groups.definitions.serves(self, snapshot := self.corpus.latest()):
                return snapshot

            return groups.materialise.ensure_built(self)

        record_access(self)
        return pin(self.corpus.pinned_under, find_snapshot, lambda snapshot: groups.definitions.serves(self, snapshot))


POSTGRES = ("postgresql://", "postgres://")
"""How the addresses of databases begin; what has no scheme is the path of a folder."""
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
# Wide on purpose: an address with a slip in it would become a folder whose name holds the password.
_DATABASE_ADDRESS = re.compile(
    r"[\s'\"]*(?:\w+\s*=)?[\s'\"]*(?:jdbc:)?postgres(?:ql)?(?:\+\w+)?(?::|//)|[^/]*//[^/@\s]*:[^@\s]*@|"
    r"\s*(?:\w+\s*=.*\b)?(?:ssl)?pass\w*\s*=",
    re.IGNORECASE | re.DOTALL,
)


def is_database_address(text: str) -> bool:
    """Return whether a text is the address of a PostgreSQL database, or was meant to be, and not the path of a folder.

    >>> addresses = ("postgresql://h/db", "postgresql:ann:p@h/db", "host=h password=p", "./postgres:p")
    >>> [is_database_address(address) for address in addresses]
    [True, True, True, False]
    """
    return _DATABASE_ADDRESS.match(text) is not None


def backend_of(address: str) -> Backend:
    """Return the backend of a folder's path or of `postgresql://user@host/database?schema=name`; raise StoreError for
    another scheme.

    >>> str(backend_of("/srv/notes.spolia"))
    '/srv/notes.spolia'
    """
    if address.startswith(POSTGRES):
        with require_extra("postgres", "psycopg", "A store in PostgreSQL"):
            server = postgres.server
        return server.postgres_backend(address)
    if is_database_address(address):
        parse_address(address)

    if scheme := _SCHEME.match(address):  # otherwise a folder named "s3:" would be made in the working directory
        raise StoreError(
            f"No store can be kept at {scheme[0]}…: write the path of a folder, or the address of a database that "
            "begins with postgresql:// or postgres://, as postgresql://USER@HOST/DATABASE?schema=NAME."
        )
    return _folder(address if os.path.isabs(address) else os.path.join(os.getcwd(), address))


@lru_cache(maxsize=64)  # each question asks for it, and making a path is slow
def _folder(path: str) -> Backend:
    return sqlite.folder.FolderBackend(Path(path))
