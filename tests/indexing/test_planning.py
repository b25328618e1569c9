"""What a change would take is told before it is done; what is there is found until the new is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.indexing.report import Progress
from spolia.indexing.splitters.paragraphs import Paragraphs
from spolia.indexing.sync import sync
from spolia.stores.corpus import Corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    for number in range(8):
        (made / f"{number}.txt").write_text(f"Document {number} is about stones.\n\nIt has number {number}.")
    return made


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


def test_the_old_generation_serves_until_the_new_one_is_whole(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    seen: set[tuple[int, int]] = set()

    def look(now: Progress) -> None:
        stats = corpus.latest().stats()
        seen.add((stats.documents, dict(stats.nodes)["chunk"]))

    sync(folder, corpus, splitter=Paragraphs(), rebuild=True, batch=2, progress=look)
    assert seen == {(8, 8)}
    assert dict(corpus.latest().stats().nodes) == {"chunk": 16}


def test_without_a_rebuild_each_batch_is_published(folder: Path, corpus: Corpus) -> None:
    seen: set[int] = set()
    sync(folder, corpus, batch=2, progress=lambda now: seen.add(corpus.latest().stats().documents))
    assert {0, 2, 4, 6} <= seen
