"""HTML: the main content, in order."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from spolia import BM25, Corpus, Definition, Query, sync
from spolia.indexing.readers import html
from spolia.indexing.readers.html import HtmlReader, Page, WebPageReader
from spolia.indexing.readers.pdf.drawings import png_of
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.structure.regions import Regions
from tests.cases import check_each

PAGE = """<!doctype html><html><head><title>Old &amp; new
 stones</title><style>p { color: red }</style></head><body>
<nav>Home | About</nav><header><a href=/>Site</a></header>
<main><h1>Stones</h1><p>Caf&eacute; &lt;b&gt; A<b>B</b>C<br>next&nbsp;line.</p>
<script>alert("no")</script><h2>List of <i>things</i></h2><ul><li>one</li><li>two</li></ul>
<table><tr><th>Name</th><th>Age</th></tr><tr><td>Ann</td><td>5</td></tr></table>
<pre>def f():
    return 1</pre><p hidden>secret</p><p style="display: none">secret</p><!-- secret --></main>
<footer>Imprint</footer></body></html>"""


def read(page: str | bytes) -> Reading:
    return HtmlReader().read(Blob("a.html", page if isinstance(page, bytes) else page.encode()))


def test_all_text_of_a_local_page_is_read_but_its_menus() -> None:
    reading = read(PAGE)
    document = reading.document
    assert document.title == "Old & new stones"
    assert document.text.startswith("Site\n\nStones\n\nCafé <b> ABC\nnext line.\n\nList of things\n\n- one\n- two\n\n")
    assert "Name | Age\nAnn | 5" in document.text
    assert "def f():\n    return 1" in document.text
    assert document.text.endswith("Imprint")
    assert reading.dropped == (("navigation menus", 1),)
    for absent in ("Home", "alert", "secret", "color"):
        assert absent not in document.text


def test_headings_stand_where_the_text_says() -> None:
    document = read(PAGE).document
    assert [(heading.level, heading.text) for heading in document.headings] == [(1, "Stones"), (2, "List of things")]
    for heading in document.headings:
        assert document.text[heading.start :].startswith(heading.text)


ARTICLE = """<body><nav>Menu</nav><div role=banner>Ad</div><article><header><h1>Walls</h1><p>Lead.</p></header>
<p>Text.</p><aside><p>Limits apply.</p></aside><footer>Note.</footer></article><footer>End</footer></body>"""


@pytest.mark.parametrize("has_extra", [True, False])
def test_of_a_page_from_the_web_the_main_content_is_read(has_extra: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = "<p>Basalt is a dark stone, of which wall {} was built in the old town.</p>"
    if has_extra:
        pytest.importorskip("trafilatura")
    else:
        monkeypatch.setattr(html, "find_spec", lambda name: None)
    text = "".join(map(wall.format, range(9)))
    banner = "<div class=cookie-banner><p>Accept all cookies.</p></div><nav>Menu</nav>"
    page = f"<body>{banner}<article><h1>Walls</h1>{text}</article><footer>Imprint</footer></body>"
    reading = WebPageReader().read(Blob("https://example.org/", page.encode()))
    assert "wall 8 was built" in reading.document.text
    for absent in ("cookies", "Menu", "Imprint"):
        assert absent not in reading.document.text


def test_a_page_from_the_web_is_read_whole_if_hardly_anything_is_left() -> None:
    rows = "".join(f"<div>Stone {number}</div>" for number in range(200))
    reading = WebPageReader().read(Blob("https://example.org/", f"<main><p>Stones</p></main>{rows}".encode()))
    assert "Stone 199" in reading.document.text


@pytest.mark.slow
def test_lists_stay_on_a_page_that_a_table_lays_out() -> None:
    pytest.importorskip("trafilatura")
    wall = "<p>Basalt is a dark stone, of which wall {} was built in the old town by the river, for many years.</p>"
    text = "".join(map(wall.format, range(9)))
    items = "".join(
        f"<li>Wall {number} has a gate of granite that was brought from the hills</li>" for number in range(5)
    )
    menu = "".join(f"<li><a href=/{number}>Town {number}</a></li>" for number in range(9))
    page = (
        f"<table><tr><td colspan=2><ul>{menu}</ul><tr><td><ul>{menu}</ul><td><h1>Walls</h1>{text}<ul>{items}</ul>"
        f"<tr><td colspan=2><p>All rights reserved.</p><ul>{menu}</ul></table>"
    )
    reading = WebPageReader().read(Blob("https://example.org/", page.encode()))
    assert "wall 8 was built" in reading.document.text
    assert "Wall 4 has a gate" in reading.document.text
    assert "Town" not in reading.document.text


def test_the_header_and_the_notes_of_an_article_belong_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "find_spec", lambda name: None)
    two = ARTICLE.replace("</article>", "</article><article>Another.</article>")
    assert Page(two).read_main().text() == "Walls\n\nLead.\n\nText.\n\nLimits apply.\n\nNote.\n\nAnother."


def test_an_empty_main_element_does_not_hide_the_page() -> None:
    assert "All of it" in read("<main></main><div>All of it is here, outside.</div>").document.text


def test_a_page_of_navigation_only_is_read_anyway() -> None:
    assert read("<nav>Only this</nav>").document.text == "Only this"


@check_each(
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "html",
    ["<div>" * 100_000 + "deep", "<b>" * 50_000 + "deep", "<div><p>" * 30_000 + "deep</p>" + "</div>" * 30_000],
)
def test_hostile_nesting_is_read_flat_and_it_is_said(html: str) -> None:
    reading = read(html)
    assert reading.document.text == "deep"
    assert "nested" in reading.warnings[0]


@check_each("html", ["", "<", "<div " * 50_000, "&amp;" * 50_000, "<!--" * 1000, "<p" + " x=1" * 50_000 + ">a"])
def test_broken_pages_do_not_fail(html: str) -> None:
    assert len(read(html).document.text) <= len(html)


def red(width: int = 40) -> bytes:
    """A PNG of one colour."""
    return png_of(np.full((30, width, 3), (200, 0, 0), np.uint8))


def test_pictures_that_are_written_into_a_page_are_images_and_others_are_counted() -> None:
    here = base64.b64encode(red()).decode()
    page = (
        f"<p>Stones.</p><img src='data:image/png;base64,{here}' alt='A red wall'>"
        f"<img src='data:image/png;base64,{here}'><img src='data:image/png;base64,%%%'>"
        "<img src='data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'>"
        "<img src='data:image/svg+xml,<svg/>'><img src='https://example.org/a.png' alt='A wall of basalt stones'><img>"
    )
    reading = HtmlReader().read(Blob("a.html", page.encode()))
    assert [image.data for image in reading.images] == [red()]
    pictures = [region for region in reading.document.regions if region.kind == "image"]
    assert [(region.caption, bool(region.image)) for region in pictures] == [
        ("A red wall", True), ("", True), ("A wall of basalt stones", False),
    ]  # fmt: skip
    assert {region.image for region in pictures if region.image} == {reading.images[0].content_hash}
    assert reading.dropped == (("pictures", 3),)  # damaged, drawn, elsewhere


def test_the_picture_in_what_stands_around_the_content_is_not_read() -> None:
    here = base64.b64encode(red()).decode()
    logo = f"<nav><img src='data:image/png;base64,{here}' alt='The logo of the masons'></nav>"
    reading = HtmlReader().read(Blob("a.html", f"{logo}<p>Stones.".encode()))
    assert (reading.images, reading.dropped, reading.document.regions) == ((), (), ())


@pytest.mark.slow
def test_the_picture_in_a_page_is_a_node_that_shows_it(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    here = base64.b64encode(red()).decode()
    (tmp_path / "docs" / "a.html").write_text(
        f"<p>Stones.</p><img src='data:image/png;base64,{here}' alt='A red wall'>"
    )
    corpus = Corpus(f"{tmp_path}/s.spolia")
    pictures = corpus.group("picture", Definition(Regions("image")))
    report = sync(tmp_path / "docs", corpus, groups=[pictures], workers=1)
    (hit,) = BM25(pictures)(Query("red wall")).hits
    assert corpus.latest().image(hit.node.document, str(dict(hit.node.meta)["image"]), frozenset()) == red()
    assert report.failed == ()
