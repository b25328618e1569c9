"""Where the lines of a node stand on their pages, whatever has cut or merged it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import RecursiveCharacters, Sentences
from spolia.indexing.sync.sync import sync
from spolia.post_retrieval.context_window import SentenceWindow
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.types import Node, Query
from tests.indexing.readers.pdf_samples import Sheet, lines, pdf

pytest.importorskip("pypdfium2")

ROWS, TOP, LEADING, SIZE = 12, 700, 20, 10
CUT = {
    "small": SlidingWindow(size=30, overlap=10),
    "large": SlidingWindow(size=300, overlap=0),
    "recursive": RecursiveCharacters(size=40, overlap=10),
    "sentence": Sentences(),
}


def place(number: int) -> tuple[int, int]:
    """The page of a stone's line, and how far from its top it stands."""
    return number // ROWS + 1, 800 - TOP + LEADING * (number % ROWS)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    folder = tmp_path / "files"
    folder.mkdir()
    words = [f"Stone number {number} lies in the old wall." for number in range(3 * ROWS)]
    words[5] = "Stone number 5 lies below stone"
    words[6] = "number 6, which is a sentence of two lines."
    sheets = [
        Sheet(lines(60, TOP, *words[start : start + ROWS], leading=LEADING)) for start in range(0, len(words), ROWS)
    ]
    (folder / "wall.pdf").write_bytes(pdf(sheets))
    new_corpus = Corpus(str(tmp_path / "wall.spolia"))
    cut = [new_corpus.group(name, Definition(splitter)) for name, splitter in CUT.items()]
    assert sync(folder, new_corpus, groups=cut, workers=0).failed == ()
    return new_corpus


def expect_boxes(corpus: Corpus, node: Node) -> None:
    """A box for each line that the node is from, in order, and none for others."""
    assert node.span is not None
    boxes = corpus.snapshot().boxes(node.document, node.span)
    numbers = [int(number) for number in re.findall(r"number (\d+)", node.text)]
    assert len(boxes) - len(numbers) in (0, 1)  # it may begin after a line's number
    for number, box in zip(reversed(numbers), reversed(boxes), strict=False):
        page, bottom = place(number)
        assert box.page == page
        assert box.bottom == pytest.approx(bottom, abs=4)


@pytest.mark.slow
@pytest.mark.parametrize("group", CUT)
def test_nodes_have_the_boxes_of_their_lines(corpus: Corpus, group: str) -> None:
    nodes = list(corpus.snapshot().all_nodes(group))
    assert len(nodes) > 1
    for node in nodes:
        expect_boxes(corpus, node)


@pytest.mark.slow
def test_what_is_merged_has_the_boxes_of_all_its_lines(corpus: Corpus) -> None:
    flow = BM25(corpus.group("sentence"), top_k=1) >> SentenceWindow(corpus, before=2, after=3)
    (hit,) = flow(Query("number 11")).hits
    assert [number for number in range(40) if f"number {number} " in hit.node.text] == list(range(9, 15))
    expect_boxes(corpus, hit.node)
    assert {box.page for box in corpus.snapshot().boxes(hit.node.document, hit.node.span)} == {1, 2}  # type: ignore[arg-type]
