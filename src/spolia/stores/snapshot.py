"""A store as it was published once: everything that is asked of a snapshot is of one generation."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spolia.errors import StoreError
from spolia.stores.definition import DOCUMENT, whole
from spolia.stores.manifest import Manifest, of
from spolia.stores.opened import Opened
from spolia.stores.tables import sql
from spolia.stores.tables.audiences import ReaderLists
from spolia.stores.tables.rows import (
    AUDIENCE_OF_DOCUMENT,
    AUDIENCE_OF_NODE,
    SourceRow,
    Unmade,
    document_of,
    node_of,
    source_of,
)
from spolia.stores.tables.schema import read_schema
from spolia.types import Box, Document, Filter, Hit, Node, Span, Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.models.sparse import SparseRows
    from spolia.stores.lexical.index import Lexical
    from spolia.stores.reading.allowed import Allowed
    from spolia.stores.reading.inherited import Inherited
    from spolia.stores.reading.records import Records
    from spolia.stores.truth import Lease, Stored
    from spolia.stores.vectors.searching import VectorSearch
    from spolia.stores.vectors.sparse import SparseSearch

NODES_KEPT, ASKERS_KEPT = 8_192, 1_024
_ATTEMPTS = 50


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


class Snapshot:
    """One published generation. Any thread may use it; as long as it lives, what it needs is not swept."""

    def __init__(
        self,
        opened: Opened,
        published: tuple[int, str, str, str],
        lease: Lease | None = None,
        before: Snapshot | None = None,
    ) -> None:
        self.opened, self._lease = opened, lease
        self.generation, indexes, fields, manifests = published
        self.indexes: dict[str, tuple[int, int]] = {name: (at, key) for name, (at, key) in json.loads(indexes).items()}
        self.manifests = {manifest["group"]: of(manifest) for manifest in json.loads(manifests)}
        self.schema = read_schema(fields)
        self.fingerprint = f"{opened.uuid}@{self.generation}"
        self.readers = opened.shared("reader lists", ReaderLists)
        self.readers.take_in(opened.connection)
        self._open_to: dict[frozenset[str], frozenset[int]] = {}
        self._indexes: dict[object, Any] = {}
        self.derived: dict[object, Any] = {}  # what others computed of this generation, as long as it is looked at
        self._nodes: dict[int, tuple[int, Node]] = {}
        self._lock = threading.Lock()
        self._inherited: Inherited | None = None
        self._records: dict[str | None, Records] = {}
        if before is not None and before._lease is not None:  # else rows may be gone that have died since
            self._take_over(before)

    # Searching.

    def search(
        self,
        group: str,
        text: str,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
        *,
        every: bool = False,
    ) -> list[tuple[int, float]]:
        """Keys and BM25 scores of the best nodes that share a term with `text`, best first, ties by key.

        Args:
            access: principals who ask; what none of them may read is not found.
            filter: what it accepts is found; None for all.
            every: only nodes that hold every term, not just one of them.

        Raises:
            FilterError: for a field that is not declared, or values of another type.
        """
        allowed = None if filter is None else self.allowed(group, access, filter)
        return self.lexical(group).search(text, top_k, self._audiences(access), allowed, every=every)

    def nearest(
        self,
        group: str,
        embedder: str,
        vector: npt.NDArray[np.float32],
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[tuple[int, float]]:
        """Keys and cosines of the nodes nearest to a vector float32[d], best first, ties by key."""
        return self.nearest_batch(group, embedder, vector.reshape(1, -1), top_k, access, filter)[0]

    def nearest_batch(
        self,
        group: str,
        embedder: str,
        vectors: npt.NDArray[np.float32],
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[list[tuple[int, float]]]:
        """`nearest` for each row of float32[m, d], with the same results."""
        found: list[list[tuple[int, float]]]
        found = self._vectors(group, embedder).search(vectors, top_k, self.allowed(group, access, filter))
        return found

    def sparse(
        self,
        group: str,
        embedder: str,
        queries: SparseRows,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[list[tuple[int, float]]]:
        """For each sparse vector, keys and products of the nodes that share a term with it, best first, ties by key."""
        found = self._vectors(group, embedder).search(queries, top_k, self.allowed(group, access, filter))
        return [[(key, score) for key, score in row if score > 0] for row in found]

    def allowed(self, group: str, access: frozenset[str], filter: Filter | None = None) -> Allowed:
        """The nodes of a group that may be found: the one place where access and filters are decided."""
        return self.records(group).allowed(self._audiences(access), filter)

    def vectors(self, group: str, embedder: str, allowed: Allowed) -> npt.NDArray[np.float32]:
        """The vectors float32[n, d] of the allowed nodes of a group, in the order of their keys, as they are kept."""
        return self.stored(group, embedder).at(allowed.positions())

    def _audiences(self, access: frozenset[str]) -> frozenset[int] | None:
        """The audiences that these principals belong to; None where everything is everybody's."""
        return self._all_audiences(access) if self.readers.restricted else None

    def _all_audiences(self, access: frozenset[str]) -> frozenset[int]:
        found = self._open_to.get(access)
        if found is None:
            if len(self._open_to) >= ASKERS_KEPT:
                self._open_to = {}
            found = self._open_to[access] = self.readers.open_to(access)
        return found

    # Reading.

    def nodes(self, keys: Iterable[int], access: frozenset[str]) -> list[Node]:
        """The nodes of these keys in this order; those that may not be read are left out."""
        return [node for _, node in self._readable(list(keys), access)]

    def hits(self, found: Iterable[tuple[int, float]], access: frozenset[str]) -> tuple[Hit, ...]:
        """Keys and scores, as a search gives them, as hits with nodes."""
        scores = dict(found)
        return tuple(Hit(node, scores[key]) for key, node in self._readable(list(scores), access))

    def node(self, id: str, access: frozenset[str]) -> Node:
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

    def parents(self, nodes: Sequence[Node], access: frozenset[str]) -> dict[str, Node]:
        """The nodes that these were made from, by id; a whole document stands there as a node of group `document`."""
        wanted = [node.parent for node in nodes if node.parent]
        found = self._nodes_of_ids(wanted, access)
        for id in dict.fromkeys(wanted):
            if id not in found and (whole := self._whole(id, access)) is not None:
                found[id] = whole
        return found

    def children(self, ids: Sequence[str], group: str, access: frozenset[str]) -> list[Node]:
        """The nodes of a group that were made from these nodes, in the order of `ids`, then of the text."""
        self.manifest(group)
        values = {"ids": json.dumps(list(ids)), "grp": group, "at": self.generation}
        return self.readable_of(self.opened.rows(sql.CHILDREN, values), access)

    def numbered(self, document: str, group: str, first: int, last: int, access: frozenset[str]) -> list[Node]:
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

    def ancestors(self, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[Node | None]:
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

    def descendants(self, nodes: Sequence[Node], group: str, access: frozenset[str]) -> list[list[Node]]:
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

    def _whole(self, id: str, access: frozenset[str]) -> Node | None:
        row = self.opened.row(sql.DOCUMENT, {"id": id, "at": self.generation})
        if row is None or not _readable(row[AUDIENCE_OF_DOCUMENT], self._all_audiences(access)):
            return None
        return whole(document_of(row, self.readers.lists))

    def _nodes_of_ids(self, ids: Sequence[str], access: frozenset[str]) -> dict[str, Node]:
        values = {"ids": json.dumps(list(dict.fromkeys(ids))), "at": self.generation}
        return {node.id: node for node in self.readable_of(self.opened.rows(sql.NODES_OF_IDS, values), access)}

    def readable_of(self, rows: Sequence[Any], access: frozenset[str]) -> list[Node]:
        """The nodes that these rows of the truth hold, as far as they may be read."""
        audiences = self._all_audiences(access)
        return [node_of(row, self.readers.lists) for row in rows if _readable(row[AUDIENCE_OF_NODE], audiences)]

    def document(self, id: str, access: frozenset[str]) -> Document:
        """The document of this id."""
        row = self.opened.row(sql.DOCUMENT, {"id": id, "at": self.generation})
        if row is None or not _readable(row[AUDIENCE_OF_DOCUMENT], self._all_audiences(access)):
            raise StoreError(
                f"There is no readable document {id!r} in generation {self.generation} of {self.opened.store}. "
                "Write the document of a node from a search, and search and read as the same principal."
            )
        return document_of(row, self.readers.lists)

    def image(self, document: str, hash: str, access: frozenset[str]) -> bytes:
        """A picture of a document, by the hash that a region of it names.

        Raises:
            StoreError: there is none that is readable.
        """
        row = self.opened.row(sql.IMAGE, {"id": document, "hash": hash, "at": self.generation})
        if row is None or not _readable(row[1], self._all_audiences(access)):
            raise StoreError(
                f"There is no readable picture {hash!r} of document {document!r} in generation {self.generation} of "
                f"{self.opened.store}. Write the image of one of document(...).regions."
            )
        return bytes(row[0])

    def boxes(self, document: str, span: Span, access: frozenset[str] = frozenset()) -> tuple[Box, ...]:
        """Where a stretch of a document stands on its pages, line by line; nothing where its format has no places.

        A node stands where its `span` does.

        Raises:
            StoreError: there is no such document that is readable.
        """
        return self.document(document, access).boxes.within(span.start, span.end)

    def documents(self, access: frozenset[str] = frozenset()) -> Iterator[Document]:
        """All readable documents, by id."""
        audiences = self._all_audiences(access)
        for row in self.opened.each(sql.DOCUMENTS, {"at": self.generation}):
            if _readable(row[AUDIENCE_OF_DOCUMENT], audiences):
                yield document_of(row, self.readers.lists)

    def all_nodes(self, group: str, access: frozenset[str] = frozenset()) -> Iterator[Node]:
        """All readable nodes of a group, by id."""
        audiences = self._all_audiences(access)
        for row in self.opened.each(sql.NODES, {"grp": group, "at": self.generation}):
            if _readable(row[AUDIENCE_OF_NODE], audiences):
                yield node_of(row, self.readers.lists)

    def sources(self, *, noted: bool = False) -> dict[str, SourceRow]:
        """What the documents were read from, by uri.

        Args:
            noted: with what was noted since this generation and changes no search: times, and attempts that failed.
        """
        rows = self.opened.rows(sql.SOURCES, {"at": self.generation + noted})
        return {row[0]: source_of(row) for row in rows}

    def unmade(self) -> tuple[Unmade, ...]:
        """Which groups could not be made of which documents, by uri; the next `sync` or `materialise` tries again."""
        return tuple(Unmade(*row) for row in self.opened.rows(sql.UNMADE, {"at": self.generation}))

    def groups(self) -> tuple[str, ...]:
        """Names of the node groups."""
        return tuple(self.indexes)

    def manifest(self, group: str) -> Manifest:
        """What a group was built with."""
        if group not in self.indexes:
            raise StoreError(
                f"{self.opened.store} has no node group {group!r}. It has: {', '.join(self.groups()) or 'none'}. "
                f"Write one of these, or: spolia index FOLDER --store {self.opened.store}"
            )
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

    def check(self) -> list[str]:
        """What is wrong with the store, in words; nothing if all is well. Reads everything."""
        from spolia.stores.integrity import problems

        return problems(self)

    # Inside.

    def _readable(self, keys: Sequence[int], access: frozenset[str]) -> list[tuple[int, Node]]:
        known = self._nodes
        there = {key: known[key] for key in keys if key in known}
        if len(there) < len(keys):
            there |= self._fetched([key for key in keys if key not in there])
        audiences = self._all_audiences(access)
        found = ((key, there[key]) for key in keys if key in there)
        return [(key, node) for key, (audience, node) in found if _readable(audience, audiences)]

    def _fetched(self, keys: Sequence[int]) -> dict[int, tuple[int, Node]]:
        rows = self.opened.rows(sql.NODES_OF_KEYS, {"keys": json.dumps(keys), "at": self.generation})
        found = {row[0]: (row[AUDIENCE_OF_NODE], node_of(row, self.readers.lists)) for row in rows}
        with self._lock:
            if len(self._nodes) + len(found) > NODES_KEPT:
                self._nodes = {}
            if len(found) <= NODES_KEPT:
                self._nodes.update(found)
        return found

    def lexical(self, group: str) -> Lexical:
        """The lexical index of a group."""
        found: Lexical | None = self._indexes.get(group)
        if found is None:
            from spolia.stores.lexical.index import Lexical

            manifest = self.manifest(group)
            folder = self.opened.store.lexical(self, group)
            found = self.opened.shared(folder, lambda: Lexical(folder, manifest.analyzer))
            self._indexes[group] = found
        return found

    def records(self, group: str | None) -> Records:
        """What filters and access look at, of the nodes of a group; of None, of the documents themselves."""
        found = self._records.get(group)
        if found is None:
            from spolia.stores.reading.records import Records

            if group is not None:
                self.manifest(group)
            found = self._records[group] = Records(self.opened.rows, group, self._inheritance(), self.schema)
        return found

    def _inheritance(self, before: Inherited | None = None) -> Inherited:
        if self._inherited is None:
            from spolia.stores.reading.inherited import Inherited

            self._inherited = Inherited(self.opened.rows, self.generation, before)
        return self._inherited

    def _take_over(self, before: Snapshot) -> None:
        """What an earlier snapshot has computed of metadata and has not changed since."""
        for group, records in before._records.copy().items():
            if group is None or group in self.indexes:
                self._records[group] = records.at(self._inheritance(before._inherited), self.schema)

    def stored(self, group: str, embedder: str) -> Stored:
        """The vectors of a group's live nodes, by their positions."""
        key = (group, embedder, "stored")
        found: Stored | None = self._indexes.get(key)
        if found is None:
            self.manifest(group)
            found = self._indexes[key] = self.opened.store.stored(self, group, embedder)
        return found

    def _vectors(self, group: str, embedder: str) -> Any:
        key = (group, embedder)
        found: VectorSearch | SparseSearch | None = self._indexes.get(key)
        if found is None:
            self.manifest(group)
            found = self._indexes[key] = self.opened.store.vector_search(self, group, embedder)
        return found


def _readable(audience: int, audiences: frozenset[int]) -> bool:
    return audience in audiences


def latest(opened: Opened) -> Snapshot:
    """The published snapshot; the same object as long as nothing else is published."""
    found: Snapshot | None = opened.latest
    for _ in range(_ATTEMPTS):
        if found is not None and found.generation == opened.row(sql.PUBLISHED)[0]:
            return found
        published = opened.row(sql.PUBLISHED_WHOLE)
        lease = opened.leased(published[0])
        if opened.row(sql.IS_KEPT, published[:1]):  # else it was swept before the lease held it
            opened.latest = found = Snapshot(opened, published, lease, found)
            return found
    raise StoreError(f"{opened.store} is published too fast to be read. Search again.")
