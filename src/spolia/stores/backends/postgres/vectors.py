"""Vectors in pgvector: written bit for bit, indexed, and searched with scores in float64."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import Connection, pq
from psycopg.adapt import Dumper, Loader
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types import TypeInfo

from spolia.errors import StoreError
from spolia.models.vectors import SparseRows
from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.backends import sql
from spolia.stores.backends.backend import OpenedStore, PinnedSnapshot
from spolia.stores.backends.postgres import dialect
from spolia.stores.backends.postgres.session import PostgresSession
from spolia.stores.backends.searches import Rankings
from spolia.stores.definition import Metric
from spolia.stores.files import fail_point, store_errors
from spolia.stores.indexes import HNSW, IndexSettings
from spolia.stores.manifest import GroupEmbedding as Embedding
from spolia.stores.manifest import Manifest, index_of
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.external_index import require_embedding
from spolia.stores.vectors.search import check_queries, exact_scores, rank_scores
from spolia.stores.vectors.segments import AnyRows, VectorWriter
from spolia.stores.vectors.sparse import SparseSearch, SparseSegment, lists_of, pack_row, unpack_row

OPERATORS: Mapping[Metric, tuple[str, str]] = {
    "cosine": ("<#>", "halfvec_ip_ops"),  # of vectors of length 1, where it is right for those of length 0 as well
    "dot": ("<#>", "halfvec_ip_ops"),
    "euclidean": ("<->", "halfvec_l2_ops"),
}
"""By metric: the operator, which gives less for nearer vectors, and the index's option."""

INDEXED_DIMENSIONS = 4_000
"""Vectors of more numbers can be kept and compared, but not indexed."""


class _ToVector(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return struct.pack(">HH", len(obj), 0) + np.ascontiguousarray(obj, dtype=">f4").tobytes()


class _FromVector(Loader):
    format = pq.Format.BINARY

    def load(self, data: Any) -> Any:
        # pgvector puts the dimension and an unused number, two bytes each, before the values.
        return np.frombuffer(bytes(data)[4:], dtype=">f4").astype(np.float32)


def register_vectors(raw: Connection[Any]) -> None:
    """Register arrays as the values of vectors on a connection."""
    if raw.adapters.types.get("vector") is not None:
        return
    info = TypeInfo.fetch(raw, "vector")
    if info is None:
        raise StoreError("pgvector is not in the database any more. Write there: CREATE EXTENSION vector")
    info.register(raw)
    dumper = type("ToVector", (_ToVector,), {"oid": info.oid})
    raw.adapters.register_dumper(np.ndarray, dumper)
    raw.adapters.register_loader(info.oid, _FromVector)


class VectorTableWriter(VectorWriter):
    """Writer that commits vectors in a session of its own, so that they outlive a killed writer; replaces them in the
    writer's."""

    def __init__(self, session: PostgresSession, writer: PostgresSession) -> None:
        super().__init__()
        self.session, self.writer = session, writer
        register_vectors(session.raw)

    def _stored_hashes(self, embedder: str, hashes: Sequence[bytes]) -> set[bytes]:
        return {bytes(hash) for (hash,) in self.session.ask(dialect.STORED_HASHES, (embedder, list(hashes)))}

    def _stored_dimension(self, embedder: str) -> Sequence[int] | None:
        return self.session.fetch_one(dialect.DIMENSION, (embedder,))  # type: ignore[no-any-return]

    def _store(self, embedder: str, pending: Mapping[bytes, AnyRows]) -> None:
        fail_point("postgres.vectors")
        with self.session.raw.transaction(), self.session.raw.cursor() as cursor:
            dense = [(embedder, hash, row[0]) for hash, row in pending.items() if not isinstance(row, SparseRows)]
            sparse = [(embedder, hash, pack_row(row)) for hash, row in pending.items() if isinstance(row, SparseRows)]
            cursor.executemany(dialect.ADD_SPARSE if sparse else dialect.ADD_VECTOR, sparse or dense)
        fail_point("postgres.vectors_written")

    def _replace(self, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows], generation: int) -> None:
        register_vectors(self.writer.raw)
        columns = (
            (None, pack_row(part.select(row))) if isinstance(part, SparseRows) else (part[row], None)
            for part in parts
            for row in range(len(part))
        )
        values = ((embedder, hash, *columns) for hash, columns in zip(hashes, columns, strict=True))
        with self.writer.raw.cursor() as cursor:
            cursor.executemany(dialect.REPLACE_VECTOR, values)


def index_large(session: PostgresSession, manifests: Mapping[str, Manifest]) -> list[str]:
    """Index the vectors of embedders that have many, while searches go on; return in words what failed."""
    problems = []
    for embedding, settings in _hnsw_embeddings(manifests):
        dimension = session.fetch_one(dialect.DIMENSION, (embedding.embedder,))
        if (
            dimension is None
            or dimension[0] > INDEXED_DIMENSIONS
            or has_index(session, embedding.embedder, embedding.metric, settings)
        ):
            continue
        if session.fetch_one(dialect.LARGE, (settings.above, embedding.embedder, settings.above))[0]:
            try:
                _index(session, embedding.embedder, embedding.metric, dimension[0], settings)
            except psycopg.Error as error:  # an index is derived: searches compare all vectors without it
                if session.is_lost:
                    raise
                problems.append(
                    f"The vectors by {embedding.embedder!r} could not be indexed, and are compared one by one: {error}"
                )
    return problems


def _hnsw_embeddings(manifests: Mapping[str, Manifest]) -> Iterator[tuple[Embedding, HNSW]]:
    for manifest in manifests.values():
        for embedding in manifest.embeddings:
            if not embedding.is_sparse and isinstance(settings := index_of(embedding), HNSW):
                yield embedding, settings


def index_name(embedder: str, metric: Metric, settings: HNSW) -> str:
    identity = f"{embedder} {OPERATORS[metric][1]} {settings.connectivity} {settings.expansion_add}"
    return f"vectors_{blake2b(identity.encode(), digest_size=12).hexdigest()}"


def has_index(session: PostgresSession, embedder: str, metric: Metric, settings: HNSW) -> bool:
    row = session.fetch_one(dialect.HAS_INDEX, (index_name(embedder, metric, settings),))
    return bool(row and row[0])


def _index(session: PostgresSession, embedder: str, metric: Metric, dimension: int, settings: HNSW) -> None:
    statement = SQL(dialect.INDEX).format(
        name=Identifier(index_name(embedder, metric, settings)),
        dimension=Literal(dimension),
        operators=SQL(OPERATORS[metric][1]),
        connectivity=Literal(settings.connectivity),
        # pgvector refuses less than twice the connectivity.
        expansion_add=Literal(max(settings.expansion_add, 2 * settings.connectivity)),
        embedder=Literal(embedder),
    )
    with session.without_timeout():
        session.ask(dialect.MORE_MEMORY)
        fail_point("postgres.index")
        session.raw.execute(statement)
        session.ask(dialect.ANALYZE)
        fail_point("postgres.indexed")


def open_sparse_search(snapshot: PinnedSnapshot, group: str, embedder: str) -> SparseSearch:
    """Return the search over a group's sparse vectors at a generation; they stay in memory as long as the snapshot."""
    places: dict[bytes, int] = {}
    rows: list[SparseRows] = []
    keys: list[int] = []
    row_numbers: list[int] = []
    values: dict[str, Any] = {"embedder": embedder, "grp": group, "at": snapshot.generation}
    for key, hash, entries in snapshot.open_store.stream_rows(dialect.SPARSE_OF_GROUP, values):
        if entries is None:
            raise StoreError(f"Node {key} of group {group!r} has no vector from {embedder!r}. Index the store again.")
        if hash not in places:
            places[hash] = len(rows)
            rows.append(unpack_row(entries))
        keys.append(key)
        row_numbers.append(places[hash])
    all_rows = SparseRows.concatenate(rows)
    entries_of = (all_rows.offsets, all_rows.terms, all_rows.weights)
    segment = SparseSegment(embedder, list(places), entries_of, lists_of(all_rows))
    return SparseSearch(np.array(keys, dtype=np.int64), [segment], np.array(row_numbers, dtype=np.int64))


_COMPARED = 5_000
"""Allowed nodes up to which the server compares them: that takes as long as going along its index."""
_MAX_FETCH = 4_096
_GROWTH = 4
_MAX_EXPANSION = 1_000
"""What `hnsw.ef_search` may be at most."""
_ULP = 2.0**-23

CandidateVectors = tuple[Keys, Vectors]
"""Keys and vectors of nodes that may be the nearest."""


def open_search(snapshot: PinnedSnapshot, group: str, embedder: str) -> "DatabaseSearch":
    open_store, embedding = snapshot.open_store, require_embedding(snapshot, group, embedder)
    values = {"embedder": embedder, "grp": group, "at": snapshot.generation}
    if lacking := open_store.row(sql.LACKING, {**values, "key": 0})[0]:
        raise StoreError(
            f"{lacking} nodes of group {group!r} in {open_store.store} have no vector from {embedder!r}. Search with "
            "the embedder of the group's manifest, or index with this one into another store."
        )
    return DatabaseSearch(open_store, values, embedding.metric, index_of(embedding))


class DatabaseSearch:
    def __init__(self, open_store: OpenedStore, values: dict[str, Any], metric: Metric, index: IndexSettings) -> None:
        self.open_store, self.values, self.metric, self.index = open_store, values, metric, index
        self._operator = OPERATORS[metric][0]

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Rankings:
        limit = min(top_k, allowed.count)
        if limit <= 0:
            return [[] for _ in queries]
        with store_errors(self.open_store.store, "searched"):
            queries = check_queries(self.metric, queries, self._dimension)
            return [self._rank(query, limit, allowed, ids) for query in queries]

    def vectors_at(self, positions: npt.NDArray[np.int64]) -> Vectors:
        with store_errors(self.open_store.store, "read"):
            parameters = {**self.values, "keys": _array_text(self._keys[positions])}
            rows = self._fetch_rows(SQL(dialect.VECTORS_OF_KEYS), parameters)
        return np.stack([row[0] for row in rows]) if rows else np.zeros((0, self._dimension), np.float32)

    def _rank(self, query: Vectors, limit: int, allowed: Allowed, ids: Ids | None) -> list[tuple[int, float]]:
        keys, vectors = self._search_graph(query, limit, allowed) or self._compare_all(query, limit, allowed)
        return rank_scores(keys, exact_scores(self.metric, query, vectors), limit, ids)

    # What may be the nearest.

    def _compare_all(self, query: Vectors, limit: int, allowed: Allowed) -> CandidateVectors:
        """Return all nodes that the server finds as near as the last one to return, or hardly less near."""
        condition, key_list = self._key_condition(allowed)
        statement = SQL(dialect.CANDIDATES).format(distance=SQL(self._operator), only=SQL(condition))
        parameters = {**self.values, "query": query, "wanted": limit, "slack": self._slack(query), **key_list}
        return _candidates_of(self._fetch_rows(statement, parameters))

    def _key_condition(self, allowed: Allowed) -> tuple[str, dict[str, str]]:
        """Return the condition with the shorter list of keys: what is allowed, or what is not."""
        if allowed.mask is None:
            return "", {}
        if 2 * allowed.count <= len(allowed.keys):
            return dialect.ONLY, {"keys": _array_text(allowed.keys[allowed.mask])}
        return dialect.EXCEPT, {"keys": _array_text(allowed.keys[~allowed.mask])}

    def _slack(self, query: Vectors) -> float:
        """Return twice the error of a sum of float32, for two of them that are compared."""
        length = float(np.linalg.norm(query.astype(np.float64)))
        size = length + self._radius if self.metric == "euclidean" else length * self._radius
        return 4 * len(query) * _ULP * size

    def _search_graph(self, query: Vectors, limit: int, allowed: Allowed) -> CandidateVectors | None:
        """Return neighbours of which enough are allowed in the first half, since the rest has gaps; None if that takes
        too many."""
        count = allowed.count
        # Twice the wanted ones are in the first half, if those that are allowed are spread evenly.
        fetch = -(-4 * limit * len(allowed.keys) // count)
        while count > _COMPARED and fetch <= _MAX_FETCH and self._is_indexed:
            rows = self._walked(query, fetch)
            candidates = _candidates_of(rows)
            is_allowed = allowed.holds(candidates[0].tolist()) if len(rows) else np.zeros(0, np.bool_)
            places = np.array([row[2] for row in rows], dtype=np.int64)
            if np.count_nonzero(is_allowed & (2 * places <= fetch)) >= limit:
                return candidates[0][is_allowed], candidates[1][is_allowed]
            fetch *= _GROWTH
        return None

    def _walked(self, query: Vectors, fetch: int) -> list[Any]:
        assert isinstance(self.index, HNSW)
        statement = SQL(dialect.ALONG_GRAPH).format(
            embedder=Literal(self.values["embedder"]),
            dimension=Literal(self._dimension),
            distance=SQL(self._operator),
        )
        expansion = min(max(self.index.expansion_search, fetch), _MAX_EXPANSION)
        self._session.ask(dialect.SEARCH_SETTINGS, (str(expansion),))
        return self._fetch_rows(statement, {**self.values, "query": query, "fetch": fetch})

    # What is known of the vectors.

    @property
    def _session(self) -> PostgresSession:
        session = self.open_store.connection
        assert isinstance(session, PostgresSession)
        register_vectors(session.raw)
        return session

    def _fetch_rows(self, statement: SQL | Composed, values: dict[str, Any]) -> list[Any]:
        with self._session.raw.cursor(binary=True) as cursor:  # bits of vectors, no decimals
            return cursor.execute(statement, values, prepare=False).fetchall()

    @cached_property
    def _dimension(self) -> int:
        row = self._session.fetch_one(dialect.DIMENSION, (self.values["embedder"],))
        return int(row[0]) if row else 0

    @cached_property
    def _radius(self) -> float:
        if self.metric == "cosine":
            return 1.0
        return float(self._session.fetch_one(dialect.LONGEST, (self.values["embedder"],))[0])

    @cached_property
    def _is_indexed(self) -> bool:
        return isinstance(self.index, HNSW) and has_index(
            self._session, self.values["embedder"], self.metric, self.index
        )

    @cached_property
    def _keys(self) -> Keys:
        return np.array([key for (key,) in self.open_store.rows(sql.LIVE_KEYS, self.values)], dtype=np.int64)


def _candidates_of(rows: Sequence[Any]) -> CandidateVectors:
    keys = np.array([row[0] for row in rows], dtype=np.int64)
    return keys, np.stack([row[1] for row in rows]) if rows else np.zeros((0, 0), np.float32)


def _array_text(keys: Keys) -> str:
    """Write keys as PostgreSQL writes arrays: a fraction of the time that a list takes."""
    return "{" + ",".join(map(str, keys.tolist())) + "}"
