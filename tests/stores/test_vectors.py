"""Vectors on their way into a store and out of it: what is refused, how segments are joined, what is searched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import StoreError
from spolia.models.vectors import SparseRows
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.backends import sql
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.files import graph_folder, segment_path
from spolia.stores.indexes import HNSW, Exact
from spolia.stores.manifest import GroupEmbedding as Manifested
from spolia.stores.manifest import Manifest
from spolia.stores.open_store import get_open_store
from spolia.stores.vectors import segment_search, segments
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.graphs import build_graphs, graph_path
from spolia.stores.vectors.segment_search import ExactSearch, GraphSearch, vector_search
from spolia.stores.vectors.segments import SegmentWriter, open_any, plan_joins
from spolia.stores.writer import Writer
from spolia.types import Document, Node, Span
from tests.stores.vector_fixtures import drawn_vectors

EMBEDDER, DIMENSION = "drawn/1", 12


def hashes(count: int, start: int = 0) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(start, start + count)]


@pytest.fixture
def taking(corpus: Corpus) -> Iterator[SegmentWriter]:
    with corpus.writer() as writer:
        writer._connection.execute(sql.BEGIN)
        yield SegmentWriter(writer.store.folder, writer._connection)
        writer._connection.execute(sql.ROLLBACK)


def put_at(vectors: Vectors, row: int, value: float) -> Vectors:
    changed = vectors.copy()
    changed[row, 3] = value
    return changed


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (
            [*drawn_vectors(3, DIMENSION), *drawn_vectors(1, 5), *drawn_vectors(2, DIMENSION)],
            r"Vector 3 by 'drawn/1' has shape \(5,\)",
        ),
        (drawn_vectors(6, 5), r"Vector 0 by 'drawn/1' has shape \(5,\), where 12 numbers"),
        ([*drawn_vectors(5, DIMENSION), np.float32(1)], r"Vector 5 by 'drawn/1' has shape \(\)"),
        (drawn_vectors(5, DIMENSION), "gave 5 vectors for 6 texts"),
        (None, "'drawn/1' gave None for 6 texts, which are not vectors"),
        (np.array(1.0), "'drawn/1' gave array.* for 6 texts, which are not vectors"),
        (put_at(drawn_vectors(6, DIMENSION), 4, np.nan), "Vector 4 by 'drawn/1' holds NaN or infinity"),
        (put_at(drawn_vectors(6, DIMENSION), 2, -np.inf), "Vector 2 by 'drawn/1' holds NaN or infinity"),
        (put_at(drawn_vectors(6, DIMENSION), 1, 9), "Vector 1 by 'drawn/1' has length 9.*, not 1"),
    ],
)
def test_what_no_vectors_are_is_refused_with_its_row_and_nothing_is_kept(
    taking: SegmentWriter, vectors: Vectors, said: str
) -> None:
    taking.add(EMBEDDER, hashes(1, 99), drawn_vectors(1, DIMENSION))
    with pytest.raises(StoreError, match=said):
        taking.add(EMBEDDER, hashes(6), vectors)
    assert not any(taking.is_pending(EMBEDDER, hash) for hash in hashes(6))
    taking.flush()
    assert [row[2] for row in taking.connection.execute(sql.SEGMENTS_OF, (EMBEDDER,))] == [1]


def test_vectors_of_any_length_are_kept_as_they_are_where_the_metric_asks_for_it(taking: SegmentWriter) -> None:
    raw = drawn_vectors(6, DIMENSION, unit=False)
    taking.add(EMBEDDER, hashes(6), raw, unit=False)
    with pytest.raises(StoreError, match="NaN"):
        taking.add(EMBEDDER, hashes(6, 6), put_at(raw, 1, np.nan), unit=False)
    taking.flush()
    segment = open_any(segment_path(taking.store, EMBEDDER, 1))
    assert isinstance(segment.vectors, np.ndarray)  # type: ignore[union-attr]
    assert np.array_equal(segment.vectors, raw)  # type: ignore[union-attr]


def test_vectors_of_no_text_are_taken(taking: SegmentWriter) -> None:
    taking.add(EMBEDDER, [], np.zeros((0, DIMENSION), np.float32))
    taking.add(EMBEDDER, hashes(1), np.zeros((1, DIMENSION), np.float32))  # of a text that is not known at all
    taking.flush()
    assert [row[2] for row in taking.connection.execute(sql.SEGMENTS_OF, (EMBEDDER,))] == [1]


def test_sparse_vectors_go_the_same_way(taking: SegmentWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SMALL_SEGMENTS", 3)
    texts = [{1: 0.5, 8: 1.0}, {}, {2: 3.0}, {8: 0.25}, {1: 1.0}]
    for number, text in enumerate(texts):
        taking.add_sparse("splade", hashes(1, number), SparseRows.from_weights([text]))
        taking.flush()
    sizes = list(taking.connection.execute(sql.SEGMENTS_OF, ("splade",)))
    assert [(row[1], row[2]) for row in sizes] == [(0, 5)]  # joined twice
    weights_by_hash = {}
    for hash, row in taking.connection.execute(sql.VECTOR_ROWS, ("splade", sizes[0][0])):
        weights_by_hash[hash] = open_any(segment_path(taking.store, "splade", sizes[0][0])).rows.weights_of(row)  # type: ignore[union-attr]
    assert weights_by_hash == dict(zip(hashes(5), texts, strict=True))
    with pytest.raises(StoreError, match="2 hashes came with 1 sparse vectors"):
        taking.add_sparse("splade", hashes(2), SparseRows.from_weights([{}]))
    with pytest.raises(StoreError, match="'splade' gave dense vectors, where it has sparse ones"):
        taking.add("splade", hashes(1), drawn_vectors(1, DIMENSION))


# Joining.


@pytest.mark.slow
@given(st.lists(st.integers(1, 90_000), max_size=40), st.sampled_from([None, 5_000, 50_000]))
def test_joining_comes_to_rest_with_few_segments(counts: list[int], above: int | None) -> None:
    rows = dict(enumerate(counts, 1))
    for _ in range(6):
        groups = plan_joins(rows, above, small=4_096, many=16)
        numbers = [number for group in groups for number in group]
        assert len(numbers) == len(set(numbers))
        assert all(rows[number] < segments.FROZEN_ROWS for number in numbers)
        for group in groups:
            number = max(rows) + 1
            rows[number] = sum(rows.pop(old) for old in group)
        if not groups:
            break
    assert not groups
    assert sum(rows.values()) == sum(counts)
    loose = [count for count in rows.values() if count < segments.FROZEN_ROWS]
    assert sum(loose) < segments.FROZEN_ROWS
    if above is not None and len(loose) > 1:
        bare = sum(count for count in loose if count < above)
        assert bare < max(above, sum(loose) // 4)


def test_a_growing_store_writes_each_row_some_few_times() -> None:
    rows: dict[int, int] = {}
    written = graphed = total = 0
    for number in range(1, 2_001):
        rows[number * 10] = 500
        total += 500
        for group in plan_joins(rows, 20_000, small=4_096, many=16):
            size = sum(rows.pop(old) for old in group)
            rows[number * 10 + 1] = size
            written += size
            graphed += size if size >= 20_000 else 0
    assert sum(rows.values()) == total == 1_000_000
    assert len(rows) < 40
    assert written < 10 * total
    assert graphed < 6 * total


# Searching a store.

SETTINGS = HNSW(expansion_add=64, expansion_search=64, above=3_000)


@pytest.fixture
def large_corpus(fast_folder: Path) -> Corpus:
    """Five documents of 1,000 lines each, a vector for each line, in one segment."""
    corpus = Corpus(str(fast_folder / "large.spolia")).create()
    with corpus.writer() as writer:
        writer.define("line", Manifest("line", "lines", "1", embeddings=(Manifested(EMBEDDER, DIMENSION),)))
        for number in range(5):
            put_lines(writer, number)
        missing = [hash for hash, _ in writer.unembedded("line", EMBEDDER)]
        writer.add_vectors(EMBEDDER, missing, drawn_vectors(len(missing), DIMENSION))
    return corpus


def put_lines(writer: Writer, number: int) -> None:
    lines = [f"Line {line} of {number}." for line in range(1_000)]
    text, id = "".join(lines), f"d{number}"
    nodes, start = [], 0
    for line, words in enumerate(lines):
        nodes.append(Node(f"{id}:{line}", words, id, "line", span=Span(start, start + len(words)), number=line))
        start += len(words)
    writer.put_document(Document(id, text, uri=id), nodes, SourceRow(id, content_hash=id))


def build(corpus: Corpus) -> None:
    rows = {row[1]: row[3] for row in get_open_store(corpus.backend).rows(sql.SEGMENTS)}
    build_graphs(Path(corpus.path), EMBEDDER, rows, "cosine", SETTINGS)


def search_of(corpus: Corpus, index: HNSW | Exact) -> tuple[ExactSearch, Allowed]:
    snapshot = corpus.snapshot()
    search = vector_search(snapshot, "line", EMBEDDER, "cosine", index)
    assert isinstance(search, ExactSearch)
    return search, Allowed(search.placed.keys)


@pytest.mark.slow
def test_a_graph_is_used_as_soon_as_it_is_built(large_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(segment_search, "note", noted.append)
    search, allowed = search_of(large_corpus, SETTINGS)
    right, _ = search_of(large_corpus, Exact())
    queries = drawn_vectors(3, DIMENSION, 8)
    assert search.search(queries, 10, allowed) == right.search(queries, 10, allowed)
    assert len(noted) == 1
    assert "is not built yet" in noted[0]
    build(large_corpus)
    hits = search.search(queries, 10, allowed)
    assert len(noted) == 1
    assert [len(ranking) for ranking in hits] == [10, 10, 10]
    assert isinstance(search, GraphSearch)
    assert search.graphs[0]() is search_of(large_corpus, SETTINGS)[0].graphs[0]()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_damaged_graph_is_done_without_and_said(large_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(segment_search, "note", noted.append)
    build(large_corpus)
    number = get_open_store(large_corpus.backend).rows(sql.SEGMENTS)[0][1]
    path = graph_path(graph_folder(Path(large_corpus.path), EMBEDDER), number, "cosine", SETTINGS)
    content = path.read_bytes()
    path.write_bytes(content[:500] + b"\xff" * 64 + content[564:])
    search, allowed = search_of(large_corpus, SETTINGS)
    queries = drawn_vectors(3, DIMENSION, 8)
    for _ in range(2):
        assert search.search(queries, 10, allowed) == search_of(large_corpus, Exact())[0].search(queries, 10, allowed)
    assert len(noted) == 2
    assert all("its checksum differs" in message for message in noted)
    path.unlink()
    build(large_corpus)
    assert path.read_bytes() == content


@pytest.mark.slow
def test_nodes_that_were_removed_are_not_found(large_corpus: Corpus) -> None:
    build(large_corpus)
    previous_search, whole = search_of(large_corpus, SETTINGS)
    query = previous_search.placed.vectors(previous_search.placed.places[:1])  # the very vector of the first line
    assert previous_search.search(query, 1, whole)[0][0][0] == whole.keys[0]
    with large_corpus.writer() as writer:
        writer.remove("d0")
    search, allowed = search_of(large_corpus, SETTINGS)
    assert len(allowed.keys) == 4_000
    assert len(search.placed.segments[0]) == 5_000
    hits = search.search(query, 100, allowed)[0]
    assert len(hits) == 100
    assert not {key for key, _ in hits} & set(whole.keys[:1000].tolist())
    assert previous_search.search(query, 1, whole)[0][0][0] == whole.keys[0]  # an older generation finds what it found


@pytest.mark.slow
def test_a_small_group_is_compared(large_corpus: Corpus) -> None:
    assert type(search_of(large_corpus, SETTINGS.but(above=6_000))[0]) is ExactSearch


@pytest.mark.slow
def test_nodes_without_vectors_are_an_error(large_corpus: Corpus) -> None:
    with pytest.raises(StoreError, match=r"5000 nodes of group 'line' in .* have no vector from 'another'"):
        vector_search(large_corpus.snapshot(), "line", "another", "cosine", Exact())
