"""The next generation of a store: changes to its rows, the transaction around them, and its publication."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from spolia.errors import StoreCorrupt, StoreError
from spolia.filters import Schema
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection
from spolia.stores.backends.rows import (
    NO_FIELDS,
    NOT_YET,
    Audiences,
    Row,
    SourceRow,
    StoreVersion,
    document_row,
    hash_of_document,
    indexed_text,
    node_row,
    source_values,
    unpacked,
    written_schema,
)
from spolia.stores.files import fail_point, translated
from spolia.stores.manifest import Manifest
from spolia.types import Document, Meta, Node

NONE: Mapping[str, bytes] = MappingProxyType({})


class Changes:
    """The rows of the truth as the next generation will have them.

    Args:
        connection: inside a transaction.
        next: the generation in which what is added is born and what is replaced dies.
        manifests: the groups that nodes may be of.
    """

    def __init__(self, connection: Connection, next: int, manifests: dict[str, Manifest]) -> None:
        self.connection, self.next, self.manifests = connection, next, manifests
        self.audiences = Audiences(connection)
        self.schema = NO_FIELDS

    def put(
        self, document: Document, nodes: Iterable[Node], source: SourceRow, images: Mapping[str, bytes] = NONE
    ) -> bool:
        """A document in the place of what its source held; it is shared with the sources that hold the same.

        Returns:
            Whether it was not there.
        """
        self.audiences.begin()
        row = self._row(document)
        there = self._one(sql.LIVE_DOCUMENT, (document.id,))
        is_there = there is not None and there[1] == row[1]
        if there is not None and not is_there and there[2] == self.next:
            raise StoreError(
                f"Two documents with the id {document.id!r} were put since the last publication, and they differ; the "
                f"second is of {source.uri!r}. Give every document an id of its own, or publish() between the two."
            )
        key: int = there[0] if is_there else self._replace(there[0] if there else None, document, row, nodes, images)
        fail_point("put.source")
        self.point(source, key)
        return not is_there

    def holds(self, document: Document) -> bool:
        """Whether a live document is this one."""
        there = self._one(sql.LIVE_DOCUMENT, (document.id,))
        return there is not None and there[1] == hash_of_document(document, self.audiences.digest(document.readers))

    def meta_of(self, id: str) -> Meta | None:
        """The metadata of a live document; None if there is none."""
        there = self._one(sql.LIVE_META, (id,))
        return None if there is None else unpacked(there[0])

    def _row(self, document: Document) -> Row:
        audiences = self.audiences
        return document_row(document, audiences.number(document.readers), audiences.digest(document.readers), self.next)

    def _replace(
        self, old: int | None, document: Document, row: Row, nodes: Iterable[Node], images: Mapping[str, bytes]
    ) -> int:
        sources = [SourceRow(*found) for found in self.connection.execute(sql.LIVE_SOURCES_OF, (old,))] if old else []
        if old is not None:
            self._end(old)
        fail_point("put.document")
        key = int(self.connection.execute(sql.ADD_DOCUMENT, row).fetchall()[0][0])
        self.connection.executemany(sql.ADD_IMAGE, ((key, hash, data) for hash, data in images.items()))
        fail_point("put.nodes")
        self.connection.executemany(sql.ADD_NODE, self._node_rows(document, key, nodes))
        for source in sources:
            self.point(source, key)
        return key

    def _node_rows(self, document: Document, key: int, nodes: Iterable[Node]) -> Iterator[Row]:
        for node in nodes:
            if node.group not in self.manifests:
                raise StoreError(
                    f"Node {node.id!r} is of group {node.group!r}, which is not defined; defined are: "
                    f"{', '.join(self.manifests) or 'none'}. Write writer.define({node.group!r}, Manifest(...)) before."
                )
            audience = self.audiences.number(node.readers) or self.audiences.number(document.readers)
            by_picture = self.manifests[node.group].by_picture
            yield node_row(node, document, key, audience, self.next, by_picture=by_picture)

    def point(self, source: SourceRow, key: int | None) -> None:
        """The source holds the document of this key now; what it held before ends, unless another source has it."""
        there = self._one(sql.LIVE_SOURCE, (source.uri,))
        if there is not None and there[0] == key:
            self.touch(source)
            return
        if there is not None:
            self._unpoint(source.uri)
        self.connection.execute(sql.ADD_SOURCE, (source.uri, *source_values(source), key, self.next))
        if there is not None:
            self._release(there[0])

    def touch(self, source: SourceRow) -> None:
        """The source holds what it held; the rest of its row is new, from the next generation on."""
        if not self.connection.execute(sql.SET_SOURCE, (*source_values(source), source.uri, self.next)).rowcount:
            key = self.held_by(source.uri)
            self.connection.execute(sql.END_SOURCE, {"uri": source.uri, "next": self.next})
            self.connection.execute(sql.ADD_SOURCE, (source.uri, *source_values(source), key, self.next))

    def forget(self, uri: str) -> None:
        """The source is gone, and what it held, unless another source has it."""
        key = self.held_by(uri)
        self._unpoint(uri)
        self._release(key)

    def remember(self, source: str, cursors: Mapping[str, str], birth: int) -> None:
        """How far a source was read at a generation; an empty cursor is forgotten."""
        for item, cursor in cursors.items():
            if cursor:
                self.connection.execute(sql.SET_CURSOR, (source, item, cursor, birth))
            else:
                self.connection.execute(sql.DROP_CURSOR, (source, item))

    def add_nodes(self, document: Document, nodes: Iterable[Node]) -> None:
        """More nodes of a document that is there, of groups that had none of it."""
        key = self._known_key(document.id)
        self.audiences.begin()
        fail_point("add.nodes")
        groups: set[str] = set()
        self.connection.executemany(sql.ADD_NODE, self._node_rows(document, key, _noted(nodes, groups)))
        for group in groups:
            self.connection.execute(sql.DROP_UNMADE, (key, group))

    def note_unmade(self, document: str, reasons: Mapping[str, str]) -> None:
        """Which groups could not be made of a document, and why; an empty reason takes back what was noted."""
        key = self._known_key(document)
        for group, reason in reasons.items():
            if reason:
                self.connection.execute(sql.ADD_UNMADE, (key, group, reason))
            else:
                self.connection.execute(sql.DROP_UNMADE, (key, group))

    def expect(self, group: str) -> None:
        """A group is to be made of all documents that are there."""
        self.connection.execute(sql.EXPECT, {"grp": group, "error": NOT_YET})

    def clear(self, group: str) -> None:
        """The nodes of a group end."""
        fail_point("clear.nodes")
        for statement in sql.END_GROUP:
            self.connection.execute(statement, {"grp": group, "next": self.next})

    def unmake(self, document: str, groups: Iterable[str]) -> None:
        """The nodes of a document in some groups end, and are to be made again."""
        key = self._known_key(document)
        for group in groups:
            for statement in sql.END_NODES_OF:
                self.connection.execute(statement, {"key": key, "grp": group, "next": self.next})
            self.connection.execute(sql.ADD_UNMADE, (key, group, NOT_YET))

    def relabel(self, document: Document, meta: Meta, readers: Sequence[str]) -> None:
        """Other metadata for a document, and another reader list, also for its nodes that had the same: new rows, the
        same texts.
        """
        key = self._known_key(document.id)
        self.audiences.begin()
        old, new = self.audiences.number(document.readers), self.audiences.number(readers)
        row = self._row(document.but(meta=meta, readers=tuple(readers)))
        sources = [SourceRow(*found) for found in self.connection.execute(sql.LIVE_SOURCES_OF, (key,))]
        nodes = self.connection.execute(sql.LIVE_NODES_OF, (key,)).fetchall()
        for statement in sql.SET_ASIDE:
            self.connection.execute(statement, {"key": key, "next": self.next})
        fail_point("readers.document")
        fresh = int(self.connection.execute(sql.ADD_DOCUMENT, row).fetchall()[0][0])
        fail_point("readers.nodes")
        copies = [(fresh, new if audience == old else audience, self.next, node) for node, audience in nodes]
        self.connection.executemany(sql.COPY_NODE, copies)
        self.connection.execute(sql.MOVE_UNMADE, (fresh, key))
        self.connection.execute(sql.COPY_IMAGES, (fresh, key))
        for source in sources:
            self.point(source, fresh)
        for statement in sql.DROP_ASIDE:
            self.connection.execute(statement)

    def held_by(self, uri: str) -> int | None:
        """Key of the document that a source holds; None when it could not be read."""
        there = self._one(sql.LIVE_SOURCE, (uri,))
        if there is None:
            raise StoreError(f"There is no source {uri!r} in the store. Write one of writer.sources().")
        key: int | None = there[0]
        return key

    def _known_key(self, id: str) -> int:
        key = self.document_key(id)
        if key is None:
            raise StoreError(
                f"There is no document {id!r} in the store. Write put(document, nodes, source) before, or the id of "
                "one of documents()."
            )
        return key

    def document_key(self, id: str) -> int | None:
        """Key of a live document."""
        there = self._one(sql.LIVE_DOCUMENT, (id,))
        return there[0] if there else None

    def _unpoint(self, uri: str) -> None:
        values = {"uri": uri, "next": self.next}
        if not self.connection.execute(sql.UNSAY_SOURCE, values).rowcount:
            self.connection.execute(sql.END_SOURCE, values)

    def _release(self, key: int | None) -> None:
        if key is not None and self._one(sql.IS_REFERENCED, (key,)) is None:
            self._end(key)

    def _end(self, key: int) -> None:
        for statement in sql.END_OF_DOCUMENT:
            self.connection.execute(statement, {"key": key, "next": self.next})

    def _one(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self.connection.execute(statement, values).fetchone()


def _noted(nodes: Iterable[Node], groups: set[str]) -> Iterator[Node]:
    """Nodes as they pass, and their groups."""
    for node in nodes:
        groups.add(node.group)
        yield node


class Transaction:
    """Begins with the first change, so that a writer without changes writes nothing.

    Attributes:
        visible: whether it holds something that readers will see.
        ended: whether it can be used no more, after an error or when it was closed.
    """

    def __init__(self, store: Backend, connection: Connection) -> None:
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


KEPT = 2
"""Generations that are kept even if nobody reads them."""
REMEMBERED = 10_000
"""Publications whose ids are kept: by these, what was derived from one is known to belong to this store's past."""

Indexes = dict[str, tuple[int, int]]
"""For each group, the generation whose folder holds its lexical index, and the last node key that was known then."""


class Publication:
    """The next generation of a store on its way, inside the writer's transaction."""

    def __init__(
        self, store: Backend, connection: Connection, generation: int, manifests: dict[str, Manifest], schema: Schema
    ) -> None:
        self.store, self.connection, self.generation = store, connection, generation
        self.version = StoreVersion.after(generation - 1)
        self.manifests, self.schema = manifests, schema
        self.mended: list[str] = []

    def publish(self, indexes: Indexes, embedded_to: Mapping[tuple[str, str], int]) -> Indexes:
        """Make it durable and visible; returns its lexical indexes."""
        self._refuse_lacking_vectors(embedded_to)
        fresh = {group: self._indexed(group, indexes.get(group)) for group in sorted(self.manifests)}
        self.store.pin(self.generation)
        taken = self._forget_old_generations()
        fail_point("publish.row")
        self.connection.execute(sql.PUBLISH, (self.generation, json.dumps(fresh), written_schema(self.schema)))
        self.connection.execute(sql.ADD_PUBLICATION, self.version)
        self.connection.execute(sql.FORGET_PUBLICATIONS, (self.generation - REMEMBERED,))
        fail_point("publish.commit")
        self.connection.execute(sql.COMMIT)
        fail_point("publish.committed")
        taken.clear()
        return fresh

    def _refuse_lacking_vectors(self, embedded_to: Mapping[tuple[str, str], int]) -> None:
        for group, manifest in self.manifests.items():
            for embedder in (embedding.embedder for embedding in manifest.embeddings):
                key = embedded_to.get((group, embedder), 0)
                values = {"grp": group, "key": key, "embedder": embedder, "at": self.generation}
                if lacking := self.connection.execute(sql.LACKING, values).fetchone()[0]:
                    raise StoreError(
                        f"{lacking} nodes of group {group!r} have no vector by {embedder!r}; nothing was "
                        "published. Write writer.add_vectors for all that writer.unembedded and "
                        "writer.unembedded_pictures give, then publish."
                    )

    # The lexical index of a group.

    def _indexed(self, group: str, base: tuple[int, int] | None) -> tuple[int, int]:
        last_key: int = self.connection.execute(sql.LAST_KEY).fetchone()[0]
        if base is not None:
            try:
                return self._updated(group, base, last_key)
            except StoreCorrupt as error:
                self.mended.append(f"The lexical index of group {group!r} was built again: {error}")
        self._freeze(group, None, last_key)
        return self.generation, last_key

    def _updated(self, group: str, base: tuple[int, int], last_key: int) -> tuple[int, int]:
        at, known = base
        dead: int = self.connection.execute(sql.DEAD_COUNT, (group, at, known)).fetchone()[0]
        added = self.connection.execute(sql.NEW_NODES, (group, known)).fetchone()
        if not dead and added is None:
            return base
        is_worn = dead and self.store.is_worn(self.manifests[group], at, dead)
        self._freeze(group, None if is_worn else base, last_key)
        return self.generation, last_key

    def _freeze(self, group: str, base: tuple[int, int] | None, last_key: int) -> None:
        at, known = base or (0, 0)
        dead = (key for (key,) in self.connection.each(sql.DEAD_KEYS, (group, at, known)))
        self.store.freeze(
            self.manifests[group],
            at if base else None,
            self.generation,
            dead if base else (),
            self._added(group, known),
        )

    def _added(self, group: str, known: int) -> Iterator[tuple[int, str, int]]:
        for key, context, text, search_text, audience in self.connection.each(sql.NEW_NODES, (group, known)):
            yield key, indexed_text(context, text, search_text), audience

    # What nobody needs any more.

    def _forget_old_generations(self) -> list[object]:
        """Forget generations but the last ones and those that somebody reads, and the rows that only they see.

        The exclusive leases on them are held until that is committed.
        """
        kept = [row[0] for row in self.connection.execute(sql.GENERATIONS)]
        taken: list[object] = []
        for generation in kept[: 1 - KEPT]:
            if (lease := self.store.unleased(self.connection, generation)) is not None:
                taken.append(lease)
                self.connection.execute(sql.FORGET, (generation,))
        fail_point("publish.purge")
        for statement in sql.PURGE:
            self.connection.execute(statement)
        return taken
