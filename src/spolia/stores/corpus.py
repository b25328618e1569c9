"""Addresses of a store and of its node groups: plain values, opened where and when they are used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spolia.stores.layout import DATABASE
from spolia.surrounding import pin
from spolia.types import Value

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot
    from spolia.stores.writer import Writer


@dataclass(frozen=True)
class Corpus(Value):
    """A store of documents and their node groups.

    Args:
        path: its folder, by habit `NAME.spolia`.

    >>> Corpus("notes.spolia").group()
    NodeGroup(corpus=Corpus(path='notes.spolia'), name='chunk')
    """

    path: str

    @property
    def scoped(self) -> bool:
        """What it returns depends on who asks."""
        return True

    def fingerprint(self) -> str | None:
        """Which store, and which generation of it this run sees; None where there is no store."""
        return self.snapshot().fingerprint if self.exists() else None

    def group(self, name: str = "chunk") -> NodeGroup:
        """The address of a node group."""
        return NodeGroup(self, name)

    def exists(self) -> bool:
        """Whether something that calls itself a store is there; opening it tells whether it is one."""
        return os.path.isfile(os.path.join(self.path, DATABASE))

    def create(self) -> Corpus:
        """Make an empty store, unless there is one; returns itself.

        Raises:
            NotAStore: something else is there.
        """
        from spolia.stores.creating import create

        create(Path(self.path))
        return self

    def snapshot(self) -> Snapshot:
        """The generation that the current run has pinned; without a run the published one.

        Raises:
            NotAStore, StoreTooNew, StoreCorrupt, StoreError: it cannot be read, and why.
        """
        return pin(("snapshot", os.path.abspath(self.path)), self._latest)

    def _latest(self) -> Snapshot:
        from spolia.stores.opened import opened
        from spolia.stores.snapshot import latest

        return latest(opened(self.path))

    @contextmanager
    def writer(self, timeout_s: float = 10.0) -> Iterator[Writer]:
        """The right to write, for one at a time.

        Leaving it publishes what was written; leaving it by an exception takes back what was not yet published.

        Args:
            timeout_s: how long to wait for another writer, seconds.

        Raises:
            StoreBusy: another process writes, and which.
            NotAStore, StoreTooNew, StoreCorrupt, StoreError: it cannot be written, and why.
        """
        from spolia.stores.writer import Writer

        writer = Writer(Path(os.path.abspath(self.path)), timeout_s)
        try:
            yield writer
            writer.publish()
        finally:
            writer.close()


@dataclass(frozen=True)
class NodeGroup(Value):
    """A named group of nodes in a store: the same documents, cut in one way."""

    corpus: Corpus
    name: str = "chunk"

    @property
    def scoped(self) -> bool:
        """What it returns depends on who asks."""
        return True

    def fingerprint(self) -> str | None:
        """That of its store."""
        return self.corpus.fingerprint()
