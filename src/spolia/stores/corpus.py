"""Addresses of a store and of its node groups: plain values, opened where and when they are used."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from spolia import stores
from spolia.core.run_context import pin, reach
from spolia.core.validation import validate
from spolia.errors import GroupError, StoreError, installed
from spolia.stores import groups
from spolia.stores import snapshot as snapshot_package
from spolia.stores.backends import postgres, sqlite
from spolia.stores.backends.backend import Backend
from spolia.stores.backends.postgres.address import address_of
from spolia.stores.definition import DOCUMENT, Definition
from spolia.types import Value, kept

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
    wait_s: float = field(default=10.0, compare=False, repr=False)

    if TYPE_CHECKING:

        def __init__(self, path: str | PathLike[str], wait_s: float = 10.0) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.path, PathLike):
            object.__setattr__(self, "path", str(self.path))
        if not isinstance(self.path, str):
            raise StoreError(f"Corpus({self.path!r:.60}) is in no place. Write its folder: Corpus('notes.spolia').")
        if is_meant(self.path):
            address_of(self.path)

    @property
    def backend(self) -> Backend:
        """Where its documents, nodes and vectors are."""
        return backend_of(self.path)

    @property
    def env_names(self) -> dict[str, bool]:
        """See `spolia.core.environment.env_of`."""
        return address_of(self.path).env_names if self.path.startswith(POSTGRES) else {}

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = True

    def fingerprint(self) -> str | None:
        """Which store, and which generation of it this run sees; None where there is no store."""
        return self.snapshot().fingerprint if self.exists() else None

    def group(self, name: str = "chunk", definition: Definition | None = None) -> "NodeGroup":
        """The address of a node group.

        Args:
            name: of a group that the store has, that is built in (`document`, `page`, `sentence`, `fine`, `medium`,
                `coarse`), or that `definition` defines. One that is not built yet is built when it is first searched.
            definition: what it is made of; None for what the store says, which keeps it once the group is built: by its
                first search, `materialise` or `sync`. Until then it is in this address, and groups of this corpus that
                are made from it find it.
        """
        group = NodeGroup(self, name, definition)
        if group.definition is not None and name != DOCUMENT:
            self.given[name] = group.definition
        return group

    @kept
    def given(self) -> dict[str, Definition]:
        """The definitions that were given for groups of this very object, by name."""
        return {}

    def exists(self) -> bool:
        """Whether something that calls itself a store is there; opening it tells whether it is one."""
        return self.backend.exists()

    def create(self) -> "Corpus":
        """Make an empty store, unless there is one; returns itself.

        Raises:
            NotAStore: something else is there.
        """
        self.backend.create()
        return self

    def snapshot(self) -> "Snapshot":
        """The generation that the current run has pinned; without a run the published one.

        Raises:
            NotAStore, StoreTooNew, StoreCorrupt, StoreError: it cannot be read, and why.
        """
        reach(self)
        return pin(self.pinned_under, self.latest)

    @property
    def pinned_under(self) -> tuple[str, str]:
        return "snapshot", self.backend.place

    def latest(self) -> "Snapshot":
        """The published generation, whatever the current run has pinned."""
        reach(self)
        return snapshot_package.snapshot.latest(stores.open_store.opened(self.backend))

    @contextmanager
    def writer(self, timeout_s: float | None = None) -> "Iterator[Writer]":
        """The right to write, for one at a time.

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
        stores.writer.compact(self.backend, writer.manifests, wait_s, waits=False)


def refuse_no_corpus(given: object, call: str) -> None:
    """Refuse what stands for a store and is none.

    >>> refuse_no_corpus("a.spolia", "sync(folder, corpus)")
    Traceback (most recent call last):
    spolia.errors.StoreError: 'a.spolia' (str) is not a Corpus. Write sync(folder, corpus), with Corpus('a.spolia').
    """
    if not isinstance(given, Corpus):
        made = f", with Corpus({str(given)!r})" if isinstance(given, (str, PathLike)) else ""
        raise StoreError(f"{given!r:.80} ({type(given).__name__}) is not a Corpus. Write {call}{made}.")


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
        """The generation that the current run has pinned, in which this group is built: at its first use it is built.

        Then the run goes on with the generation that has it, which is recorded. A built group is searched while others
        write; an unbuilt one waits for another writer, at most `wait_s` of the corpus.

        Raises:
            GroupError: nobody says what it is made of.
            ManifestMismatch: a group of this name is made of something else, or its vectors are searched otherwise.
            StoreBusy: it is not there, and another process writes, and which.
            NotAStore, StoreTooNew, StoreCorrupt, StoreError: the store cannot be read, or not be written, and why.
        """

        def serving() -> "Snapshot":
            if groups.definitions.serves(self, snapshot := self.corpus.latest()):
                return snapshot

            return groups.materialise.built(self)

        reach(self)
        return pin(self.corpus.pinned_under, serving, lambda snapshot: groups.definitions.serves(self, snapshot))


def refuse_no_group(given: object, whose: str) -> None:
    """Refuse what stands for a node group and is none.

    >>> refuse_no_group("page", "BM25")
    Traceback (most recent call last):
    spolia.errors.GroupError: BM25 wants a node group, and was given 'page' (str). Write Corpus(PATH).group('page').
    """
    if isinstance(given, NodeGroup):
        return
    written, there = "Corpus(PATH).group(NAME)", ""
    if isinstance(given, str):
        written = f"Corpus(PATH).group({given!r})"
    if isinstance(given, Corpus):
        written, names = "corpus.group(NAME)", given.snapshot().groups() if given.exists() else ()
        there = f"; its groups are: {', '.join(names)}" if names else ""
    said = f"{given!r:.80} ({type(given).__name__})"
    raise GroupError(f"{whose} wants a node group, and was given {said}. Write {written}{there}.")


def refuse_no_groups(given: Iterable[NodeGroup], whose: str) -> tuple[NodeGroup, ...]:
    """The node groups of a list; raises for anything else.

    >>> refuse_no_groups(Corpus("notes.spolia").group("page"), "materialise")
    Traceback (most recent call last):
    spolia.errors.GroupError: materialise wants a list of node groups, and was given one. Write [corpus.group('page')].
    """
    if isinstance(given, NodeGroup):
        written = f"[corpus.group({given.name!r})]"
        raise GroupError(f"{whose} wants a list of node groups, and was given one. Write {written}.")
    if isinstance(given, str) or not isinstance(given, Iterable):
        refuse_no_group(given, whose)
    listed = tuple(given)
    for group in listed:
        refuse_no_group(group, whose)
    return listed


POSTGRES = ("postgresql://", "postgres://")
"""How the addresses of databases begin; what has no scheme is the path of a folder."""
_OTHER = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_MEANT = re.compile(
    r"[\s'\"]*(?:\w+\s*=)?[\s'\"]*(?:jdbc:)?postgres(?:ql)?(?:\+\w+)?(?::|//)|[^/]*//[^/@\s]*:[^@\s]*@|"
    r"\s*(?:\w+\s*=.*\b)?(?:ssl)?pass\w*\s*=",
    re.IGNORECASE | re.DOTALL,
)


def is_meant(text: str) -> bool:
    """Whether a text is the address of a database in PostgreSQL, or was meant to be, and not the path of a folder.

    >>> [is_meant(one) for one in ("postgresql://h/db", "postgresql:ann:p@h/db", "host=h password=p", "./postgres:p")]
    [True, True, True, False]
    """
    return _MEANT.match(text) is not None


def backend_of(address: str) -> Backend:
    """The store at the path of a folder, or at `postgresql://user@host/database?schema=name`; StoreError for another
    scheme.

    >>> str(backend_of("/srv/notes.spolia"))
    '/srv/notes.spolia'
    """
    if address.startswith(POSTGRES):
        with installed("postgres", "psycopg", "A store in PostgreSQL"):
            server = postgres.server
        return server.postgres(address)
    if is_meant(address):
        address_of(address)
    if found := _OTHER.match(address):
        raise StoreError(
            f"No store can be kept at {found[0]}…: write the path of a folder, or the address of a database that "
            "begins with postgresql:// or postgres://, as postgresql://USER@HOST/DATABASE?schema=NAME."
        )
    return _folder(address if os.path.isabs(address) else os.path.join(os.getcwd(), address))


@lru_cache(maxsize=64)  # each question asks for it, and making a path is slow
def _folder(path: str) -> Backend:
    return sqlite.folder.FolderBackend(Path(path))
