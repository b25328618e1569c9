"""Exact search finds what comparing every vector finds, under any filter, metric, and number of queries."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import StoreError
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.definition import Metric
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.placement import PlacedVectors
from spolia.stores.vectors.segment_search import ExactSearch
from tests.stores.vector_fixtures import compare_all, drawn_vectors, placed_in

METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")


@pytest.mark.slow
@settings(max_examples=60)
@given(
    metric=st.sampled_from(METRICS),
    rows=st.lists(st.integers(1, 700), min_size=1, max_size=3),
    nodes=st.integers(1, 1500),
    share=st.sampled_from([None, 0.0, 0.003, 0.1, 0.7, 1.0]),
    top_k=st.integers(0, 40),
    coarse=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_it_finds_what_comparing_all_finds(
    metric: Metric, rows: list[int], nodes: int, share: float | None, top_k: int, coarse: bool, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    parts = [drawn_vectors(count, 12, seed + number, unit=metric == "cosine") for number, count in enumerate(rows)]
    if coarse and metric != "cosine":
        parts = [np.rint(part) for part in parts]  # many nodes with equal scores
    places = draw.integers(0, sum(rows), nodes)  # rows of several nodes, and of none
    with tempfile.TemporaryDirectory() as folder:
        placed = placed_in(Path(folder), *parts, places=places)
        allowed = Allowed(placed.keys, None if share is None else draw.random(nodes) < share)
        queries = np.concatenate([drawn_vectors(3, 12, seed + 50, unit=False), np.zeros((1, 12), np.float32)])
        search = ExactSearch(placed, metric)
        rankings = search.search(queries, top_k, allowed)
        right = compare_all(metric, queries, np.concatenate(parts)[places], allowed, top_k)
    assert [len(ranking) for ranking in rankings] == [min(top_k, allowed.count)] * 4
    for ours, theirs in zip(rankings, right, strict=True):
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-6)
        scores = dict(theirs)
        if coarse and metric == "dot":  # whole numbers have no rounding: ties are by key
            assert [key for key, _ in ours] == [key for key, _ in theirs]
        assert all(score == pytest.approx(scores.get(key, theirs[-1][1]), abs=1e-6) for key, score in ours)
    assert rankings == [search.search(query[None], top_k, allowed)[0] for query in queries]


def test_equal_scores_are_in_the_order_of_keys(tmp_path: Path) -> None:
    same = np.tile(drawn_vectors(1, 8), (900, 1))
    placed = placed_in(tmp_path, same[:600], same[600:])
    mask = np.ones(900, dtype=np.bool_)
    mask[3] = False
    for allowed, expected in (Allowed(placed.keys), [7, 10, 13, 16, 19]), (Allowed(placed.keys, mask), [7, 10, 13, 19]):
        hits = ExactSearch(placed).search(same[:1], len(expected), allowed)[0]
        assert [key for key, _ in hits] == expected
        assert [score for _, score in hits] == pytest.approx([1.0] * len(expected))


def test_far_from_the_origin_the_distance_keeps_its_digits(tmp_path: Path) -> None:
    vectors = drawn_vectors(2_000, 16, unit=False) * np.float32(0.01) + np.float32(100)
    placed = placed_in(tmp_path, vectors)
    allowed = Allowed(placed.keys)
    rankings = ExactSearch(placed, "euclidean").search(vectors[:3] + np.float32(0.001), 10, allowed)
    right = compare_all("euclidean", vectors[:3] + np.float32(0.001), vectors, allowed, 10)
    assert [[key for key, _ in ranking] for ranking in rankings] == [[key for key, _ in ranking] for ranking in right]


def test_a_group_without_nodes() -> None:
    nothing = PlacedVectors(np.zeros(0, np.int64), [], np.zeros(0, np.int64))
    assert ExactSearch(nothing).search(drawn_vectors(2, 8), 5, Allowed(nothing.keys)) == [[], []]


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (np.ones((2, 9), np.float32), "those of the store have 8 numbers"),
        (np.ones(8, np.float32), "have shape"),
        (np.array([[0.0] * 8, [np.nan] * 8], np.float32), "Query 1 holds NaN"),
        (np.array([[np.inf] * 8], np.float32), "Query 0 holds NaN or infinity"),
    ],
)
def test_queries_that_cannot_be_are_refused(tmp_path: Path, queries: Vectors, said: str) -> None:
    placed = placed_in(tmp_path, drawn_vectors(20, 8))
    with pytest.raises(StoreError, match=said):
        ExactSearch(placed).search(queries, 3, Allowed(placed.keys))


def test_what_is_allowed_must_be_of_the_same_nodes(tmp_path: Path) -> None:
    placed = placed_in(tmp_path, drawn_vectors(20, 8))
    with pytest.raises(StoreError, match="19 nodes can be allowed, where 20 have vectors"):
        ExactSearch(placed).search(drawn_vectors(1, 8), 3, Allowed(placed.keys[1:]))
