"""Searching the vectors in the database: by pgvector, and then by the scores that a store in a folder gives too.

pgvector adds up in float32, and its index holds numbers of 16 bits. So what it finds is what may be the best: those
vectors are fetched and scored in float64 here. Which nodes are allowed is known here as well; where few are, the server
compares these only, else it goes along its index as far as needed, and what is not allowed is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from psycopg.sql import SQL, Composed, Literal

from spolia.errors import StoreError
from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.backends import sql
from spolia.stores.backends.backend import translated
from spolia.stores.backends.postgres import dialect
from spolia.stores.backends.postgres.session import PostgresSession
from spolia.stores.backends.postgres.vectors import OPERATORS, has_index, with_vectors
from spolia.stores.definition import Metric
from spolia.stores.indexes import HNSW, IndexSettings
from spolia.stores.open_store import OpenStore
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.stored_definition import index_of
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.external_index import how_embedded
from spolia.stores.vectors.search import Found, exact, ordered_scores, questions

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

_COMPARED = 5_000
"""Allowed nodes up to which the server compares them: that takes as long as going along its index."""
_MOST = 4_096
_GROWTH = 4
_EXPANDED = 1_000
"""What `hnsw.ef_search` may be at most."""
_ULP = 2.0**-23

Near = tuple[Keys, Vectors]
"""Keys and vectors of nodes that may be the nearest."""


def search_of(snapshot: Snapshot, group: str, embedder: str) -> DatabaseSearch:
    """What searches a group's vectors at a generation.

    Raises:
        StoreError: the group was not embedded with this embedder, or nodes have no vector.
    """
    opened, how = snapshot.opened, how_embedded(snapshot, group, embedder)
    values = {"embedder": embedder, "grp": group, "at": snapshot.generation}
    if lacking := opened.row(sql.LACKING, {**values, "key": 0})[0]:
        raise StoreError(
            f"{lacking} nodes of group {group!r} in {opened.store} have no vector from {embedder!r}. Search with the "
            "embedder of the group's manifest, or index with this one into another store."
        )
    return DatabaseSearch(opened, values, how.metric, index_of(how))


class DatabaseSearch:
    """Searches the vectors of a group's nodes at a generation; see `Search`.

    Args:
        opened: the store.
        values: embedder, group and generation, by which the statements are asked.
        metric: `cosine`, `dot` or `euclidean`.
        index: `HNSW` to go along the server's index where there is one; else every vector is compared.
    """

    def __init__(self, opened: OpenStore, values: dict[str, Any], metric: Metric, index: IndexSettings) -> None:
        self.opened, self.values, self.metric, self.index = opened, values, metric, index
        self._operator = OPERATORS[metric][0]

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Found:
        """See `Search`."""
        wanted = min(top_k, allowed.count)
        if wanted <= 0:
            return [[] for _ in queries]
        queries = questions(self.metric, queries, self._dimension)
        with translated(self.opened.store, "searched"):
            return [self._best(query, wanted, allowed, ids) for query in queries]

    def at(self, positions: npt.NDArray[np.int64]) -> Vectors:
        """See `Stored`."""
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
        """So much that enough is allowed in its first half, for the rest has gaps; None if that is too much."""
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
        """Length of the longest vector."""
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
