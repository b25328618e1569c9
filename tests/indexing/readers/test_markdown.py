"""Markdown: the text is the source, the headings are where they stand."""

from __future__ import annotations

import re

import pytest

from spolia.indexing.readers.markup.markdown import MarkdownReader
from spolia.indexing.readers.reader import Blob
from spolia.types import Document
from tests.cases import check_each


def read(text: str) -> Document:
    return MarkdownReader().read(Blob("a.md", text.encode())).document


@check_each(
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


@pytest.mark.slow
@check_each("piece", ["#", "# ", "`", "---\n", "[", "=\n", "a\n", "~~~\n"])
def test_hostile_repetition_takes_linear_time(piece: str) -> None:
    assert len(read(piece * (200_000 // len(piece))).text) <= 200_000


def test_front_matter_is_metadata() -> None:
    front_matter = "title: T\nauthors: [Ann, Bob]\nauthor: Cy\nyear: 1931\ndraft: true\ndate: 2026-01-31\nodd: {a: 1}"
    assert read(f"---\n{front_matter}\nfile_size: 3\nshare: .nan\n1: one\n---\nText.").meta == (
        ("author", "Ann"),
        ("author", "Bob"),
        ("author", "Cy"),
        ("year", 1931),
        ("draft", True),
        ("date", "2026-01-31"),
    )


def test_moments_of_the_front_matter_are_in_utc() -> None:
    front_matter = "date: 2026-01-31 10:00:00\nmodified: '2026-01-31T10:00:00-05:00'\n"
    front_matter += "seen: 2026-01-31T10:00:00+01:00\nday: 2026-01"
    assert read(f"---\n{front_matter}\n---\nText.").meta == (
        ("date", "2026-01-31T10:00:00Z"),
        ("modified", "2026-01-31T15:00:00Z"),
        ("seen", "2026-01-31T09:00:00Z"),
        ("day", "2026-01"),
    )


@pytest.mark.parametrize(
    ("said", "warned"),
    [
        ("author: [Ann", "is not YAML, so that it gives no fields: .*line"),
        (
            "author: Ann\nodd: {a: 1}\n2: two",
            "Left out of the front matter: odd, 2; a field is a text as name, and a value",
        ),
        ("deep: [[1]]", "Left out of the front matter: deep;"),
    ],
)
def test_what_the_front_matter_says_in_vain_is_warned_of(said: str, warned: str) -> None:
    (warning,) = MarkdownReader().read(Blob("a.md", f"---\n{said}\n---\nText.".encode())).warnings
    assert re.search(warned, warning)


def test_text_between_two_lines_is_no_front_matter() -> None:
    reading = MarkdownReader().read(Blob("a.md", b"---\nSalt and stone.\n---\nText."))
    assert (reading.warnings, reading.document.meta) == ((), ())
