"""A store as it is going to be: what is published, with what was changed since."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spolia.errors import GroupError, NotAStore, StoreError
from spolia.filters import Field, Schema
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection, WriteSession
from spolia.stores.backends.publication import NONE, Changes, Publication, Transaction
from spolia.stores.backends.rows import (
    SourceRow,
    Stamp,
    StoredLists,
    Unmade,
    document_of,
    hash_of,
    hash_of_picture,
    indexed_text,
    node_of,
    read_schema,
    unpacked,
)
from spolia.stores.files import fail_point, translated
from spolia.stores.manifest import Manifest, read, refuse_odd_name, refuse_other, written
from spolia.types import Document, Meta, Node, principals

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.models.vectors import SparseRows
    from spolia.stores.backends.backend import VectorWriter


_PAGE = 1_000
_NOW = sql.ALIVE - 1
"""Later than any generation: what lives then was published, or will be next."""


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


class Draft:
    """Reads the live rows of a store: base of what changes them at once (`Writer`) and of what collects changes
    (`Staging`).

    Attributes:
        generation: the published generation.
        manifests: of all groups, by name.
        schema: the declared fields of the published generation.
        indexes: for each group, the generation of its lexical index and the last node key that was known then.
    """

    store: Backend
    generation: int
    manifests: dict[str, Manifest]
    schema: Schema
    indexes: dict[str, tuple[int, int]]
    _connection: Connection
    _changes: Changes
    _embedded_to: dict[tuple[str, str], int]

    def _read_what_is_published(self) -> None:
        generation, indexes = self._connection.execute(sql.GENERATIONS).fetchall()[-1]
        self.generation = int(generation)
        self.indexes = {name: (at, key) for name, (at, key) in json.loads(indexes).items()}
        manifests = [read(row[0]) for row in self._connection.execute(sql.MANIFESTS)]
        self.manifests = {manifest.group: manifest for manifest in manifests}
        self._changes = Changes(self._connection, self.generation + 1, self.manifests)
        self.schema = read_schema(self._connection.execute(sql.FIELDS, (self.generation,)).fetchone()[0])
        self._changes.schema = self.schema

    @property
    def weight(self) -> int:
        """How much waits in memory for the next publication, in characters and bytes of pictures."""
        return 0

    def _reading(self) -> AbstractContextManager[None]:
        return translated(self.store, "read")

    def _rows(self, every: str, some: str, uris: Iterable[str] | None) -> list[Any]:
        """The rows of all sources, or of those with these uris."""
        with self._reading():
            if uris is None:
                return self._connection.execute(every, {"at": _NOW} if ":at" in every else ()).fetchall()
            values = {"uris": json.dumps(list(uris))} | ({"at": _NOW} if ":at" in some else {})
            return self._connection.execute(some, values).fetchall()

    # Of sources, `uris` are those that are wanted; None for all.

    def stamps(self, uris: Iterable[str] | None = None) -> dict[str, Stamp]:
        """What tells whether a source, or what is in it, as `mails/offer.eml/prices.pdf`, has changed, by uri."""
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in self._rows(sql.STAMPS, sql.STAMPS_OF_URIS, uris)}

    def sources(self, uris: Iterable[str] | None = None) -> dict[str, SourceRow]:
        """What is known of sources, by uri; with what was changed."""
        return {row[0]: SourceRow(*row) for row in self._rows(sql.SOURCES, sql.SOURCES_OF_URIS, uris)}

    def cursors(self) -> dict[str, dict[str, str]]:
        """How far each source was read, by its name; of each, by what that is said of."""
        found: dict[str, dict[str, str]] = {}
        with self._reading():
            for source, item, cursor in self._connection.execute(sql.ALL_CURSORS):
                found.setdefault(source, {})[item] = cursor
        return found

    def cursor(self, source: str, item: str) -> str:
        """How far a source was read, by what that is said of; empty where it was not."""
        with self._reading():
            rows = list(self._connection.execute(sql.CURSOR, (source, item)))
        return str(rows[0][0]) if rows else ""

    @property
    def declared(self) -> Schema:
        """The declared fields, with what was changed."""
        return self._changes.schema

    def metadata(self) -> Iterator[tuple[str, Meta]]:
        """Of all documents and nodes that have some, with what was changed; each by a name for people."""
        with self._reading():
            for whose, meta in self._connection.each(sql.LIVE_METADATA):
                yield whose, unpacked(meta)

    def documents(self) -> Iterator[Document]:
        """All documents, with what was changed, by id."""
        readers = StoredLists(self._connection)
        with self._reading():
            for row in self._connection.each(sql.DOCUMENTS, {"at": _NOW}):
                yield document_of(row, readers)

    def nodes(self, document: str, group: str) -> list[Node]:
        """The nodes of a document in a group, with what was changed, in order."""
        at = {"document": document, "grp": group, "first": 0, "last": sql.ALIVE, "at": _NOW}
        readers = StoredLists(self._connection)
        with self._reading():
            return [node_of(row, readers) for row in self._connection.execute(sql.NUMBERED, at).fetchall()]

    def holders(self, document: str) -> list[SourceRow]:
        """The sources that hold a document, by its id; with what was changed."""
        with self._reading():
            key = self._changes.document_key(document)
            rows = self._connection.execute(sql.LIVE_SOURCES_OF, (key,)).fetchall() if key is not None else []
            return [SourceRow(*row) for row in rows]

    def holds(self, document: Document) -> bool:
        """Whether a document is there as it is, so that putting it needs no nodes."""
        with self._reading():
            return self._changes.holds(document)

    def meta_of(self, document: str) -> Meta | None:
        """The metadata of a document, by its id; None where there is none of this id. With what was changed."""
        with self._reading():
            return self._changes.meta_of(document)

    def lacking(self, uris: Iterable[str] | None = None) -> list[str]:
        """The uris of sources whose report says that something was missing to read all of them."""
        return [uri for (uri,) in self._rows(sql.SOURCES_LACKING, sql.SOURCES_LACKING_OF_URIS, uris)]

    def showing(self, uris: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """The uris and reports of sources whose report says that they name pictures beside them."""
        return self._rows(sql.SOURCES_SHOWING, sql.SOURCES_SHOWING_OF_URIS, uris)

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Who may read what each source, and what is in it, holds, by its uri; with what was changed."""
        lists = StoredLists(self._connection)
        with self._reading():
            found = self._rows(sql.READERS_OF_SOURCES, sql.READERS_OF_URIS, uris)
            return {uri: lists[audience] for uri, audience in found}

    def held(self, uris: Iterable[str] | None = None) -> dict[str, tuple[tuple[str, ...], int]]:
        """Who may read each document that sources hold, and whether one or more hold it, 1 or 2; by its id."""
        lists = StoredLists(self._connection)
        with self._reading():
            found = self._rows(sql.HELD, sql.HELD_OF_URIS, uris)
            return {document: (lists[audience], holders) for document, audience, holders in found}

    def held_as(self, document: str) -> tuple[tuple[str, ...], int] | None:
        """The same of one document, by its id; None where no source holds it."""
        with self._reading():
            row = self._connection.execute(sql.HELD_OF_ID, (document,)).fetchone()
            return (StoredLists(self._connection)[row[1]], row[2]) if row else None

    def is_restricted(self) -> bool:
        """Whether anything was ever stored that not everybody may read."""
        with self._reading():
            return self._connection.execute(sql.IS_RESTRICTED).fetchone() is not None

    def is_restricted_now(self) -> bool:
        """Whether something is there that not everybody may read; with what was changed."""
        with self._reading():
            return self._connection.execute(sql.IS_RESTRICTED_NOW).fetchone() is not None

    def document(self, id: str) -> Document:
        """A document, with what was changed."""
        with self._reading():
            row = self._connection.execute(sql.DOCUMENT, {"id": id, "at": _NOW}).fetchone()
            if row is None:
                raise StoreError(f"There is no document {id!r} in {self.store}. Write the id of one of documents().")
            return document_of(row, StoredLists(self._connection))

    def unmade(self) -> tuple[Unmade, ...]:
        """Which groups could not be made of which documents, with what was changed; by uri."""
        with self._reading():
            return tuple(Unmade(*row) for row in self._connection.execute(sql.UNMADE, {"at": _NOW}))

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
        with self._reading():
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
            with self._reading():
                last_key = self._connection.execute(sql.LAST_KEY).fetchone()[0]
                values = {"grp": group, "key": key, "embedder": embedder, "limit": _PAGE}
                rows = self._connection.execute(sql.UNEMBEDDED, values).fetchall()
            if embedded_to is None:
                embedded_to = rows[0][0] - 1 if rows else last_key
            for _, found, id, document, *texts in rows:
                if found not in seen and not self._is_pending(embedder, found):
                    seen.add(found)
                    yield Lacking(found, id, document, indexed_text(*texts))
            if len(rows) < _PAGE:
                self._embedded_to[group, embedder] = embedded_to  # need not be looked at again before publishing
                return
            key = rows[-1][0]

    def _is_pending(self, embedder: str, hash: bytes) -> bool:
        """Whether a vector was added and is not written yet."""
        raise NotImplementedError


class Writer(Draft):
    """The one that may write to a store; made by `Corpus.writer`.

    Args:
        store: where it is.
        timeout_s: how long to wait for another writer, seconds.

    Attributes:
        mended: what was found damaged and was built again, in words.
    """

    def __init__(self, store: Backend, timeout_s: float) -> None:
        self.store = store
        self.mended: list[str] = []
        self._embedded: VectorWriter | None = None
        self._embedded_to: dict[tuple[str, str], int] = {}
        self._writing: WriteSession = store.writing(timeout_s)
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

    def _reading(self) -> AbstractContextManager[None]:
        return self._transaction.reading()

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

    # Changes: each whole or not at all, and none seen by readers before it is published.

    def define(self, group: str, manifest: Manifest) -> None:
        """Say what a group is built with: the first time it is written down, later it must be the same.

        Documents that are there already are noted as not made in it (`unmade`).

        Raises:
            ManifestMismatch: the group was built with other parts, naming both sides.
        """
        if manifest.group != group:
            raise StoreError(f"The manifest is of group {manifest.group!r}, not {group!r}. Write the same name twice.")
        refuse_odd_name(group)
        there = self.manifests.get(group)
        if there is not None:
            refuse_other(there, manifest)
            return
        with self._transaction.change():
            fail_point("define.write")
            self._changes.expect(group)
            self._write(group, manifest)

    def _write(self, group: str, manifest: Manifest) -> None:
        self._connection.execute(sql.DEFINE, {"grp": group, "manifest": written(manifest)})
        self.manifests[group] = manifest
        self._forget_derived(group)

    def _forget_derived(self, group: str) -> None:
        self.indexes.pop(group, None)
        self._embedded_to = {key: last for key, last in self._embedded_to.items() if key[0] != group}

    def redefine(self, group: str, manifest: Manifest, *, keep_nodes: bool = False) -> None:
        """Build a group anew: its nodes end, other groups stay. Readers see the old ones until this is published.

        All documents are noted as not made in it, until `add_nodes` adds nodes of it, or `note_unmade` takes that back.

        Args:
            keep_nodes: they are made as before; only how they are embedded has changed.
        """
        refuse_odd_name(group)
        with self._transaction.change():
            fail_point("redefine.write")
            if not keep_nodes:
                self._changes.clear(group)
                self._changes.expect(group)
            self._write(group, manifest)

    def drop(self, group: str) -> None:
        """Forget a group with its nodes; vectors stay for when their texts return."""
        self._refuse_unknown(group)
        if below := sorted(m.group for m in self.manifests.values() if group in (m.parent, m.ref) and m.group != group):
            raise GroupError(f"Group {group!r} has groups made from it: {', '.join(below)}. Drop these first.")
        with self._transaction.change():
            self._changes.clear(group)
            fail_point("drop.write")
            self._connection.execute(sql.DROP_MANIFEST, (group,))
            del self.manifests[group]
            self._forget_derived(group)

    def _refuse_unknown(self, group: str) -> None:
        if group not in self.manifests:
            raise GroupError(
                f"There is no node group {group!r} in {self.store}. It has: {', '.join(sorted(self.manifests))}."
            )

    def declare(self, fields: Iterable[Field]) -> None:
        """Say which metadata fields can be filtered by; those that were declared before and are not named go.

        Values that do not fit, in what is stored or put later, are passed over: for filters they are missing.

        Raises:
            FilterError: two fields of one name, or one that every file has.
        """
        schema = Schema(fields)
        if schema != self._changes.schema:
            with self._transaction.change():
                fail_point("declare.write")
                self._changes.schema = schema

    def put(
        self, document: Document, nodes: Iterable[Node], source: SourceRow, images: Mapping[str, bytes] = NONE
    ) -> bool:
        """Put a document with its nodes in the place of what its source held before; the nodes are streamed.

        A document that is there already, with the same text and fields, is shared, and its nodes are not asked for.
        When `nodes` raises, nothing of the document stays, and the writer goes on.

        Args:
            images: the pictures that regions of the document name, by their hash.

        Returns:
            Whether its nodes were asked for.

        Raises:
            StoreError: two nodes with one id, a node of another document or of an undefined group, one that stands
                beyond the text, a full disk; another document with this id was put since the last publication.
        """
        with self._transaction.change():
            return self._changes.put(document, nodes, source, images)

    def add_nodes(self, document: Document, nodes: Iterable[Node]) -> None:
        """Add nodes of other groups to a document that is there, as `documents()` gives it; they are streamed.

        Raises:
            StoreError: no such document, two nodes with one id, a node of another document or of an undefined group.
        """
        with self._transaction.change():
            self._changes.add_nodes(document, nodes)

    def note_unmade(self, document: str, reasons: Mapping[str, str]) -> None:
        """Note which groups could not be made of a document, by its id, and why; they stay noted until it is changed.

        Args:
            reasons: by group; an empty one takes back what was noted.
        """
        with self._transaction.change():
            fail_point("unmade.write")
            self._changes.note_unmade(document, reasons)

    def set_readers(self, document: Document, readers: Sequence[str]) -> None:
        """Give a document another reader list, and all its nodes but those that have one of their own.

        It holds for every search after the next publication; nothing is cut or embedded again.

        Args:
            document: as `documents()` or a snapshot gives it.
            readers: principals who may see it; empty for everybody.

        Raises:
            StoreError: it is no document, or no list of principals.
        """
        if not isinstance(document, Document):
            raise StoreError(
                f"{document!r:.80} ({type(document).__name__}) is no Document. Write for document in "
                f"list(writer.documents()): if document.uri == {str(document)!r:.80}: "
                "writer.set_readers(document, [...])."
            )
        self.relabel(document, document.meta, readers)

    def relabel(self, document: Document, meta: Meta, readers: Sequence[str]) -> None:
        """Give a document other metadata and another reader list; its nodes stay, with the metadata of their own.

        Raises:
            StoreError: the readers are no list of principals.
        """
        readers = principals(readers, f"The readers of {document.uri or document.id!r} would be")
        with self._transaction.change():
            self._changes.relabel(document, meta, readers)

    def unmake(self, document: str, groups: Iterable[str]) -> None:
        """End the nodes of a document, by its id, in some groups: it is noted as not made in them."""
        with self._transaction.change():
            self._changes.unmake(document, groups)

    def touch(self, source: SourceRow) -> None:
        """Note another size, time or report of a source whose content is the same."""
        with self._transaction.change(visible=False):
            fail_point("touch.write")
            self._changes.touch(source)

    def move(self, old_uri: str, source: SourceRow) -> None:
        """The source at `old_uri` is at `source.uri` now, with the same content."""
        with self._transaction.change():
            key = self._changes.held_by(old_uri)
            fail_point("move.write")
            self._changes.point(source, key)
            if old_uri != source.uri:
                self._changes.forget(old_uri)

    def remove(self, uri: str) -> None:
        """Forget a source, and its document unless another source has the same."""
        with self._transaction.change():
            fail_point("remove.write")
            self._changes.forget(uri)

    def fail(self, source: SourceRow) -> None:
        """Note that a source could not be read. What it held before goes, unless `source.document` still names it."""
        with self._transaction.change():
            key = self._changes.document_key(source.document) if source.document else None
            fail_point("fail.write")
            self._changes.point(source, key)

    def remember(self, source: str, cursors: Mapping[str, str]) -> None:
        """Note how far a source was read, which is published together with what was read there.

        Args:
            source: its name.
            cursors: by what they are said of; an empty one forgets.
        """
        cursors = {item: cursor for item, cursor in cursors.items() if cursor != self.cursor(source, item)}
        if not cursors:
            return
        with self._transaction.change(visible=False):
            fail_point("remember.write")
            # where nothing else has changed, what was published last is as far as this
            self._changes.remember(source, cursors, self.generation + self._transaction.visible)

    # Vectors.

    def _is_pending(self, embedder: str, hash: bytes) -> bool:
        return self._embedded is not None and self._embedded.is_pending(embedder, hash)

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
    def _embedding(self) -> Iterator[VectorWriter]:
        self._transaction.refuse_if_ended()
        if self._embedded is None:
            self._embedded = self.store.embedding(self._connection)
        self._transaction.begin()
        with self._transaction.or_end("written"):
            yield self._embedded
        self._transaction.visible = True

    @property
    def is_dirty(self) -> bool:
        """Whether something is to be published, be it that what was damaged is built again."""
        return self._transaction.visible

    def document_key(self, id: str) -> int | None:
        """Tells a live document from what had its id before; None where there is none."""
        with self._reading():
            return self._changes.document_key(id)

    def born(self) -> dict[str, int]:
        """The sources that are changed in the generation that is published next, with its number."""
        with self._reading():
            return dict(self._connection.execute(sql.BORN, (self._changes.next,)).fetchall())

    @property
    def embedded_to(self) -> dict[tuple[str, str], int]:
        """For each group and embedder, the node key up to which all nodes have vectors."""
        return self._embedded_to

    def trust_vectors(self, embedded_to: dict[tuple[str, str], int]) -> None:
        """Take over what another one has found of that, for the same store."""
        self._embedded_to = dict(embedded_to)

    def keep_vectors(self) -> None:
        """Make the vectors durable that were added, and publish nothing. Call it without other changes."""
        if self._embedded is not None:
            with self._embedding() as embedding:
                embedding.keep()
            self._transaction.commit()

    # Publishing.

    def publish(self, *, graphs: bool = True) -> int:
        """Make all changes durable and visible at once; returns the generation. Nothing to do: nothing is written.

        Args:
            graphs: build what graphs of vectors are missing; else the caller does, without the lock.
        """
        self._transaction.refuse_if_ended()
        if self._transaction.visible:
            self._publish(graphs=graphs)
        elif self._transaction.began:
            self._transaction.commit()
        return self.generation

    def _publish(self, *, graphs: bool) -> None:
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
            self.mended += self.store.build_graphs(self._connection, self.manifests) if graphs else ()

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
            self._rescue_vectors()
        finally:
            self._writing.close()

    def _rescue_vectors(self) -> None:
        """What was embedded took time, and perhaps money: it is kept whatever has ended the writer."""
        if self._embedded is not None:
            with suppress(Exception):  # a full disk, a lost connection: it is what has ended the writer that counts
                self._refuse_what_is_gone()
                if not self._connection.in_transaction:
                    self._connection.execute(sql.BEGIN)
                self._embedded.keep()
