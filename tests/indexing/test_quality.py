"""The quality of a corpus: its numbers, and the page on which a person sees them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spolia.indexing.quality import format_attempts, measure_quality, render_page
from spolia.indexing.splitters.text_units import Pages
from spolia.indexing.sync.report import DocumentReport
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.stores.corpus import Corpus
from tests.indexing.sample_documents import locked_pdf, pdf_of

HOSTILE = "<script>alert(1)</script>\n\n\"'><img src=x onerror=alert(2)> \u202etxt.exe\u202c </style></details>\x00"


class Read(HTMLParser):
    """The tags of a page and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def make_corpus(tmp_path: Path) -> Corpus:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(pdf_of([["The first page."], [], ["The third page."]]))
    (folder / "b.pdf").write_bytes((folder / "a.pdf").read_bytes())
    (folder / "locked.pdf").write_bytes(locked_pdf("x"))
    (folder / "t.csv").write_text("stone,t\nbasalt,3\n")
    (folder / "old.txt").write_bytes("Größe und Maß der Säulen".encode("cp1252"))
    corpus = Corpus(str(tmp_path / "s.spolia"))
    sync(folder, corpus, splitter=Pages(), workers=0)
    return corpus


def test_numbers_of_all_documents(tmp_path: Path) -> None:
    quality = measure_quality(make_corpus(tmp_path).snapshot())
    assert (quality.sources, quality.failed, quality.given_up, quality.warned) == (5, 1, 0, 1)
    assert (quality.pages, quality.empty_pages, quality.tables) == (6, 2, 1)
    assert dict(quality.encodings).get("cp1252") == 1
    assert quality.copies == (("a.pdf", "b.pdf"),)


def test_what_others_may_read_is_not_counted(tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "s.spolia"))
    add_texts(corpus, {"open": "For all.", "shut": "For one."}, access=lambda uri: ["ann"] if "shut" in uri else [])
    assert (measure_quality(corpus.snapshot()).sources, measure_quality(corpus.snapshot(), ["ann"]).sources) == (1, 2)
    assert "For one." not in "".join(render_page(corpus.snapshot(), frozenset()))


@pytest.mark.slow
def test_each_page_stands_beside_its_chunks(tmp_path: Path) -> None:
    html = "".join(render_page(make_corpus(tmp_path).snapshot(), frozenset()))
    matches = re.findall(r'page 3</span><div class="text">(.*?)</div></div><div>(.*?)</div></div>', html)
    assert ["The third page." in first and "The third page." in second for first, second in matches] == [True, True]
    assert html.index("locked.pdf") < html.index("old.txt") < html.index("<b>a.pdf</b>")
    assert "tried in every run" in html


def test_a_document_cannot_leave_its_place(tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "s.spolia"))
    add_texts(corpus, {"<b onclick=x>.txt": HOSTILE, "plain": "Plain."})
    read = Read("".join(render_page(corpus.snapshot(), frozenset(), title="<i>")))
    assert {"script", "img"}.isdisjoint(read.tags)
    assert read.attributes <= {"lang", "charset", "name", "content", "class", "http-equiv"}
    assert read.tags.count("details") == 2
    assert "<script>alert(1)</script>" in read.text
    assert not set("\u202e\u202c\x00") & set(read.text)


@pytest.mark.slow
def test_what_is_too_much_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus(str(tmp_path / "s.spolia"))
    add_texts(corpus, {"a": "Short.", "b": "Long. " * 100})
    monkeypatch.setattr("spolia.indexing.quality.MOST_CHARACTERS", 100)
    html = "".join(render_page(corpus.snapshot(), frozenset()))
    assert "Short." in html
    assert "there is too much" in html


def test_attempts_in_words() -> None:
    report = DocumentReport("pdf", 0, attempts=2, tried_ns=0, passes=True)
    assert format_attempts(report) == "tried 2 times; again after 1970-01-01 00:02:00 UTC"
    assert format_attempts(report.but(passes=False)) == "tried 2 times; again in the next run"
    assert format_attempts(report.but(attempts=3)) == "tried 3 times; not again until it changes, or with --rebuild"
