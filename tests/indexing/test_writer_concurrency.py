"""Writers make progress beside a long sync: it holds the store's lock only while it commits a batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event, Semaphore
from typing import Any, ClassVar
from zipfile import ZipFile

import pytest

from spolia.errors import FolderError, StoreBusy
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.registry import READERS
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.report import SyncReport
from spolia.indexing.sync.sync import sync
from spolia.models.protocols import Kind
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Embedding, Part, Piece, Splitter
from spolia.stores.groups.materialise import materialise
from spolia.stores.indexes import HNSW
from spolia.stores.staging import Staging
from spolia.stores.vectors.dense import Vectors
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Document, Node, Query

pytestmark = pytest.mark.slow

ANN, BOTH = ("ann",), ("ann", "bob")
WAIT_S = 5.0
"""What another writer may wait for a sync that reads a file for as long as the test lets it."""


class Slow:
    """Reads plain text; a file that is named `slow` only when it is told to."""

    name, version, media_type, suffixes = "slow", 1, "text/plain", (".note",)

    def __init__(self) -> None:
        self.reads, self.go = Event(), Event()
        self.read_of: list[str] = []

    def read(self, blob: Blob, /) -> Reading:
        self.read_of.append(blob.uri)
        if "slow" in blob.uri:
            self.reads.set()
            assert self.go.wait(600)
        return Reading(blob.document(self, blob.data.decode()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    (new_folder / "krill.note").write_text("Krill is eaten by whales.")
    (new_folder / "seals.note").write_text("Seals bark at whales.")
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


@pytest.fixture
def under_way(folder: Path, corpus: Corpus) -> Iterator[Callable[..., tuple[Slow, Future[SyncReport]]]]:
    """Starts a sync in a thread, and gives it when it reads its slow file."""
    readers: list[Slow] = []
    with ThreadPoolExecutor() as threads:

        def start(**options: Any) -> tuple[Slow, Future[SyncReport]]:
            reader = Slow()
            readers.append(reader)
            future = threads.submit(sync, folder, corpus, readers=[reader], workers=0, **options)
            while not reader.reads.wait(0.05):
                assert not future.done() or future.result()
            return reader, future

        yield start
        for reader in readers:
            reader.go.set()


def uris_readable_by(corpus: Corpus, principal: str) -> set[str]:
    with Run(principal=principal):
        return {node.uri for node in BM25(corpus.group(), 10)(Query("whales")).nodes}


def index_folder(folder: Path, corpus: Corpus, **options: Any) -> None:
    sync(folder, corpus, readers=[Slow()], workers=0, **options)
    (folder / "slow.note").write_text("Slow whales.")


def revoke(corpus: Corpus, uri: str, readers: Sequence[str]) -> None:
    with corpus.writer(timeout_s=WAIT_S) as writer:
        for document in list(writer.documents()):
            if document.uri == uri:
                writer.set_readers(document, readers)


def test_a_revocation_during_a_sync_is_visible_and_stays(folder: Path, corpus: Corpus, under_way: Any) -> None:
    index_folder(folder, corpus, access=lambda uri: BOTH)
    reader, run = under_way(access=lambda uri: BOTH)
    revoke(corpus, "krill.note", ANN)
    assert uris_readable_by(corpus, "bob") == {"seals.note"}
    reader.go.set()
    assert run.result().added == 1
    assert uris_readable_by(corpus, "bob") == {"seals.note", "slow.note"}
    assert corpus.latest().check() == []


def test_a_file_that_is_being_read_keeps_the_readers_that_it_is_given_meanwhile(
    folder: Path, corpus: Corpus, under_way: Any
) -> None:
    index_folder(folder, corpus, access=lambda uri: BOTH)
    (folder / "krill.note").write_text("Krill is eaten by whales and by seals.")
    for options in ({}, {"access": lambda uri: BOTH}):
        (folder / "slow.note").write_text(f"Slow whales {len(options)}.")
        (folder / "krill.note").write_text(f"Krill is eaten by whales and by {len(options)} seals.")
        if not options:  # who may read the new file has to be said
            sync(folder, corpus, readers=[free_reader()], workers=0, access=lambda uri: BOTH)
            (folder / "slow.note").write_text("Slow whales, again.")
            (folder / "krill.note").write_text("Krill is eaten by whales, again.")
        reader, run = under_way(**options)
        revoke(corpus, "krill.note", ANN)
        reader.go.set()
        assert run.result().changed == 2
        assert uris_readable_by(corpus, "bob") == {"seals.note", "slow.note"}
        assert uris_readable_by(corpus, "ann") == {"krill.note", "seals.note", "slow.note"}
        revoke(corpus, "krill.note", BOTH)


def free_reader() -> Slow:
    reader = Slow()
    reader.go.set()
    return reader


def test_a_first_sync_beside_one_of_another_folder_is_refused_as_if_it_had_begun_later(
    corpus: Corpus, under_way: Any, folder: Path, tmp_path: Path
) -> None:
    (folder / "slow.note").write_text("Slow whales.")
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "clams.note").write_text("Clams do not swim.")
    reader, run = under_way()
    sync(other_folder, corpus, readers=[free_reader()], workers=0)
    reader.go.set()
    with pytest.raises(FolderError, match=r"holds 1 documents of .*other, and none of them is in .*docs"):
        run.result()
    assert set(corpus.snapshot().sources()) == {"clams.note"}
    assert sync(other_folder, corpus, readers=[free_reader()], workers=0).unchanged == 1


def test_what_another_one_removes_during_a_sync_is_gone(folder: Path, corpus: Corpus, under_way: Any) -> None:
    index_folder(folder, corpus)
    reader, run = under_way()
    with corpus.writer(timeout_s=WAIT_S) as writer:
        writer.remove("krill.note")
    assert uris_readable_by(corpus, "ann") == {"seals.note"}
    reader.go.set()
    assert run.result().added == 1
    assert uris_readable_by(corpus, "ann") == {"seals.note", "slow.note"}
    assert corpus.latest().check() == []


def test_of_two_syncs_each_publishes_what_the_other_one_has_not(folder: Path, corpus: Corpus, under_way: Any) -> None:
    index_folder(folder, corpus)
    reader, run = under_way()
    (folder / "later.note").write_text("Later whales.")
    second = sync(folder, corpus, readers=[free_reader()], workers=0)
    assert (second.added, uris_readable_by(corpus, "ann")) == (
        2,
        {f"{n}.note" for n in ("krill", "seals", "slow", "later")},
    )
    reader.go.set()
    first = run.result()
    assert (first.added, first.unchanged, first.generation) == (0, 3, second.generation)
    assert corpus.latest().check() == []


def test_an_older_version_that_was_being_read_does_not_replace_a_newer_one(
    folder: Path, corpus: Corpus, under_way: Any
) -> None:
    index_folder(folder, corpus)
    reader, run = under_way()
    (folder / "slow.note").write_text("Whales that are not slow any more.")
    sync(folder, corpus, readers=[free_reader()], workers=0)
    reader.go.set()
    assert run.result().unchanged == 3
    (text,) = (document.text for document in corpus.latest().documents() if document.uri == "slow.note")
    assert text == "Whales that are not slow any more."


def test_a_group_that_is_built_meanwhile_lacks_no_document(folder: Path, corpus: Corpus, under_way: Any) -> None:
    index_folder(folder, corpus)
    reader, run = under_way()
    materialise([corpus.group("paragraph", Definition(Paragraphs()))], wait_s=WAIT_S)
    reader.go.set()
    run.result()
    sync(folder, corpus, readers=[free_reader()], workers=0)
    assert {node.uri for node in corpus.latest().all_nodes("paragraph")} == {"krill.note", "seals.note", "slow.note"}


class Pausing(HashingEmbedder):
    """Waits, when it is told to, before it gives the vectors of its first texts."""

    asked, go = Event(), Event()

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        if kind == "passage":
            self.asked.set()
            assert self.go.wait(600)
        return super().embed(texts, kind=kind)


@pytest.fixture
def pausing() -> Iterator[Callable[..., Future[Any]]]:
    """Starts something in a thread, and gives it when its embedder is asked."""
    Pausing.asked.clear()
    Pausing.go.clear()
    with ThreadPoolExecutor() as threads:

        def start(call: Callable[..., Any], *given: Any, **options: Any) -> Future[Any]:
            future = threads.submit(call, *given, **options)
            while not Pausing.asked.wait(0.05):
                assert not future.done() or future.result()
            return future

        yield start
        Pausing.go.set()


def search_by_meaning(corpus: Corpus, group: str = "chunk") -> set[str]:
    return {node.uri for node in Dense(corpus.group(group), Pausing(), 10)(Query("whales")).nodes}


def write_meanwhile(folder: Path, corpus: Corpus) -> None:
    """Another process adds a document, removes one and takes readers from one."""
    (folder / "later.note").write_text("Later whales.")
    (folder / "krill.note").unlink()
    sync(folder, corpus, readers=[Slow()], workers=0, access=lambda uri: ANN if uri == "seals.note" else BOTH)


def test_an_embedder_is_added_while_another_sync_adds_documents(
    folder: Path, corpus: Corpus, pausing: Callable[..., Future[Any]]
) -> None:
    sync(folder, corpus, readers=[free_reader()], workers=0)
    run = pausing(sync, folder, corpus, readers=[free_reader()], workers=0, embedder=Pausing())
    (folder / "later.note").write_text("Later whales.")
    assert sync(folder, corpus, readers=[free_reader()], workers=0).added == 1
    Pausing.go.set()
    run.result()
    assert search_by_meaning(corpus) == {"krill.note", "seals.note", "later.note"}
    assert corpus.latest().check() == []


@pytest.mark.parametrize("spilled", [False, True])
def test_others_write_during_a_rebuild_and_nobody_sees_a_part_of_it(
    folder: Path,
    corpus: Corpus,
    pausing: Callable[..., Future[Any]],
    monkeypatch: pytest.MonkeyPatch,
    spilled: bool,
) -> None:
    monkeypatch.setattr("spolia.indexing.sync.sync_run.STAGED_AT_ONCE", 1 if spilled else 32_000_000)
    sync(folder, corpus, readers=[Slow()], workers=0, access=lambda uri: BOTH)
    (folder / "wreck.note").write_text("A wreck, and whales in it.")
    run = pausing(
        sync, folder, corpus, readers=[Slow()], workers=0, embedder=Pausing(), splitter=Paragraphs(), rebuild=True,
        access=lambda uri: BOTH,
    )  # fmt: skip
    write_meanwhile(folder, corpus)
    assert uris_readable_by(corpus, "bob") == {"later.note", "wreck.note"}
    assert uris_readable_by(corpus, "ann") == {"later.note", "wreck.note", "seals.note"}
    assert corpus.latest().manifests["chunk"].embeddings == ()
    Pausing.go.set()
    run.result()
    assert uris_readable_by(corpus, "bob") == {"later.note", "wreck.note"}
    with Run(principal="ann"):
        assert search_by_meaning(corpus) == {"later.note", "wreck.note", "seals.note"}
    assert corpus.latest().check() == []


@pytest.mark.parametrize("spilled", [False, True])
def test_others_write_while_a_group_is_built_and_it_lacks_none_of_it(
    folder: Path,
    corpus: Corpus,
    pausing: Callable[..., Future[Any]],
    monkeypatch: pytest.MonkeyPatch,
    spilled: bool,
) -> None:
    monkeypatch.setattr("spolia.stores.groups.materialise.STAGED_AT_ONCE", 1 if spilled else 32_000_000)
    sync(folder, corpus, readers=[Slow()], workers=0, access=lambda uri: BOTH)
    definition = Definition(Paragraphs(), embeddings=(Embedding(Pausing()),))
    run = pausing(materialise, [corpus.group("paragraph", definition)], wait_s=WAIT_S)
    write_meanwhile(folder, corpus)
    assert uris_readable_by(corpus, "bob") == {"later.note"}
    Pausing.go.set()
    assert run.result() == ()
    with Run(principal="ann"):
        assert search_by_meaning(corpus, "paragraph") == {"later.note", "seals.note"}
    with Run(principal="bob"):
        assert search_by_meaning(corpus, "paragraph") == {"later.note"}
    assert corpus.latest().check() == []


def test_a_revocation_does_not_wait_for_lost_vectors_to_be_made_again(
    folder: Path, corpus: Corpus, pausing: Callable[..., Future[Any]]
) -> None:
    Pausing.go.set()
    sync(folder, corpus, readers=[Slow()], workers=0, embedder=Pausing(), access=lambda uri: BOTH)
    Pausing.go.clear()
    Pausing.asked.clear()
    for segment in corpus.backend.folder.glob("vectors/*/*.seg"):
        segment.unlink()
    run = pausing(sync, folder, corpus, readers=[Slow()], workers=0, embedder=Pausing(), access=lambda uri: ANN)
    assert (uris_readable_by(corpus, "bob"), uris_readable_by(corpus, "ann")) == (set(), {"krill.note", "seals.note"})
    Pausing.go.set()
    run.result()
    with Run(principal="ann"):
        assert search_by_meaning(corpus) == {"krill.note", "seals.note"}
    assert corpus.latest().check() == []


class Gate(HashingEmbedder):
    """Waits before the vectors of each text that is new, until it is let through."""

    asked, go = Semaphore(0), Semaphore(0)

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        if kind == "passage":
            self.asked.release()
            assert self.go.acquire(timeout=600)
        return super().embed(texts, kind=kind)


def new_gate() -> Gate:
    Gate.asked, Gate.go = Semaphore(0), Semaphore(0)
    return Gate()


def make_sentence_build(folder: Path, corpus: Corpus) -> Callable[[], object]:
    definition = Definition(Sentences(), embeddings=(Embedding(new_gate()),))
    return lambda: materialise([corpus.group("sentence", definition)])


def make_embedder_run(folder: Path, corpus: Corpus) -> Callable[[], object]:
    embedder = new_gate()
    return lambda: sync(folder, corpus, readers=[free_reader()], workers=0, embedder=embedder)


def make_rebuild(folder: Path, corpus: Corpus) -> Callable[[], object]:
    options = {"embedder": new_gate(), "splitter": Paragraphs(), "rebuild": True}
    return lambda: sync(folder, corpus, readers=[free_reader()], workers=0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("building", [make_sentence_build, make_embedder_run, make_rebuild])
def test_what_others_add_during_a_build_is_embedded_without_the_lock(
    folder: Path, corpus: Corpus, building: Callable[[Path, Corpus], Callable[[], object]]
) -> None:
    sync(folder, corpus, readers=[free_reader()], workers=0)
    build = building(folder, corpus)
    with ThreadPoolExecutor() as threads:
        run = threads.submit(build)
        try:
            for name in ("first", "second", "third"):  # each while the vectors of the one before are made
                assert Gate.asked.acquire(timeout=600)
                (folder / f"{name}.note").write_text(f"The {name} whale is new.")
                sync(folder, corpus, readers=[free_reader()], workers=0)
                Gate.go.release()
            assert Gate.asked.acquire(timeout=600)  # the vectors of the third
            (folder / "krill.note").unlink()
            with corpus.writer(timeout_s=WAIT_S) as writer:
                writer.remove("krill.note")
            assert uris_readable_by(corpus, "ann") == {f"{name}.note" for name in ("seals", "first", "second", "third")}
        finally:
            Gate.go.release(1000)
        run.result()
    group = "sentence" if building is make_sentence_build else "chunk"
    uris = {node.uri for node in Dense(corpus.group(group), Gate(), 10)(Query("whales")).nodes}
    assert uris == {f"{name}.note" for name in ("seals", "first", "second", "third")}
    assert corpus.latest().check() == []


def test_a_build_ends_although_others_add_documents_all_the_time(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.stores.staging.ROUNDS", 3)
    sync(folder, corpus, readers=[free_reader()], workers=0)
    numbers = count()

    class Adding(HashingEmbedder):
        def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
            if kind == "passage" and (number := next(numbers)) < 3:
                (folder / f"{number}.note").write_text(f"Whale {number} is new.")
                sync(folder, corpus, readers=[free_reader()], workers=0)
            return super().embed(texts, kind=kind)

    definition = Definition(Sentences(), embeddings=(Embedding(Adding()),))
    assert materialise([corpus.group("sentence", definition)]) == ()
    assert len({node.uri for node in corpus.latest().all_nodes("sentence")}) == 5


@dataclass(frozen=True)
class Words(Splitter):
    """Splits at spaces; somebody else writes while it does so for the first time."""

    first: ClassVar[Event] = Event()
    meanwhile: ClassVar[Callable[[], None]]

    def pieces(self, part: Part) -> Iterator[Piece]:
        if not self.first.is_set():
            self.first.set()
            type(self).meanwhile()
        yield Piece(part.node.text, 0)


def take_away(corpus: Corpus) -> None:
    revoke(corpus, "krill.note", ANN)
    with corpus.writer(timeout_s=WAIT_S) as writer:
        writer.remove("seals.note")


def test_readers_that_are_taken_away_while_a_group_is_split_stay_away(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, readers=[free_reader()], workers=0, access=lambda uri: BOTH)
    Words.first.clear()
    Words.meanwhile = lambda: take_away(corpus)
    assert materialise([corpus.group("word", Definition(Words()))]) == ()
    with Run(principal="bob"):
        assert not BM25(corpus.group("word"), 10)(Query("whales bark krill")).nodes
    with Run(principal="ann"):
        nodes = BM25(corpus.group("word"), 10)(Query("whales bark krill")).nodes
    assert {node.uri for node in nodes} == {"krill.note"}
    assert corpus.latest().check() == []


def test_of_two_that_change_one_group_the_second_is_told(
    folder: Path, corpus: Corpus, pausing: Callable[..., Future[Any]]
) -> None:
    sync(folder, corpus, readers=[Slow()], workers=0)
    lower_group = corpus.group("below", Definition(Sentences(), parent="chunk", embeddings=(Embedding(Pausing()),)))
    run = pausing(materialise, [lower_group], wait_s=WAIT_S)
    with corpus.writer() as writer:
        writer.redefine("chunk", writer.manifests["chunk"].but(signature="another"))
    Pausing.go.set()
    with pytest.raises(StoreBusy, match="built or changed group 'chunk'"):
        run.result()
    assert "below" not in corpus.latest().manifests


def test_others_write_while_graphs_of_vectors_are_built(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = Event(), Event()

    def build(*given: Any) -> None:
        begun.set()
        assert end.wait(600)

    monkeypatch.setattr("spolia.stores.vectors.graphs.build_graph", build)
    definition = Definition(Sentences(), embeddings=(Embedding(HashingEmbedder(), HNSW(above=1)),))
    sync(folder, corpus, readers=[free_reader()], workers=0)
    with ThreadPoolExecutor() as threads:
        run = threads.submit(materialise, [corpus.group("sentence", definition)])
        assert begun.wait(WAIT_S)
        with corpus.writer(timeout_s=WAIT_S) as writer:
            writer.remove("krill.note")
        end.set()
        assert run.result() == ()
    assert {node.uri for node in corpus.latest().all_nodes("sentence")} == {"seals.note"}


def test_the_same_document_under_two_names_is_put_once(folder: Path, corpus: Corpus, under_way: Any) -> None:
    index_folder(folder, corpus)
    reader, run = under_way()
    (folder / "slow.note").rename(folder / "copy.note")
    sync(folder, corpus, readers=[free_reader()], workers=0)
    reader.go.set()
    run.result()
    sync(folder, corpus, readers=[free_reader()], workers=0)
    assert set(corpus.latest().sources()) == {"krill.note", "seals.note", "copy.note"}
    assert corpus.latest().check() == []


class Dying(HashingEmbedder):
    """Is killed, with its process, at the 13th batch of texts."""

    calls = 0

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        type(self).calls += 1
        if type(self).calls > 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts, kind=kind)


def test_a_kill_loses_at_most_256_vectors(folder: Path, corpus: Corpus) -> None:
    for number in range(800):
        (folder / f"{number}.txt").write_text(f"Whale number {number}.")
    if (child := os.fork()) == 0:
        try:
            sync(folder, corpus, embedder=Dying(), workers=0)
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    Staging(corpus.backend, WAIT_S).close()
    ((_, kept_count),) = corpus.latest().open_store.rows("SELECT embedder, count(*) FROM vectors GROUP BY embedder", ())
    assert kept_count >= 12 * 64 - 256 + 64
    assert sync(folder, corpus, embedder=HashingEmbedder(), workers=0).embedded <= 800 - kept_count


def test_a_part_of_an_archive_that_another_sync_has_removed_meanwhile_is_gone_for_both(
    folder: Path, corpus: Corpus
) -> None:
    def packed(*names: str) -> None:
        with ZipFile(folder / "seals.zip", "w") as archive:
            for name in names:
                archive.writestr(name, f"Of whales, {name}.")

    packed("a.note", "b.note", "c.note")
    sync(folder, corpus, readers=[*READERS, Slow()], workers=0)
    (folder / "krill.note").write_text("Changed.")
    packed("a.note")
    reports: list[SyncReport] = []

    def sync_meanwhile(progress: object) -> None:
        if not reports:
            reports.append(sync(folder, corpus, readers=[*READERS, Slow()], workers=0))

    sync(folder, corpus, readers=[*READERS, Slow()], workers=0, batch=1, progress=sync_meanwhile)
    assert reports[0].removed == 2
    assert {uri for uri in corpus.snapshot().sources() if ".zip/" in uri} == {"seals.zip/a.note"}


@pytest.mark.parametrize("moved_to", ["old.note", "new.note"])
def test_a_document_that_is_put_removed_and_put_again_in_one_commit_is_there_once(
    folder: Path, corpus: Corpus, moved_to: str
) -> None:
    sync(folder, corpus, readers=[Slow()], workers=0)
    document = Document("d.slow", "Whales sing.", uri="old.note")
    with closing(Staging(corpus.backend, WAIT_S)) as staging:
        for uri in ("old.note", moved_to):
            node = Node("d.slow:chunk:1", "Whales sing.", "d.slow", uri=uri)
            staging.put_document(document.but(uri=uri), [node], SourceRow(uri, document="d.slow"))
            if uri == "old.note" != moved_to:
                staging.remove(uri)
        staging.publish()
        assert not staging.conflicts
    snapshot = corpus.latest()
    assert [(visible.id, visible.uri) for visible in snapshot.documents() if visible.id == "d.slow"] == [
        ("d.slow", moved_to)
    ]
    assert [node.id for node in snapshot.all_nodes("chunk") if node.document == "d.slow"] == ["d.slow:chunk:1"]
    assert [node.id for node in BM25(corpus.group())(Query("sing")).nodes] == ["d.slow:chunk:1"]


def test_what_another_one_published_before_a_commit_is_known_after_it(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, readers=[Slow()], workers=0)
    with closing(Staging(corpus.backend, WAIT_S)) as staging:
        sources = staging.sources()
        with corpus.writer(timeout_s=WAIT_S) as writer:
            writer.remove("krill.note")
        staging.touch(sources["seals.note"].but(mtime_ns=1))
        staging.publish()
        assert staging.find_changed(sources) == {"krill.note"}
        assert staging.generation == corpus.latest().generation
