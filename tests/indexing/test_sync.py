"""A store in step with a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.errors import ManifestMismatch
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.report import DocumentReport, Progress, SyncReport, reports
from spolia.indexing.sync.sync import sync
from spolia.models.onnx.tokenizer import WordPiece
from spolia.retrieval.dense import Dense
from spolia.stores.corpus import Corpus
from spolia.types import Query, Value
from tests.indexing.sample_documents import pdf_of

BACKENDS = ("folder", "postgres")

embedded: list[str] = []


@dataclass(frozen=True)
class Letters(Value):
    """A real, tiny embedder: the frequencies of the letters. It notes what it was asked."""

    name: str = "letters@1"
    dimension: int = 26
    window: int = 40
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        embedded.extend(texts)
        counts = np.array([[text.lower().count(chr(97 + i)) + 0.01 for i in range(26)] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) + 2 for text in texts]

    def covers(self, text: str) -> float:
        return sum(character.isascii() for character in text) / len(text) if text else 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    embedded.clear()
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    (tmp_path / "docs" / "a.txt").write_text("Arches stand on piers.")
    (tmp_path / "docs" / "b.md").write_text("# Roads\n\nRoads lead to Rome.")
    (tmp_path / "docs" / "sub" / "c.html").write_text("<title>Walls</title><p>Walls keep wolves out.")
    return tmp_path / "docs"


@pytest.fixture
def corpus(address: str) -> Corpus:
    return Corpus(address)


def texts(corpus: Corpus) -> dict[str, list[str]]:
    texts_by_uri: dict[str, list[str]] = {}
    for node in corpus.snapshot().all_nodes("chunk"):
        texts_by_uri.setdefault(node.uri, []).append(node.text)
    return texts_by_uri


def counts(report: SyncReport) -> tuple[int, ...]:
    """added, changed, moved, removed, unchanged"""
    return report.added, report.changed, report.moved, report.removed, report.unchanged


def search_uris(corpus: Corpus, text: str) -> list[str]:
    snapshot = corpus.snapshot()
    hits = snapshot.search("chunk", text, 5, frozenset())
    return [node.uri for node in snapshot.nodes([key for key, _ in hits], frozenset())]


def files_of(store: str) -> dict[str, tuple[int, int]]:
    return {
        os.path.join(root, name): (
            os.stat(os.path.join(root, name)).st_size,
            os.stat(os.path.join(root, name)).st_mtime_ns,
        )
        for root, _, names in os.walk(store)
        for name in names
        if not name.endswith((".lock", "-shm"))
    }


@pytest.mark.slow
def test_a_folder_is_indexed_and_can_be_searched(folder: Path, corpus: Corpus) -> None:
    report = sync(folder, corpus)
    assert counts(report) == (3, 0, 0, 0, 0)
    assert set(texts(corpus)) == {"a.txt", "b.md", "sub/c.html"}
    assert search_uris(corpus, "wolves") == ["sub/c.html"]
    assert report.chunks == 3
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_nothing_changed_means_no_write_and_no_embedding(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=Letters())
    assert len(embedded) == 3
    previous_files = files_of(corpus.path)
    report = sync(folder, corpus, embedder=Letters())
    assert counts(report) == (0, 0, 0, 0, 3)
    assert (report.generation, report.embedded, len(embedded)) == (1, 0, 3)
    assert files_of(corpus.path) == previous_files


@pytest.mark.slow
def test_a_file_with_another_time_and_the_same_content_is_not_read_again(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    os.utime(folder / "a.txt", (1, 1))
    report = sync(folder, corpus)
    assert counts(report) == (0, 0, 0, 0, 3)
    assert report.generation == 1
    assert corpus.snapshot().sources()["a.txt"].mtime_ns > 1_000_000_000, (
        "filters see another time when it is published"
    )
    with corpus.writer() as writer:
        assert writer.sources()["a.txt"].mtime_ns == 1_000_000_000


@pytest.mark.slow
def test_a_moved_file_costs_nothing(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=Letters())
    previous_ids = {node.id for node in corpus.snapshot().all_nodes("chunk")}
    (folder / "a.txt").rename(folder / "sub" / "moved.txt")
    report = sync(folder, corpus, embedder=Letters())
    assert counts(report) == (0, 0, 1, 0, 2)
    assert {node.id for node in corpus.snapshot().all_nodes("chunk")} == previous_ids
    assert search_uris(corpus, "arches") == ["sub/moved.txt"]
    assert report.embedded == 0
    assert "a.txt" not in corpus.snapshot().sources()


@pytest.mark.slow
def test_a_changed_file_gets_new_nodes_and_only_new_texts_are_embedded(folder: Path, corpus: Corpus) -> None:
    splitter = SlidingWindow(size=10, overlap=0)
    (folder / "a.txt").write_text("The first sentence stays as it is. The second sentence will be another.")
    sync(folder, corpus, splitter=splitter, embedder=Letters())
    embedded.clear()
    (folder / "a.txt").write_text("The first sentence stays as it is. The second sentence is new.")
    report = sync(folder, corpus, splitter=splitter, embedder=Letters())
    assert counts(report) == (0, 1, 0, 0, 2)
    assert embedded == ["The second sentence is new."]
    assert texts(corpus)["a.txt"] == ["The first sentence stays as it is.", "The second sentence is new."]


@pytest.mark.slow
def test_a_deleted_file_is_gone_and_returns_without_embedding(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=Letters())
    (folder / "a.txt").unlink()
    report = sync(folder, corpus, embedder=Letters())
    assert counts(report) == (0, 0, 0, 1, 2)
    assert search_uris(corpus, "arches") == []
    (folder / "a.txt").write_text("Arches stand on piers.")
    assert sync(folder, corpus, embedder=Letters()).embedded == 0
    assert search_uris(corpus, "arches") == ["a.txt"]


@pytest.mark.slow
def test_copies_share_their_nodes(folder: Path, corpus: Corpus) -> None:
    (folder / "copy.txt").write_text("Arches stand on piers.")
    sync(folder, corpus)
    assert len(list(corpus.snapshot().all_nodes("chunk"))) == 3
    (folder / "a.txt").unlink()
    sync(folder, corpus)
    assert search_uris(corpus, "arches") == ["copy.txt"]


@pytest.mark.slow
def test_two_files_that_change_places(folder: Path, corpus: Corpus) -> None:
    (folder / "z.txt").write_text("Zebras graze.")
    sync(folder, corpus, embedder=Letters())
    a, z = (folder / "a.txt").read_text(), (folder / "z.txt").read_text()
    (folder / "a.txt").write_text(z)
    (folder / "z.txt").write_text(a)
    report = sync(folder, corpus, embedder=Letters())
    assert (search_uris(corpus, "zebras"), search_uris(corpus, "arches")) == (["a.txt"], ["z.txt"])
    assert report.embedded == 0
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_what_was_read_is_published_after_a_while_however_little_it_is(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.indexing.sync.sync_run.LONGEST_UNPUBLISHED_S", 0.0)
    counts: list[int] = []

    def stop(now: Progress) -> None:
        counts.append(len(corpus.latest().sources()))
        if now.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sync(folder, corpus, progress=stop, workers=0)
    assert len(corpus.latest().sources()) >= 2
    assert sorted(counts) == counts
    monkeypatch.undo()
    assert sync(folder, corpus).failed == ()
    assert corpus.latest().check() == []


@pytest.mark.slow
def test_each_batch_is_published(folder: Path, corpus: Corpus) -> None:
    for number in range(10):
        (folder / f"n{number}.txt").write_text(f"Passage number {number}.")
    published: list[tuple[int, int]] = []

    def record_progress(progress: Progress) -> None:
        published.append((progress.done, sum(1 for _ in corpus.snapshot().documents())))

    report = sync(folder, corpus, batch=4, progress=record_progress)
    assert report.generation == 4
    assert [count for _, count in published] == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]
    assert [done for done, _ in published] == list(range(1, 14))


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_where_it_was(folder: Path, corpus: Corpus) -> None:
    for number in range(10):
        (folder / f"n{number}.txt").write_text(f"Passage number {number}.")

    def stop(progress: Progress) -> None:
        if progress.done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sync(folder, corpus, batch=4, progress=stop)
    assert sum(1 for _ in corpus.snapshot().documents()) == 4
    assert corpus.snapshot().check() == []
    assert counts(sync(folder, corpus, batch=4)) == (9, 0, 0, 0, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("here", "said"),
    [
        ({"splitter": SlidingWindow(size=50)}, ["SlidingWindow.size: 200 there, 50 here"]),
        ({"embedder": Letters("other@2")}, ["letters@1", "other@2"]),
        ({"embedder": None}, ["is embedded with 'letters@1'", "embedder="]),
        ({"readers": ()}, ["docx 3"]),
    ],
)
def test_other_parts_are_refused_naming_both(
    folder: Path, corpus: Corpus, here: dict[str, Any], said: list[str]
) -> None:
    sync(folder, corpus, embedder=Letters())
    with pytest.raises(Exception) as error:  # noqa: PT011
        sync(folder, corpus, **{"embedder": Letters(), **here})
    if "readers" not in here:
        assert isinstance(error.value, ManifestMismatch)
        assert all(part in str(error.value) for part in said)
    assert len(texts(corpus)) == 3


@pytest.mark.slow
def test_an_embedder_that_is_named_later_embeds_the_nodes_that_are_there(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    previous_ids = [node.id for node in corpus.snapshot().all_nodes("chunk")]
    whole = planned(folder, corpus, embedder=Letters())
    (plan,) = whole.groups
    assert not whole.rebuild
    assert (plan.change, plan.nodes, plan.texts) == ("embedded", 0, 3)
    report = sync(folder, corpus, embedder=Letters())
    assert (report.unchanged, report.chunks, report.embedded) == (3, 0, 3)
    snapshot = corpus.snapshot()
    assert [node.id for node in snapshot.all_nodes("chunk")] == previous_ids
    assert snapshot.manifest("chunk").embedder == Letters().name
    assert len(Dense(corpus.group(), Letters())(Query("stone"))) == 3
    assert snapshot.check() == []


@pytest.mark.slow
def test_the_splitter_of_an_embedder_is_the_same_one_wherever_its_weights_are(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WordPiece, "count", lambda self, texts: [len(text.split()) for text in texts])
    monkeypatch.setattr(WordPiece, "covers", lambda self, text: 1.0)
    sync(folder, corpus, splitter=SlidingWindow(tokenizer=WordPiece("/here")))
    previous_texts = texts(corpus)
    assert counts(sync(folder, corpus, splitter=SlidingWindow(tokenizer=WordPiece("/there")))) == (0, 0, 0, 0, 3)
    assert texts(corpus) == previous_texts
    monkeypatch.setattr(WordPiece, "fingerprint", lambda self: f"another vocabulary{self.weights}")
    with pytest.raises(ManifestMismatch, match="SlidingWindow"):
        sync(folder, corpus, splitter=SlidingWindow(tokenizer=WordPiece("/elsewhere")))


@pytest.mark.slow
def test_a_rebuild_takes_other_parts(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    report = sync(folder, corpus, splitter=SlidingWindow(size=50), rebuild=True)
    assert counts(report) == (0, 0, 0, 0, 3)
    assert report.chunks == dict(corpus.snapshot().stats().nodes)["chunk"] == 3
    assert "size=50" in corpus.snapshot().manifest("chunk").transform
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_the_analyser_of_the_group_stays_and_the_first_one_suits_the_language(tmp_path: Path) -> None:
    folder, corpus = tmp_path / "docs", Corpus(str(tmp_path / "s.spolia"))
    folder.mkdir()
    (folder / "a.txt").write_text("Der Turm, der in der Stadt steht, ist nicht hoch, und die Brücken sind alt.")
    sync(folder, corpus)
    assert corpus.snapshot().manifest("chunk").analyzer.stem == "german"
    (folder / "a.txt").write_text("The tower that stands in the city is not high, and the bridges are old.")
    assert sync(folder, corpus).changed == 1


@pytest.mark.slow
def test_the_report_of_each_document_is_kept_in_the_store(folder: Path, corpus: Corpus) -> None:
    (folder / "p.pdf").write_bytes(pdf_of([["One two three."], []]))
    (folder / "long.txt").write_text("word " * 60)
    (folder / "latin.txt").write_bytes("schön und gut".encode("latin-1"))
    (folder / "korean.txt").write_text("서울은 대한민국의 수도이다.")
    (folder / "empty.txt").write_text("")
    report = sync(folder, corpus, embedder=Letters())
    document_reports = reports(corpus)
    assert document_reports["p.pdf"] == DocumentReport(
        "pdf", 15, pages=2, empty_pages=(2,), chunks=1, tokens=5,
    )  # fmt: skip
    assert document_reports["long.txt"].beyond_window == document_reports["long.txt"].chunks == 1
    assert "window" in document_reports["long.txt"].warnings[0]
    assert document_reports["latin.txt"].encoding == "cp1252"
    assert "knows" in document_reports["korean.txt"].warnings[0]
    assert document_reports["empty.txt"] == DocumentReport(
        "text", 0, tokens=0, encoding="utf-8", warnings=("It has no text.",)
    )
    assert document_reports["a.txt"].warnings == ()
    assert report.warned == 4


@pytest.mark.slow
def test_a_document_too_long_to_list_its_nodes_is_the_same(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "copy.txt").write_text("Arches stand on piers.")
    monkeypatch.setattr("spolia.stores.groups.nodes.LISTED", 0)
    sync(folder, corpus, embedder=Letters())
    document_reports = reports(corpus)
    assert (
        document_reports["a.txt"]
        == document_reports["copy.txt"]
        == DocumentReport("text", 22, chunks=1, tokens=6, encoding="utf-8")
    )
    assert texts(corpus)["a.txt"] == ["Arches stand on piers."]
