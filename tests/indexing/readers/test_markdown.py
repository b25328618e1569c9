"""Markdown: the text is the source, the headings are where they stand."""

from __future__ import annotations

import pytest

from spolia.indexing.readers.marked.markdown import MarkdownReader
from spolia.indexing.readers.reading import Blob
from spolia.types import Document


def read(text: str) -> Document:
    return MarkdownReader().read(Blob("a.md", text.encode())).document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One\n\ntext\n\n### Three ###\n", [(1, "One"), (3, "Three")]),
        ("#No\n\n####### No\n\n    # no\n", []),
        ("Title\n=====\n\nText\nmore\n---\n\nSub\n---\n", [(1, "Title"), (2, "Sub")]),
        ("```\n# no\n```\n# yes\n", [(1, "yes")]),
        ("~~~~\n# no\n~~~\n# no\n~~~~\n# yes\n", [(1, "yes")]),
        ("````md\n```\n# no\n```\n````\n# yes", [(1, "yes")]),
        ("# **Bold** and `code` and [link](http://x)\n", [(1, "Bold and code and link")]),
        ("- item\n---\n\n> quote\n---\n", []),
        ("# CRLF\r\n\r\ntext\r\n\r\nTwo\r\n---\r\n", [(1, "CRLF"), (2, "Two")]),
        ("#\n# \n## Real\n", [(2, "Real")]),
        ("``` not a fence `\n# yes\n", [(1, "yes")]),
    ],
)
def test_headings(text: str, expected: list[tuple[int, str]]) -> None:
    document = read(text)
    assert document.text == text
    assert [(heading.level, heading.text) for heading in document.headings] == expected
    for heading in document.headings:
        assert heading.start == 0 or text[heading.start - 1] == "\n"


def test_the_title_is_that_of_the_front_matter_else_the_first_heading() -> None:
    assert read('---\ntitle: "Old stones"\ntags: x\n---\n# Other\n').title == "Old stones"
    assert read("# First\n## Second\n").title == "First"
    assert read("Text\n\n## Second\n").title == ""
    assert [heading.text for heading in read("---\n# not: this\n---\n# A\n").headings] == ["A"]


@pytest.mark.parametrize("piece", ["#", "# ", "`", "---\n", "[", "=\n", "a\n", "~~~\n"])
def test_hostile_repetition_takes_linear_time(piece: str) -> None:
    assert len(read(piece * (200_000 // len(piece))).text) <= 200_000


def test_front_matter_is_metadata() -> None:
    said = "title: T\nauthors: [Ann, Bob]\nauthor: Cy\nyear: 1931\ndraft: true\ndate: 2026-01-31\nodd: {a: 1}"
    assert read(f"---\n{said}\nfile_size: 3\nshare: .nan\n1: one\n---\nText.").meta == (
        ("author", "Ann"),
        ("author", "Bob"),
        ("author", "Cy"),
        ("year", 1931),
        ("draft", True),
        ("date", "2026-01-31"),
    )
