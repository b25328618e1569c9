"""Where vectors stand is brought from generation to generation, and is what reading it anew would say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.backends import sql
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.vectors import placement, segment_search, segments
from spolia.stores.vectors.placement import VectorPlaces
from tests.stores.scenario import EMBEDDER, FIRST, add_missing_vectors, cut_a_segment, sync

CHANGES = st.dictionaries(
    st.sampled_from(["a.txt", "b.txt", "c.txt"]),
    st.lists(st.sampled_from(["old stones", "new walls", "a road", "one bridge"]), max_size=3).map("\n".join),
)


def publish(corpus: Corpus, state: Mapping[str, str]) -> Snapshot:
    """The next generation, after somebody has searched the one before."""
    if corpus.exists():
        corpus.snapshot().open.stored_vectors("chunk", EMBEDDER)
    corpus.create()
    sync(corpus, state)
    return corpus.snapshot()


def rebuild_places(snapshot: Snapshot) -> VectorPlaces:
    return VectorPlaces(snapshot.open_store, "chunk", EMBEDDER).for_generation(snapshot.generation)


def assert_same(vector_places: VectorPlaces, expected: VectorPlaces) -> None:
    for name in ("keys", "numbers", "rows"):
        np.testing.assert_array_equal(getattr(vector_places, name).values, getattr(expected, name).values)


@pytest.fixture
def fresh(fast_folder: Path) -> Corpus:
    return Corpus(str(fast_folder / "notes.spolia"))


@pytest.fixture
def read_row_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were read, for each statement."""
    row_counts: list[int] = []

    class Counted(VectorPlaces):
        def _fetch_rows(self, statement: str, values: Mapping[str, Any]) -> npt.NDArray[Any]:
            rows = super()._fetch_rows(statement, values)
            row_counts.append(len(rows))
            return rows

    for module in (placement, segment_search):
        monkeypatch.setattr(module, "VectorPlaces", Counted)
    return row_counts


@pytest.mark.slow
@settings(max_examples=25)
@given(states=st.lists(CHANGES, min_size=2, max_size=8))
def test_they_are_what_reading_them_anew_says(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, states: list[dict[str, str]]
) -> None:
    monkeypatch.setattr(segments, "SMALL_SEGMENTS", 3)  # so that they are joined now and then
    corpus = Corpus(str(tmp_path_factory.mktemp("store") / "notes.spolia"))
    for state in states:
        snapshot = publish(corpus, state)
        vector_places = snapshot.open.places.get(("chunk", EMBEDDER)) or rebuild_places(snapshot)
        assert vector_places.generation == snapshot.generation
        assert_same(vector_places, rebuild_places(snapshot))
        assert vector_places.segments == rebuild_places(snapshot).segments
        vectors = snapshot.vectors("chunk", EMBEDDER, snapshot.allowed("chunk", frozenset()))
        assert len(vectors) == len(vector_places.keys.values)


def test_one_changed_document_costs_its_own_nodes(fresh: Corpus, read_row_counts: list[int]) -> None:
    many = {f"{number}.txt": f"Stone {number} of old temples.\nIt was set into wall {number}." for number in range(50)}
    publish(fresh, many)
    publish(fresh, {**many, "7.txt": "Only this is new."}).open.stored_vectors("chunk", EMBEDDER)
    assert read_row_counts == [100, 1]


def test_a_publication_reads_new_segments_only(fresh: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_names: list[str] = []

    def open_any(path: Path) -> segments.AnySegment:
        opened_names.append(path.name)
        return segments.open_any(path)

    monkeypatch.setattr(segment_search, "open_any", open_any)
    publish(fresh, FIRST).open.stored_vectors("chunk", EMBEDDER)
    for number in (2, 3):
        publish(fresh, {**FIRST, f"{number}.txt": f"Text {number} is new."}).open.stored_vectors("chunk", EMBEDDER)
    assert opened_names == ["000001.seg", "000002.seg", "000003.seg"]


def test_a_file_is_open_as_long_as_its_segment_is_there(fresh: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SMALL_SEGMENTS", 3)
    graphs: list[object] = []

    class Graph:
        """What is built over a segment, as a graph is."""

        def __init__(self, path: Path) -> None:
            graphs.append(self)

    for number in range(3):
        places = publish(fresh, {f"{number}.txt": f"Text {number} is new." for number in range(number + 1)}).open
        places.stored_vectors("chunk", EMBEDDER)
        if number < 2:
            places.places["chunk", EMBEDDER].file("one.hnsw", 1, Graph)
    assert len(graphs) == 1
    assert "one.hnsw" not in {path for path, _ in places.places["chunk", EMBEDDER].files}


@pytest.mark.slow
def test_only_what_stood_in_joined_segments_is_asked_for_again(
    fresh: Corpus, read_row_counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SMALL_SEGMENTS", 3)
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 10)
    state = {f"{number}.txt": f"Stone {number} of old temples." for number in range(20)}
    publish(fresh, state)
    for name in ("one", "two", "three"):
        state[f"{name}.txt"] = f"Number {name} is new."
        publish(fresh, state).open.stored_vectors("chunk", EMBEDDER)
    assert read_row_counts == [20, 1, 1, 1, 2]
    assert len(fresh.snapshot().open_store.rows(sql.SEGMENTS_OF, (EMBEDDER,))) == 2


def test_a_number_that_is_given_again_is_another_segment(fresh: Corpus) -> None:
    previous_snapshot = publish(fresh, FIRST)
    previous_vectors = previous_snapshot.open.stored_vectors("chunk", EMBEDDER)
    cut_a_segment(fresh)
    with fresh.writer() as writer:
        writer.repair()
        writer.remove("a.txt")  # so that other vectors come first in the segment that is written now
        add_missing_vectors(writer)
        writer.publish()
    snapshot = fresh.snapshot()
    old, new = (generation.open.places["chunk", EMBEDDER] for generation in (previous_snapshot, snapshot))
    assert_same(new, rebuild_places(snapshot))
    assert new.segments.keys() == old.segments.keys()
    stays = np.flatnonzero(np.isin(old.keys.values, new.keys.values))
    everything = Allowed(new.keys.values)
    np.testing.assert_array_equal(snapshot.vectors("chunk", EMBEDDER, everything), previous_vectors.vectors_at(stays))
