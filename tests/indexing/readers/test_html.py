"""HTML: the main content, in order."""

from __future__ import annotations

import pytest

from spolia.indexing.readers.html import HtmlReader
from spolia.indexing.readers.reading import Blob, Reading

PAGE = """<!doctype html><html><head><title>Old &amp; new
 stones</title><style>p { color: red }</style></head><body>
<nav>Home | About</nav><header><a href=/>Site</a></header>
<main><h1>Stones</h1><p>Caf&eacute; &lt;b&gt; A<b>B</b>C<br>next&nbsp;line.</p>
<script>alert("no")</script><h2>List of <i>things</i></h2><ul><li>one</li><li>two</li></ul>
<table><tr><th>Name</th><th>Age</th></tr><tr><td>Ann</td><td>5</td></tr></table>
<pre>def f():
    return 1</pre><p hidden>secret</p><p style="display: none">secret</p><!-- secret --></main>
<footer>Imprint</footer></body></html>"""


def read(html: str | bytes) -> Reading:
    return HtmlReader().read(Blob("a.html", html if isinstance(html, bytes) else html.encode()))


def test_the_main_content_is_read_and_nothing_else() -> None:
    document = read(PAGE).document
    assert document.title == "Old & new stones"
    assert document.text.startswith("Stones\n\nCafé <b> ABC\nnext line.\n\nList of things\n\n- one\n- two\n\n")
    assert "Name | Age\nAnn | 5" in document.text
    assert "def f():\n    return 1" in document.text
    for absent in ("Home", "Site", "Imprint", "alert", "secret", "color"):
        assert absent not in document.text


def test_headings_stand_where_the_text_says() -> None:
    document = read(PAGE).document
    assert [(heading.level, heading.text) for heading in document.headings] == [(1, "Stones"), (2, "List of things")]
    for heading in document.headings:
        assert document.text[heading.start :].startswith(heading.text)


def test_without_a_main_element_what_stands_around_the_content_is_left_out() -> None:
    text = read("<body><nav>Menu</nav><div role=banner>Ad</div><p>Text.</p><footer>End</footer></body>").document.text
    assert text == "Text."


def test_an_empty_main_element_does_not_hide_the_page() -> None:
    assert "All of it" in read("<main></main><div>All of it is here, outside.</div>").document.text


def test_a_page_of_navigation_only_is_read_anyway() -> None:
    assert read("<nav>Only this</nav>").document.text == "Only this"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('<meta charset="windows-1252"><p>€ café'.encode("cp1252"), "€ café"),
        (
            '<meta http-equiv=Content-Type content="text/html; charset=shift_jis"><p>日本語'.encode("shift_jis"),
            "日本語",
        ),
        ("<p>Привет".encode("utf-16"), "Привет"),
        ("<p>naïve".encode("latin-1"), "naïve"),
        ('<meta charset="utf-8"><p>ü'.encode(), "ü"),
        ('<meta charset="no-such-thing"><p>ü'.encode(), "ü"),
    ],
)
def test_the_encoding_is_the_declared_one_else_a_guess(data: bytes, expected: str) -> None:
    assert read(data).document.text == expected


@pytest.mark.parametrize(
    "html",
    ["<div>" * 100_000 + "deep", "<b>" * 50_000 + "deep", "<div><p>" * 30_000 + "deep</p>" + "</div>" * 30_000],
)
def test_hostile_nesting_is_read_flat_and_it_is_said(html: str) -> None:
    reading = read(html)
    assert reading.document.text == "deep"
    assert "nested" in reading.warnings[0]


@pytest.mark.parametrize(
    "html", ["", "<", "<div " * 50_000, "&amp;" * 50_000, "<!--" * 1000, "<p" + " x=1" * 50_000 + ">a"]
)
def test_broken_pages_do_not_fail(html: str) -> None:
    assert len(read(html).document.text) <= len(html)
