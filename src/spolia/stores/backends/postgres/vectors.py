"""Vectors in pgvector: written bit for bit, indexed, and searched with scores in float64."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

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
from spolia.stores.backends.postgres import dialect
from spolia.stores.backends.postgres.session import PostgresSession
from spolia.stores.definition import Metric
from spolia.stores.files import fail_point, translated
from spolia.stores.indexes import HNSW, IndexSettings
from spolia.stores.manifest import GroupEmbedding as Embedding
from spolia.stores.manifest import Manifest, index_of
from spolia.stores.open_store import OpenStore
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.external_index import how_embedded
from spolia.stores.vectors.search import Found, exact, ordered_scores, questions
from spolia.stores.vectors.segments import AnyRows, VectorWriter
from spolia.stores.vectors.sparse import SparseSearch, SparseSegment, lists_of, packed, unpacked

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

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
        return np.frombuffer(bytes(data)[4:], dtype=">f4").astype(np.float32)


def with_vectors(raw: Connection[Any]) -> None:
    """Have a connection take and give arrays for vectors."""
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
    """Commits vectors in a session of its own, so that they outlive a killed writer; replaces them in the writer's."""

    def __init__(self, session: PostgresSession, writer: PostgresSession) -> None:
        super().__init__()
        self.session, self.writer = session, writer
        with_vectors(session.raw)

    def _known(self, embedder: str, hashes: Sequence[bytes]) -> set[bytes]:
        return {bytes(hash) for (hash,) in self.session.ask(dialect.KNOWN, (embedder, list(hashes)))}

    def _stored_dimension(self, embedder: str) -> Sequence[int] | None:
        return self.session.one(dialect.DIMENSION, (embedder,))  # type: ignore[no-any-return]

    def _store(self, embedder: str, pending: Mapping[bytes, AnyRows]) -> None:
        fail_point("postgres.vectors")
        with self.session.raw.transaction(), self.session.raw.cursor() as cursor:
            dense = [(embedder, hash, row[0]) for hash, row in pending.items() if not isinstance(row, SparseRows)]
            sparse = [(embedder, hash, packed(row)) for hash, row in pending.items() if isinstance(row, SparseRows)]
            cursor.executemany(dialect.ADD_SPARSE if sparse else dialect.ADD_VECTOR, sparse or dense)
        fail_point("postgres.vectors_written")

    def _replace(self, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows], generation: int) -> None:
        with_vectors(self.writer.raw)
        columns = (
            (None, packed(part.only(at))) if isinstance(part, SparseRows) else (part[at], None)
            for part in parts
            for at in range(len(part))
        )
        values = ((embedder, hash, *columns) for hash, columns in zip(hashes, columns, strict=True))
        with self.writer.raw.cursor() as cursor:
            cursor.executemany(dialect.REPLACE_VECTOR, values)


def index_large(session: PostgresSession, manifests: Mapping[str, Manifest]) -> list[str]:
    """Index the vectors of embedders that have many, while searches go on; what could not be indexed, in words."""
    said = []
    for how, settings in _indexed(manifests):
        found = session.one(dialect.DIMENSION, (how.embedder,))
        if found is None or found[0] > INDEXED_DIMENSIONS or has_index(session, how.embedder, how.metric, settings):
            continue
        if session.one(dialect.LARGE, (settings.above, how.embedder, settings.above))[0]:
            try:
                _index(session, how.embedder, how.metric, found[0], settings)
            except psycopg.Error as error:
                if session.is_lost:
                    raise
                said.append(
                    f"The vectors by {how.embedder!r} could not be indexed, and are compared one by one: {error}"
                )
    return said


def _indexed(manifests: Mapping[str, Manifest]) -> Iterator[tuple[Embedding, HNSW]]:
    for manifest in manifests.values():
        for how in manifest.embeddings:
            if not how.is_sparse and isinstance(settings := index_of(how), HNSW):
                yield how, settings


def index_name(embedder: str, metric: Metric, settings: HNSW) -> str:
    told = f"{embedder} {OPERATORS[metric][1]} {settings.connectivity} {settings.expansion_add}"
    return f"vectors_{blake2b(told.encode(), digest_size=12).hexdigest()}"


def has_index(session: PostgresSession, embedder: str, metric: Metric, settings: HNSW) -> bool:
    found = session.one(dialect.HAS_INDEX, (index_name(embedder, metric, settings),))
    return bool(found and found[0])


def _index(session: PostgresSession, embedder: str, metric: Metric, dimension: int, settings: HNSW) -> None:
    statement = SQL(dialect.INDEX).format(
        name=Identifier(index_name(embedder, metric, settings)),
        dimension=Literal(dimension),
        operators=SQL(OPERATORS[metric][1]),
        connectivity=Literal(settings.connectivity),
        expansion_add=Literal(max(settings.expansion_add, 2 * settings.connectivity)),
        embedder=Literal(embedder),
    )
    with session.unhurried():
        session.ask(dialect.MORE_MEMORY)
        fail_point("postgres.index")
        session.raw.execute(statement)
        session.ask(dialect.COUNT_AGAIN)
        fail_point("postgres.indexed")


def sparse_search_of(snapshot: "Snapshot", group: str, embedder: str) -> SparseSearch:
    """What searches a group's sparse vectors at a generation; they are held in memory as long as the snapshot."""
    places: dict[bytes, int] = {}
    rows: list[SparseRows] = []
    keys: list[int] = []
    at: list[int] = []
    values: dict[str, Any] = {"embedder": embedder, "grp": group, "at": snapshot.generation}
    for key, hash, entries in snapshot.opened.each(dialect.SPARSE_OF_GROUP, values):
        if entries is None:
            raise StoreError(f"Node {key} of group {group!r} has no vector from {embedder!r}. Index the store again.")
        if hash not in places:
            places[hash] = len(rows)
            rows.append(unpacked(entries))
        keys.append(key)
        at.append(places[hash])
    together = SparseRows.together(rows)
    entries_of = (together.offsets, together.terms, together.weights)
    segment = SparseSegment(embedder, list(places), entries_of, lists_of(together))
    return SparseSearch(np.array(keys, dtype=np.int64), [segment], np.array(at, dtype=np.int64))


_COMPARED = 5_000
"""Allowed nodes up to which the server compares them: that takes as long as going along its index."""
_MOST = 4_096
_GROWTH = 4
_EXPANDED = 1_000
"""What `hnsw.ef_search` may be at most."""
_ULP = 2.0**-23

Near = tuple[Keys, Vectors]
"""Keys and vectors of nodes that may be the nearest."""


def search_of(snapshot: "Snapshot", group: str, embedder: str) -> "DatabaseSearch":
    opened, how = snapshot.opened, how_embedded(snapshot, group, embedder)
    values = {"embedder": embedder, "grp": group, "at": snapshot.generation}
    if lacking := opened.row(sql.LACKING, {**values, "key": 0})[0]:
        raise StoreError(
            f"{lacking} nodes of group {group!r} in {opened.store} have no vector from {embedder!r}. Search with the "
            "embedder of the group's manifest, or index with this one into another store."
        )
    return DatabaseSearch(opened, values, how.metric, index_of(how))


class DatabaseSearch:
    def __init__(self, opened: OpenStore, values: dict[str, Any], metric: Metric, index: IndexSettings) -> None:
        self.opened, self.values, self.metric, self.index = opened, values, metric, index
        self._operator = OPERATORS[metric][0]

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Found:
        wanted = min(top_k, allowed.count)
        if wanted <= 0:
            return [[] for _ in queries]
        with translated(self.opened.store, "searched"):
            queries = questions(self.metric, queries, self._dimension)
            return [self._best(query, wanted, allowed, ids) for query in queries]

    def at(self, positions: npt.NDArray[np.int64]) -> Vectors:
        with translated(self.opened.store, "read"):
            asked = {**self.values, "keys": _written(self._keys[positions])}
            rows = self._asked(SQL(dialect.VECTORS_OF_KEYS), asked)
        return np.stack([row[0] for row in rows]) if rows else np.zeros((0, self._dimension), np.float32)

    def _best(self, query: Vectors, wanted: int, allowed: Allowed, ids: Ids | None) -> list[tuple[int, float]]:
        keys, vectors = self._along_graph(query, wanted, allowed) or self._compared(query, wanted, allowed)
        return ordered_scores(keys, exact(self.metric, query, vectors), wanted, ids)

    # What may be the nearest.

    def _compared(self, query: Vectors, wanted: int, allowed: Allowed) -> Near:
        """All that the server takes for as near as the last that is wanted, or for hardly less near."""
        only, some = self._only(allowed)
        statement = SQL(dialect.CANDIDATES).format(distance=SQL(self._operator), only=SQL(only))
        asked = {**self.values, "query": query, "wanted": wanted, "slack": self._slack(query), **some}
        return _near(self._asked(statement, asked))

    def _only(self, allowed: Allowed) -> tuple[str, dict[str, str]]:
        """The shorter of both lists: what is allowed, or what is not."""
        if allowed.mask is None:
            return "", {}
        if 2 * allowed.count <= len(allowed.keys):
            return dialect.ONLY, {"keys": _written(allowed.keys[allowed.mask])}
        return dialect.EXCEPT, {"keys": _written(allowed.keys[~allowed.mask])}

    def _slack(self, query: Vectors) -> float:
        """Twice the error of a sum of float32, for two of them that are compared."""
        length = float(np.linalg.norm(query.astype(np.float64)))
        size = length + self._radius if self.metric == "euclidean" else length * self._radius
        return 4 * len(query) * _ULP * size

    def _along_graph(self, query: Vectors, wanted: int, allowed: Allowed) -> Near | None:
        """Neighbours such that enough are allowed in the first half, since the rest has gaps; None if that takes too
        many."""
        count = allowed.count
        fetch = -(-4 * wanted * len(allowed.keys) // count)
        while count > _COMPARED and fetch <= _MOST and self._is_indexed:
            rows = self._walked(query, fetch)
            found = _near(rows)
            held = allowed.holds(found[0].tolist()) if len(rows) else np.zeros(0, np.bool_)
            places = np.array([row[2] for row in rows], dtype=np.int64)
            if np.count_nonzero(held & (2 * places <= fetch)) >= wanted:
                return found[0][held], found[1][held]
            fetch *= _GROWTH
        return None

    def _walked(self, query: Vectors, fetch: int) -> list[Any]:
        assert isinstance(self.index, HNSW)
        statement = SQL(dialect.ALONG_GRAPH).format(
            embedder=Literal(self.values["embedder"]),
            dimension=Literal(self._dimension),
            distance=SQL(self._operator),
        )
        expansion = min(max(self.index.expansion_search, fetch), _EXPANDED)
        self._session.ask(dialect.SEARCH_SETTINGS, (str(expansion),))
        return self._asked(statement, {**self.values, "query": query, "fetch": fetch})

    # What is known of the vectors.

    @property
    def _session(self) -> PostgresSession:
        session = self.opened.connection
        assert isinstance(session, PostgresSession)
        with_vectors(session.raw)
        return session

    def _asked(self, statement: SQL | Composed, values: dict[str, Any]) -> list[Any]:
        with self._session.raw.cursor(binary=True) as cursor:
            return cursor.execute(statement, values, prepare=False).fetchall()

    @cached_property
    def _dimension(self) -> int:
        found = self._session.one(dialect.DIMENSION, (self.values["embedder"],))
        return int(found[0]) if found else 0

    @cached_property
    def _radius(self) -> float:
        if self.metric == "cosine":
            return 1.0
        return float(self._session.one(dialect.LONGEST, (self.values["embedder"],))[0])

    @cached_property
    def _is_indexed(self) -> bool:
        return isinstance(self.index, HNSW) and has_index(
            self._session, self.values["embedder"], self.metric, self.index
        )

    @cached_property
    def _keys(self) -> Keys:
        return np.array([key for (key,) in self.opened.rows(sql.LIVE_KEYS, self.values)], dtype=np.int64)


def _near(rows: Sequence[Any]) -> Near:
    keys = np.array([row[0] for row in rows], dtype=np.int64)
    return keys, np.stack([row[1] for row in rows]) if rows else np.zeros((0, 0), np.float32)


def _written(keys: Keys) -> str:
    """As PostgreSQL writes arrays: a fraction of the time that a list takes."""
    return "{" + ",".join(map(str, keys.tolist())) + "}"
