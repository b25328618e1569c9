"""What a generation holds: documents and their nodes, how these belong together, and who may read which of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spolia.errors import StoreError
from spolia.stores.definition import DOCUMENT, MAIN, whole
from spolia.stores.manifest import Manifest, of
from spolia.stores.opened import Opened
from spolia.stores.reading.rights import Rights
from spolia.stores.tables import sql
from spolia.stores.tables.audiences import ReaderLists
from spolia.stores.tables.rows import (
    AUDIENCE_OF_DOCUMENT,
    AUDIENCE_OF_NODE,
    DOCUMENT_OF_NODE,
    SourceRow,
    StoreVersion,
    Unmade,
    document_of,
    node_of,
    source_of,
)
from spolia.stores.tables.schema import read_schema
from spolia.types import Box, Document, Hit, Node, Span, Value

NODES_KEPT = 8_192
PUBLIC: frozenset[str] = frozenset()
"""Who says nothing of who asks, reads what everybody may read."""


@dataclass(frozen=True)
class Stats(Value):
    """How much there is in a store.

    Args:
        generation: the published generation; it counts publications.
        documents: different documents.
        sources: number of sources by status: `indexed`, `failed`.
        nodes: number of nodes by group.
        vectors: number of vectors by embedder; those of nodes that are gone are kept for when they return.
        bytes: size on the disk.
    """

    generation: int
    documents: int
    sources: tuple[tuple[str, int], ...]
    nodes: tuple[tuple[str, int], ...]
    vectors: tuple[tuple[str, int], ...]
    bytes: int


class Contents:
    """What is in one published generation. Any thread may use it."""

    def __init__(self, opened: Opened, published: tuple[int, str, str, str, str]) -> None:
        self.opened = opened
        self.generation, id, indexes, fields, manifests = published
        self.version = StoreVersion(self.generation, id)
        self.indexes: dict[str, tuple[int, int]] = {name: (at, key) for name, (at, key) in json.loads(indexes).items()}
        self.manifests = {manifest["group"]: of(manifest) for manifest in json.loads(manifests)}
        self.schema = read_schema(fields)
        self.readers = opened.shared("reader lists", ReaderLists)
        self.readers.take_in(opened.connection)
        self.rights = Rights(opened, self.version, self.readers)
        self._nodes: dict[int, tuple[int, Node]] = {}
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Tells apart what may be read here: another one for another publication, and for other reader lists since."""
        since = self.rights.changed_at
        return f"{self.opened.uuid}@{self.version}" + (f"+{since}" if since else "")

    # Nodes.

    def nodes(self, keys: Iterable[int], access: frozenset[str] = PUBLIC) -> list[Node]:
        """The nodes of these keys in this order; those that may not be read are left out."""
        return [node for _, node in self._readable(list(keys), access)]

    def hits(self, found: Iterable[tuple[int, float]], access: frozenset[str]) -> tuple[Hit, ...]:
        """Keys and scores, as a search gives them, as hits with nodes."""
        scores = dict(found)
        return tuple(Hit(node, scores[key]) for key, node in self._readable(list(scores), access))

    def ids(self, keys: Sequence[int]) -> dict[int, str]:
        """The ids of nodes by their keys: what a node is, where a key is when it came."""
        return dict(self.opened.rows(sql.IDS_OF_KEYS, {"keys": json.dumps(keys)}))

    def node(self, id: str, access: frozenset[str] = PUBLIC) -> Node:
        """The node of this id, as a citation names it."""
        row = self.opened.row(sql.NODE_KEY, {"id": id, "at": self.generation})
        found = self.nodes([row[0]], access) if row else []
        if not found:
            raise StoreError(
                f"There is no readable node {id!r} in generation {self.generation} of {self.opened.store}. "
                "Write the id of a node from a search, and search and read as the same principal."
            )
        return found[0]

    # Lineage.

    def parents(self, nodes: Sequence[Node], access: frozenset[str] = PUBLIC) -> dict[str, Node]:
        """The nodes that these were made from, by id; a whole document stands there as a node of group `document`."""
        wanted = [node.parent for node in nodes if node.parent]
        found = self._nodes_of_ids(wanted, access)
        for id in dict.fromkeys(wanted):
            if id not in found and (document := self._document(id, access)) is not None:
                found[id] = whole(document)
        return found

    def children(self, ids: Sequence[str], group: str, access: frozenset[str] = PUBLIC) -> list[Node]:
        """The nodes of a group that were made from these nodes, in the order of `ids`, then of the text."""
        self.manifest(group)
        values = {"ids": json.dumps(list(ids)), "grp": group, "at": self.generation}
        return self.readable_of(self.opened.rows(sql.CHILDREN, values), access)

    def numbered(self, document: str, group: str, first: int, last: int, access: frozenset[str] = PUBLIC) -> list[Node]:
        """The nodes of a document in a group whose `number` is in [first, last], in order."""
        self.manifest(group)
        values = {"document": document, "grp": group, "first": first, "last": last, "at": self.generation}
        return self.readable_of(self.opened.rows(sql.NUMBERED, values), access)

    def above(self, group: str) -> tuple[str, ...]:
        """A group and those that it was made from, up to the documents."""
        found = [group]
        while found[-1] != DOCUMENT:
            found.append(self.manifest(found[-1]).parent)
        return tuple(found)

    def ancestors(self, nodes: Sequence[Node], group: str, access: frozenset[str] = PUBLIC) -> list[Node | None]:
        """For each node its ancestor in a group above its own, itself if it is of that group; None if not readable."""
        at: dict[int, Node] = dict(enumerate(nodes))
        while open_ := {row: node for row, node in at.items() if node.group != group}:
            found = self.parents(list(open_.values()), access)
            for row, node in open_.items():
                if (parent := found.get(node.parent)) is None:
                    del at[row]
                else:
                    at[row] = parent
        return [at.get(row) for row in range(len(nodes))]

    def descendants(self, nodes: Sequence[Node], group: str, access: frozenset[str] = PUBLIC) -> list[list[Node]]:
        """For each node those of a group below its own that were made from it, in order; itself if of that group."""
        within: list[list[Node]] = [[node] for node in nodes]
        way = list(self.above(group))
        for below in reversed(way[: way.index(nodes[0].group)] if nodes else ()):
            ids = dict.fromkeys(node.id for row in within for node in row)
            made: dict[str, list[Node]] = {}
            for child in self.children(list(ids), below, access):
                made.setdefault(child.parent, []).append(child)
            within = [[child for node in row for child in made.get(node.id, ())] for row in within]
        return within

    def _nodes_of_ids(self, ids: Sequence[str], access: frozenset[str]) -> dict[str, Node]:
        values = {"ids": json.dumps(list(dict.fromkeys(ids))), "at": self.generation}
        return {node.id: node for node in self.readable_of(self.opened.rows(sql.NODES_OF_IDS, values), access)}

    def readable_of(self, rows: Sequence[Any], access: frozenset[str] = PUBLIC) -> list[Node]:
        """The nodes that these rows of the truth hold, as far as they may be read."""
        who, lists = self.rights.asker(access), self.readers.lists
        return [node_of(row, lists) for row in rows if who.may_read(row[DOCUMENT_OF_NODE], row[AUDIENCE_OF_NODE])]

    def document(self, id: str, access: frozenset[str] = PUBLIC) -> Document:
        """The document of this id."""
        found = self._document(id, access)
        if found is None:
            raise StoreError(
                f"There is no readable document {id!r} in generation {self.generation} of {self.opened.store}. "
                "Write the document of a node from a search, and search and read as the same principal."
            )
        return found

    def _document(self, id: str, access: frozenset[str]) -> Document | None:
        row = self.opened.row(sql.DOCUMENT, {"id": id, "at": self.generation})
        if row is None or not self.rights.asker(access).may_read(id, row[AUDIENCE_OF_DOCUMENT]):
            return None
        return document_of(row, self.readers.lists)

    def image(self, document: str, hash: str, access: frozenset[str] = PUBLIC) -> bytes:
        """A picture of a document, by the hash that a region of it names.

        Raises:
            StoreError: there is none that is readable.
        """
        row = self.opened.row(sql.IMAGE, {"id": document, "hash": hash, "at": self.generation})
        if row is None or not self.rights.asker(access).may_read(document, row[1]):
            raise StoreError(
                f"There is no readable picture {hash!r} of document {document!r} in generation {self.generation} of "
                f"{self.opened.store}. Write the image of one of document(...).regions."
            )
        return bytes(row[0])

    def boxes(self, document: str, span: Span, access: frozenset[str] = PUBLIC) -> tuple[Box, ...]:
        """Where a stretch of a document stands on its pages, line by line; nothing where its format has no places.

        A node stands where its `span` does.

        Raises:
            StoreError: there is no such document that is readable.
        """
        return self.document(document, access).boxes.within(span.start, span.end)

    def documents(self, access: frozenset[str] = PUBLIC) -> Iterator[Document]:
        """All readable documents, by id."""
        who = self.rights.asker(access)
        for row in self.opened.each(sql.DOCUMENTS, {"at": self.generation}):
            if who.may_read(row[0], row[AUDIENCE_OF_DOCUMENT]):
                yield document_of(row, self.readers.lists)

    def all_nodes(self, group: str, access: frozenset[str] = PUBLIC) -> Iterator[Node]:
        """All readable nodes of a group, by id."""
        who = self.rights.asker(access)
        for row in self.opened.each(sql.NODES, {"grp": group, "at": self.generation}):
            if who.may_read(row[DOCUMENT_OF_NODE], row[AUDIENCE_OF_NODE]):
                yield node_of(row, self.readers.lists)

    def sources(self, *, noted: bool = False) -> dict[str, SourceRow]:
        """What the documents were read from, by uri.

        Args:
            noted: with what was noted since this generation and changes no search: times, and attempts that failed.
        """
        rows = self.opened.rows(sql.SOURCES, {"at": self.generation + noted})
        return {row[0]: source_of(row) for row in rows}

    def named(self, names: Iterable[str]) -> dict[str, str]:
        """Ids of the documents that are called so, by id or else by the uri of a source; what is not there is left out.

        Nothing is said of who may read them.
        """
        rows = self.opened.rows(sql.NAMED, {"names": json.dumps(list(names)), "at": self.generation})
        return {name: id for name, id, _ in rows}

    def unmade(self) -> tuple[Unmade, ...]:
        """Which groups could not be made of which documents, by uri; the next `sync` or `materialise` tries again."""
        return tuple(Unmade(*row) for row in self.opened.rows(sql.UNMADE, {"at": self.generation}))

    def reader_versions(self) -> tuple[str, ...]:
        """The readers that the sources were given to, with their versions."""
        return tuple(reader for (reader,) in self.opened.rows(sql.READERS_AT, {"at": self.generation}))

    def groups(self) -> tuple[str, ...]:
        """Names of the node groups."""
        return tuple(self.indexes)

    def manifest(self, group: str) -> Manifest:
        """What a group was built with."""
        if group not in self.indexes:
            store = self.opened.store
            how = f"materialise([corpus.group({group!r}, Definition(...))]), or spolia groups add {group}"
            if group == MAIN:
                how = f"spolia index FOLDER --store {store}"
            there = ", ".join(self.groups()) or "none"
            raise StoreError(f"{store} has no node group {group!r}. It has: {there}. Write one of these, or: {how}")
        return self.manifests[group]

    def stats(self) -> Stats:
        """How much there is."""
        at = {"at": self.generation}
        return Stats(
            self.generation,
            self.opened.row(sql.COUNT_DOCUMENTS, at)[0],
            tuple(self.opened.rows(sql.COUNT_SOURCES, at)),
            tuple(self.opened.rows(sql.COUNT_NODES, at)),
            tuple(self.opened.rows(sql.COUNT_VECTORS)),
            self.opened.store.bytes(self.opened.connection),
        )

    # Inside.

    def _readable(self, keys: Sequence[int], access: frozenset[str]) -> list[tuple[int, Node]]:
        known = self._nodes
        there = {key: known[key] for key in keys if key in known}
        if len(there) < len(keys):
            there |= self._fetched([key for key in keys if key not in there])
        who = self.rights.asker(access)
        found = ((key, *there[key]) for key in keys if key in there)
        return [(key, node) for key, audience, node in found if who.may_read(node.document, audience)]

    def _fetched(self, keys: Sequence[int]) -> dict[int, tuple[int, Node]]:
        rows = self.opened.rows(sql.NODES_OF_KEYS, {"keys": json.dumps(keys), "at": self.generation})
        found = {row[0]: (row[AUDIENCE_OF_NODE], node_of(row, self.readers.lists)) for row in rows}
        with self._lock:
            if len(self._nodes) + len(found) > NODES_KEPT:
                self._nodes = {}
            if len(found) <= NODES_KEPT:
                self._nodes.update(found)
        return found
