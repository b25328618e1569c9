"""The one transaction in which a writer collects what it will publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spolia.errors import StoreError
from spolia.stores.failpoints import fail_point
from spolia.stores.tables import sql
from spolia.stores.truth import Connection, Truth, translated


class Transaction:
    """Begins with the first change, so that a writer without changes writes nothing.

    Attributes:
        visible: whether it holds something that readers will see.
        ended: whether it can be used no more, after an error or when it was closed.
    """

    def __init__(self, store: Truth, connection: Connection) -> None:
        self.store, self.connection = store, connection
        self.began = self.visible = self.ended = False

    def refuse_if_ended(self) -> None:
        """Raise unless it can be used."""
        if self.ended:
            raise StoreError(
                f"This writer of {self.store} has ended, by an error or by leaving its block. "
                "Write: with corpus.writer() as writer: ..."
            )

    def begin(self) -> None:
        """Begin, unless it has begun."""
        self.refuse_if_ended()
        if not self.began:
            with self.or_end("written"):
                self.connection.execute(sql.BEGIN)
            self.began = True

    def commit(self) -> None:
        """Keep what it holds, and have the next change begin another one."""
        with self.or_end("written"):
            fail_point("publish.commit")
            self.connection.execute(sql.COMMIT)
        self.renew()

    def renew(self) -> None:
        """It was committed: the next change begins another one."""
        self.began = self.visible = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read from it."""
        self.refuse_if_ended()
        with translated(self.store, "read"):
            yield

    @contextmanager
    def change(self, *, visible: bool = True) -> Iterator[None]:
        """One change, whole or not at all; an error takes back this change only."""
        self.begin()
        connection = self.connection
        with self.or_end("written"):
            connection.execute(sql.MARK)
        try:
            with translated(self.store, "written"):
                yield
                connection.execute(sql.KEEP)
        except BaseException:
            if connection.in_transaction:
                connection.execute(sql.UNDO)
                connection.execute(sql.KEEP)
            else:  # all was taken back, as SQLite does when the disk is full, and a server whose connection is lost
                self.ended = True
            raise
        self.visible = self.visible or visible

    @contextmanager
    def or_end(self, doing: str) -> Iterator[None]:
        """An error takes back everything, and the writer ends."""
        try:
            with translated(self.store, doing):
                yield
        except BaseException:
            self.ended = True
            if self.connection.in_transaction:
                self.connection.execute(sql.ROLLBACK)
            raise
