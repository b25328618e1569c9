"""Tables and pictures as nodes, and splitters that leave tables whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.errors import WiringError
from spolia.indexing.readers.markup.markdown import MarkdownReader
from spolia.indexing.readers.reader import Blob
from spolia.indexing.splitters.rows import TableAware
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.structure.regions import Regions
from spolia.indexing.sync.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Part, document_node
from spolia.types import Document, Node, Query, Region, Span

ROWS = tuple((f"stone {n}", f"{n}.5 t. Heavy.") for n in range(1, 9))
BEFORE, AFTER = "These are the stones. They were weighed. ", "\nThey were sold. Nobody knows where."
TABLE = "\n".join(" | ".join(row) for row in ROWS)
TEXT = BEFORE + TABLE + AFTER
REGION = Region("table", len(BEFORE), len(BEFORE) + len(TABLE), ROWS, caption="Table 1: Stones")
PICTURE = Region("image", len(TEXT), len(TEXT), image="f00d", caption="A quarry")
DOCUMENT = Document("d", TEXT, regions=(REGION, PICTURE))


def uncovered_text(pieces: list[tuple[int, int]], text: str) -> str:
    """What no piece has, but blanks."""
    return "".join(c for position, c in enumerate(text) if not any(a <= position < b for a, b in pieces)).strip()


def test_a_table_is_a_piece_with_its_caption() -> None:
    [piece] = Regions()(Part(document_node(DOCUMENT), DOCUMENT))
    assert (piece.text, piece.start, piece.context) == (TABLE, len(BEFORE), "Table 1: Stones")


def test_a_picture_without_words_is_found_by_its_caption() -> None:
    [piece] = Regions("image")(Part(document_node(DOCUMENT), DOCUMENT))
    assert (piece.text, piece.start, piece.meta) == ("A quarry", None, (("image", "f00d"),))


def test_only_what_lies_in_the_part() -> None:
    for start, end, count in ((0, 10, 0), (5, len(TEXT), 1), (len(BEFORE) + 1, len(TEXT), 0)):
        node = Node("n", TEXT[start:end], "d", span=Span(start, end))
        pieces = Regions()(Part(node, DOCUMENT))
        assert [TEXT[start + (piece.start or 0) :].startswith(TABLE) for piece in pieces] == [True] * count


def test_a_kind_that_is_none() -> None:
    with pytest.raises(WiringError, match=r"kind='figure'.*table, image"):
        Regions("figure")


def test_windows_do_not_cut_a_table_that_fits() -> None:
    pieces = SlidingWindow(size=52, overlap=8)(Part(document_node(DOCUMENT), DOCUMENT))
    assert sum(TABLE in piece.text for piece in pieces) == 1
    assert uncovered_text([(piece.start or 0, (piece.start or 0) + len(piece.text)) for piece in pieces], TEXT) == ""
    blind = SlidingWindow(size=52, overlap=8)(Part(document_node(DOCUMENT), DOCUMENT.but(regions=())))
    assert not any(TABLE in piece.text for piece in blind)


def test_windows_cut_a_long_table_between_its_rows() -> None:
    pieces = SlidingWindow(size=30, overlap=3)(Part(document_node(DOCUMENT), DOCUMENT))
    lines = TABLE.split("\n")
    assert all(sum(line in piece.text for piece in pieces) >= 1 for line in lines)
    assert uncovered_text([(piece.start or 0, (piece.start or 0) + len(piece.text)) for piece in pieces], TEXT) == ""


def test_tables_that_a_reader_has_noted_are_known_without_bars() -> None:
    text = "Weighed.\nstone 3\nbasalt 4\nThat is all."
    document = Document("d", text, regions=(Region("table", 9, 25, (("stone", "3"), ("basalt", "4"))),))
    pieces = TableAware(Sentences())(Part(document_node(document), document))
    assert [piece.text for piece in pieces] == ["Weighed.", "stone 3\nbasalt 4", "That is all."]


@pytest.mark.slow
def test_tables_are_found_as_nodes_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    page = "# Stones\n\nSome words.\n\n| stone | weight |\n|---|---|\n| basalt | 3 |\n| marble | 2 |\n\nMore words.\n"
    (folder / "a.md").write_text(page)
    assert [region.kind for region in MarkdownReader().read(Blob("a.md", page.encode())).document.regions] == ["table"]
    corpus = Corpus(str(tmp_path / "s.spolia"))
    sync(folder, corpus, groups=[corpus.group("table", Definition(Regions("table", markdown=True)))])
    [node] = BM25(corpus.group("table"))(Query("marble")).nodes
    assert "marble" in node.text
    assert node.span is not None
    assert page[node.span.start : node.span.end] == node.text
