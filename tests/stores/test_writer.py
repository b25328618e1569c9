"""Writing: whole or not at all, never twice, nothing for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from spolia.errors import ManifestMismatch, StoreError
from spolia.stores.corpus import Corpus
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import Embedded
from spolia.stores.tables.rows import SourceRow, hash_of
from spolia.stores.writer import Writer
from spolia.types import Document, Heading, Node
from tests.stores.scenario import (
    EMBEDDER,
    FIRST,
    FOURTH,
    MANIFEST,
    SECOND,
    THIRD,
    add_missing_vectors,
    document_of,
    embed,
    put,
    source_of,
    sync,
)

TRUTHS = ("folder", "postgres")
NOBODY: frozenset[str] = frozenset()


def found(corpus: Corpus, text: str) -> list[str]:
    snapshot = corpus.snapshot()
    return [hit.node.uri for hit in snapshot.hits(snapshot.search("chunk", text, 10, NOBODY), NOBODY)]


def files(corpus: Corpus) -> dict[str, tuple[int, int]]:
    paths = [path for path in Path(corpus.path).rglob("*") if path.is_file() and path.name != "writer.lock"]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}


def test_every_state_is_reached_and_whole(address: str) -> None:
    corpus = Corpus(address).create()
    for number, state in enumerate((FIRST, SECOND, THIRD, FOURTH)):
        sync(corpus, state)
        snapshot = corpus.snapshot()
        assert snapshot.generation == number + 1
        assert set(snapshot.sources()) == set(state)
        assert snapshot.check() == []


@pytest.mark.parametrize("address", ["folder"], indirect=True)  # it looks at files
def test_the_same_again_writes_nothing_and_embeds_nothing(corpus: Corpus) -> None:
    before, generation = files(corpus), corpus.snapshot().generation
    assert sync(corpus, FIRST) == 0
    assert corpus.snapshot().generation == generation
    after = files(corpus)
    assert {path for path in before if not path.endswith(("-wal", "-shm"))} == {
        path for path in after if not path.endswith(("-wal", "-shm"))
    }
    assert {path: after[path] for path in before if not path.endswith("-shm")} == {
        path: before[path] for path in before if not path.endswith("-shm")
    }


def test_a_moved_file_keeps_its_nodes_and_its_index(corpus: Corpus) -> None:
    snapshot = corpus.snapshot()
    keys = snapshot.search("chunk", "temples", 10, NOBODY)
    with corpus.writer() as writer:
        writer.move("b.txt", source_of("far/away.txt", FIRST["b.txt"]))
    after = corpus.snapshot()
    assert after.search("chunk", "temples", 10, NOBODY) == keys
    assert after.indexes == snapshot.indexes
    assert found(corpus, "temples") == ["far/away.txt"]


def test_a_move_onto_another_source_takes_its_place(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        writer.move("b.txt", source_of("a.txt", FIRST["b.txt"]))
    assert found(corpus, "temples") == ["a.txt"]
    assert found(corpus, "Olsen") == []
    assert corpus.snapshot().check() == []


def test_a_touched_source_is_no_new_generation(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        writer.touch(writer.sources()["a.txt"].but(mtime_ns=5))
    with corpus.writer() as writer:
        assert writer.sources()["a.txt"].mtime_ns == 5
        assert writer.generation == 1


def test_a_document_that_is_read_differently_is_replaced_for_all_its_sources(corpus: Corpus) -> None:
    document, _ = document_of("same.txt", FIRST["same.txt"])
    changed = document.but(text="Read better now.", headings=(Heading(0, 1, "Read"),), pages=(0, 5))
    with corpus.writer() as writer:
        node = Node("better", "Read better now.", document.id)
        writer.put(changed, [node], source_of("same.txt", FIRST["same.txt"]))
        add_missing_vectors(writer)
    snapshot = corpus.snapshot()
    assert found(corpus, "names") == []
    assert snapshot.document(document.id, NOBODY) == changed.but(uri="also.txt")
    assert {uri for uri, row in snapshot.sources().items() if row.document == document.id} == {"same.txt", "also.txt"}
    assert snapshot.check() == []


def test_a_document_replaced_twice_before_publishing_is_the_last_one(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        for text in ("First draft.", "Second draft.", "Third draft."):
            put(writer, "a.txt", text)
            put(writer, "copy.txt", text)
        writer.move("copy.txt", source_of("b.txt", "Third draft."))
        add_missing_vectors(writer)
    assert found(corpus, "draft temples olsen") == ["a.txt"]
    assert corpus.snapshot().check() == []


def test_a_failed_source_keeps_or_loses_what_it_held_as_it_says(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        rows = writer.sources()
        writer.fail(rows["a.txt"].but(status="failed", error="locked"))
        writer.fail(rows["b.txt"].but(status="failed", error="gone", document=""))
        writer.fail(SourceRow("new.pdf", status="failed", error="encrypted"))
    assert found(corpus, "olsen") == ["a.txt"]
    assert found(corpus, "temples") == []
    sources = corpus.snapshot().sources()
    assert [sources[uri].error for uri in ("a.txt", "b.txt", "new.pdf")] == ["locked", "gone", "encrypted"]
    assert corpus.snapshot().check() == []


def test_nodes_inherit_the_readers_of_their_document(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        put(writer, "private.txt", "A zeppelin.", ("ann",))
        add_missing_vectors(writer)
    assert found(corpus, "zeppelin") == []


def test_other_readers_for_the_same_bytes_are_a_new_version(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        put(writer, "b.txt", FIRST["b.txt"], ("ann",))
    assert found(corpus, "temples") == []
    assert corpus.snapshot().check() == []


def test_a_document_whose_nodes_cannot_be_made_leaves_nothing_and_does_not_stop_the_others(corpus: Corpus) -> None:
    document, nodes = document_of("bad.txt", "one zeppelin\ntwo")

    def broken() -> Iterator[Node]:
        yield nodes[0]
        raise ValueError("no more pages")

    with corpus.writer() as writer:
        with pytest.raises(ValueError, match="no more pages"):
            writer.put(document, broken(), source_of("bad.txt", "x"))
        with pytest.raises(StoreError, match=r"two nodes have one id"):
            writer.put(document, [nodes[0], nodes[0]], source_of("bad.txt", "x"))
        with pytest.raises(StoreError, match="group 'page', which is not defined; defined are: chunk"):
            writer.put(document, [nodes[0].but(group="page")], source_of("bad.txt", "x"))
        with pytest.raises(StoreError, match="says that it is of document 'other'"):
            writer.put(document, [nodes[0].but(document="other")], source_of("bad.txt", "x"))
        with pytest.raises(StoreError, match="no encoding of Unicode"):
            writer.put(document.but(text="\ud800"), nodes, source_of("bad.txt", "x"))
        with pytest.raises(StoreError, match="no source 'nothing'"):
            writer.remove("nothing")
        put(writer, "good.txt", "A good zeppelin.")
        add_missing_vectors(writer)
    assert found(corpus, "zeppelin") == ["good.txt"]
    assert "bad.txt" not in corpus.snapshot().sources()
    assert corpus.snapshot().check() == []


def test_any_text_can_be_kept(corpus: Corpus) -> None:
    text = "nul \0 inside, bidi \u202e, emoji 👩‍🔬, ไทย 中文 한국어, line\u2028separator"
    document = Document("odd", text, meta=(("n", 1.5), ("none", None), ("flag", True)))
    uri = "fólder\n/👩‍🔬'\".txt"
    with corpus.writer() as writer:
        writer.put(document, [Node("odd:0", text, "odd")], SourceRow(uri, document="odd"))
        add_missing_vectors(writer)
    assert corpus.snapshot().document("odd", NOBODY) == document.but(uri=uri)
    assert found(corpus, "한국어") == [uri]


def test_leaving_by_an_error_takes_back_what_was_not_published(corpus: Corpus) -> None:
    def interrupted() -> None:
        with corpus.writer() as writer:
            ended.append(writer)
            put(writer, "c.txt", "A zeppelin.")
            raise KeyboardInterrupt

    ended: list[Writer] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert found(corpus, "zeppelin") == []
    with pytest.raises(StoreError, match="has ended"):
        ended[0].publish()
    sync(corpus, SECOND)
    assert corpus.snapshot().check() == []


def test_a_vector_is_never_made_twice(corpus: Corpus) -> None:
    assert sync(corpus, SECOND) == 2  # of three changed lines one was there
    assert sync(corpus, FIRST) == 0  # its vectors are still there
    with corpus.writer() as writer:
        put(writer, "twice.txt", "Same\nSame\n")
        assert [text for _, text in writer.unembedded("chunk", EMBEDDER)] == ["Same\nSam\nSame\n"]
        add_missing_vectors(writer)
        assert list(writer.unembedded("chunk", EMBEDDER)) == []


def test_vectors_outlive_a_writer_that_did_not_publish(corpus: Corpus) -> None:
    texts = [f"text {number}" for number in range(600)]

    def interrupted() -> None:
        with corpus.writer() as writer:
            writer.add_vectors(EMBEDDER, [hash_of(text) for text in texts], embed(texts))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with corpus.writer() as writer:
        put(writer, "t.txt", "text 5")
        writer.add_vectors(EMBEDDER, [], np.zeros((0, 8), np.float32))
        left = [text for _, text in writer.unembedded("chunk", EMBEDDER)]
        add_missing_vectors(writer)
    assert left == ["text 5\ntext 5"]  # its title stands before it
    assert dict(corpus.snapshot().stats().vectors)[EMBEDDER] == 607
    assert corpus.snapshot().check() == []


def test_a_group_with_an_embedder_is_not_published_without_vectors(corpus: Corpus) -> None:
    with pytest.raises(StoreError, match="1 nodes of group 'chunk' have no vector"), corpus.writer() as writer:
        put(writer, "c.txt", "A zeppelin.")
    assert found(corpus, "zeppelin") == []


@pytest.mark.parametrize(
    ("hashes", "vectors", "said"),
    [
        (1, np.ones((1, 8), np.float32), "has length 2.8"),
        (1, np.full((1, 8), np.nan, np.float32), "holds NaN or infinity"),
        (2, np.zeros((1, 8), np.float32), "2 hashes came with vectors of shape"),
        (1, np.zeros((1, 5), np.float32), "8 numbers in a vector"),
    ],
)
def test_vectors_that_cannot_be_are_refused(
    corpus: Corpus, hashes: int, vectors: np.ndarray[tuple[int, ...], np.dtype[np.float32]], said: str
) -> None:
    with pytest.raises(StoreError, match=said), corpus.writer() as writer:
        writer.add_vectors(EMBEDDER, [bytes([n]) * 16 for n in range(hashes)], vectors)


def test_another_manifest_is_refused_naming_both_sides(corpus: Corpus) -> None:
    other = MANIFEST.but(
        embeddings=(Embedded("MiniLM@53aa", 384),),
        transform="SlidingWindow(size=200)",
        analyzer=Analyzer(stem="german"),
    )
    with corpus.writer() as writer:
        with pytest.raises(ManifestMismatch) as refused:
            writer.define("chunk", other)
        with pytest.raises(StoreError, match="Write the same name twice"):
            writer.define("page", MANIFEST)
    for said in (
        "'hashing embedder/1' (cosine",
        "'MiniLM@53aa' (cosine",
        "'Lines()' there",
        "stem='german'",
        "rebuild=True",
    ):
        assert said in str(refused.value)


def test_a_rebuild_is_seen_only_when_it_is_published(corpus: Corpus) -> None:
    other = MANIFEST.but(transform="Words()", analyzer=Analyzer(stem=""))
    with corpus.writer() as writer:
        writer.define("chunk", other, rebuild=True)
        assert writer.sources() == {}
        assert found(corpus, "temple") == ["b.txt"]
        put(writer, "b.txt", FIRST["b.txt"])
        add_missing_vectors(writer)
    assert found(corpus, "temple") == []
    assert found(corpus, "temples") == ["b.txt"]
    assert corpus.snapshot().manifest("chunk") == other
    assert corpus.snapshot().check() == []


def test_two_groups_are_searched_apart(corpus: Corpus) -> None:
    document, nodes = document_of("c.txt", "A zeppelin.\nA balloon.")
    whole = Node("whole", document.text, document.id, group="whole page")
    with corpus.writer() as writer:
        writer.define("whole page", MANIFEST.but(group="whole page", embeddings=()))
        writer.put(document, [*nodes, whole], source_of("c.txt", document.text))
        add_missing_vectors(writer)
    snapshot = corpus.snapshot()
    assert len(snapshot.search("whole page", "zeppelin balloon", 10, NOBODY)) == 1
    assert len(snapshot.search("chunk", "zeppelin balloon", 10, NOBODY)) == 2
    assert snapshot.groups() == ("chunk", "whole page")
    assert snapshot.check() == []


def test_creating_again_changes_nothing(corpus: Corpus) -> None:
    assert corpus.create() == corpus
    assert corpus.snapshot().generation == 1
