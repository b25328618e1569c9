"""LanceDB, searched exactly and through each kind of index."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.stores.adapters.lancedb import LanceDB
from spolia.testing.indexes import DIMENSION, NAME, IndexContract, make_clusters

pytestmark = pytest.mark.slow


class Flat(IndexContract):
    exact = True

    def settings(self, place: Path) -> LanceDB:
        return LanceDB(index="flat")


def test_without_a_graph_it_is_exact(tmp_path: Path) -> None:
    Flat().test_finds_what_exact_search_finds(tmp_path)


class TestGraph(IndexContract):
    def settings(self, place: Path) -> LanceDB:
        return LanceDB(str(place / "elsewhere"), above=300)


def test_an_index_is_built_above_a_size_and_takes_in_what_comes_later(tmp_path: Path) -> None:
    index = LanceDB(index="IVF_FLAT", above=300).open(tmp_path, NAME, DIMENSION, "cosine")
    vectors = make_clusters(800)
    index.add(range(299), vectors[:299])
    assert index.table.list_indices() == []
    index.add(range(299, 400), vectors[299:400])
    (built,) = index.table.list_indices()
    for start in range(400, 800, 10):
        index.add(range(start, start + 10), vectors[start : start + 10])
    assert index.table.index_stats(built.name).num_unindexed_rows < 400
    assert [near[0][0] for near in index.search(vectors, 1)] == list(range(800))
