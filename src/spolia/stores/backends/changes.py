"""Changes to documents, nodes and sources, all born in the generation that is published next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from spolia.errors import StoreError
from spolia.filters import Schema
from spolia.stores.access.reader_lists import Audiences
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection
from spolia.stores.backends.rows import (
    NOT_YET,
    Row,
    SourceRow,
    document_row,
    hash_of_document,
    node_row,
    source_of,
    source_values,
    unpacked,
)
from spolia.stores.files import fail_point
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
        self.schema = Schema()

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
        sources = [source_of(found) for found in self.connection.execute(sql.LIVE_SOURCES_OF, (old,))] if old else []
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
        same texts."""
        key = self._known_key(document.id)
        self.audiences.begin()
        old, new = self.audiences.number(document.readers), self.audiences.number(readers)
        row = self._row(document.but(meta=meta, readers=tuple(readers)))
        sources = [source_of(found) for found in self.connection.execute(sql.LIVE_SOURCES_OF, (key,))]
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
