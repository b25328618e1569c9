"""A sync that publishes in batches leaves lexical indexes that are searched as fast as those made in one go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.indexing.sync.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.stores import files
from spolia.stores.corpus import Corpus
from spolia.stores.files import count_deleted, lexical_folder, small_segments
from spolia.stores.integrity import find_problems
from spolia.types import Query

WORDS = ("stone", "arch", "wall", "river", "boat", "copper", "lantern")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "FEW", 0)
    new_folder = tmp_path / "notes"
    new_folder.mkdir()
    for number in range(40):
        words = " ".join(WORDS[(number * power) % 7] for power in range(1, 6))
        (new_folder / f"{number:02}.txt").write_text(f"Note {number}: {words}.")
    return new_folder


def index_of(corpus: Corpus) -> Path:
    index = lexical_folder(Path(corpus.path), "chunk", corpus.latest().indexes["chunk"][0])
    assert not count_deleted(index)
    return index


def segments(corpus: Corpus) -> list[int]:
    return small_segments(index_of(corpus))


def segments_of(corpus: Corpus) -> list[int]:
    return sorted(
        (segment["max_doc"] for segment in json.loads((index_of(corpus) / "meta.json").read_text())["segments"]),
        reverse=True,
    )


def search_all(corpus: Corpus) -> list[list[tuple[str, float]]]:
    flow = BM25(corpus.group("chunk"), top_k=40)
    return [[(hit.node.text, hit.score) for hit in flow(Query(f"{word} {two}"))] for word in WORDS for two in WORDS]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [5, 6, 10, 13, 20])
def test_batches_end_in_one_segment_that_finds_the_same_with_the_same_scores(
    folder: Path, tmp_path: Path, batch: int
) -> None:
    whole, parts = Corpus(str(tmp_path / "whole.spolia")), Corpus(str(tmp_path / "parts.spolia"))
    sync(folder, whole)
    report = sync(folder, parts, batch=batch)
    assert segments(whole) == segments(parts) == [40]
    assert report.generation == parts.latest().generation
    assert search_all(parts) == search_all(whole)
    assert not find_problems(parts.latest())


@pytest.mark.slow
def test_large_segments_that_tantivy_leaves_apart_become_one_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = Corpus(str(tmp_path / "whole.spolia")), Corpus(str(tmp_path / "parts.spolia"))
    sync(folder, whole)
    monkeypatch.setattr(files, "_SMALL", 1.0)  # so that 13 nodes are a large segment
    with monkeypatch.context() as patch:
        patch.setattr(files, "REBUILT", 39)
        sync(folder, parts, batch=13)
        assert segments_of(parts) == [13, 13, 13, 1]
    (folder / "more.txt").write_text("One more stone.")
    for corpus in (whole, parts):
        sync(folder, corpus, batch=13)
    assert segments_of(parts) == [41]
    assert search_all(parts) == search_all(whole)
    assert not find_problems(parts.latest())


@pytest.mark.slow
def test_a_sync_that_changes_little_or_nothing_merges_nothing(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    first = sync(folder, corpus, batch=10)
    assert sync(folder, corpus, batch=10).generation == first.generation
    (folder / "more.txt").write_text("One more stone.")
    second = sync(folder, corpus, batch=10)
    assert second.generation == first.generation + 1
    assert segments(corpus) == [40, 1]
    for number in range(20):
        (folder / f"more-{number}.txt").write_text(f"Another stone {number}.")
    sync(folder, corpus)
    assert segments(corpus) == [61]


def test_only_segments_of_the_smallest_level_are_counted(tmp_path: Path) -> None:
    def small_sizes(*sizes: int) -> list[int]:
        text = ",".join(f'{{"max_doc": {size}, "deletes": null}}' for size in sizes)
        (tmp_path / "meta.json").write_text(f'{{"segments": [{text}]}}')
        return small_segments(tmp_path)

    assert small_sizes(500, 9_000, 20) == [9_000, 500, 20]
    assert small_sizes(40_000, 1_000, 700) == [1_000, 700]
    assert small_sizes(16_000, 1_000) == [16_000, 1_000]
    assert small_sizes(40_000, 39_000) == []
    assert small_sizes() == []
    assert files.is_scattered(tmp_path) is False
    small_sizes(40_000, 39_000)
    assert files.is_split(tmp_path)
    assert files.is_scattered(tmp_path)
    small_sizes(32_000, 32_000, 32_000, 4_000)
    assert files.is_split(tmp_path)
    small_sizes(90_000, 20_000, 300)
    assert not files.is_split(tmp_path)
    small_sizes(150_000, 80_000)
    assert not files.is_split(tmp_path)
    small_sizes(8_000, 7_000)
    assert not files.is_split(tmp_path)
    small_sizes(4_000, 1_000, 725)
    assert files.is_scattered(tmp_path)
    small_sizes(5_000, 725)
    assert not files.is_scattered(tmp_path)
