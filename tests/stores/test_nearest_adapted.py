"""A database searched for a store: exactly the allowed nodes, with the store's own scores, and enough of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from spolia.errors import StoreUnavailable
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.definition import Metric
from spolia.stores.vectors import external_index
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.external_index import AdaptedSearch, follow, key_differences
from spolia.stores.vectors.placement import PlacedVectors
from spolia.stores.vectors.segment_search import ExactSearch
from tests.stores.vector_fixtures import drawn_vectors, placed_in, recall

ROWS, DIMENSION = 3_000, 16


class InSQLite:
    """A vector index kept in SQLite: durable, exact and slow; its scores are rounded, as those of databases may be."""

    def __init__(self, place: Path, metric: Metric) -> None:
        self.metric, self.asked = metric, [0]
        self.asked.clear()
        self.rows = sqlite3.connect(place, isolation_level=None)
        self.rows.execute("CREATE TABLE IF NOT EXISTS v (key INTEGER PRIMARY KEY, vector BLOB)")

    def add(self, keys: Sequence[int], vectors: Vectors) -> None:
        self.rows.execute("BEGIN")
        pairs = [(key, vector.astype("<f4").tobytes()) for key, vector in zip(keys, vectors, strict=True)]
        self.rows.executemany("INSERT OR REPLACE INTO v VALUES (?, ?)", pairs)
        self.rows.execute("COMMIT")

    def remove(self, keys: Sequence[int]) -> None:
        self.rows.executemany("DELETE FROM v WHERE key = ?", [(key,) for key in keys])

    def search(self, queries: Vectors, top_k: int) -> list[list[tuple[int, float]]]:
        self.asked.append(top_k)
        rows = self.rows.execute("SELECT key, vector FROM v").fetchall()
        vectors = np.stack([np.frombuffer(vector, "<f4") for _, vector in rows])
        rankings = []
        for query in queries:
            scores = -np.linalg.norm(vectors - query, axis=1) if self.metric == "euclidean" else vectors @ query
            best = np.argsort(-scores, kind="stable")[:top_k]
            rankings.append([(rows[position][0], round(float(scores[position]), 2)) for position in best])
        return rankings

    def keys(self) -> Iterator[int]:
        return iter([key for (key,) in self.rows.execute("SELECT key FROM v")])

    def close(self) -> None:
        self.rows.close()


@pytest.fixture(params=["cosine", "dot", "euclidean"])
def both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[InSQLite, PlacedVectors]:
    monkeypatch.setattr(external_index, "_COMPARED", 100)
    placed = placed_in(tmp_path / "store", drawn_vectors(ROWS, DIMENSION, unit=request.param == "cosine"))
    index = InSQLite(tmp_path / "index.db", request.param)
    follow(index, zip(placed.keys.tolist(), placed.vectors(placed.places), strict=True), ())
    return index, placed


@pytest.mark.parametrize("share", [None, 0.9, 0.2, 0.05, 0.01, 0.0])
def test_it_finds_what_exact_search_finds(both: tuple[InSQLite, PlacedVectors], share: float | None) -> None:
    index, placed = both
    mask = None if share is None else np.random.default_rng(2).random(ROWS) < share
    allowed, queries = Allowed(placed.keys, mask), drawn_vectors(8, DIMENSION, 4)
    rankings = AdaptedSearch(index, placed, index.metric).search(queries, 10, allowed)
    assert rankings == ExactSearch(placed, index.metric).search(queries, 10, allowed)
    assert bool(index.asked) == (allowed.count > 100)


def test_what_is_allowed_far_from_the_query_is_found_too(both: tuple[InSQLite, PlacedVectors]) -> None:
    index, placed = both
    query = drawn_vectors(1, DIMENSION, 4)
    near = placed.vectors(placed.places) @ query[0]
    allowed = Allowed(placed.keys, near < np.quantile(near, 0.3))
    rankings = AdaptedSearch(index, placed, index.metric).search(query, 10, allowed)
    assert rankings == ExactSearch(placed, index.metric).search(query, 10, allowed)
    assert index.asked == sorted(index.asked)
    assert len(index.asked) > 1


def test_what_the_database_holds_beyond_the_generation_is_passed_over(both: tuple[InSQLite, PlacedVectors]) -> None:
    index, placed = both
    queries = drawn_vectors(8, DIMENSION, 4)
    follow(index, [(key, query) for key, query in zip(range(90_000, 90_008), queries, strict=True)], ())
    allowed = Allowed(placed.keys)
    rankings = AdaptedSearch(index, placed, index.metric).search(queries, 10, allowed)
    assert rankings == ExactSearch(placed, index.metric).search(queries, 10, allowed)


def test_a_database_that_is_gone_is_done_without(
    both: tuple[InSQLite, PlacedVectors], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, placed = both

    def gone(*_: object) -> None:
        raise StoreUnavailable("The server refused the connection.")

    monkeypatch.setattr(index, "search", gone)
    noted: list[str] = []
    monkeypatch.setattr(external_index, "note", noted.append)
    allowed, queries = Allowed(placed.keys), drawn_vectors(3, DIMENSION, 4)
    rankings = AdaptedSearch(index, placed, index.metric).search(queries, 10, allowed)
    assert recall(rankings, ExactSearch(placed, index.metric).search(queries, 10, allowed)) == 1.0
    assert noted == ["The server refused the connection. Vectors were compared one by one instead, which is slower."]


@pytest.mark.slow
def test_following_can_be_repeated_and_is_checked(tmp_path: Path) -> None:
    index, vectors = InSQLite(tmp_path / "index.db", "cosine"), drawn_vectors(2_500, DIMENSION)
    keys = np.arange(2_500)
    added = list(zip(keys.tolist(), vectors, strict=True))
    assert key_differences(index, keys[:0]) == ""
    with pytest.raises(KeyboardInterrupt):  # stopped in the second batch
        follow(index, (pair if pair[0] < 1_700 else _stop() for pair in added), ())
    assert key_differences(index, keys) == "Keys in the database: 1500 are missing (1000, 1001, 1002 …)."
    follow(index, added, [3, 4])
    follow(index, added[5:], [3, 4])
    gone = np.setdiff1d(keys, [3, 4])
    assert key_differences(index, gone) == ""
    differences = key_differences(index, gone[gone != 2_000])
    assert differences == "Keys in the database: 1 should not be there (2000)."


def _stop() -> tuple[int, Vectors]:
    raise KeyboardInterrupt
