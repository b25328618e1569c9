"""A store as it was published once: everything that is asked of a snapshot is of one publication."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spolia.errors import StoreCorrupt, StoreError
from spolia.filters import combine_filters
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
    list_some,
    node_of,
    read_schema,
)
from spolia.stores.definition import DOCUMENT, MAIN
from spolia.stores.files import store_errors
from spolia.stores.integrity import find_problems
from spolia.stores.manifest import BUILT_IN, Manifest, manifest_from_dict
from spolia.stores.open_store import OpenStore
from spolia.stores.snapshot.open_indexes import OpenIndexes
from spolia.types import NO_BOXES, Box, Boxes, Document, Filter, Hit, LateHits, Node, Span, Value
from spolia.types.value import unchecked_constructor

if TYPE_CHECKING:
    from spolia.models.vectors import SparseRows, Vectors
    from spolia.stores.access.allowed_nodes import Allowed
    from spolia.stores.backends.backend import Lease
    from spolia.stores.backends.searches import DenseSearch

_ATTEMPTS = 50
_hit = unchecked_constructor(Hit)
KEPT_BYTES, NODE_BYTES = 32 << 20, 1_500
"""Of nodes in memory, all in all; of one beside its text."""
ASKERS = 32
"""Sets of reader lists for which is kept what was computed of the nodes that they open."""
PUBLIC: frozenset[str] = frozenset()
"""Who says nothing of who asks, reads what everybody may read."""


@dataclass(frozen=True)
class Stats(Value):
    """Sizes of a store: sources by status, nodes by group, vectors by embedder with those of removed nodes."""

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
        open_store: OpenStore,
        published: tuple[int, str, str, str, str],
        lease: Lease | None = None,
        previous: Snapshot | None = None,
    ) -> None:
        self.open_store = open_store
        self.generation, id, indexes, fields, manifests = published
        self.version = StoreVersion(self.generation, id)
        self.indexes: dict[str, tuple[int, int]] = {
            name: (generation, key) for name, (generation, key) in json.loads(indexes).items()
        }
        self.manifests = {manifest["group"]: manifest_from_dict(manifest) for manifest in json.loads(manifests)}
        self.schema = read_schema(fields)
        self.readers = open_store.share("reader lists", ReaderLists)
        # Lists are only added, so those of this generation are among the ones read now.
        self.readers.load_new(open_store)
        self.rights = Rights(open_store, self.version, self.readers)
        self._nodes: dict[int, tuple[int, Node]] = {}
        self._kept_bytes = 0
        self._keys: dict[str, int] = {}
        self._lock = threading.Lock()
        self._lease = lease
        self.derived: dict[object, Any] = {}
        self._derived: dict[frozenset[int] | None, dict[object, Any]] = {}
        # without a lease on the earlier one, rows may be gone that have died since
        self.open: OpenIndexes = OpenIndexes(
            self, previous.open if previous is not None and previous._lease is not None else None
        )

    @property
    def fingerprint(self) -> str:
        """Identify what may be read here; changes with each publication, and when reader lists change."""
        changed_version = self.rights.changed_at
        return f"{self.open_store.uuid}@{self.version}" + (f"+{changed_version}" if changed_version else "")

    # Nodes.

    def nodes(self, keys: Iterable[int], access: frozenset[str] = PUBLIC) -> list[Node]:
        """Return the nodes of these keys in this order; those that may not be read are left out."""
        return [node for _, node in self._readable(list(keys), self.rights.asker(access))]

    def hits(self, ranking: Iterable[tuple[int, float]], access: frozenset[str]) -> tuple[Hit, ...]:
        scores = dict(ranking)
        return tuple(
            _hit(node, scores[key], (), ()) for key, node in self._readable(list(scores), self.rights.asker(access))
        )

    def late_hits(self, ranking: Sequence[tuple[int, float]], access: frozenset[str]) -> LateHits:
        """Return hits whose nodes are fetched when they are needed."""
        keys, scores = zip(*ranking, strict=True) if ranking else ((), ())
        return LateHits(keys, scores, _NodeFetcher(self, access))

    def ids(self, keys: Sequence[int]) -> dict[int, str]:
        cached = self._nodes  # one dictionary throughout: another thread may put an empty one in its place
        ids_by_key = {key: cached[key][1].id for key in keys if key in cached}
        if len(ids_by_key) < len(keys):
            missing = json.dumps([key for key in keys if key not in ids_by_key])
            ids_by_key |= map(id_of, self.open_store.rows(sql.IDS_OF_KEYS, {"keys": missing}))
        return ids_by_key

    def node(self, id: str, access: frozenset[str] = PUBLIC) -> Node:
        row = self.open_store.row(sql.NODE_KEY, {"id": id, "at": self.generation})
        nodes = self.nodes([row[0]], access) if row else []
        if not nodes:
            raise StoreError(
                f"There is no readable node {id!r} in generation {self.generation} of {self.open_store.store}. "
                "Write the id of a node from a search, and search and read as the same principal."
            )
        return nodes[0]

    def nodes_of_ids(self, ids: Sequence[str], access: frozenset[str] = PUBLIC) -> dict[str, Node]:
        return {node.id: node for node in self.nodes(self.keys_of(ids).values(), access)}

    def keys_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the keys of nodes by their ids, regardless of access; unknown ids are left out."""
        cached, distinct = self._keys, list(dict.fromkeys(ids))
        keys_by_id = {id: cached[id] for id in distinct if id in cached}
        if len(keys_by_id) == len(distinct):
            return keys_by_id
        missing = json.dumps([id for id in distinct if id not in keys_by_id])
        keys_by_id |= self.open_store.rows(sql.KEYS_OF_IDS, {"ids": missing, "at": self.generation})
        return {id: keys_by_id[id] for id in distinct if id in keys_by_id}

    def numbered_nodes(
        self, document: str, group: str, first: int, last: int, access: frozenset[str] = PUBLIC
    ) -> list[Node]:
        """Return the nodes of a document in a group whose `number` is in [first, last], in order."""
        self.manifest(group)
        values = {"document": document, "grp": group, "first": first, "last": last, "at": self.generation}
        return self.read_rows(self.open_store.rows(sql.NUMBERED, values), access)

    def lineage_of(self, group: str) -> tuple[str, ...]:
        """Return a group and the groups that it was made from, up to the documents."""
        lineage = [group]
        while lineage[-1] != DOCUMENT:
            lineage.append(self.manifest(lineage[-1]).parent)
        return tuple(lineage)

    def read_rows(self, rows: Sequence[Any], access: frozenset[str] = PUBLIC) -> list[Node]:
        asker, lists = self.rights.asker(access), self.readers.lists
        return [node_of(row, lists) for row in rows if asker.may_read(row[DOCUMENT_OF_NODE], row[AUDIENCE_OF_NODE])]

    def document(self, id: str, access: frozenset[str] = PUBLIC) -> Document:
        document = self.find_document(id, access)
        if document is None:
            raise self._not_readable(id)
        return document

    def _not_readable(self, document: str) -> StoreError:
        return StoreError(
            f"There is no readable document {document!r} in generation {self.generation} of {self.open_store.store}. "
            "Write the document of a node from a search, and search and read as the same principal."
        )

    def find_document(self, id: str, access: frozenset[str] = PUBLIC) -> Document | None:
        row = self.open_store.row(sql.DOCUMENT, {"id": id, "at": self.generation})
        if row is None or not self.rights.asker(access).may_read(id, row[AUDIENCE_OF_DOCUMENT]):
            return None
        return document_of(row, self.readers.lists)

    def image(self, document: str, hash: str, access: frozenset[str] = PUBLIC) -> bytes:
        """Return a picture of a document, by the hash that a region names; raise StoreError if none is readable."""
        row = self.open_store.row(sql.IMAGE, {"id": document, "hash": hash, "at": self.generation})
        if row is None or not self.rights.asker(access).may_read(document, row[1]):
            raise StoreError(
                f"There is no readable picture {hash!r} of document {document!r} in generation {self.generation} of "
                f"{self.open_store.store}. Write the image of one of document(...).regions."
            )
        return bytes(row[0])

    def boxes(self, document: str, span: Span, access: frozenset[str] = PUBLIC) -> tuple[Box, ...]:
        """Return where a stretch of a document stands on its pages, line by line; empty if its format has no places."""
        row = self.open_store.row(
            sql.BOXES, {"id": document, "at": self.generation}
        )  # without the text, for each citation
        if row is None or not self.rights.asker(access).may_read(document, row[1]):
            raise self._not_readable(document)
        return (Boxes(row[0]) if row[0] else NO_BOXES).find_overlapping(span.start, span.end)

    def documents(self, access: frozenset[str] = PUBLIC) -> Iterator[Document]:
        asker = self.rights.asker(access)
        for row in self.open_store.stream_rows(sql.DOCUMENTS, {"at": self.generation}):
            if asker.may_read(row[0], row[AUDIENCE_OF_DOCUMENT]):
                yield document_of(row, self.readers.lists)

    def all_nodes(self, group: str, access: frozenset[str] = PUBLIC) -> Iterator[Node]:
        asker = self.rights.asker(access)
        for row in self.open_store.stream_rows(sql.NODES, {"grp": group, "at": self.generation}):
            if asker.may_read(row[DOCUMENT_OF_NODE], row[AUDIENCE_OF_NODE]):
                yield node_of(row, self.readers.lists)

    def sources(self, uris: Iterable[str] | None = None, *, noted: bool = False) -> dict[str, SourceRow]:
        """Return what the documents were read from, by uri; `noted` adds times and failures noted since this
        generation."""
        values = {"at": self.generation + noted}
        uri_values = {} if uris is None else {"uris": json.dumps(list(uris))}
        rows = self.open_store.rows(sql.SOURCES_OF_URIS if uri_values else sql.SOURCES, {**values, **uri_values})
        return {row[0]: SourceRow(*row) for row in rows}

    def document_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of documents by id or by the uri of a source, regardless of access. Unknown names are left
        out."""
        rows = self.open_store.rows(sql.NAMED, {"ids": json.dumps(list(names)), "at": self.generation})
        return {name: id for name, id, _ in rows}

    def unmade(self) -> tuple[Unmade, ...]:
        """Return which groups could not be made of which documents, by uri; the next `sync` or `materialise` tries
        again."""
        return tuple(Unmade(*row) for row in self.open_store.rows(sql.UNMADE, {"at": self.generation}))

    def reader_versions(self) -> tuple[str, ...]:
        return tuple(reader for (reader,) in self.open_store.rows(sql.READERS_AT, {"at": self.generation}))

    def groups(self) -> tuple[str, ...]:
        return tuple(self.indexes)

    def manifest(self, group: str) -> Manifest:
        if group not in self.indexes:
            store = self.open_store.store
            advice = f"materialise([corpus.group({group!r}, Definition(...))]), or spolia groups add {group}"
            if group in BUILT_IN:
                advice = f"materialise([corpus.group({group!r})]), or spolia groups build {group}"
            if group == MAIN:
                advice = f"spolia index FOLDER --store {store}"
            names = ", ".join(self.groups()) or "none"
            raise StoreError(f"{store} has no node group {group!r}. It has: {names}. Write one of these, or: {advice}")
        return self.manifests[group]

    def stats(self) -> Stats:
        values = {"at": self.generation}
        with store_errors(self.open_store.store, "read"):
            size = self.open_store.store.bytes(self.open_store.connection)
        return Stats(
            self.generation,
            self.open_store.row(sql.COUNT_DOCUMENTS, values)[0],
            tuple(self.open_store.rows(sql.COUNT_SOURCES, values)),
            tuple(self.open_store.rows(sql.COUNT_NODES, values)),
            tuple(self.open_store.rows(sql.COUNT_VECTORS)),
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
        require_all: bool = False,
        candidates: Allowed | None = None,
        defer_ties: bool = False,
    ) -> list[tuple[int, float]]:
        """Return keys and BM25 scores of the best nodes that share a term with `text`, best first, ties by node id.

        Scores and order are those of a store that holds only what the principals in `access` may read.

        Args:
            require_all: only nodes that hold every term, not just one of them.
            candidates: only these nodes; None for all.
            defer_ties: for `late_hits`, which puts ties in order.
        """
        index, effective_filter, query = self.open.lexical(group), combine_filters(filter), None
        if (
            effective_filter is not None and not self.readers.is_restricted
        ):  # else scores are counted over what may be read
            query = index.filter_query(effective_filter, self.schema)
        allowed = (
            candidates
            if effective_filter is None or query is not None
            else self.allowed(group, access, effective_filter)
        )
        readable = self.allowed(group, access) if self.readers.is_restricted else None
        return index.search(
            text, top_k, readable, allowed, filter=query, require_all=require_all, ids=self.ids, defer_ties=defer_ties
        )

    def nearest(
        self,
        group: str,
        embedder: str,
        vector: Vectors,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[tuple[int, float]]:
        """Return keys and cosines of the nodes nearest to a vector float32[d], best first, ties by node id."""
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

    def nearest_sparse(
        self,
        group: str,
        embedder: str,
        queries: SparseRows,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[list[tuple[int, float]]]:
        """Return for each sparse vector keys and products of the nodes that share a term with it, best first, ties by
        id."""
        rankings = self.open.vectors(group, embedder).search(
            queries, top_k, self.allowed(group, access, filter), self.ids
        )
        return [[(key, score) for key, score in row if score > 0] for row in rankings]

    def is_exact(self, group: str, embedder: str) -> bool:
        return getattr(self.open.vectors(group, embedder), "is_exact", False)

    def allowed(self, group: str, access: frozenset[str], filter: Filter | None = None) -> Allowed:
        """Return the nodes of a group that may be found: the one place where access and filters are decided."""
        holders = partial(self.open.holders, group)
        return self.open.records(group).allowed(self.rights.searchable_audiences(access), filter, holders)

    def derived_of(self, principals: frozenset[str], *groups: str) -> dict[object, Any]:
        """Return what others have computed of groups for these principals; `derived` itself if they may read every
        node."""
        if all(self.allowed(group, principals).mask is None for group in groups if group in self.indexes):
            return self.derived
        audiences = self.rights.searchable_audiences(principals)
        with self._lock:
            # Taken out and put back, so that the entry used longest ago comes first and is dropped.
            derived = self._derived[audiences] = self._derived.pop(audiences, {})
            for oldest in list(self._derived)[:-ASKERS]:
                del self._derived[oldest]
        return derived

    def vectors(self, group: str, embedder: str, allowed: Allowed) -> Vectors:
        """Return the vectors float32[n, d] of the allowed nodes of a group, in the order of their keys, as they are
        stored."""
        return self.open.stored_vectors(group, embedder).vectors_at(allowed.positions())

    def check(self, *, deep: bool = False) -> list[str]:
        """List in words what is wrong with the store; empty if all is well.

        Indexes, vectors and the structure of the database are read; `deep` also every row, whose digest is compared.
        """
        return find_problems(self, deep=deep)

    # Inside.

    def _readable(self, keys: Sequence[int], asker: Asker) -> list[tuple[int, Node]]:
        cached = self._nodes  # as in `ids`
        entries = {key: cached[key] for key in keys if key in cached}
        if len(entries) < len(keys):
            entries |= self._fetch([key for key in keys if key not in entries])
        ordered = ((key, *entries[key]) for key in keys if key in entries)
        return [(key, node) for key, audience, node in ordered if asker.may_read(node.document, audience)]

    def _fetch(self, keys: Sequence[int]) -> dict[int, tuple[int, Node]]:
        rows = self.open_store.rows(sql.NODES_OF_KEYS, {"keys": json.dumps(keys), "at": self.generation})
        entries = {row[0]: (row[AUDIENCE_OF_NODE], node_of(row, self.readers.lists)) for row in rows}
        self._refuse_changed([row[0] for row in rows if _may_be_changed(entries[row[0]][1], row[HASH_OF_NODE])])
        size = sum([NODE_BYTES + len(node.text) for _, node in entries.values()])
        with self._lock:
            # Memory is bounded: all nodes are dropped together, as nothing says which come again.
            if self._kept_bytes + size > KEPT_BYTES:
                self._nodes, self._keys, self._kept_bytes = {}, {}, 0
            if size <= KEPT_BYTES:
                self._kept_bytes += size
                self._nodes.update(entries)
                self._keys.update((node.id, key) for key, (_, node) in entries.items())
        return entries

    def _refuse_changed(self, keys: Sequence[int]) -> None:
        """Raise StoreCorrupt for nodes whose rows are not as they were written."""
        if keys and (ids := changed_nodes(self.open_store.rows(sql.ROWS_OF_NODES, {"keys": json.dumps(keys)}))):
            store = self.open_store.store
            raise StoreCorrupt(
                f"{store} is damaged: {len(ids)} nodes changed since they were written: {list_some(ids)}. "
                f"Write: spolia repair --store {store}"
            )


def _may_be_changed(node: Node, hash: bytes) -> bool:
    """Return whether the hash of the searched text, which takes less time than that of the row, does not show that a
    node is whole: the hash may also be of a picture, or of another text than the one that is shown."""
    return bool(node.search_text) or hash_of(node.indexed_text) != hash


@dataclass(frozen=True)
class _NodeFetcher:
    """Fetcher of nodes that somebody may read. It holds the snapshot, so that what it needs is not swept."""

    snapshot: Snapshot
    access: frozenset[str]

    def __call__(self, keys: Sequence[int]) -> dict[int, Node]:
        return self._by_key(self.snapshot.rights.asker(self.access), keys)

    def for_fusion(self) -> Callable[[Sequence[int]], dict[int, Node]] | None:
        asker = self.snapshot.rights.asker(self.access)
        return None if asker.changed else partial(self._by_key, asker)

    def _by_key(self, asker: Asker, keys: Sequence[int]) -> dict[int, Node]:
        return dict(self.snapshot._readable(keys, asker))


def latest_snapshot(open_store: OpenStore) -> Snapshot:
    """Return the published snapshot; the same object as long as nothing else is published."""
    snapshot: Snapshot | None = open_store.latest
    # Others may publish, and sweep the generation, between reading its row and leasing it.
    for _ in range(_ATTEMPTS):
        if snapshot is not None and snapshot.version == open_store.row(sql.PUBLISHED):
            return snapshot
        if snapshot is not None and not open_store.was_published(snapshot.version):
            # A backup was put back: what was read before may be of another past.
            open_store, snapshot = open_store.reopen(), None
        published = open_store.row(sql.PUBLISHED_WHOLE)
        lease = open_store.lease(published[0])
        if open_store.row(sql.IS_KEPT, published[:1]):  # else it was swept before the lease held it
            open_store.latest = snapshot = Snapshot(open_store, published, lease, snapshot)
            return snapshot
    raise StoreError(f"{open_store.store} is published too fast to be read. Search again.")
