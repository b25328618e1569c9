"""What holds of every splitter in the catalogue, whatever the text."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.indexing.readers.reader import Blob, reader_of
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.splitters.markup import HTMLSections, is_page
from spolia.indexing.splitters.rows import JSONRows, TableAware
from spolia.indexing.splitters.sized_splitter import SizedSplitter
from spolia.indexing.splitters.text_units import Sentences
from spolia.stores.definition import Part, Splitter
from spolia.types import Document, Node, Span
from tests.cases import check_each
from tests.indexing.splitters.splitter_cases import SIZE, Threes, characters_left_out, cut_checked, part_of, splitters
from tests.indexing.test_splitter import SCRIPTS, Bytes

ROOT = Path(__file__).resolve().parents[3]
EVERY = pytest.mark.parametrize("splitter", splitters(), ids=lambda splitter: type(splitter).__name__)
NAMES = ["a.py", "a.md", "a.html", "a.json", "a.csv", "a.txt", "a.JS"]
BITS = [
    *SCRIPTS, "\n", "\n\n", "\r\n", " ", "\t", "    ", "\u2029", "\f", "\x00", "\ud800", "e\u0301", "\u0301", "🇰🇷",
    "word ", "x" * 70, "# H\n", "## Deep\n", "```\n", "~~~py\n", "| a | b |\n", "|---|---|\n", "a  b\n", "a\tb\tc\n",
    "<h1>", "</h1>", "<p>", "<div class='a'>", "</div>", "<script>", "</script>", "<!--", "-->", "<br/>", "<", ">",
    "&amp;", "{", "}", "[", "]", ",", ":", '"', '"a": 1, ', '{"k": "v"},', "\\", "'", "1,2,3\n", '"x\ny",z\n',
    "def f(x):\n", "class A:\n", "    return 1\n", "@d\n", "if x {\n", "}\n", "// c\n", ";",
]  # fmt: skip
hostile = st.lists(st.sampled_from(BITS), max_size=40).map("".join) | st.text(max_size=120)


def keeps_everything(splitter: Splitter, part: Part) -> bool:
    """Whether a splitter says that every character but blanks is in a piece."""
    if isinstance(splitter, HTMLSections):
        return bool(part.document.headings) or not is_page(part.node.text)
    return not isinstance(splitter, JSONRows)


@pytest.mark.slow
@EVERY
def test_pieces_stand_where_they_say_and_nothing_is_lost(splitter: Splitter) -> None:
    @settings(max_examples=60)
    @given(hostile, st.sampled_from(NAMES), st.sampled_from([0, 0, 7]), st.data())
    def check_example(text: str, uri: str, offset: int, data: st.DataObject) -> None:
        lines = [0, *(offset + index + 1 for index, letter in enumerate(text) if letter == "\n")]
        places = st.lists(st.sampled_from(lines), max_size=3, unique=True).map(sorted)
        part = part_of(text, uri, data.draw(places), data.draw(places), offset)
        pieces = cut_checked(splitter, part)
        assert not keeps_everything(splitter, part) or not characters_left_out(text, pieces)

    check_example()


@EVERY
def test_an_equal_splitter_cuts_alike_and_in_pieces_as_at_once(splitter: Splitter) -> None:
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text("utf-8")
    part = part_of(text, "architecture.md")
    assert splitter.but()(part) == splitter(part) == tuple(splitter.pieces(part)) != ()


@EVERY
def test_blank_texts_have_no_pieces(splitter: Splitter) -> None:
    for text in ("", " ", "\n \t\r\n", "\u3000\u2028"):
        for uri in NAMES:
            assert cut_checked(splitter, part_of(text, uri)) == ()


@pytest.mark.slow
@EVERY
def test_tokens_are_bounded_as_they_are_counted(splitter: Splitter) -> None:
    if not isinstance(splitter, SizedSplitter):
        return  # counts otherwise, or leaves it to others; their own tests say how

    @settings(max_examples=40)
    @given(hostile, st.sampled_from([Bytes(), Threes()]))
    def check_example(text: str, tokenizer: Any) -> None:
        rest = {"rest": Sentences(SIZE, tokenizer=tokenizer)} if isinstance(splitter, TableAware) else {}
        counting = splitter.but(tokenizer=tokenizer, **rest)
        for piece in cut_checked(counting, part_of(text, "a.py")):
            assert tokenizer.count([piece.text])[0] <= counting.size

    check_example()


FILES = [
    *sorted((ROOT / "docs").rglob("*.md"))[:4],
    *sorted((ROOT / "src" / "spolia" / "indexing").glob("*.py"))[:4],
    *sorted((ROOT / "benchmarks" / "results").glob("*.json"))[:4],
    ROOT / "pyproject.toml",
    ROOT / "Makefile",
]


@EVERY
@check_each("file", FILES)
def test_files_of_this_project(splitter: Splitter, file: Path) -> None:
    part = part_of(file.read_text("utf-8"), file.name)
    pieces = cut_checked(splitter, part)
    assert pieces
    assert not keeps_everything(splitter, part) or not characters_left_out(part.node.text, pieces)


@pytest.fixture(scope="session")
def real_documents(shared_datasets: Path) -> list[Document]:
    """Real documents as their readers read them, each up to 20,000 characters."""
    documents = []
    for file in sorted((shared_datasets / "documents" / "files").iterdir()):
        reader = reader_of(file.name, by_suffix())
        if reader is None or file.suffix in (".pdf", ".docx"):
            document = Document(file.name, file.read_bytes().decode("utf-8", "replace"), file.name)
        else:
            document = reader.read(Blob(file.name, file.read_bytes())).document
        documents.append(document.but(text=document.text[:20_000]))
    return documents


@EVERY
@pytest.mark.slow
def test_real_documents(splitter: Splitter, real_documents: list[Document]) -> None:
    count = 0
    for document in real_documents:
        text = document.text
        part = Part(Node(document.id, text, span=Span(0, len(text))), document)
        pieces = cut_checked(splitter, part)
        assert not keeps_everything(splitter, part) or not characters_left_out(text, pieces)
        count += bool(pieces)
    assert count > 20


N, DEEP = 40_000, 10_000
HUGE = {
    "no blanks": "x" * 5 * N,
    "ideographs": "石" * N,
    "blanks": "a" + " " * N + "b",
    "blank lines": "\n" * N + "a",
    "one line": "word and " * (N // 9),
    "short lines": "ab\n" * (N // 6),
    "arrays": "[" * DEEP + "]" * DEEP,
    "objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "elements": "<div>" * DEEP + "x" + "</div>" * DEEP,
    "tags without end": "<p" * (N // 4),
    "comments without end": "<p>a<!--" * (N // 16),
    "scripts without end": "<p>a<script>" * (N // 24),
    "fences without end": "# a\n```\n" + "let it = be;\n" * (N // 26),
    "many fences": "```\n" * (N // 16) + "x",
    "no Python": "def f(:\n" * (N // 16),
    "deep Python": "x = " + "(" * DEEP,
    "deep indentation": "".join(" " * depth + "x\n" for depth in range(1000)),
    "quotes": '"' * (N // 2),
    "fields with quotes": ',"a' * (N // 6),
    "escaped quotes": '"' + '\\"' * (N // 4) + "\\",
    "marks": "a" + "\u0301" * (N // 4),
    "flags": "🇰" * (N // 10),
    "joined": "👨\u200d" * (N // 8),
    "bars": "a | b\n" * (N // 12),
    "tabs": "a\t" * (N // 4),
}


@EVERY
@pytest.mark.slow
@check_each("name", HUGE)
def test_no_text_is_too_much(splitter: Splitter, name: str) -> None:
    text, length = HUGE[name], 0
    for piece in splitter.pieces(part_of(text, "a.py")):
        assert piece.start is not None
        assert text[piece.start : piece.start + len(piece.text)] == piece.text
        length += len(piece.text)
    assert length > 0 or isinstance(splitter, HTMLSections)


@EVERY
@pytest.mark.slow
def test_the_memory_of_a_long_text_is_a_few_times_the_text(splitter: Splitter) -> None:
    part = part_of("A sentence of words. Another, with a comma.\n\n" * 3_000, "a.md")
    tracemalloc.start()
    for _ in splitter.pieces(part):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * len(part.node.text)
