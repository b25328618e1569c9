"""Tables, pictures and the places of lines are kept with a document, and go with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.errors import StoreError
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import Manifest
from spolia.stores.portable import export_store, import_store
from spolia.types import Box, Boxes, Document, Node, Region, Span

PICTURE = b"\x89PNG\x00\xff"
DOCUMENT = Document(
    "d", "a | b\n1 | 2\nA bridge.", "d.pdf", pages=(0, 12), readers=("ann",),
    regions=(
        Region("table", 0, 11, (("a", "b"), ("1", "2")), caption="Table 1", box=Box(1, 1.5, 2.5, 30.0, 40.0)),
        Region("image", 12, 21, image="f00d"),
    ),
    boxes=Boxes.from_lines([(0, 5, Box(1, 1.5, 2.5, 30.0, 4.0)), (6, 11, Box(1, 1.5, 6.0, 30.0, 8.0))]),
)  # fmt: skip
NODE = Node("n", DOCUMENT.text, "d", span=Span(0, 21, pages=(1, 2), page_starts=(12,)))
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("address", ["folder", "PostgreSQL"], indirect=True)]
ANN, BOB = frozenset({"ann"}), frozenset({"bob"})


@pytest.fixture
def corpus(address: str) -> Corpus:
    new_corpus = Corpus(address)
    new_corpus.create()
    with new_corpus.writer() as writer:
        writer.define("chunk", Manifest("chunk", "Whole()", "text 1"))
        writer.put_document(DOCUMENT, [NODE], SourceRow("d.pdf"), {"f00d": PICTURE})
        writer.publish()
    return new_corpus


def test_they_are_found_as_they_were_put(corpus: Corpus) -> None:
    document = corpus.snapshot().document("d", ANN)
    assert document == DOCUMENT
    assert [box.top for box in document.boxes.find_overlapping(7, 9)] == [6.0]
    assert corpus.snapshot().image("d", "f00d", ANN) == PICTURE
    assert [box.top for box in corpus.snapshot().boxes("d", Span(3, 8), ANN)] == [2.5, 6.0]
    with pytest.raises(StoreError):
        corpus.snapshot().boxes("d", Span(3, 8), BOB)


def test_a_part_of_a_node_is_on_its_own_pages(corpus: Corpus) -> None:
    (node,) = corpus.snapshot().all_nodes("chunk", ANN)
    assert node.span == NODE.span
    assert [span.pages for part in ((0, 5), (14, 20), (8, 14)) if (span := node.span_of(*part))] == [
        (1, 1), (2, 2), (1, 2),
    ]  # fmt: skip


def test_a_picture_is_seen_by_those_who_may_read_its_document(corpus: Corpus) -> None:
    for document, hash, access in (("d", "f00d", BOB), ("d", "beef", ANN), ("e", "f00d", ANN)):
        with pytest.raises(StoreError, match="no readable picture"):
            corpus.snapshot().image(document, hash, access)


def test_another_reader_list_keeps_them(corpus: Corpus) -> None:
    previous_snapshot = corpus.snapshot()
    with corpus.writer() as writer:
        writer.set_readers(writer.document("d"), ["bob"])
        writer.publish()
    assert corpus.snapshot().image("d", "f00d", BOB) == PICTURE
    with pytest.raises(StoreError, match="no readable picture"):
        previous_snapshot.image("d", "f00d", ANN)  # who is struck off reads no more
    with pytest.raises(StoreError):
        corpus.snapshot().image("d", "f00d", ANN)


def test_another_table_is_another_document(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        assert not writer.put_document(DOCUMENT, (), SourceRow("d.pdf"))
        assert writer.put_document(DOCUMENT.but(regions=()), (), SourceRow("d.pdf"))
        writer.publish()
    assert corpus.snapshot().document("d", ANN).regions == ()


def test_they_go_with_their_document(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        writer.remove("d.pdf")
        writer.publish()
        for _ in range(3):
            writer.put_document(Document("other", str(_)), (), SourceRow("other.txt"))
            writer.publish()
    left = corpus.snapshot().open_store.rows("SELECT count(*) FROM images", {})
    assert left == [(0,)]


def test_an_export_has_them(corpus: Corpus, tmp_path: Path) -> None:
    export_store(corpus, tmp_path / "notes.zip")
    copy = Corpus(str(tmp_path / "copy.spolia"))
    import_store(tmp_path / "notes.zip", copy)
    assert copy.snapshot().document("d", ANN) == DOCUMENT
    assert copy.snapshot().image("d", "f00d", ANN) == PICTURE
