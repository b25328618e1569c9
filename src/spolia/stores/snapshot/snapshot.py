"""A store as it was published once: everything that is asked of a snapshot is of one publication."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spolia.errors import StoreCorrupt, StoreError
from spolia.filters import narrowed
from spolia.stores.access.reader_lists import Asker, ReaderLists, Rights
from spolia.stores.backends import sql
from spolia.stores.backends.rows import (
    AUDIENCE_OF_DOCUMENT,
    AUDIENCE_OF_NODE,
    DOCUMENT_OF_NODE,
    HASH_OF_NODE,
    SourceRow,
    StoreVersion,
    Unmade,
    changed_nodes,
    document_of,
    hash_of,
    id_of,
    node_of,
    read_schema,
    some_of,
)
from spolia.stores.definition import DOCUMENT, MAIN
from spolia.stores.files import translated
from spolia.stores.integrity import problems
from spolia.stores.manifest import BUILT_IN, Manifest, of
from spolia.stores.open_store import OpenIndexes, OpenStore
from spolia.types import NO_BOXES, Box, Boxes, Document, Filter, Hit, LateHits, Node, Span, Value
from spolia.types.value import maker

if TYPE_CHECKING:
    from spolia.models.vectors import SparseRows, Vectors
    from spolia.stores.access.allowed_nodes import Allowed
    from spolia.stores.backends.backend import Lease
    from spolia.stores.vectors.search import DenseSearch

_ATTEMPTS = 50
_hit = maker(Hit)
KEPT_BYTES, NODE_BYTES = 32 << 20, 1_500
"""Of nodes in memory, all in all; of one beside its text."""
ASKERS = 32
"""Sets of reader lists for which is kept what was computed of the nodes that they open."""
PUBLIC: frozenset[str] = frozenset()
"""Who says nothing of who asks, reads what everybody may read."""


@dataclass(frozen=True)
class Stats(Value):
    """How much a store holds: sources by status, nodes by group, vectors by embedder with those of removed nodes."""

    generation: int
    documents: int
    sources: tuple[tuple[str, int], ...]
    nodes: tuple[tuple[str, int], ...]
    vectors: tuple[tuple[str, int], ...]
    bytes: int


class Snapshot:
    """One published generation, read and searched by any thread. As long as it lives, what it needs is not swept.

    Attributes:
        indexes: for each group, the generation of its lexical index and the last node key that was known then.
        derived: what others have computed of it, kept as long as it lives; `derived_of` of what an asker may read.
    """

    def __init__(
        self,
        opened: OpenStore,
        published: tuple[int, str, str, str, str],
        lease: Lease | None = None,
        before: Snapshot | None = None,
    ) -> None:
        self.opened = opened
        self.generation, id, indexes, fields, manifests = published
        self.version = StoreVersion(self.generation, id)
        self.indexes: dict[str, tuple[int, int]] = {name: (at, key) for name, (at, key) in json.loads(indexes).items()}
        self.manifests = {manifest["group"]: of(manifest) for manifest in json.loads(manifests)}
        self.schema = read_schema(fields)
        self.readers = opened.shared("reader lists", ReaderLists)
        self.readers.take_in(opened)
        self.rights = Rights(opened, self.version, self.readers)
        self._nodes: dict[int, tuple[int, Node]] = {}
        self._kept_bytes = 0
        self._keys: dict[str, int] = {}
        self._lock = threading.Lock()
        self._lease = lease
        self.derived: dict[object, Any] = {}
        self._derived: dict[frozenset[int] | None, dict[object, Any]] = {}
        # without a lease on the earlier one, rows may be gone that have died since
        self.open: OpenIndexes = OpenIndexes(
            self, before.open if before is not None and before._lease is not None else None
        )

    @property
    def fingerprint(self) -> str:
        """Identifies what may be read here; changes with each publication, and when reader lists change."""
        since = self.rights.changed_at
        return f"{self.opened.uuid}@{self.version}" + (f"+{since}" if since else "")

    # Nodes.

    def nodes(self, keys: Iterable[int], access: frozenset[str] = PUBLIC) -> list[Node]:
        """The nodes of these keys in this order; those that may not be read are left out."""
        return [node for _, node in self._readable(list(keys), self.rights.asker(access))]

    def hits(self, found: Iterable[tuple[int, float]], access: frozenset[str]) -> tuple[Hit, ...]:
        scores = dict(found)
        return tuple(
            _hit(node, scores[key], (), ()) for key, node in self._readable(list(scores), self.rights.asker(access))
        )

    def late_hits(self, found: Sequence[tuple[int, float]], access: frozenset[str]) -> LateHits:
        """Hits whose nodes are fetched when they are needed."""
        keys, scores = zip(*found, strict=True) if found else ((), ())
        return LateHits(keys, scores, _Fetch(self, access))

    def ids(self, keys: Sequence[int]) -> dict[int, str]:
        known = self._nodes
        found = {key: known[key][1].id for key in keys if key in known}
        if len(found) < len(keys):
            others = json.dumps([key for key in keys if key not in found])
            found |= map(id_of, self.opened.rows(sql.IDS_OF_KEYS, {"keys": others}))
        return found

    def node(self, id: str, access: frozenset[str] = PUBLIC) -> Node:
        row = self.opened.row(sql.NODE_KEY, {"id": id, "at": self.generation})
        found = self.nodes([row[0]], access) if row else []
        if not found:
            raise StoreError(
                f"There is no readable node {id!r} in generation {self.generation} of {self.opened.store}. "
                "Write the id of a node from a search, and search and read as the same principal."
            )
        return found[0]

    def nodes_of_ids(self, ids: Sequence[str], access: frozenset[str] = PUBLIC) -> dict[str, Node]:
        return {node.id: node for node in self.nodes(self.keys_of(ids).values(), access)}

    def keys_of(self, ids: Iterable[str]) -> dict[str, int]:
        """The keys of nodes by their ids, regardless of access; unknown ids are left out."""
        known, wanted = self._keys, list(dict.fromkeys(ids))
        found = {id: known[id] for id in wanted if id in known}
        if len(found) == len(wanted):
            return found
        others = json.dumps([id for id in wanted if id not in found])
        found |= self.opened.rows(sql.KEYS_OF_IDS, {"ids": others, "at": self.generation})
        return {id: found[id] for id in wanted if id in found}

    def numbered(self, document: str, group: str, first: int, last: int, access: frozenset[str] = PUBLIC) -> list[Node]:
        """The nodes of a document in a group whose `number` is in [first, last], in order."""
        self.manifest(group)
        values = {"document": document, "grp": group, "first": first, "last": last, "at": self.generation}
        return self.readable_of(self.opened.rows(sql.NUMBERED, values), access)

    def above(self, group: str) -> tuple[str, ...]:
        """A group and the groups that it was made from, up to the documents."""
        found = [group]
        while found[-1] != DOCUMENT:
            found.append(self.manifest(found[-1]).parent)
        return tuple(found)

    def readable_of(self, rows: Sequence[Any], access: frozenset[str] = PUBLIC) -> list[Node]:
        who, lists = self.rights.asker(access), self.readers.lists
        return [node_of(row, lists) for row in rows if who.may_read(row[DOCUMENT_OF_NODE], row[AUDIENCE_OF_NODE])]

    def document(self, id: str, access: frozenset[str] = PUBLIC) -> Document:
        found = self.find_document(id, access)
        if found is None:
            raise self._not_readable(id)
        return found

    def _not_readable(self, document: str) -> StoreError:
        return StoreError(
            f"There is no readable document {document!r} in generation {self.generation} of {self.opened.store}. "
            "Write the document of a node from a search, and search and read as the same principal."
        )

    def find_document(self, id: str, access: frozenset[str] = PUBLIC) -> Document | None:
        row = self.opened.row(sql.DOCUMENT, {"id": id, "at": self.generation})
        if row is None or not self.rights.asker(access).may_read(id, row[AUDIENCE_OF_DOCUMENT]):
            return None
        return document_of(row, self.readers.lists)

    def image(self, document: str, hash: str, access: frozenset[str] = PUBLIC) -> bytes:
        """A picture of a document, by the hash that a region names; StoreError if none is readable."""
        row = self.opened.row(sql.IMAGE, {"id": document, "hash": hash, "at": self.generation})
        if row is None or not self.rights.asker(access).may_read(document, row[1]):
            raise StoreError(
                f"There is no readable picture {hash!r} of document {document!r} in generation {self.generation} of "
                f"{self.opened.store}. Write the image of one of document(...).regions."
            )
        return bytes(row[0])

    def boxes(self, document: str, span: Span, access: frozenset[str] = PUBLIC) -> tuple[Box, ...]:
        """Where a stretch of a document stands on its pages, line by line; nothing where its format has no places."""
        row = self.opened.row(sql.BOXES, {"id": document, "at": self.generation})  # without the text, for each citation
        if row is None or not self.rights.asker(access).may_read(document, row[1]):
            raise self._not_readable(document)
        return (Boxes(row[0]) if row[0] else NO_BOXES).within(span.start, span.end)

    def documents(self, access: frozenset[str] = PUBLIC) -> Iterator[Document]:
        who = self.rights.asker(access)
        for row in self.opened.each(sql.DOCUMENTS, {"at": self.generation}):
            if who.may_read(row[0], row[AUDIENCE_OF_DOCUMENT]):
                yield document_of(row, self.readers.lists)

    def all_nodes(self, group: str, access: frozenset[str] = PUBLIC) -> Iterator[Node]:
        who = self.rights.asker(access)
        for row in self.opened.each(sql.NODES, {"grp": group, "at": self.generation}):
            if who.may_read(row[DOCUMENT_OF_NODE], row[AUDIENCE_OF_NODE]):
                yield node_of(row, self.readers.lists)

    def sources(self, uris: Iterable[str] | None = None, *, noted: bool = False) -> dict[str, SourceRow]:
        """What the documents were read from, by uri; `noted` adds times and failures noted since this generation."""
        at = {"at": self.generation + noted}
        asked = {} if uris is None else {"uris": json.dumps(list(uris))}
        rows = self.opened.rows(sql.SOURCES_OF_URIS if asked else sql.SOURCES, {**at, **asked})
        return {row[0]: SourceRow(*row) for row in rows}

    def named(self, names: Iterable[str]) -> dict[str, str]:
        """Ids of documents by id or by the uri of a source, regardless of access. Unknown names are left out."""
        rows = self.opened.rows(sql.NAMED, {"ids": json.dumps(list(names)), "at": self.generation})
        return {name: id for name, id, _ in rows}

    def unmade(self) -> tuple[Unmade, ...]:
        """Which groups could not be made of which documents, by uri; the next `sync` or `materialise` tries again."""
        return tuple(Unmade(*row) for row in self.opened.rows(sql.UNMADE, {"at": self.generation}))

    def reader_versions(self) -> tuple[str, ...]:
        return tuple(reader for (reader,) in self.opened.rows(sql.READERS_AT, {"at": self.generation}))

    def groups(self) -> tuple[str, ...]:
        return tuple(self.indexes)

    def manifest(self, group: str) -> Manifest:
        if group not in self.indexes:
            store = self.opened.store
            how = f"materialise([corpus.group({group!r}, Definition(...))]), or spolia groups add {group}"
            if group in BUILT_IN:
                how = f"materialise([corpus.group({group!r})]), or spolia groups build {group}"
            if group == MAIN:
                how = f"spolia index FOLDER --store {store}"
            there = ", ".join(self.groups()) or "none"
            raise StoreError(f"{store} has no node group {group!r}. It has: {there}. Write one of these, or: {how}")
        return self.manifests[group]

    def stats(self) -> Stats:
        at = {"at": self.generation}
        with translated(self.opened.store, "read"):
            size = self.opened.store.bytes(self.opened.connection)
        return Stats(
            self.generation,
            self.opened.row(sql.COUNT_DOCUMENTS, at)[0],
            tuple(self.opened.rows(sql.COUNT_SOURCES, at)),
            tuple(self.opened.rows(sql.COUNT_NODES, at)),
            tuple(self.opened.rows(sql.COUNT_VECTORS)),
            size,
        )

    # Search.

    def search(
        self,
        group: str,
        text: str,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
        *,
        every: bool = False,
        among: Allowed | None = None,
        late: bool = False,
    ) -> list[tuple[int, float]]:
        """Keys and BM25 scores of the best nodes that share a term with `text`, best first, ties by node id.

        Scores and order are those of a store that holds only what the principals in `access` may read.

        Args:
            every: only nodes that hold every term, not just one of them.
            among: only these nodes; None for all.
            late: for `late_hits`, which puts ties in order.
        """
        index, wanted, query = self.open.lexical(group), narrowed(filter), None
        if wanted is not None and not self.readers.restricted:  # else scores are counted over what may be read
            query = index.filter_query(wanted, self.schema)
        allowed = among if wanted is None or query is not None else self.allowed(group, access, wanted)
        readable = self.allowed(group, access) if self.readers.restricted else None
        return index.search(text, top_k, readable, allowed, filter=query, every=every, ids=self.ids, late=late)

    def nearest(
        self,
        group: str,
        embedder: str,
        vector: Vectors,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[tuple[int, float]]:
        """Keys and cosines of the nodes nearest to a vector float32[d], best first, ties by node id."""
        return self.nearest_batch(group, embedder, vector.reshape(1, -1), top_k, access, filter)[0]

    def nearest_batch(
        self,
        group: str,
        embedder: str,
        vectors: Vectors,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[list[tuple[int, float]]]:
        search: DenseSearch = self.open.vectors(group, embedder)
        return search.search(vectors, top_k, self.allowed(group, access, filter), self.ids)

    def sparse(
        self,
        group: str,
        embedder: str,
        queries: SparseRows,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[list[tuple[int, float]]]:
        """For each sparse vector, keys and products of the nodes that share a term with it, best first, ties by id."""
        found = self.open.vectors(group, embedder).search(queries, top_k, self.allowed(group, access, filter), self.ids)
        return [[(key, score) for key, score in row if score > 0] for row in found]

    def is_exact(self, group: str, embedder: str) -> bool:
        return getattr(self.open.vectors(group, embedder), "is_exact", False)

    def allowed(self, group: str, access: frozenset[str], filter: Filter | None = None) -> Allowed:
        """The nodes of a group that may be found: the one place where access and filters are decided."""
        holders = partial(self.open.holders, group)
        return self.open.records(group).allowed(self.rights.narrowed(access), filter, holders)

    def derived_of(self, who: frozenset[str], *groups: str) -> dict[object, Any]:
        """What others have computed of groups for these principals; `derived` itself if they may read every node."""
        if all(self.allowed(group, who).mask is None for group in groups if group in self.indexes):
            return self.derived
        audiences = self.rights.narrowed(who)
        with self._lock:
            found = self._derived[audiences] = self._derived.pop(audiences, {})
            for oldest in list(self._derived)[:-ASKERS]:
                del self._derived[oldest]
        return found

    def vectors(self, group: str, embedder: str, allowed: Allowed) -> Vectors:
        """The vectors float32[n, d] of the allowed nodes of a group, in the order of their keys, as they are kept."""
        return self.open.stored(group, embedder).at(allowed.positions())

    def check(self, *, deep: bool = False) -> list[str]:
        """What is wrong with the store, in words; nothing if all is well.

        Indexes, vectors and the structure of the database are read; `deep` also every row, whose digest is compared.
        """
        return problems(self, deep=deep)

    # Inside.

    def _readable(self, keys: Sequence[int], who: Asker) -> list[tuple[int, Node]]:
        known = self._nodes
        there = {key: known[key] for key in keys if key in known}
        if len(there) < len(keys):
            there |= self._fetched([key for key in keys if key not in there])
        found = ((key, *there[key]) for key in keys if key in there)
        return [(key, node) for key, audience, node in found if who.may_read(node.document, audience)]

    def _fetched(self, keys: Sequence[int]) -> dict[int, tuple[int, Node]]:
        rows = self.opened.rows(sql.NODES_OF_KEYS, {"keys": json.dumps(keys), "at": self.generation})
        found = {row[0]: (row[AUDIENCE_OF_NODE], node_of(row, self.readers.lists)) for row in rows}
        self._refuse_changed([row[0] for row in rows if _may_be_changed(found[row[0]][1], row[HASH_OF_NODE])])
        size = sum([NODE_BYTES + len(node.text) for _, node in found.values()])
        with self._lock:
            if self._kept_bytes + size > KEPT_BYTES:
                self._nodes, self._keys, self._kept_bytes = {}, {}, 0
            if size <= KEPT_BYTES:
                self._kept_bytes += size
                self._nodes.update(found)
                self._keys.update((node.id, key) for key, (_, node) in found.items())
        return found

    def _refuse_changed(self, keys: Sequence[int]) -> None:
        """Refuse nodes whose rows are not as they were written."""
        if keys and (ids := changed_nodes(self.opened.rows(sql.ROWS_OF_NODES, {"keys": json.dumps(keys)}))):
            store = self.opened.store
            raise StoreCorrupt(
                f"{store} is damaged: {len(ids)} nodes changed since they were written: {some_of(ids)}. "
                f"Write: spolia repair --store {store}"
            )


def _may_be_changed(node: Node, hash: bytes) -> bool:
    """Whether the hash of the searched text, which takes less time than that of the row, does not show that a node is
    whole: the hash may also be of a picture, or of another text than the one that is shown."""
    return bool(node.search_text) or hash_of(node.indexed_text) != hash


@dataclass(frozen=True)
class _Fetch:
    """Fetches nodes that somebody may read. It holds the snapshot, so that what it needs is not swept."""

    snapshot: Snapshot
    access: frozenset[str]

    def __call__(self, keys: Sequence[int]) -> dict[int, Node]:
        return self._by_key(self.snapshot.rights.asker(self.access), keys)

    def for_fusion(self) -> Callable[[Sequence[int]], dict[int, Node]] | None:
        who = self.snapshot.rights.asker(self.access)
        return None if who.changed else partial(self._by_key, who)

    def _by_key(self, who: Asker, keys: Sequence[int]) -> dict[int, Node]:
        return dict(self.snapshot._readable(keys, who))


def latest(opened: OpenStore) -> Snapshot:
    """The published snapshot; the same object as long as nothing else is published."""
    found: Snapshot | None = opened.latest
    for _ in range(_ATTEMPTS):
        if found is not None and found.version == opened.row(sql.PUBLISHED):
            return found
        if found is not None and not opened.was_published(found.version):
            opened, found = opened.again(), None
        published = opened.row(sql.PUBLISHED_WHOLE)
        lease = opened.leased(published[0])
        if opened.row(sql.IS_KEPT, published[:1]):  # else it was swept before the lease held it
            opened.latest = found = Snapshot(opened, published, lease, found)
            return found
    raise StoreError(f"{opened.store} is published too fast to be read. Search again.")
