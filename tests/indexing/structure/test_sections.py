"""Sections by headings, by numbers, by meaning."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from spolia.errors import WiringError
from spolia.indexing.readers.html import HtmlReader
from spolia.indexing.readers.markup.markdown import MarkdownReader
from spolia.indexing.readers.reader import Blob
from spolia.indexing.structure.sections import Sections, numbered_headings
from spolia.indexing.structure.topics import Topics, merge_neighbours
from spolia.stores.definition import Part, Splitter, document_node
from spolia.stores.groups.nodes import cut_document
from spolia.testing import HashingEmbedder
from spolia.types import Document
from tests.cases import check_each

MARKDOWN = b"Before.\n\n# Rome\n\nStone.\n\n## Roads\n\nLong.\n\n### Via Appia\n\nOld.\n\n# Oslo\n\nWood.\n"


def texts(splitter: Splitter, document: Document) -> list[str]:
    return [piece.text for piece in splitter.pieces(Part(document_node(document), document))]


def first_lines(splitter: Splitter, document: Document) -> list[str]:
    return [text.partition("\n")[0] for text in texts(splitter, document)]


def test_markdown_is_cut_at_headings_down_to_a_level() -> None:
    document = MarkdownReader().read(Blob("a.md", MARKDOWN)).document
    assert first_lines(Sections(1), document) == ["Before.", "# Rome", "# Oslo"]
    assert first_lines(Sections(2), document) == ["Before.", "# Rome", "## Roads", "# Oslo"]
    assert first_lines(Sections(9), document) == ["Before.", "# Rome", "## Roads", "### Via Appia", "# Oslo"]


def test_html_is_cut_at_the_headings_that_its_reader_noted() -> None:
    html = b"<h1>Rome</h1><p>Stone.</p><h2>Roads</h2><p>Long.</p><h1>Oslo</h1><p>Wood.</p>"
    document = HtmlReader().read(Blob("a.html", html)).document
    assert first_lines(Sections(1), document) == ["Rome", "Oslo"]
    assert first_lines(Sections(2), document) == ["Rome", "Roads", "Oslo"]


def test_sections_of_sections_are_cut_at_their_own_headings() -> None:
    document = MarkdownReader().read(Blob("a.md", MARKDOWN)).document
    rome = next(node for node in cut_document(document, Sections(1)) if node.text.startswith("# Rome"))
    inner = list(Sections(2).pieces(Part(rome, document)))
    assert [piece.text.partition("\n")[0] for piece in inner] == ["# Rome", "## Roads"]
    assert all(piece.start is not None and rome.text.startswith(piece.text, piece.start) for piece in inner)


def test_a_text_without_headings_is_one_section_and_a_blank_one_is_none() -> None:
    assert texts(Sections(), Document("d", "One line.\n\nAnother.")) == ["One line.\n\nAnother."]
    assert texts(Sections(), Document("d", " \n ")) == []


REPORT = """A report on tides

1 Introduction

The tide rises.

1.1 Terms

1. Spring tide
2. Neap tide

1.2 History

In 1687 there was a book

2. Methods

Two ships were sent.

2.1.1 Ships

They were old.

3 Results
"""


def test_plain_text_is_cut_at_numbers_that_go_on_counting() -> None:
    headings = [(heading.level, heading.text) for heading in numbered_headings(REPORT)]
    assert headings == [(1, "1 Introduction"), (2, "1.1 Terms"), (2, "1.2 History"), (1, "2. Methods"),
                     (3, "2.1.1 Ships"), (1, "3 Results")]  # fmt: skip
    assert first_lines(Sections(1), Document("d", REPORT)) == [
        "A report on tides", "1 Introduction", "2. Methods", "3 Results",
    ]  # fmt: skip


@check_each(
    ("text", "found"),
    [
        ("Chapter I\n\nx\n\nCHAPTER II. The sea\n\ny", ["Chapter I", "CHAPTER II. The sea"]),
        ("Kapitel 1: Meer\n\nx\n\nKapitel 2: See", ["Kapitel 1: Meer", "Kapitel 2: See"]),
        ("I. Rome\n\nx\n\nII. Oslo\n\nII. again\n\nIII. Bonn", ["I. Rome", "II. Oslo", "III. Bonn"]),
        ("§ 1 Zweck\n\nx\n\n§ 2 Mittel", ["§ 1 Zweck", "§ 2 Mittel"]),
        ("第一章 海\n\nx\n\n第一節 月\n\ny\n\n第二章 川", ["第一章 海", "第一節 月", "第二章 川"]),
        ("第九章 海\n\nx", []),
        ("I went home\n\nII is a number", []),
        ("7 days later\n\n8 days later", []),
        ("1 It rained.\n\n2 It rained again, and again, and the ships waited.", []),
        ("1 A\nx\n2 B\ny", ["1 A"]),
        ("In 1 case\n\nmore", []),
        ("1 " + "long " * 40, []),
    ],
)
def test_what_is_a_numbered_heading(text: str, found: list[str]) -> None:
    assert [heading.text for heading in numbered_headings(text)] == found


@pytest.mark.slow
@settings(max_examples=200)
@given(text=st.text(alphabet="12. \n#ab§第一章Ⅳ1\t.IVX", max_size=80), level=st.integers(1, 3))
def test_sections_cover_every_character_but_blanks(text: str, level: int) -> None:
    document = Document("d", text)
    end = 0
    for piece in Sections(level).pieces(Part(document_node(document), document)):
        assert piece.start is not None
        assert text.startswith(piece.text, piece.start)
        assert not text[end : piece.start].strip()
        assert piece.text == piece.text.strip()
        end = piece.start + len(piece.text)
    assert not text[end:].strip()


# ------------------------------------------------------------------------------------------------------------ topics

EMBEDDER = HashingEmbedder(256)
SEA = ["The sea rises.", "The sea falls.", "The blue sea is deep."]
TAX = ["A tax is due.", "The income tax is due in May.", "Pay the tax."]


def test_a_text_is_cut_where_its_topic_changes() -> None:
    document = Document("d", " ".join([*SEA, *TAX]))
    assert texts(Topics(EMBEDDER, sentences=3), document) == [" ".join(SEA), " ".join(TAX)]
    assert texts(Topics(EMBEDDER, sentences=99), document) == [document.text]
    assert texts(Topics(EMBEDDER, sentences=1), document) == [*SEA, *TAX]
    assert texts(Topics(EMBEDDER), Document("d", " \n")) == []


@settings(max_examples=60)
@given(text=st.text(alphabet="ab.! \n語。", max_size=80), sentences=st.integers(1, 5))
def test_topics_cover_every_character_but_blanks(text: str, sentences: int) -> None:
    document = Document("d", text)
    end = 0
    for piece in Topics(EMBEDDER, sentences).pieces(Part(document_node(document), document)):
        assert piece.start is not None
        assert text.startswith(piece.text, piece.start)
        assert not text[end : piece.start].strip()
        end = piece.start + len(piece.text)
    assert not text[end:].strip()


@pytest.mark.slow
@settings(max_examples=100)
@given(
    vectors=arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=st.floats(-4, 4, width=16)),
    count=st.integers(1, 12),
)
def test_neighbours_are_joined_in_the_order_of_ward_s_costs(vectors: np.ndarray[Any, Any], count: int) -> None:
    stretches = [[index] for index in range(len(vectors))]
    while len(stretches) > count:
        costs = [_cost(vectors, left, right) for left, right in pairwise(stretches)]
        index = int(np.argmin(np.round(costs, 9)))
        if np.sum(np.round(costs, 9) == np.round(costs[index], 9)) > 1:
            return  # ties are decided by rounding there
        stretches[index : index + 2] = [stretches[index] + stretches[index + 1]]
    assert merge_neighbours(vectors, count) == [stretch[-1] + 1 for stretch in stretches]


def _cost(vectors: np.ndarray[Any, Any], numbers: list[int], other_numbers: list[int]) -> float:
    difference = vectors[numbers].mean(axis=0) - vectors[other_numbers].mean(axis=0)
    return len(numbers) * len(other_numbers) / (len(numbers) + len(other_numbers)) * float(difference @ difference)


def test_bad_numbers_are_refused() -> None:
    for bad in (lambda: Sections(0), lambda: Topics(EMBEDDER, 0)):
        with pytest.raises(WiringError):
            bad()
