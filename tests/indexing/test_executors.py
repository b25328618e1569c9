"""Whatever carries the work of a sync, this process, one or several others, or an executor of one's own: it gives the
same store.
"""

from __future__ import annotations

import io
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import Cancelled, ModelUnavailable
from spolia.indexing import Executor, InProcess, Prepared, SplitPlan, WorkerProcesses, prepare
from spolia.indexing.readers.reader import Blob, Container, FileReader, reader_of
from spolia.indexing.readers.registry import READERS, by_suffix
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.report import SyncReport
from spolia.indexing.sync.sync import sync
from spolia.indexing.workers.protocol import decode_pieces, decode_reading, encode_pieces, encode_reading
from spolia.models.protocols import Embedder, Kind
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Embedding
from spolia.stores.groups.nodes import GroupBuild, grow
from spolia.stores.vectors.dense import Vectors
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.worker_process import read_frame, write_frame
from tests.indexing.sample_documents import pdf_of
from tests.stores.scenario import tables

WORDS = "Spolia are stones that builders take from older buildings and put into new ones."


@dataclass(frozen=True)
class Apart(HashingEmbedder):
    """May be computed in another process, and fails there or everywhere when it is told to."""

    isolated: ClassVar[bool] = True
    fails: str = ""

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        if self.fails == "everywhere":
            raise ModelUnavailable("No weights here.")
        if self.fails.startswith("sleep"):
            Path(self.fails.split()[1]).touch()
            time.sleep(600)
        if kind == "passage" and self.fails and os.getpid() != int(self.fails):
            os._exit(3)
        return super().embed(texts, kind=kind)


@dataclass
class Elsewhere:
    """An executor of one's own: it gets what can be pickled, and gives what can be sent."""

    count: int = 1
    read: list[str] = field(default_factory=list)
    embedded: int = 0

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan) -> Prepared:
        self.read.append(blob.uri)
        return send_prepared(prepare(*pickle.loads(pickle.dumps((reader, blob, plan)))))

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        yield from InProcess().parts(container, blob)

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        self.embedded += len(texts)
        return InProcess().embed(pickle.loads(pickle.dumps(embedder)), texts)

    def end(self) -> None:
        pass


def send_prepared(prepared: Prepared) -> Prepared:
    """What arrives of it."""
    message, attached = encode_reading(prepared.reading)
    stream = io.BytesIO()
    write_frame(stream, {**message, "pieces": encode_pieces(prepared.pieces)}, attached)
    stream.seek(0)
    reply = read_frame(stream)
    assert reply is not None
    return Prepared(decode_reading(*reply), decode_pieces(reply[0]["pieces"]), prepared.has_parts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    new_folder = tmp_path_factory.mktemp("docs")
    for number in range(2):
        lines = "\n\n".join(f"{WORDS} {number}.{row}. Arches stand on pillar {row}." for row in range(20))
        (new_folder / f"{number}.txt").write_text(lines)
        (new_folder / f"{number}.md").write_text(f"# Stones {number}\n\n{lines}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
        (new_folder / f"{number}.html").write_text(f"<html><body><h1>Stones</h1><p>{lines}</p></body></html>")
    (new_folder / "a.pdf").write_bytes(pdf_of([[WORDS, "Old roads."], ["A second page.", WORDS]]))
    return new_folder


def build_store(folder: Path, store: Path, workers: int | Executor, embedder: Apart | None = None) -> SyncReport:
    corpus = Corpus(str(store))
    embedder = embedder or Apart()
    definition = Definition(Sentences(), parent="chunk", embeddings=(Embedding(embedder),))
    return sync(folder, corpus, embedder=embedder, groups=[corpus.group("below", definition)], workers=workers)


def vectors(store: Path) -> dict[tuple[str, str], bytes]:
    """By group and id of a node, the bits of its vector."""
    corpus = Corpus(str(store))
    bits_by_node: dict[tuple[str, str], bytes] = {}
    snapshot = corpus.latest()
    for group in ("chunk", "below"):
        nodes = list(snapshot.all_nodes(group))
        rows = corpus.backend.stored_vectors(snapshot, group, Apart().name).vectors_at(np.arange(len(nodes)))
        bits_by_node |= {(group, node.id): bits.tobytes() for node, bits in zip(nodes, rows, strict=True)}
    return bits_by_node


@pytest.fixture(scope="module")
def here(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("here") / "s.spolia"
    build_store(folder, store, 0)
    return store


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param(1, id="one process", marks=pytest.mark.slow),
        pytest.param(2, id="two processes", marks=pytest.mark.slow),
        pytest.param(Elsewhere(), id="an executor"),
        pytest.param(Elsewhere(count=100), id="many machines", marks=pytest.mark.slow),
    ],
)
def test_every_executor_gives_the_same_store(
    folder: Path, here: Path, tmp_path: Path, workers: int | Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.indexing.sync.prefetch.MANY_CALLS", 1)
    with Run() as run:
        report = build_store(folder, tmp_path / "s.spolia", workers)
    assert run.usage.embedded == report.embedded > 60
    assert tables(Corpus(str(tmp_path / "s.spolia"))) == tables(Corpus(str(here)))
    assert vectors(tmp_path / "s.spolia") == vectors(here)
    if isinstance(workers, Elsewhere):
        assert len(workers.read) == report.added == 7
        assert workers.embedded > 0


@pytest.mark.slow
def test_an_embedder_that_kills_its_process_is_asked_in_this_one(
    folder: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.indexing.sync.prefetch.MANY_CALLS", 1)
    build_store(folder, tmp_path / "s.spolia", 1, Apart(fails=str(os.getpid())))
    assert vectors(tmp_path / "s.spolia") == vectors(here)


@pytest.mark.slow
def test_an_embedder_that_fails_everywhere_says_why(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.indexing.sync.prefetch.MANY_CALLS", 1)
    with pytest.raises(ModelUnavailable, match="No weights here"):
        build_store(folder, tmp_path / "s.spolia", 1, Apart(fails="everywhere"))


def test_few_texts_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError("A process was started.")

    monkeypatch.setattr("spolia.worker_process.WorkerProcess._start", refuse)
    (tmp_path / "a.txt").write_text(WORDS)
    corpus = Corpus(f"{tmp_path}/s.spolia")
    assert sync(tmp_path, corpus, embedder=Apart(), workers=2).embedded == 1


@pytest.mark.slow
def test_a_run_that_is_cancelled_waits_for_no_process_that_embeds(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.indexing.sync.prefetch.MANY_CALLS", 1)
    begun = tmp_path / "begun"

    def index() -> None:
        with run:
            build_store(folder, tmp_path / "s.spolia", 2, Apart(fails=f"sleep {begun}"))

    run = Run()
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(index)
        while not begun.exists():
            assert not future.done() or future.result()
            time.sleep(0.02)
        run.cancel()
        with pytest.raises(Cancelled):
            future.result()


TEXTS = st.text(st.sampled_from("ab .\n#|-<p>é𝔸"), max_size=300)


@given(TEXTS, st.sampled_from([".txt", ".md", ".html"]), st.integers(20, 200))
@settings(max_examples=60)
def test_what_was_prepared_and_sent_gives_the_nodes_that_are_made_here(text: str, suffix: str, size: int) -> None:
    reader, blob = reader_of(f"a{suffix}", by_suffix(READERS)), Blob(f"a{suffix}", text.encode())
    assert reader is not None
    builds = [
        GroupBuild("window", SlidingWindow(size=size, overlap=5)),
        GroupBuild("paragraph", Paragraphs()),
        GroupBuild("sentence", Sentences(), parent="paragraph"),
    ]
    prepared = send_prepared(prepare(reader, blob, SplitPlan.from_builds(builds)))
    document = reader.read(blob).document
    assert prepared.reading.document == document
    assert prepared.pieces.keys() == {"window", "paragraph", "sentence"}
    (made_elsewhere,), (made_here,) = (
        grow([document], builds, prepared={document.id: prepared.pieces}),
        grow([document], builds),
    )
    assert made_elsewhere.by_group == made_here.by_group


def test_pieces_of_another_text_are_an_error_of_that_document_alone() -> None:
    document = Blob("a.txt", b"Stones.").document(next(iter(by_suffix(READERS).values())), "Stones.")
    gold = decode_pieces({"sentence": [[["Gold.", 0, "", "", []]]]})
    (grown,) = grow([document], [GroupBuild("sentence", Sentences())], prepared={document.id: gold})
    assert "where there is 'Stone'" in grown.reasons["sentence"]


def test_the_processes_are_an_executor_as_one_of_your_own() -> None:
    assert isinstance(WorkerProcesses(1), Executor)
    assert isinstance(InProcess(), Executor)
    assert isinstance(Elsewhere(), Executor)
