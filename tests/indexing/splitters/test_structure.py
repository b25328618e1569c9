"""Splitters that follow pages, paragraphs, headings, tags, definitions, records, rows and meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spolia.errors import WiringError
from spolia.indexing.readers.html import HtmlReader
from spolia.indexing.readers.markup.markdown import MarkdownReader
from spolia.indexing.readers.reader import Blob
from spolia.indexing.splitters.code import CodeSplitter
from spolia.indexing.splitters.markup import HTMLSections, MarkdownSections
from spolia.indexing.splitters.rows import CSVRows, JSONRows, TableAware
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import (
    EMBEDDED_AT_ONCE,
    Pages,
    Paragraphs,
    RecursiveCharacters,
    SemanticBreaks,
    Sentences,
)
from spolia.indexing.transforms.by_pattern import ByPattern
from spolia.stores.definition import Part, Splitter
from spolia.types import Node, Span
from tests.cases import check_each
from tests.indexing.splitters.splitter_cases import Letters, cut_checked, part_of


def texts(splitter: Splitter, part: Part) -> list[str]:
    return [piece.text for piece in cut_checked(splitter, part)]


def contexts_and_texts(splitter: Splitter, part: Part) -> list[tuple[str, str]]:
    return [(piece.context, piece.text) for piece in cut_checked(splitter, part)]


# ------------------------------------------------------------------------------------------ pages and paragraphs


def test_what_says_nothing_alone_is_no_sentence() -> None:
    text = "---\n\nRun this.\n\n```bash\nspolia index docs\n```\n\n* * *\n\nThe end."
    pieces = texts(Sentences(), part_of(text))
    assert pieces == ["---\n\nRun this.", "```bash\nspolia index docs\n```", "* * *\n\nThe end."]
    assert texts(Sentences(), part_of("One.\n\n***\n\nTwo.", headings=(11,)))[-1] == "Two."
    assert texts(Sentences(), part_of("!!!")) == ["!!!"]
    assert max(map(len, texts(Sentences(size=5), part_of("One two three.\n" + "-" * 30 + "\nFour five.")))) <= 20


def test_one_piece_a_page_and_none_for_an_empty_one() -> None:
    text = "One.\n\nStill one.\n\n  \nThree."
    assert texts(Pages(), part_of(text, pages=(0, 18, 21))) == ["One.\n\nStill one.", "Three."]


def test_pages_of_a_part_are_those_that_lie_in_it() -> None:
    assert texts(Pages(), part_of("end of two. Three.", pages=(0, 5, 112), offset=100)) == ["end of two.", "Three."]


def test_a_document_without_pages_is_one_page_and_a_long_page_is_cut_between_paragraphs() -> None:
    assert texts(Pages(), part_of("One.\n\nTwo.")) == ["One.\n\nTwo."]
    assert texts(Pages(size=4), part_of("One is.\n\nTwo is.\n\nThree is.")) == ["One is.\n\nTwo is.", "Three is."]


@check_each("gap", ["\n\n", "\r\n\r\n", "\n \t\n\n", "\r\r", "\f", "\u2029"])
def test_paragraphs_end_at_blank_lines(gap: str) -> None:
    assert texts(Paragraphs(), part_of(f"One\ntwo.{gap}Three.")) == ["One\ntwo.", "Three."]


def test_sentences_do_not_cross_a_heading() -> None:
    assert texts(Sentences(), part_of("A title\nand its text.", headings=(0, 8))) == ["A title", "and its text."]


def test_separators_are_tried_in_order() -> None:
    text = "aa bb. cc dd.\nee ff\n\ngg hh"
    assert texts(RecursiveCharacters(size=4, overlap=0), part_of(text)) == ["aa bb. cc dd.", "ee ff", "gg hh"]
    by_comma = RecursiveCharacters(size=2, overlap=0, separators=(";", ","))
    assert texts(by_comma, part_of("one,two;three,four")) == ["one,two;", "three,", "four"]
    shared = RecursiveCharacters(size=3, overlap=2, separators=(" ",))
    assert texts(shared, part_of("one two three four five")) == ["one two", "two three", "three four", "four five"]


# ------------------------------------------------------------------------------------------------------- markdown

FENCED = "```python\n" + "x = 1  # a line\n\n" * 6 + "```"


def markdown(text: str) -> Part:
    document = MarkdownReader().read(Blob("a.md", text.encode())).document
    return Part(Node(document.id, text, span=Span(0, len(text))), document)


def test_sections_go_to_a_level() -> None:
    text = "Before.\n\n# A\n\nText.\n\n## B\n\nText.\n\n### C\n\nText."
    assert [piece[:3] for piece in texts(MarkdownSections(1), markdown(text))] == ["Bef", "# A"]
    assert [piece[:4] for piece in texts(MarkdownSections(2), markdown(text))] == ["Befo", "# A\n", "## B"]
    assert texts(MarkdownSections(2), markdown(text)) == texts(MarkdownSections(2), part_of(text, "a.md"))


def test_a_fence_is_not_cut_and_hides_headings() -> None:
    text = f"# A\n\n{'Many words here. ' * 8}\n\n{FENCED}\n\n{'Other words there. ' * 8}"
    assert FENCED in texts(MarkdownSections(size=40), markdown(text))
    hidden = "# A\n\n```\n# no heading\n```\n\nText."
    assert texts(MarkdownSections(), markdown(hidden)) == [hidden]


def test_a_fence_that_is_too_long_is_cut_between_lines_below_its_opening() -> None:
    pieces = contexts_and_texts(MarkdownSections(size=12), markdown(f"# A\n\n{FENCED}"))
    assert [context for context, _ in pieces[1:]] == ["```python"] * (len(pieces) - 1)
    assert all(line in FENCED.split("\n") for _, text in pieces[1:] for line in text.split("\n"))


def test_a_long_section_is_cut_at_deeper_headings_first() -> None:
    text = "# A\n\n" + "".join(f"#### D{number}\n\nShort text of it.\n\n" for number in range(6))
    pieces = texts(MarkdownSections(2, size=20), markdown(text))
    assert all(piece.startswith(("# A", "#### D")) for piece in pieces)


# ----------------------------------------------------------------------------------------------------------- html


def test_a_page_that_was_read_is_cut_at_its_headings() -> None:
    page = b"<h1>A</h1><p>One.</p><p>Two.</p><h2>B</h2><p>Three.</p>"
    document = HtmlReader().read(Blob("a.html", page)).document
    part = Part(Node(document.id, document.text, span=Span(0, len(document.text))), document)
    assert texts(HTMLSections(), part) == ["A\n\nOne.\n\nTwo.", "B\n\nThree."]
    assert all(not piece.search_text for piece in cut_checked(HTMLSections(), part))


def test_a_raw_page_is_cut_between_blocks_and_indexed_by_its_words() -> None:
    rows = "".join(f"<li class='row'>Item number <b>{number}</b></li>" for number in range(20))
    script = f"<script>{'x();' * 100}</script>"
    page = (
        f"<html><head>{script}<style>p {{}}</style></head><body><h1>List &amp; more</h1>{script}<ul>{rows}</ul></body>"
    )
    pieces = cut_checked(HTMLSections(size=40), part_of(page, "a.html"))
    words = " ".join(piece.search_text for piece in pieces)
    assert "x()" not in words
    assert "List & more" in words
    assert all(f"Item number {number}" in words for number in range(20))
    assert all(piece.text.count("<li") == piece.text.count("</li") for piece in pieces)


def test_a_tag_is_not_cut() -> None:
    page = "<p>" + "".join(f"<a href='https://example.org/{number}'>link {number}</a> " for number in range(30))
    assert all("href" not in piece.search_text for piece in cut_checked(HTMLSections(size=30), part_of(page)))


# ----------------------------------------------------------------------------------------------------------- code

PYTHON = '''"""Arches."""

import math


@cached
def span(load):
    # how wide
    return math.sqrt(load)


class Arch:
    """Of stone."""

    def __init__(self, stones):
        self.stones = stones

    async def build(self):
        for stone in self.stones:
            await self.lay(stone)
            self.wait_for_mortar_to_dry(stone)
        return len(self.stones), self
'''


def test_python_is_cut_between_definitions_with_their_decorators() -> None:
    pieces = contexts_and_texts(CodeSplitter(size=45), part_of(PYTHON, "arch.py"))
    assert pieces[0] == ("", PYTHON.partition("\n\n\nclass")[0])
    assert pieces[1][0] == "class Arch"
    assert pieces[1][1].startswith("class Arch:")
    assert pieces[2] == ("class Arch", PYTHON[PYTHON.index("async def") :].strip())


def test_what_is_inside_a_long_function_says_so() -> None:
    pieces = contexts_and_texts(CodeSplitter(size=28), part_of(PYTHON, "arch.py"))
    assert ("class Arch > async def build", "return len(self.stones), self") in pieces


@pytest.mark.parametrize(
    "broken", ["def f(:\n    pass\n", "x = 1\0\n", "x = " + "(" * 5000, "-" * 20000 + "1", "\ud800 = 1\n"]
)
def test_python_that_does_not_parse_is_cut_all_the_same(broken: str) -> None:
    joined = "".join(texts(CodeSplitter(size=25), part_of(PYTHON + broken, "arch.py")))
    assert "def span" in joined
    assert "Arch" in joined


JAVA = """package stones;

// Of stone.
public class Arch {
    private int stones;

    /** How wide. */
    public double span(double load) {
        double wide = Math.sqrt(load);
        return wide * this.stones;
    }

    public int count() {
        return stones;
    }
}
"""


def test_other_languages_are_cut_by_indentation() -> None:
    pieces = contexts_and_texts(CodeSplitter(size=35), part_of(JAVA, "Arch.java"))
    assert pieces[0] == ("", "package stones;")
    assert pieces[1][1].startswith("// Of stone.\npublic class Arch {")
    assert ("public class Arch", "public int count() {\n        return stones;\n    }\n}") in pieces
    spans = [text for _, text in pieces if "double span" in text]
    assert spans == [JAVA[JAVA.index("/** How") : JAVA.index("\n\n    public int count")]]


def test_the_only_class_of_a_file_is_the_context_of_its_members_and_said_once() -> None:
    only = JAVA.partition("\n\n")[2]
    pieces = contexts_and_texts(CodeSplitter(size=35), part_of(only, "Arch.java"))
    assert {context for context, _ in pieces} == {"public class Arch"}
    settings = "".join(f"# what it is\nname_{number} = {number}\n" for number in range(9))
    assert {context for context, _ in contexts_and_texts(CodeSplitter(size=15), part_of(settings, "a.ini"))} == {""}


# ---------------------------------------------------------------------------------------------------- json, csv


@pytest.mark.parametrize(
    "text",
    ['[{"a": 1}, {"a": "x, {y"}]', '{"a": 1}\n{"a": "x, {y"}\n', '[\n  {"a": 1},\n  {"a": "x, {y"}\n]\n'],
)
def test_one_piece_a_record(text: str) -> None:
    assert texts(JSONRows(), part_of(text)) == ['{"a": 1}', '{"a": "x, {y"}']
    assert [piece.search_text for piece in cut_checked(JSONRows(), part_of(text))] == ["a: 1", "a: x, {y"]


def test_a_long_record_is_cut_between_members_below_their_keys() -> None:
    record = {"id": 7, "work": {"title": "On arches " * 9, "pages": [{"text": "stone " * 15}, {"text": "sand " * 15}]}}
    pieces = cut_checked(JSONRows(size=30), part_of(json.dumps([record])))
    assert (pieces[0].text, pieces[0].search_text) == ('"id": 7', "id: 7")
    assert pieces[1].context == "work"
    assert pieces[1].search_text.startswith("work.title: On arches On")
    assert [piece.context for piece in pieces[2:]] == ["work > pages"] * 2
    assert pieces[3].search_text.startswith("work.pages.text: sand")


def test_scalars_share_a_piece_and_all_of_them_are_there() -> None:
    numbers = list(range(500))
    pieces = cut_checked(JSONRows(size=20), part_of(json.dumps({"numbers": numbers})))
    assert len(pieces) < 60
    assert [int(number) for piece in pieces for number in piece.text.split(",") if number.strip()] == numbers


@check_each("text", ['{"a": [1, 2', '[{"a": 1}, {"b"', '}{"a": 1}', "no json at all", '"only"', "17"])
def test_broken_json_is_cut_by_what_brackets_it_has(text: str) -> None:
    joined = "".join(texts(JSONRows(), part_of(text)))
    assert all(letter in joined for letter in text if letter.isalnum())


def test_rows_have_the_header_as_context() -> None:
    text = 'name;note\r\nA;"one\r\nline; more"\r\n\r\nB;""\r\nC;x\r\n'
    assert contexts_and_texts(CSVRows(rows=2), part_of(text)) == [
        ("", 'name;note\r\nA;"one\r\nline; more"\r\n\r\nB;""'),
        ("name;note", "C;x"),
    ]
    assert contexts_and_texts(CSVRows(rows=1, header=False), part_of("1,2\n3,4\n")) == [("", "1,2"), ("", "3,4")]


def test_a_quote_that_is_not_closed_swallows_no_rows() -> None:
    assert texts(CSVRows(rows=1), part_of('name,size\npipe,5"\n"rod,7\nbar,8\n'))[1:] == ['"rod,7', "bar,8"]


# --------------------------------------------------------------------------------------------------------- tables

ROWS = "".join(f"| stone {number} | {number} |\n" for number in range(30))
TABLE = f"| name | weight |\n|:--|--:|\n{ROWS}"


def test_a_table_is_whole_up_to_a_size() -> None:
    part = part_of(f"Weighed were these. All of them.\n\n{TABLE}\nThat is all. Or is it?")
    pieces = texts(TableAware(Sentences(), size=400), part)
    assert pieces[2:] == [TABLE.strip(), "That is all.", "Or is it?"]


def test_a_longer_table_is_cut_between_rows_below_its_header() -> None:
    pieces = contexts_and_texts(TableAware(Sentences(), size=50), part_of(f"Text.\n{TABLE}"))[1:]
    assert pieces[0][0] == ""
    assert {context for context, _ in pieces[1:]} == {"| name | weight |\n|:--|--:|"}
    assert "\n".join(text for _, text in pieces) == TABLE.strip()


def test_aligned_columns_are_a_table_and_prose_is_none() -> None:
    table = "Stone       Weight   Price\nBasalt        3.0      10\nMarble        2.7      50"
    prose = "He came.  He saw.\nHe won.  He went.\nHe wrote.  He died."
    assert table in texts(TableAware(Sentences()), part_of(f"Prices are these.\n\n{table}\n\n{prose}"))
    assert "He came." in texts(TableAware(Sentences()), part_of(prose))


def test_the_rest_sees_its_place_in_the_document() -> None:
    text = f"{TABLE}Under one.\nUnder two."
    part = part_of(text, headings=(3 + text.index("Under two"),), offset=3)
    assert texts(TableAware(Sentences()), part)[-2:] == ["Under one.", "Under two."]
    assert texts(TableAware(SlidingWindow(size=2, overlap=0)), part)[-2:] == ["Under", "two."]


# -------------------------------------------------------------------------------------------- meaning, and patterns


def test_breaks_are_where_the_distance_is_above_the_percentile() -> None:
    first, second = "Aaa aab aba. " * 6, "Zzz zzy zyz. " * 6
    pieces = texts(SemanticBreaks(Letters(), percentile=90, buffer=0), part_of(first + second))
    assert pieces == [first.strip(), second.strip()]


@pytest.mark.slow
def test_a_higher_percentile_makes_fewer_pieces_and_each_sentence_is_embedded_once() -> None:
    class Counting(Letters):
        seen = 0

        def embed(self, texts: Any, *, kind: Any) -> Any:
            type(self).seen += len(texts)
            return super().embed(texts, kind=kind)

    text = " ".join(f"Sentence {chr(97 + number % 26) * (number % 7)} is number {number}." for number in range(2500))
    part = part_of(text)
    counts = [
        len(cut_checked(SemanticBreaks(Letters(), percentile=percentile, buffer=1), part))
        for percentile in (50, 80, 95)
    ]
    assert counts == sorted(counts, reverse=True)
    cut_checked(SemanticBreaks(Counting(), buffer=0), part)
    assert 2500 <= Counting.seen <= 2500 + 2500 // EMBEDDED_AT_ONCE  # neighbouring batches share one


def test_the_first_pattern_that_matches_counts() -> None:
    splitter = ByPattern((("notes/*", Paragraphs()), ("*.TXT", Sentences())), otherwise=Pages())
    text = "One. Two.\n\nThree."
    assert len(splitter(part_of(text, "notes/deep/a.txt"))) == 2
    assert len(splitter(part_of(text, "a.txt"))) == 3
    assert len(splitter(part_of(text, "a.md"))) == 1
    assert len(splitter(part_of(text, ""))) == 1


@check_each(
    ("make", "said"),
    [
        (lambda: ByPattern((("*", Pages()), ("*.md", Pages()))), "never reaches the pattern '\\*.md'.*'\\*' last"),
        (lambda: ByPattern((("*.md", Pages()), ("*.md", Pages()))), "Write each pattern once"),
        (lambda: RecursiveCharacters(separators=("\n", "")), "empty separator"),
        (lambda: RecursiveCharacters(10, 10), "overlap=10 with size=10"),
        (lambda: MarkdownSections(0), "level=0.*at least 1"),
        (lambda: HTMLSections(0), "level=0.*at least 1"),
        (lambda: CSVRows(0), "rows=0.*at least 1"),
        (lambda: SemanticBreaks(Letters(), percentile=101), "percentile=101.*0 to 100"),
        (lambda: SemanticBreaks(Letters(), buffer=-1), "buffer=-1"),
        (lambda: Paragraphs(0), "Paragraphs got size=0"),
        (lambda: Sentences(covered=2), "covered=2.*share from 0 to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, said: str) -> None:
    with pytest.raises(WiringError, match=said):
        make()
