"""Writing: whole or not at all, never twice, nothing for nothing."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from spolia.errors import ManifestMismatch, StoreError
from spolia.stores.backends import sql
from spolia.stores.backends.rows import NOT_YET, SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.files import DATABASE
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import GroupEmbedding
from spolia.stores.writer import Writer
from spolia.types import Document, Heading, Node, Span
from tests.stores.scenario import (
    EMBEDDER,
    FIRST,
    MANIFEST,
    add_missing_vectors,
    document_of,
    put,
    source_of,
    sync,
)

BACKENDS = ("folder", "postgres")
NOBODY: frozenset[str] = frozenset()


def search_uris(corpus: Corpus, text: str) -> list[str]:
    snapshot = corpus.snapshot()
    return [hit.node.uri for hit in snapshot.hits(snapshot.search("chunk", text, 10, NOBODY), NOBODY)]


def files(corpus: Corpus) -> dict[str, tuple[int, int]]:
    paths = [path for path in Path(corpus.path).rglob("*") if path.is_file() and path.name != "writer.lock"]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}


@pytest.mark.parametrize("address", ["folder"], indirect=True)  # it looks at files
def test_the_same_again_writes_nothing_and_embeds_nothing(corpus: Corpus) -> None:
    previous_files, generation = files(corpus), corpus.snapshot().generation
    assert sync(corpus, FIRST) == 0
    assert corpus.snapshot().generation == generation
    later_files = files(corpus)
    assert {path for path in previous_files if not path.endswith(("-wal", "-shm"))} == {
        path for path in later_files if not path.endswith(("-wal", "-shm"))
    }
    assert {path: later_files[path] for path in previous_files if not path.endswith("-shm")} == {
        path: previous_files[path] for path in previous_files if not path.endswith("-shm")
    }


@pytest.mark.slow
def test_a_moved_file_keeps_its_nodes_and_its_index(corpus: Corpus) -> None:
    snapshot = corpus.snapshot()
    keys = snapshot.search("chunk", "temples", 10, NOBODY)
    with corpus.writer() as writer:
        writer.move("b.txt", source_of("far/away.txt", FIRST["b.txt"]))
    later_snapshot = corpus.snapshot()
    assert later_snapshot.search("chunk", "temples", 10, NOBODY) == keys
    assert later_snapshot.indexes == snapshot.indexes
    assert search_uris(corpus, "temples") == ["far/away.txt"]


@pytest.mark.slow
def test_a_move_onto_another_source_takes_its_place(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        writer.move("b.txt", source_of("a.txt", FIRST["b.txt"]))
    assert search_uris(corpus, "temples") == ["a.txt"]
    assert search_uris(corpus, "Olsen") == []
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_a_touched_source_is_no_new_generation(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        writer.touch(writer.sources()["a.txt"].but(mtime_ns=5))
    with corpus.writer() as writer:
        assert writer.sources()["a.txt"].mtime_ns == 5
        assert writer.generation == 1


@pytest.mark.slow
def test_what_has_changed_is_told_by_stamps(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        rows = writer.sources()
        assert writer.stamps() == {uri: (row.size, row.mtime_ns, row.status, row.reader) for uri, row in rows.items()}
        assert writer.sources(["b.txt", "none", "a.txt"]) == {uri: rows[uri] for uri in ("a.txt", "b.txt")}
        writer.fail(rows["b.txt"].but(size=7, status="failed"))
        writer.remove("a.txt")
        assert writer.stamps()["b.txt"] == (7, rows["b.txt"].mtime_ns, "failed", "")
        assert set(writer.sources(["b.txt", "a.txt"])) == {"b.txt"}


@pytest.mark.slow
def test_a_document_that_is_read_differently_is_replaced_for_all_its_sources(corpus: Corpus) -> None:
    document, _ = document_of("same.txt", FIRST["same.txt"])
    changed = document.but(text="Read better now.", headings=(Heading(0, 1, "Read"),), pages=(0, 5))
    with corpus.writer() as writer:
        node = Node("better", "Read better now.", document.id)
        writer.put_document(changed, [node], source_of("same.txt", FIRST["same.txt"]))
        add_missing_vectors(writer)
    snapshot = corpus.snapshot()
    assert search_uris(corpus, "names") == []
    assert snapshot.document(document.id, NOBODY) == changed.but(uri="also.txt")
    assert {uri for uri, row in snapshot.sources().items() if row.document == document.id} == {"same.txt", "also.txt"}
    assert snapshot.check() == []


@pytest.mark.slow
def test_a_document_replaced_twice_before_publishing_is_the_last_one(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        for text in ("First draft.", "Second draft.", "Third draft."):
            put(writer, "a.txt", text)
            put(writer, "copy.txt", text)
        writer.move("copy.txt", source_of("b.txt", "Third draft."))
        add_missing_vectors(writer)
    assert search_uris(corpus, "draft temples olsen") == ["a.txt"]
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_a_failed_source_keeps_or_loses_what_it_held_as_it_says(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        rows = writer.sources()
        writer.fail(rows["a.txt"].but(status="failed", error="locked"))
        writer.fail(rows["b.txt"].but(status="failed", error="gone", document=""))
        writer.fail(SourceRow("new.pdf", status="failed", error="encrypted"))
    assert search_uris(corpus, "olsen") == ["a.txt"]
    assert search_uris(corpus, "temples") == []
    sources = corpus.snapshot().sources()
    assert [sources[uri].error for uri in ("a.txt", "b.txt", "new.pdf")] == ["locked", "gone", "encrypted"]
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_other_readers_for_the_same_bytes_are_a_new_version(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        put(writer, "b.txt", FIRST["b.txt"], ("ann",))
    assert search_uris(corpus, "temples") == []
    assert corpus.snapshot().check() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hashes", "vectors", "said"),
    [
        (1, np.ones((1, 8), np.float32), "has length 2.8"),
        (1, np.full((1, 8), np.nan, np.float32), "holds NaN or infinity"),
        (2, np.zeros((1, 8), np.float32), "gave 1 vectors for 2 texts"),
        (1, np.zeros((1, 5), np.float32), "8 numbers in a vector"),
    ],
)
def test_vectors_that_cannot_be_are_refused(
    corpus: Corpus, hashes: int, vectors: np.ndarray[tuple[int, ...], np.dtype[np.float32]], said: str
) -> None:
    with pytest.raises(StoreError, match=said), corpus.writer() as writer:
        writer.add_vectors(EMBEDDER, [bytes([n]) * 16 for n in range(hashes)], vectors)


@pytest.mark.slow
def test_another_manifest_is_refused_naming_both_sides(corpus: Corpus) -> None:
    other_manifest = MANIFEST.but(
        embeddings=(GroupEmbedding("MiniLM@53aa", 384),),
        transform="SlidingWindow(size=200)",
        analyzer=Analyzer(stem="german"),
    )
    with corpus.writer() as writer:
        with pytest.raises(ManifestMismatch) as refused:
            writer.define("chunk", other_manifest)
        with pytest.raises(StoreError, match="Write the same name twice"):
            writer.define("page", MANIFEST)
    for message in (
        "'hashing embedder/1' (cosine",
        "'MiniLM@53aa' (cosine",
        "'Lines()' there",
        'analyzer.stem: "english" there, "german" here',
        "rebuild=True",
    ):
        assert message in str(refused.value)


@pytest.mark.slow
def test_a_rebuild_is_seen_only_when_it_is_published(corpus: Corpus) -> None:
    other_manifest = MANIFEST.but(transform="Words()", analyzer=Analyzer(stem=""))
    with corpus.writer() as writer:
        writer.redefine("chunk", other_manifest)
        assert {lack.reason for lack in writer.unmade()} == {NOT_YET}
        assert search_uris(corpus, "temple") == ["b.txt"]
        for uri, text in FIRST.items():
            document, nodes = document_of(uri, text)
            if all(lack.document != document.id for lack in writer.unmade()):
                continue
            writer.add_nodes(document, nodes)
        assert writer.unmade() == ()
        add_missing_vectors(writer)
    assert search_uris(corpus, "temple") == []
    assert search_uris(corpus, "temples") == ["b.txt"]
    assert corpus.snapshot().manifest("chunk") == other_manifest
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_two_groups_are_searched_apart(corpus: Corpus) -> None:
    document, nodes = document_of("c.txt", "A zeppelin.\nA balloon.")
    whole = Node("whole", document.text, document.id, group="whole page")
    with corpus.writer() as writer:
        writer.define("whole page", MANIFEST.but(group="whole page", embeddings=()))
        writer.put_document(document, [*nodes, whole], source_of("c.txt", document.text))
        add_missing_vectors(writer)
    snapshot = corpus.snapshot()
    assert len(snapshot.search("whole page", "zeppelin balloon", 10, NOBODY)) == 1
    assert len(snapshot.search("chunk", "zeppelin balloon", 10, NOBODY)) == 2
    assert snapshot.groups() == ("chunk", "whole page")
    (message,) = snapshot.check()
    assert message.startswith("group 'whole page': 4 documents were not made yet: a.txt, also.txt, b.txt and 1 more.")


@pytest.mark.slow
def test_two_documents_with_one_id_are_refused_and_nothing_is_lost(corpus: Corpus) -> None:
    first, second = Document("d", "The first text.", uri="1"), Document("d", "The second text.", uri="2")
    with corpus.writer() as writer:
        assert writer.put_document(first, [], SourceRow("1", content_hash="1"))
        assert not writer.put_document(first, [], SourceRow("copy", content_hash="1"))
        for uri in ("1", "2"):
            with pytest.raises(StoreError, match=r"Two documents with the id 'd'.*the second is of '.'.*id of its own"):
                writer.put_document(second, [], SourceRow(uri, content_hash="2"))
    assert corpus.snapshot().document("d", NOBODY).text == "The first text."
    with corpus.writer() as writer:
        assert writer.put_document(second, [], SourceRow("1", content_hash="2"))  # another publication may replace it
    assert corpus.snapshot().document("d", NOBODY).text == "The second text."


@pytest.mark.parametrize("span", [Span(0, 6), Span(-1, 2), Span(4, 3), Span(9, 9)])
def test_a_node_stands_within_its_text(corpus: Corpus, span: Span) -> None:
    document = Document("d", "Stone")
    with corpus.writer() as writer, pytest.raises(StoreError, match=r"spans .* which has 5 characters\. Give it"):
        writer.put_document(document, [Node("d:1", "Stone", "d", span=span)], SourceRow("d"))


@pytest.mark.slow
def test_nodes_are_not_added_to_a_document_that_has_gone_since_it_was_put(corpus: Corpus) -> None:
    document, nodes = document_of("new.txt", "A short life.")
    with corpus.writer() as writer:
        writer.put_document(document, (), source_of("new.txt", document.text))
        writer.remove("new.txt")
        with pytest.raises(StoreError, match="There is no document"):
            writer.add_nodes(document, nodes)
        writer.put_document(document, (), source_of("new.txt", document.text))
        writer.set_readers(document, ["ann"])
        (labelled,) = (candidate for candidate in writer.documents() if candidate.id == document.id)
        writer.add_nodes(labelled, [node.but(readers=("ann",)) for node in nodes])
        add_missing_vectors(writer)
    assert search_uris(corpus, "short life") == []
    snapshot = corpus.snapshot()
    assert len(snapshot.search("chunk", "short life", 10, frozenset(["ann"]))) == len(nodes)


@pytest.mark.slow
def test_of_changes_that_are_taken_back_together_nothing_stays(corpus: Corpus) -> None:
    document, nodes = document_of("new.txt", "A whole commit.")
    odd = nodes[0].but(id="odd", span=Span(0, 10_000))

    def change(writer: Writer) -> None:
        with writer.all_or_nothing():
            writer.put_document(document, nodes, source_of("new.txt", document.text))
            writer.add_nodes(document, [odd])

    def commit() -> None:
        with corpus.writer() as writer, pytest.raises(StoreError, match="spans 0 to 10000"):
            change(writer)

    previous_generation = corpus.snapshot().generation
    with pytest.raises(StoreError, match="has ended"):
        commit()
    assert search_uris(corpus, "whole commit") == []
    assert corpus.snapshot().generation == previous_generation
    with corpus.writer() as writer:
        put(writer, "new.txt", "A whole commit.")
        add_missing_vectors(writer)
    assert search_uris(corpus, "whole commit") == ["new.txt"]


def test_a_lent_connection_writes_while_it_may_and_only_into_its_own_database(fast_folder: Path) -> None:
    corpus = Corpus(str(fast_folder / "notes.spolia")).create()
    backend = corpus.backend
    reading = Writer(backend, 1).read_on()
    with closing(backend.begin_writing(1, reading)) as session:
        assert session.connection is reading
        session.connection.execute(sql.BEGIN)
        session.connection.execute(sql.FORGET_EMBEDDED)
    assert not reading.in_transaction
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reading.execute(sql.FORGET_EMBEDDED)
    database = Path(corpus.path, DATABASE)
    shutil.copyfile(database, fast_folder / "restored.db")
    (fast_folder / "restored.db").replace(database)
    with closing(backend.begin_writing(1, reading)) as session:
        assert session.connection is not reading
    reading.close()
