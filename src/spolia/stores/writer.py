"""Writing to a store, one writer at a time: each change whole or not at all, none visible before it is published."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from spolia.core.deprecation import RenamedAttribute
from spolia.errors import GroupError, NotAStore, StoreBusy, StoreError
from spolia.filters import Field, Schema
from spolia.private_files import set_aside
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection, WriteSession
from spolia.stores.backends.publication import NO_IMAGES, Draft, Publication, Transaction
from spolia.stores.backends.rows import (
    NOT_YET,
    Row,
    SourceRow,
    document_row,
    manifest_row,
    node_digest,
    node_row,
    row_digest,
    source_row,
    unmade_row,
    with_digest,
)
from spolia.stores.files import fail_point, index_damage, is_scattered, quick_index_damage, store_errors
from spolia.stores.manifest import GroupEmbedding, Manifest, dump, refuse_odd_name, refuse_other_manifest
from spolia.types import Document, Meta, Node, check_principals

if TYPE_CHECKING:
    from spolia.models.vectors import SparseRows, Vectors
    from spolia.stores.backends.searches import VectorSink


class Writer(Draft):
    """Holder of the right to write to a store, made by `Corpus.writer`. `mended` says what was damaged and built again.

    Args:
        connection: as for `Backend.begin_writing`.
    """

    def __init__(self, store: Backend, timeout_s: float, connection: Connection | None = None) -> None:
        self.store = store
        self.mended: list[str] = []
        self._embedded: VectorSink | None = None
        self._writing: WriteSession = store.begin_writing(timeout_s, connection)
        try:
            self._connection = self._writing.connection
            self._transaction = Transaction(store, self._connection)
            with store_errors(store, "opened for writing"):
                # Sweeping comes first: it may drop damaged vectors, and what follows must know that.
                self.mended += store.sweep(self._connection)
                self._read_published()
                store.recover(self._connection, self.manifests, self._last_keys(), self.generation)
                self._drop_indexes(all=False)
        except BaseException:
            self.close()
            raise

    def _read_errors(self) -> AbstractContextManager[None]:
        self._transaction.refuse_if_ended()
        return super()._read_errors()

    def _last_keys(self) -> dict[str, int]:
        """Return for each group that is published and indexed the last node key that was known then."""
        return {group: key for group, (_, key) in self.indexes.items()}

    def _drop_indexes(self, *, all: bool) -> None:
        """Drop damaged lexical indexes, so that the next publication builds them again; read `all` of them."""
        for group, (generation, _) in list(self.indexes.items()):  # a copy: damaged ones are taken out
            folder = self.store.published_index(group, generation)
            if folder is not None and (damage := (index_damage if all else quick_index_damage)(folder)):
                set_aside(folder, self.store.folder)
                self.mended.append(f"{damage}. It is built again from corpus.db.")
                self.indexes.pop(group)
                self._transaction.visible = True  # so that `publish` builds it though no row has changed

    @property
    def _next(self) -> int:
        """Return the generation in which what is added is born, and what is replaced dies."""
        return self.generation + 1

    # Changes: each whole or not at all, and none seen by readers before it is published.

    def all_or_nothing(self) -> AbstractContextManager[None]:
        """Group many changes, so that they cost less: an error takes back everything and ends the writer."""
        return self._transaction.all_or_nothing()

    def define(self, group: str, manifest: Manifest) -> None:
        """Say what a group is built with; later it must be the same. Documents that exist count as not made in it."""
        if manifest.group != group:
            raise StoreError(f"The manifest is of group {manifest.group!r}, not {group!r}. Write the same name twice.")
        refuse_odd_name(group)
        stored = self.manifests.get(group)
        if stored is not None:
            refuse_other_manifest(stored, manifest)
            return
        with self._transaction.change():
            fail_point("define.write")
            self._write_manifest(group, manifest, is_made=False)

    def _write_manifest(self, group: str, manifest: Manifest, *, is_made: bool) -> None:
        if not is_made:
            self._connection.execute(sql.EXPECT, unmade_row(group, NOT_YET))
        self._connection.execute(sql.DEFINE, manifest_row(group, dump(manifest)))
        self.manifests[group] = manifest
        self._forget_derived(group)

    def _forget_derived(self, group: str) -> None:
        self.indexes.pop(group, None)
        self.embedded_to = {key: last for key, last in self.embedded_to.items() if key[0] != group}

    def redefine(self, group: str, manifest: Manifest, keep_nodes: bool = False) -> None:
        """Rebuild a group: its nodes end, unless only their embeddings have changed (`keep_nodes`).

        All documents are noted as not made in it, until `add_nodes` or `note_unmade` takes that back.
        """
        refuse_odd_name(group)
        with self._transaction.change():
            fail_point("redefine.write")
            if not keep_nodes:
                self._clear(group)
            self._write_manifest(group, manifest, is_made=keep_nodes)

    def drop(self, group: str) -> None:
        """Forget a group with its nodes; vectors stay for when their texts return."""
        if group not in self.manifests:
            raise GroupError(
                f"There is no node group {group!r} in {self.store}. It has: {', '.join(sorted(self.manifests))}."
            )
        if children := sorted(
            m.group for m in self.manifests.values() if group in (m.parent, m.ref) and m.group != group
        ):
            raise GroupError(f"Group {group!r} has groups made from it: {', '.join(children)}. Drop these first.")
        with self._transaction.change():
            self._clear(group)
            fail_point("drop.write")
            self._connection.execute(sql.DROP_MANIFEST, (group,))
            del self.manifests[group]
            self._forget_derived(group)

    def _clear(self, group: str) -> None:
        fail_point("clear.nodes")
        for statement in sql.END_GROUP:
            self._connection.execute(statement, {"grp": group, "next": self._next})

    def declare(self, fields: Iterable[Field]) -> None:
        """Say which metadata fields can be filtered by; the others go. Filters pass over values that do not fit."""
        schema = Schema(fields)
        if schema != self.declared:
            with self._transaction.change():
                fail_point("declare.write")
                self.declared = schema

    put = RenamedAttribute("put_document")

    def put_document(
        self,
        document: Document,
        nodes: Iterable[Node],
        source: SourceRow,
        images: Mapping[str, bytes] = NO_IMAGES,
    ) -> bool:
        """Put a document with its nodes in the place of what its source held before; the nodes are streamed.

        A document that is there already, with the same text and fields, is shared, and its nodes are not asked for.
        When `nodes` raises, nothing of the document stays, and the writer goes on.

        Args:
            images: the pictures that regions of the document name, by their hash.

        Returns:
            Whether its nodes were asked for.
        """
        with self._transaction.change():
            self._audiences.begin()
            row = self._row(document)
            live_row: Any = self._live_row(document.id)
            is_there = live_row is not None and live_row[1] == row[1]
            if live_row is not None and not is_there and live_row[2] == self._next:
                raise StoreError(
                    f"Two documents with the id {document.id!r} were put since the last publication, and they differ; "
                    f"the second is of {source.uri!r}. Give every document an id of its own, or publish() between the "
                    "two."
                )
            old: int | None = live_row[0] if live_row else None
            key: int = live_row[0] if is_there else self._replace_document(old, document, row, nodes, images)
            fail_point("put.source")
            self._point_source(source, key)
        return not is_there

    def insert(self, puts: Sequence[Iterable[Any]], nodes: Iterable[tuple[Document, Iterable[Node]]]) -> None:
        """Put documents that are known not to be there, from sources that are not, and their nodes.

        `puts` have the arguments of `put_document`.
        """
        with self._transaction.change():
            self._audiences.begin()
            connection, last, birth = self._connection, self._fetch_one(sql.LAST_KEYS["documents"])[0], self._next
            fail_point("insert.documents")
            # Fast path: the keys are read together afterwards, not one by one with RETURNING.
            connection.executemany(sql.ADD_DOCUMENTS, (self._row(document) for document, _, _, _ in puts))
            keys = dict(connection.execute(sql.KEYS_AFTER, (last,)).fetchall())
            images_by_key = ((keys[document.id], images) for document, _, _, images in puts)
            connection.executemany(
                sql.ADD_IMAGE,
                ((key, *with_digest(*image)) for key, images in images_by_key for image in images.items()),
            )

            fail_point("insert.sources")
            connection.executemany(
                sql.ADD_SOURCE, (source_row(source, birth, keys[document.id]) for document, _, source, _ in puts)
            )

            fail_point("insert.nodes")
            rows = (self._node_rows(document, keys[document.id], document_nodes) for document, document_nodes in nodes)
            connection.executemany(sql.ADD_NODE, chain.from_iterable(rows))

    def _row(self, document: Document) -> Row:
        audiences = self._audiences
        number, digest = audiences.number(document.readers), audiences.digest(document.readers)
        return document_row(document, number, digest, self._next)

    def _replace_document(
        self, old: int | None, document: Document, row: Row, nodes: Iterable[Node], images: Mapping[str, bytes]
    ) -> int:
        # Read before the old one ends: they hold the new one afterwards.
        sources = self._connection.execute(sql.LIVE_SOURCES_OF, (old,)).fetchall() if old else []
        if old is not None:
            self._end(old)
        fail_point("put.document")
        key = int(self._connection.execute(sql.ADD_DOCUMENT, row).fetchall()[0][0])
        if images:
            self._connection.executemany(sql.ADD_IMAGE, ((key, *with_digest(*image)) for image in images.items()))
        fail_point("put.nodes")
        if nodes != ():
            self._connection.executemany(sql.ADD_NODE, self._node_rows(document, key, nodes))
        for row_of_source in sources:
            self._point_source(SourceRow(*row_of_source), key)
        return key

    def _node_rows(
        self, document: Document, key: int, nodes: Iterable[Node], groups: set[str] | None = None
    ) -> Iterator[Row]:
        """Yield nodes as rows; their groups are added to `groups`."""
        audiences, birth = self._audiences, self._next
        for node in nodes:
            if node.group not in self.manifests:
                raise StoreError(
                    f"Node {node.id!r} is of group {node.group!r}, which is not defined; defined are: "
                    f"{', '.join(self.manifests) or 'none'}. Write writer.define({node.group!r}, Manifest(...)) before."
                )
            if groups is not None:
                groups.add(node.group)
            audience = audiences.number(node.readers) or audiences.number(document.readers)
            yield node_row(node, document, key, audience, birth, by_picture=self.manifests[node.group].by_picture)

    def _point_source(self, source: SourceRow, key: int | None) -> None:
        """Make the source hold the document of this key; what it held before ends, unless another source has it."""
        row = self._fetch_one(sql.LIVE_SOURCE, (source.uri,))
        if row is not None and row[0] == key:
            self._touch(source)
            return
        if row is not None:
            self._unpoint(source.uri)
        self._connection.execute(sql.ADD_SOURCE, source_row(source, self._next, key))
        if row is not None:
            self._release(row[0])

    def _touch(self, source: SourceRow) -> None:
        """Renew the row of a source that still holds what it held, from the next generation on."""
        uri, *values, birth, _, digest = row = source_row(source, self._next, self._held_key(source.uri))
        # Only a row born since the last publication may be changed: readers still see the others.
        if not self._connection.execute(sql.SET_SOURCE, (*values, digest, uri, birth)).rowcount:
            self._connection.execute(sql.END_SOURCE, {"uri": uri, "next": self._next})
            self._connection.execute(sql.ADD_SOURCE, row)

    def _forget(self, uri: str) -> None:
        """Forget the source, and what it held, unless another source has it."""
        key = self._held_key(uri)
        self._unpoint(uri)
        self._release(key)

    def _unpoint(self, uri: str) -> None:
        values = {"uri": uri, "next": self._next}
        # A row that nobody has seen yet is deleted; one of a published generation only ends.
        if not self._connection.execute(sql.UNSAY_SOURCE, values).rowcount:
            self._connection.execute(sql.END_SOURCE, values)

    def _release(self, key: int | None) -> None:
        if key is not None and self._fetch_one(sql.IS_REFERENCED, (key,)) is None:
            self._end(key)

    def _end(self, key: int) -> None:
        for statement in sql.END_OF_DOCUMENT:
            self._connection.execute(statement, {"key": key, "next": self._next})

    def _held_key(self, uri: str) -> int | None:
        """Return the key of the document that a source holds; None when it could not be read."""
        row = self._fetch_one(sql.LIVE_SOURCE, (uri,))
        if row is None:
            raise StoreError(f"There is no source {uri!r} in the store. Write one of writer.sources().")
        key: int | None = row[0]
        return key

    def _known_key(self, id: str) -> int:
        key = self._live_key(id)
        if key is None:
            raise StoreError(
                f"There is no document {id!r} in the store. Write put(document, nodes, source) before, or the id of "
                "one of documents()."
            )
        return key

    def add_nodes(self, document: Document, nodes: Iterable[Node]) -> None:
        """Add nodes of other groups to a document that is there, as `documents()` gives it; they are streamed."""
        with self._transaction.change():
            key, groups = self._known_key(document.id), set[str]()
            self._audiences.begin()
            fail_point("add.nodes")
            self._connection.executemany(sql.ADD_NODE, self._node_rows(document, key, nodes, groups))
            for group in groups:
                self._connection.execute(sql.DROP_UNMADE, (key, group))

    def note_unmade(self, document: str, reasons: Mapping[str, str]) -> None:
        """Note by group why it could not be made of a document, until that changes; an empty reason takes it back."""
        with self._transaction.change():
            fail_point("unmade.write")
            key = self._known_key(document)
            for group, reason in reasons.items():
                if reason:
                    self._note(key, group, reason)
                else:
                    self._connection.execute(sql.DROP_UNMADE, (key, group))

    def _note(self, key: int, group: str, reason: str) -> None:
        self._connection.execute(sql.ADD_UNMADE, {"key": key, **unmade_row(group, reason)})

    def set_readers(self, document: Document, readers: Sequence[str]) -> None:
        """Give a document another reader list, and all its nodes but those that have one of their own.

        It holds for every search after the next publication; nothing is cut or embedded again. No readers: everybody.
        """
        if not isinstance(document, Document):
            raise StoreError(
                f"{document!r:.80} ({type(document).__name__}) is not a Document. Write for document in "
                f"list(writer.documents()): if document.uri == {str(document)!r:.80}: "
                "writer.set_readers(document, [...])."
            )
        self.relabel(document, document.meta, readers)

    def relabel(self, document: Document, meta: Meta, readers: Sequence[str]) -> None:
        """Give a document other metadata and another reader list; its nodes stay, with the metadata of their own."""
        readers = check_principals(readers, f"The readers of {document.uri or document.id!r} would be")
        with self._transaction.change():
            key, connection = self._known_key(document.id), self._connection
            self._audiences.begin()
            old, new = self._audiences.number(document.readers), self._audiences.number(readers)
            *row, digest = self._row(document.but(meta=meta, readers=readers))
            *stored_values, stored_digest = self._fetch_one(sql.ROW_OF_DOCUMENT, (key,))
            row.append(
                digest if stored_digest == row_digest(stored_values) else stored_digest
            )  # one that is damaged stays so

            sources = connection.execute(sql.LIVE_SOURCES_OF, (key,)).fetchall()
            nodes = connection.execute(sql.LIVE_NODES_OF, (key,)).fetchall()
            for statement in sql.SET_ASIDE:
                connection.execute(statement, {"key": key, "next": self._next})
            fail_point("readers.document")

            fresh = int(connection.execute(sql.ADD_DOCUMENT, row).fetchall()[0][0])
            fail_point("readers.nodes")
            connection.executemany(sql.ADD_NODE, (self._move_row(node, fresh, old, new) for node in nodes))

            connection.execute(sql.MOVE_UNMADE, (fresh, key))
            connection.execute(sql.COPY_IMAGES, (fresh, key))
            for source_row in sources:
                self._point_source(SourceRow(*source_row), fresh)
            for statement in sql.DROP_ASIDE:
                connection.execute(statement)

    def _move_row(self, node: Row, document: int, old: int, new: int) -> Row:
        """Return a node's row below another document; one that is damaged stays so."""
        id, group, _, *values, audience, _, seconds, digest = node
        row = (id, group, document, *values, new if audience == old else audience, self._next, seconds)
        return (*row, node_digest(row) if digest == node_digest(node[:-1]) else digest)

    def unmake(self, document: str, groups: Iterable[str]) -> None:
        """End the nodes of a document, by its id, in some groups: it is noted as not made in them."""
        with self._transaction.change():
            key = self._known_key(document)
            for group in groups:
                for statement in sql.END_NODES_OF:
                    self._connection.execute(statement, {"key": key, "grp": group, "next": self._next})
                self._note(key, group, NOT_YET)

    def touch(self, source: SourceRow) -> None:
        """Note another size, time or report of a source whose content is the same."""
        with self._transaction.change(visible=False):
            fail_point("touch.write")
            self._touch(source)

    def move(self, old_uri: str, source: SourceRow) -> None:
        """Move a source from `old_uri` to `source.uri`; it has the same content."""
        with self._transaction.change():
            key = self._held_key(old_uri)
            fail_point("move.write")
            self._point_source(source, key)
            if old_uri != source.uri:
                self._forget(old_uri)

    def remove(self, uri: str) -> None:
        """Forget a source, and its document unless another source has the same."""
        with self._transaction.change():
            fail_point("remove.write")
            self._forget(uri)

    def fail(self, source: SourceRow) -> None:
        """Note that a source could not be read. What it held before goes, unless `source.document` still names it."""
        with self._transaction.change():
            key = self._live_key(source.document) if source.document else None
            fail_point("fail.write")
            self._point_source(source, key)

    def remember(self, source: str, cursors: Mapping[str, str]) -> None:
        """Note how far a source was read, which is published with what was read there; an empty cursor forgets."""
        cursors = {item: cursor for item, cursor in cursors.items() if cursor != self.cursor(source, item)}
        if not cursors:
            return
        if source == sql.REPLACED:
            raise StoreError("A source has no name, so a store cannot remember how far it was read. Give it one.")
        with self._transaction.change(visible=False):
            fail_point("remember.write")
            # where nothing else has changed, what was published last is as far as this
            birth = self.generation + self._transaction.visible
            for item, cursor in cursors.items():
                if cursor:
                    self._connection.execute(sql.SET_CURSOR, with_digest(source, item, cursor, birth))
                else:
                    self._connection.execute(sql.DROP_CURSOR, (source, item))

    # Vectors.

    def _is_pending(self, embedder: str, hash: bytes) -> bool:
        return self._embedded is not None and self._embedded.is_pending(embedder, hash)

    def add_vectors(self, embedder: str, hashes: Sequence[bytes], vectors: "Vectors") -> None:
        """Keep vectors float32[n, d] for the texts with these hashes; one that is there is not changed.

        Raises for the whole batch if a vector has another dimension, or has not length 1 and is compared by cosine.
        What is written stays even when the writer is killed before it publishes.
        """
        embeddings = self._embeddings(embedder)
        with self._change_vectors() as vector_writer:
            dimension = max((embedding.dimension for embedding in embeddings), default=0)
            vector_writer.add(embedder, hashes, vectors, unit=_are_unit(embeddings), dimension=dimension)

    def add_sparse(self, embedder: str, hashes: Sequence[bytes], rows: "SparseRows") -> None:
        with self._change_vectors() as vector_writer:
            vector_writer.add_sparse(embedder, hashes, rows)

    def replace_vectors(self, embedder: str, hashes: Sequence[bytes], parts: "Sequence[Vectors | SparseRows]") -> None:
        """Put vectors in the place of those that these texts have, in all documents, with the next publication."""
        with self._change_vectors() as vector_writer:
            unit = _are_unit(self._embeddings(embedder))
            vector_writer.replace(embedder, hashes, parts, self._next, unit=unit)

    def _embeddings(self, embedder: str) -> list[GroupEmbedding]:
        return [embedding for manifest in self.manifests.values() if (embedding := manifest.find_embedding(embedder))]

    @contextmanager
    def _change_vectors(self) -> "Iterator[VectorSink]":
        self._transaction.refuse_if_ended()
        if self._embedded is None:
            self._embedded = self.store.make_vector_writer(self._connection)
        self._transaction.begin()
        with self._transaction.end_on_error("written"):
            yield self._embedded
        self._transaction.visible = True

    @property
    def is_dirty(self) -> bool:
        return self._transaction.visible

    def changed_sources(self) -> dict[str, int]:
        """Return the sources that are changed in the generation that is published next, with its number."""
        with self._read_errors():
            return dict(self._connection.execute(sql.BORN, (self._next,)).fetchall())

    def keep_vectors(self) -> None:
        """Make the vectors durable that were added, and publish nothing. Call it without other changes."""
        if self._embedded is not None:
            with self._change_vectors() as vector_writer:
                vector_writer.keep()
            self._transaction.commit()

    # Publishing.

    def publish(self, *, embedded: bool = True) -> int:
        """Make all changes durable and visible together; return the generation. Unless `embedded`, vectors may be
        lacking."""
        self._transaction.refuse_if_ended()
        if self._transaction.visible:
            self._publish(embedded=embedded)
        elif self._transaction.began:  # stamps alone are no reason for a new generation
            self._transaction.commit()
        return self.generation

    def merge(self, *, has_moved: bool = False) -> int:
        """Merge scattered lexical indexes and publish, also if only vectors were moved; return the generation."""
        self._transaction.refuse_if_ended()
        if has_moved or self.is_scattered:
            self._publish(embedded=False, merged=True)
        return self.generation

    @property
    def is_scattered(self) -> bool:
        """Return whether a lexical index is to be merged."""
        folders = (self.store.published_index(group, generation) for group, (generation, _) in self.indexes.items())
        return any(folder is not None and is_scattered(folder) for folder in folders)

    def _publish(self, *, embedded: bool, merged: bool = False) -> None:
        self._transaction.begin()
        with self._transaction.end_on_error("published"):
            self._refuse_deleted_store()
            if self._embedded is not None:
                self._embedded.flush()  # before the row that publishes the nodes: one that is visible has its vectors
            # Before the publication: if an external database cannot follow, nothing is published.
            self.store.follow(self._connection, self.manifests, self._last_keys(), self.generation)
            publication = Publication(self.store, self._connection, self._next, self.manifests, self.declared)
            self.indexes = publication.publish(self.indexes, self.embedded_to if embedded else None, merged=merged)
            self.mended += publication.mended
        self._transaction.renew()
        self.generation, self.schema = self.generation + 1, self.declared
        with store_errors(self.store, "swept"):
            self.mended += self.store.sweep(self._connection)
            self._read_embedded()
            self.mended += self.store.derive(self._connection, self.manifests)

    def _refuse_deleted_store(self) -> None:
        if not self.store.exists():
            raise NotAStore(
                f"{self.store} was deleted while it was being written; nothing could be published. "
                f"Write: spolia index FOLDER --store {self.store}"
            )

    def repair(self) -> list[str]:
        """Read all that is derived, make ready to build again what is damaged, and say in words what that is.

        The next `publish` builds lexical indexes; `unembedded` gives lost texts again. Call it before changes.
        """
        self._transaction.refuse_if_ended()
        if self._transaction.began:
            raise StoreError(
                "repair() came after other changes. Write: with corpus.writer() as writer: writer.repair()"
            )
        self._drop_indexes(all=True)
        self._transaction.visible = self._transaction.visible or self.manifests.keys() > self.indexes.keys()
        with self._transaction.end_on_error("repaired"):
            self._connection.execute(sql.FORGET_EMBEDDED)
            self.embedded_to = {}
            if repairs := self.store.repair(self._connection):
                self.mended += repairs
                self.store.recover(self._connection, self.manifests, self._last_keys(), self.generation)
        return self.mended

    def read_on(self) -> Connection:
        """End without changes, and return a connection that can only read."""
        self._transaction.ended = True
        return self.store.read_after(self._writing)

    def close(self) -> None:
        """Take back what was not published, and let the next one write."""
        transaction: Transaction | None = getattr(self, "_transaction", None)  # none if the constructor failed
        if transaction is not None:
            transaction.ended = True
        try:
            if self._embedded is not None:  # vectors took time, and perhaps money
                with suppress(Exception):  # a full disk, a lost connection: it is what has ended the writer that counts
                    self._refuse_deleted_store()
                    if not self._connection.in_transaction:
                        self._connection.execute(sql.BEGIN)
                    self._embedded.keep()
        finally:
            self._writing.close()


def _are_unit(embeddings: Iterable[GroupEmbedding]) -> bool:
    return all(embedding.metric == "cosine" for embedding in embeddings)


def compact(
    store: Backend, manifests: Mapping[str, Manifest], timeout_s: float, *, has_ended: bool = True, waits: bool = True
) -> int:
    """Join what many commits have left in small pieces, and publish that; return the generation, or 0 for nothing."""
    if not store.compact(manifests, has_ended=has_ended, waits=waits):
        return 0
    with closing(Writer(store, timeout_s)) as writer:
        return writer.merge(has_moved=True)


def compact_all(
    store: Backend,
    manifests: Mapping[str, Manifest],
    timeout_s: float,
    *,
    is_scattered: bool = True,
    connection: Connection | None = None,
) -> int:
    """Join as `compact`, and merge lexical indexes, where they may be scattered and nobody else writes."""
    has_moved = store.compact(manifests, has_ended=True, waits=True, connection=connection)
    if has_moved or is_scattered:
        # Merging alone can wait for the next run: it never waits for another writer.
        with suppress(StoreBusy), closing(Writer(store, timeout_s if has_moved else 0)) as writer:
            return writer.merge(has_moved=has_moved)
    return 0
