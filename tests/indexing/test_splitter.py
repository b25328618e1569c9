"""Windows over documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import SpoliaError
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.stores.groups.nodes import cut_document
from spolia.types import Document, Heading, Node, Value
from tests.cases import check_each

KOREAN = "서울은 대한민국의 수도이다. 한강이 도시를 가로지른다! 인구는 약 940만 명이다. "
CHINESE = "东京是日本的首都，人口众多。它位于关东地区！你去过吗？"
THAI = "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย เป็นศูนย์กลางการปกครอง การศึกษา "
ARABIC = "القاهرة هي عاصمة مصر. هل زرتها؟ عدد سكانها كبير جدا، وتقع على النيل. "
EMOJI = "👨‍👩‍👧 went to 🇰🇷. 👍🏽👍🏽 They ❤️ it! 🏳️‍🌈🏳️‍🌈"
SCRIPTS = [KOREAN, CHINESE, THAI, ARABIC, EMOJI, "The cafe\u0301 is open. ", "क्षत्रिय यहाँ है। "]


@dataclass(frozen=True)
class Bytes(Value):
    """Counts a token for every two bytes, which does not add up over pieces: a worst case for packing."""

    def count(self, texts: Iterable[str], /) -> list[int]:
        return [(len(text.encode("utf-8", "replace")) + 1) // 2 for text in texts]

    def fingerprint(self) -> str:
        return "bytes/2"


def split(text: str, splitter: SlidingWindow, *headings: int) -> list[Node]:
    document = Document(
        "d", text, uri="d.txt", headings=tuple(Heading(position, 1, f"H{position}") for position in sorted(headings))
    )
    nodes = list(cut_document(document, splitter))
    assert len({node.id for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.span is not None
        assert document.text[node.span.start : node.span.end] == node.text == node.text.strip() != ""
        assert len(node.text) <= splitter.size * splitter.chars_per_token
        if splitter.tokenizer is not None:
            assert splitter.tokenizer.count([node.text])[0] <= splitter.size
    return nodes


def covers_text(text: str, nodes: list[Node]) -> bool:
    marks = bytearray(len(text))
    for node in nodes:
        assert node.span is not None
        marks[node.span.start : node.span.end] = b"\1" * (node.span.end - node.span.start)
    return all(mark or character.isspace() for mark, character in zip(marks, text, strict=True))


def starts(nodes: list[Node]) -> list[int]:
    return [node.span.start for node in nodes if node.span is not None]


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(st.sampled_from([*SCRIPTS, "\n\n", "\r\n", "- ", "x" * 70, " ", "http://a.b/c?d=e&f=g "]), max_size=25),
    st.sampled_from([None, Bytes()]),
    st.integers(8, 60),
    st.integers(0, 7),
    st.data(),
)
def test_windows_cover_the_text_exactly_and_are_never_too_long(
    pieces: list[str], tokenizer: Bytes | None, size: int, overlap: int, data: st.DataObject
) -> None:
    text = "".join(pieces)
    headings = data.draw(st.lists(st.integers(0, len(text)), max_size=3, unique=True))
    nodes = split(text, SlidingWindow(size, overlap, tokenizer=tokenizer), *headings)
    assert covers_text(text, nodes)
    assert starts(nodes) == sorted(set(starts(nodes)))


@settings(max_examples=60)
@given(st.text(max_size=400), st.integers(1, 30))
def test_any_text_is_covered(text: str, size: int) -> None:
    assert covers_text(text, split(text, SlidingWindow(size, 0)))


@check_each("text", SCRIPTS)
def test_round_trip_in_every_script(text: str) -> None:
    nodes = split(text * 99, SlidingWindow(size=50, overlap=10))
    assert len(nodes) > 5
    assert covers_text(text * 99, nodes)
    for node in nodes:  # no window begins in the middle of what is one character to a reader
        assert not node.text.startswith(("\u0301", "\u200d", "\ufe0f", "🏽", "\u0e35", "\u094d"))


def test_an_empty_or_blank_document_has_no_nodes() -> None:
    assert split("", SlidingWindow()) == split(" \n\t ", SlidingWindow()) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"size": 10, "overlap": 10}, "overlap=10 with size=10"),
        ({"size": 10, "overlap": 11}, "never move on"),
        ({"size": 0, "overlap": 0}, "size=0"),
        ({"overlap": -1}, "overlap=-1"),
        ({"chars_per_token": 0}, "chars_per_token=0"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(fields: dict[str, int], said: str) -> None:
    with pytest.raises(SpoliaError, match=said):
        SlidingWindow(**fields)  # type: ignore[arg-type]


def test_sentences_stay_whole_and_the_last_ones_come_again() -> None:
    text = "One is here. Two is there. Three is nowhere. Four is last."
    nodes = split(text, SlidingWindow(size=12, overlap=5))
    assert [node.text for node in nodes] == [
        "One is here. Two is there. Three is nowhere.",
        "Three is nowhere. Four is last.",
    ]


def test_an_overlap_never_makes_a_window_of_its_own() -> None:
    text = "Aa bb cc dd. Ee ff gg hh. Ii jj kk ll."
    nodes = split(text, SlidingWindow(size=7, overlap=6))
    assert nodes[-1].text.endswith("Ii jj kk ll.")
    assert all(a.text not in b.text for a, b in pairwise(nodes))


def test_a_window_never_crosses_a_heading_unless_the_section_is_tiny() -> None:
    body = "This sentence belongs to its section. " * 3
    text = f"# A\n\n{body}\n\n# B\n\n## C\n\n{body}"
    nodes = split(text, SlidingWindow(size=100, overlap=20), 0, text.index("# B"), text.index("## C"))
    assert [node.text.split("\n")[0] for node in nodes] == ["# A", "# B"]
    assert "## C" in nodes[1].text


def test_the_context_is_the_title_and_the_headings_above() -> None:
    text = "Intro\n\n" + "Text of the first part, with words. " * 30
    headings = (Heading(0, 1, "Intro"),)
    nodes = list(cut_document(Document("d", text, title="Stones", headings=headings), SlidingWindow(size=50)))
    assert [node.context for node in nodes[:2]] == ["Stones", "Stones > Intro"]
    assert nodes[1].indexed_text.startswith("Stones > Intro\nText of")


def test_a_long_title_does_not_fill_the_window() -> None:
    (node,) = cut_document(Document("d", "Text.", title="T" * 1000), SlidingWindow(size=50))
    assert len(node.context) == 50


def test_pages_and_lines_are_those_of_the_span() -> None:
    first, second = "On page one it says this.", "On page two it says that."
    document = Document("d", f"{first}\n{second}", pages=(0, len(first) + 1))
    spans = [node.span for node in cut_document(document, SlidingWindow(size=8, overlap=0))]
    assert [span.pages for span in spans if span] == [(1, 1), (2, 2)]
    whole_span = next(cut_document(document, SlidingWindow())).span
    assert whole_span is not None
    assert (whole_span.pages, whole_span.lines) == ((1, 2), None)
    whole = next(cut_document(document, SlidingWindow()))
    parts = [
        whole.span_of(start, end) for start, end in ((0, 9), (len(first) + 1, len(whole.text)), (5, len(first) + 9))
    ]
    assert [part.place for part in parts if part] == ["page 1", "page 2", "pages 1-2"]
    for end in ("\n", "\r\n", "\r"):
        text = end.join(["One.", "", "Two.", "Three."])
        lines = [node.span.lines for node in split(text, SlidingWindow(size=2, overlap=0)) if node.span]
        assert lines == [(1, 1), (3, 3), (4, 4)]


def test_a_long_sentence_is_cut_after_a_word() -> None:
    nodes = split("word " * 300, SlidingWindow(size=20, overlap=5))
    assert all(set(node.text.split()) == {"word"} for node in nodes)


def test_a_document_that_is_surely_short_enough_is_not_counted() -> None:
    class Never(Bytes):
        def count(self, texts: Iterable[str], /) -> list[int]:
            raise AssertionError("counted")

    assert len(list(cut_document(Document("d", "A short passage."), SlidingWindow(tokenizer=Never())))) == 1


def test_windows_come_one_by_one() -> None:
    nodes = cut_document(Document("d", "A sentence that is here. " * 100_000), SlidingWindow())
    assert next(nodes).text.startswith("A sentence")
