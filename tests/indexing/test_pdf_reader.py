"""PDF."""

from __future__ import annotations

import sys

import pytest

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.hyphens import joined_words
from spolia.indexing.readers.pdf import PdfReader
from spolia.indexing.readers.reading import Blob, Reading
from tests.indexing.making import locked_pdf, pdf_of

pytest.importorskip("pypdfium2")


def read(data: bytes) -> Reading:
    return PdfReader().read(Blob("a.pdf", data))


def test_pages_title_and_outline() -> None:
    document = read(
        pdf_of(
            [["Introduction", "First page."], ["1.2 Methods:", "Second page."], ["No mention of it."]],
            title="On Stones",
            outline=[(0, "Introduction"), (1, "Methods"), (2, "Nowhere")],
        )
    ).document
    assert document.text == "Introduction\nFirst page.\n1.2 Methods:\nSecond page.\nNo mention of it."
    assert [document.text[start:].split("\n")[0] for start in document.pages] == [
        "Introduction",
        "1.2 Methods:",
        "No mention of it.",
    ]
    assert [(document.text[heading.start :][:5], heading.text) for heading in document.headings] == [
        ("Intro", "Introduction"),
        ("1.2 M", "Methods"),
    ]
    assert document.title == "On Stones"


@pytest.mark.parametrize("title", ["untitled", "Microsoft Word - thesis.doc", "thesis_final-2.pdf", "scan0001"])
def test_a_file_name_is_no_title(title: str) -> None:
    assert read(pdf_of([["Text."]], title=title)).document.title == ""


def test_words_broken_at_the_end_of_a_line_are_joined() -> None:
    lines = [
        "This is an effi-",
        "cient dual-",
        "encoder. The dual-encoder is efficient, and not BERT-",
        "Large.",
    ]
    assert read(pdf_of([lines])).document.text == (
        "This is an efficient dual-encoder. The dual-encoder is efficient, and not BERT-Large."
    )


def test_marks_of_broken_words_go_whatever_stands_around_them() -> None:
    assert joined_words(["a\ufffe", "\ufffeb", "x\ufffe\ufffey", "soft\u00ad\nhyphen", "no mark"]) == [
        "a", "b", "xy", "softhyphen", "no mark",
    ]  # fmt: skip


def test_pages_without_text_are_counted() -> None:
    reading = read(pdf_of([["Text."], [], ["More."], []]))
    assert reading.empty_pages == (2, 4)
    assert reading.warnings == ("2 of 4 pages have no text (2, 4); scanned pages need OCR first.",)
    assert len(reading.document.pages) == 4


def test_a_locked_file_says_what_to_do() -> None:
    with pytest.raises(EncryptedDocument, match=r"a\.pdf is locked with a password.*qpdf"):
        read(locked_pdf("secret"))


def test_a_file_that_opens_without_a_password_is_read() -> None:
    assert read(locked_pdf("")).empty_pages == (1,)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        (b"hello", "begins with b'hello'"),
        (b"%PDF-1.4\n" + bytes(100), "no PDF that can be read"),
        (pdf_of([["Text."]])[:200], "no PDF that can be read"),
    ],
)
def test_damaged_files_say_what_was_there(data: bytes, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        read(data)


def test_a_file_without_its_cross_references_is_mended_while_reading() -> None:
    data = pdf_of([["Text."]])
    assert read(data[: data.index(b"xref")] + b"trailer << /Root 1 0 R >>").document.text == "Text."


@pytest.mark.slow
def test_ten_thousand_pages() -> None:
    reading = read(pdf_of([[f"Page {number}.", "It has two lines."] for number in range(1, 10_001)]))
    assert len(reading.document.pages) == 10_000
    assert reading.document.text[reading.document.pages[9_998] :].startswith("Page 9999.")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(MissingExtra, match=r"spolia\[pdf\]"):
        read(pdf_of([["Text."]]))
