"""Vectors on their way into the database, and the index over many of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from spolia.models.vectors import SparseRows
from spolia.stores.defined import index_of
from spolia.stores.definition import Metric
from spolia.stores.failpoints import fail_point
from spolia.stores.indexes import HNSW
from spolia.stores.manifest import Embedded as Embedding
from spolia.stores.manifest import Manifest
from spolia.stores.postgres import dialect
from spolia.stores.postgres.session import Session
from spolia.stores.postgres.vectors import INDEXED_DIMENSIONS, OPERATORS, with_vectors
from spolia.stores.vectors.accepted import accepted, refuse_other_count, refuse_other_kind
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.segments import AnyRows, dimension_of
from spolia.stores.vectors.sparse import packed

WRITTEN_AT_ONCE = 512


class Embedded:
    """Collects vectors and commits them in a session of its own, so that they outlive a writer that is killed.

    That is safe, since a vector belongs to the hash of a text and never changes: who reads it finds it right.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._pending: dict[str, dict[bytes, AnyRows]] = {}
        with_vectors(session.raw)

    def is_pending(self, embedder: str, hash: bytes) -> bool:
        return hash in self._pending.get(embedder, ())

    def add(
        self, embedder: str, hashes: Sequence[bytes], vectors: Vectors, *, unit: bool = True, dimension: int = 0
    ) -> None:
        """Take vectors; see `spolia.stores.vectors.embedded.Embedded.add`."""
        refuse_other_kind(embedder, self._dimension(embedder), sparse=False)
        known = self._dimension(embedder) or dimension or None
        rows = accepted(embedder, len(hashes), vectors, known, unit)
        self._collect(embedder, hashes, [row[None] for row in rows])

    def add_sparse(self, embedder: str, hashes: Sequence[bytes], rows: SparseRows) -> None:
        """Take sparse vectors; see `spolia.stores.vectors.embedded.Embedded.add_sparse`."""
        refuse_other_kind(embedder, self._dimension(embedder), sparse=True)
        refuse_other_count(hashes, rows)
        self._collect(embedder, hashes, [rows.only(at) for at in range(len(rows))])

    def _collect(self, embedder: str, hashes: Sequence[bytes], rows: Sequence[AnyRows]) -> None:
        pending = self._pending.setdefault(embedder, {})
        known = {bytes(hash) for (hash,) in self.session.ask(dialect.KNOWN, (embedder, list(hashes)))}
        for hash, row in zip(hashes, rows, strict=True):
            if hash not in pending and hash not in known:
                pending[hash] = row if isinstance(row, SparseRows) else row.copy()
        if len(pending) >= WRITTEN_AT_ONCE:
            self._write(embedder)

    def keep(self) -> None:
        """Write what was collected."""
        for embedder in self._pending:
            self._write(embedder)

    flush = keep

    def _dimension(self, embedder: str) -> int | None:
        known = self.session.one(dialect.DIMENSION, (embedder,))
        pending = next(iter(self._pending.get(embedder, {}).values()), None)
        return known[0] if known else None if pending is None else dimension_of(pending)

    def _write(self, embedder: str) -> None:
        pending = self._pending[embedder]
        if pending:
            fail_point("postgres.vectors")
            with self.session.raw.transaction(), self.session.raw.cursor() as cursor:
                dense = [(embedder, hash, row[0]) for hash, row in pending.items() if not isinstance(row, SparseRows)]
                sparse = [(embedder, hash, packed(row)) for hash, row in pending.items() if isinstance(row, SparseRows)]
                cursor.executemany(dialect.ADD_SPARSE if sparse else dialect.ADD_VECTOR, sparse or dense)
            fail_point("postgres.vectors_written")
            pending.clear()


def index_large(session: Session, manifests: Mapping[str, Manifest]) -> list[str]:
    """Index the vectors of embedders that have many and no index yet; what could not be, in words.

    Searches go on meanwhile. Later vectors are put into the index by the server.
    """
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
    """Another one for each embedder and each way to build it."""
    told = f"{embedder} {OPERATORS[metric][1]} {settings.connectivity} {settings.expansion_add}"
    return f"vectors_{blake2b(told.encode(), digest_size=12).hexdigest()}"


def has_index(session: Session, embedder: str, metric: Metric, settings: HNSW) -> bool:
    """Whether the vectors of an embedder are indexed."""
    found = session.one(dialect.HAS_INDEX, (index_name(embedder, metric, settings),))
    return bool(found and found[0])


def _index(session: Session, embedder: str, metric: Metric, dimension: int, settings: HNSW) -> None:
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
