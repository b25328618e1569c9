"""Writing to a store: everything since the last publication becomes visible at once, or never.

One transaction of the truth spans a generation. `publish` makes the derived files durable first, then one row and the
commit publish them together; whoever is killed before that has changed nothing, but vectors are kept for next time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.errors import NotAStore, StoreError
from spolia.stores.manifest import read
from spolia.stores.revision import Revision
from spolia.stores.tables import sql
from spolia.stores.tables.changes import Changes
from spolia.stores.tables.publishing import Publication
from spolia.stores.tables.rows import hash_of, hash_of_picture, indexed_text
from spolia.stores.tables.schema import read_schema
from spolia.stores.tables.transaction import Transaction
from spolia.stores.truth import Truth, Writing, translated

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.models.vectors import SparseRows
    from spolia.stores.truth import Embedding


_PAGE = 1_000


@dataclass(frozen=True)
class Lacking:
    """A node that has no vector yet.

    Args:
        hash: by which its vector is found.
        node: its id.
        document: id of its document.
        text: that is indexed.
    """

    hash: bytes
    node: str
    document: str
    text: str

    @property
    def is_picture(self) -> bool:
        """Whether its vector is that of its picture."""
        return self.hash != hash_of(self.text)


class Writer(Revision):
    """The one that may write to a store; made by `Corpus.writer`.

    Args:
        store: where it is.
        timeout_s: how long to wait for another writer, seconds.

    What it sees is a `Draft`, what it changes a `Revision`.

    Attributes:
        mended: what was found damaged and was built again, in words.
    """

    def __init__(self, store: Truth, timeout_s: float) -> None:
        self.store = store
        self.mended: list[str] = []
        self._embedded: Embedding | None = None
        self._embedded_to: dict[tuple[str, str], int] = {}
        self._writing: Writing = store.writing(timeout_s)
        try:
            self._connection = self._writing.connection
            self._transaction = Transaction(store, self._connection)
            with translated(store, "opened for writing"):
                self._read_what_is_published()
                self.mended += store.sweep(self._connection)
                store.recover(self._connection, self.manifests, self._known(), self.generation)
                self._drop_indexes(all=False)
        except BaseException:
            self.close()
            raise

    def _read_what_is_published(self) -> None:
        self.generation: int
        self.generation, indexes = self._connection.execute(sql.GENERATIONS).fetchall()[-1]
        self.indexes: dict[str, tuple[int, int]] = {name: (at, key) for name, (at, key) in json.loads(indexes).items()}
        manifests = [read(row[0]) for row in self._connection.execute(sql.MANIFESTS)]
        self.manifests = {manifest.group: manifest for manifest in manifests}
        self._changes = Changes(self._connection, self.generation + 1, self.manifests)
        self.schema = read_schema(self._connection.execute(sql.FIELDS, (self.generation,)).fetchone()[0])
        self._changes.schema = self.schema

    def _known(self) -> dict[str, int]:
        """For each group that is published and indexed, the last node key that was known then."""
        return {group: key for group, (_, key) in self.indexes.items()}

    def _drop_indexes(self, *, all: bool) -> None:
        """Have the damaged lexical indexes built again by the next publication; read `all` of them."""
        for group, (at, _) in list(self.indexes.items()):
            if said := self.store.index_damage(self.manifests[group], at, all=all):
                self.mended.append(f"{said}. It is built again from corpus.db.")
                self.indexes.pop(group)
                self._transaction.visible = True

    # Vectors.

    def unembedded(self, group: str, embedder: str) -> Iterator[tuple[bytes, str]]:
        """Content hash and text of what the group will hold and has no vector by this embedder; each text once.

        Nodes that are embedded by their picture are not among them, but among the `unembedded_pictures`.
        """
        return ((one.hash, one.text) for one in self._lacking(group, embedder) if not one.is_picture)

    def unembedded_pictures(self, group: str, embedder: str) -> Iterator[tuple[Lacking, bytes]]:
        """The nodes whose pictures have no vector by this embedder yet, with these; each picture once.

        Raises:
            StoreError: a document names a picture, and was put without it.
        """
        pictures = self.manifests[group].by_picture
        for one in self._lacking(group, embedder) if pictures else ():
            if one.is_picture:
                yield one, self._picture(one)

    def _picture(self, one: Lacking) -> bytes:
        with self._transaction.reading():
            for key, image in self._connection.execute(sql.LIVE_IMAGES, (one.document,)).fetchall():
                if hash_of_picture(image) == one.hash:
                    return bytes(self._connection.execute(sql.LIVE_IMAGE, (key, image)).fetchone()[0])
        raise StoreError(
            f"Node {one.node!r} shows a picture that its document was put without. Write put(document, nodes, source, "
            "images) with all pictures that its regions name."
        )

    def _lacking(self, group: str, embedder: str) -> Iterator[Lacking]:
        seen: set[bytes] = set()
        key = self._embedded_to.get((group, embedder), 0)
        embedded_to: int | None = None
        while True:
            with self._transaction.reading():
                last_key = self._connection.execute(sql.LAST_KEY).fetchone()[0]
                values = {"grp": group, "key": key, "embedder": embedder, "limit": _PAGE}
                rows = self._connection.execute(sql.UNEMBEDDED, values).fetchall()
            if embedded_to is None:
                embedded_to = rows[0][0] - 1 if rows else last_key
            for _, found, id, document, *texts in rows:
                if found not in seen and not (self._embedded and self._embedded.is_pending(embedder, found)):
                    seen.add(found)
                    yield Lacking(found, id, document, indexed_text(*texts))
            if len(rows) < _PAGE:
                self._embedded_to[group, embedder] = embedded_to  # need not be looked at again before publishing
                return
            key = rows[-1][0]

    def add_vectors(self, embedder: str, hashes: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """Keep vectors float32[n, d] for the texts with these hashes; one that is there is not changed.

        They have the dimension that the groups' manifests state, and length 1 wherever they are compared by cosine; a
        batch with another vector in it is refused whole, with a `StoreError` that names the row. They are written in
        segments of some thousand, and stay even when the writer is killed before it publishes.
        """
        used = [how for manifest in self.manifests.values() if (how := manifest.embedded(embedder))]
        unit = all(how.metric == "cosine" for how in used)
        with self._embedding() as embedding:
            dimension = max((how.dimension for how in used), default=0)
            embedding.add(embedder, hashes, vectors, unit=unit, dimension=dimension)

    def add_sparse(self, embedder: str, hashes: Sequence[bytes], rows: SparseRows) -> None:
        """`add_vectors` for sparse ones."""
        with self._embedding() as embedding:
            embedding.add_sparse(embedder, hashes, rows)

    @contextmanager
    def _embedding(self) -> Iterator[Embedding]:
        self._transaction.refuse_if_ended()
        if self._embedded is None:
            self._embedded = self.store.embedding(self._connection)
        self._transaction.begin()
        with self._transaction.or_end("written"):
            yield self._embedded
        self._transaction.visible = True

    # Publishing.

    def publish(self) -> int:
        """Make all changes durable and visible at once; returns the generation. Nothing to do: nothing is written."""
        self._transaction.refuse_if_ended()
        if self._transaction.visible:
            self._publish()
        elif self._transaction.began:
            self._transaction.commit()
        return self.generation

    def _publish(self) -> None:
        self._transaction.begin()
        with self._transaction.or_end("published"):
            self._refuse_what_is_gone()
            if self._embedded is not None:
                self._embedded.flush()
            self.store.follow(self._connection, self.manifests, self._known(), self.generation)
            schema = self._changes.schema
            publication = Publication(self.store, self._connection, self.generation + 1, self.manifests, schema)
            self.indexes = publication.publish(self.indexes, self._embedded_to)
            self.mended += publication.mended
        self._transaction.renew()
        last_key = self._connection.execute(sql.LAST_KEY).fetchone()[0]
        self._embedded_to = {
            (group, embedding.embedder): last_key
            for group, manifest in self.manifests.items()
            for embedding in manifest.embeddings
        }
        self.generation, self.schema = self.generation + 1, schema
        self._changes.next = self.generation + 1
        with translated(self.store, "swept"):
            self.mended += self.store.sweep(self._connection)
            self.mended += self.store.derive(self._connection, self.manifests)

    def _refuse_what_is_gone(self) -> None:
        """Before anything is written to where a store was."""
        if not self.store.exists():
            raise NotAStore(
                f"{self.store} was deleted while it was being written; nothing could be published. "
                f"Write: spolia index FOLDER --store {self.store}"
            )

    def repair(self) -> list[str]:
        """Read all that is derived, make ready to build again what is damaged, and say in words what that is.

        A damaged lexical index is built again by the next `publish`; vectors of a damaged segment are forgotten, so
        that `unembedded` gives their texts again. Call it before other changes.
        """
        self._transaction.refuse_if_ended()
        if self._transaction.began:
            raise StoreError(
                "repair() came after other changes. Write: with corpus.writer() as writer: writer.repair()"
            )
        self._drop_indexes(all=True)
        with self._transaction.or_end("repaired"):
            if said := self.store.repair(self._connection):
                self.mended += said
                self._embedded_to = {}
        return self.mended

    def close(self) -> None:
        """Take back what was not published, and let the next one write."""
        transaction: Transaction | None = getattr(self, "_transaction", None)
        if transaction is not None:
            transaction.ended = True
        try:
            self._keep_vectors()
        finally:
            self._writing.close()

    def _keep_vectors(self) -> None:
        """What was embedded took time, and perhaps money: it is kept whatever has ended the writer."""
        if self._embedded is not None:
            with suppress(Exception):  # a full disk, a lost connection: it is what has ended the writer that counts
                self._refuse_what_is_gone()
                if not self._connection.in_transaction:
                    self._connection.execute(sql.BEGIN)
                self._embedded.keep()
