"""PDF: text, structure, passwords, damage. Tables, order and pictures have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.errors import DocumentError, EncryptedDocument
from spolia.indexing.readers.pdf.lines import apply_changes, resolve_hyphens
from spolia.indexing.readers.pdf.reader import PdfReader
from spolia.indexing.readers.reader import Blob, Reading
from tests.indexing.readers.pdf_samples import FIRST, Sheet, lines, pdf, stream, text
from tests.indexing.sample_documents import locked_pdf, pdf_of

pytest.importorskip("pypdfium2")


def read(data: bytes, tables: bool = True) -> Reading:
    return PdfReader(ocr=None, tables=tables).read(Blob("a.pdf", data))


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


def test_headings_and_title_without_an_outline_are_found_by_their_letters() -> None:
    prose = [f"Line {number} of the text goes on for quite a while, as lines of a text do" for number in range(9)]
    page = (
        text(60, 760, "Stones of Rome", size=20)
        + text(60, 730, "A. Mason", size=12)
        + text(60, 700, "Abstract", size=12)
        + lines(60, 680, *prose)
        + text(60, 560, "1 Arches", size=12)
        + lines(60, 540, *prose)
        + text(60, 420, "1.1 Of marble", bold=True)
        + lines(60, 400, *prose, "2 not a heading, since it is neither bold nor larger than the text")
    )
    document = read(pdf([Sheet(page), Sheet(lines(60, 760, *prose))])).document
    assert document.title == "Stones of Rome"
    assert [(heading.level, heading.text) for heading in document.headings] == [
        (1, "Abstract"), (1, "1 Arches"), (2, "1.1 Of marble"),
    ]  # fmt: skip
    assert all(document.text[heading.start :].startswith(heading.text) for heading in document.headings)


def test_words_broken_at_the_end_of_a_line_are_joined() -> None:
    broken = [
        "This is an effi-",
        "cient dual-",
        "encoder. The dual-encoder is efficient, and not BERT-",
        "Large.",
    ]
    document = read(pdf_of([broken])).document
    assert document.text == "This is an efficient dual-encoder. The dual-encoder is efficient, and not BERT-Large."
    assert [document.text[start:end] for start, end, _ in document.boxes] == [
        "This is an effi", "cient dual", "encoder. The dual-encoder is efficient, and not BERT", "Large.",
    ]  # fmt: skip


def test_marks_of_broken_words_go_whatever_stands_around_them() -> None:
    pages = ["a\ufffe", "\ufffeb", "x\ufffe\ufffey", "soft\u00ad\nhyphen", "no mark"]
    joined_pages = [apply_changes(page, change) for page, change in zip(pages, resolve_hyphens(pages), strict=True)]
    assert joined_pages == ["a", "b", "xy", "softhyphen", "no mark"]


def test_a_word_is_not_joined_with_a_table_or_a_heading_that_the_file_has_next() -> None:
    page = lines(60, 300, "It is built by concate-") + lines(320, 760, "Accuracy of all", "models.")
    assert read(pdf([Sheet(page)])).document.text == "It is built by concate-\nAccuracy of all\nmodels."


def test_every_line_has_its_box_in_points_from_the_upper_left_corner() -> None:
    document = read(pdf([Sheet(text(60, 700, "First line")), Sheet(lines(60, 700, "One", "Two"))])).document
    box_by_line = {document.text[start:end]: box for start, end, box in document.boxes}
    assert [(line, box.page) for line, box in box_by_line.items()] == [("First line", 1), ("One", 2), ("Two", 2)]
    box = box_by_line["First line"]
    assert 60 <= box.left < 62
    assert 91 < box.top < 95  # the letters are less than 10 points high, and stand on 800 - 700
    assert 99 < box.bottom < 103
    assert 95 < box.right < 110


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_boxes_of_a_turned_page_are_those_that_a_person_sees(quarters: int) -> None:
    sheet = Sheet(text(60, 700, "Some words on a page"), entries=b"/Rotate %d" % (90 * quarters))
    ((_, _, box),) = read(pdf([sheet])).document.boxes
    width, height = (800, 600) if quarters % 2 else (600, 800)
    corner = [(60, 100), (700, 60), (540, 700), (100, 540)][quarters]
    corners = [(box.left, box.bottom), (box.left, box.top), (box.right, box.top), (box.right, box.bottom)]
    assert corners[quarters] == pytest.approx(corner, abs=4)
    assert 0 <= box.left < box.right <= width
    assert 0 <= box.top < box.bottom <= height


def test_a_note_mark_in_the_air_belongs_to_its_line() -> None:
    page = text(60, 700, "Marble was burnt") + text(136.3, 704, "2", size=6) + text(139.3, 700, ", mostly.")
    assert read(pdf([Sheet(page)])).document.text == "Marble was burnt2, mostly."


def test_fields_of_forms_and_comments_stand_at_the_end_of_their_page() -> None:
    fields = [
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /TU (Full name) /V (Ada Byron) /Rect [60 600 200 620] >>",
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (empty) /Rect [60 500 200 520] >>",
        b"<< /Type /Annot /Subtype /Widget /FT /Btn /T (agrees) /V /Yes /AS /Yes /Rect [60 400 80 420] "
        b"/AP << /N << /Yes << >> /Off << >> >> >> >>",
        b"<< /Type /Annot /Subtype /Text /Contents (See page 9) /Rect [300 300 320 320] >>",
        b"<< /Type /Annot /Subtype /Link /Contents (not shown) /Rect [10 10 20 20] >>",
    ]
    refs = b" ".join(b"%d 0 R" % (FIRST + number) for number in range(len(fields)))
    data = pdf(
        [Sheet(text(60, 700, "A form"), entries=b"/Annots [%s]" % refs)],
        objects=fields,
        catalog=b"/AcroForm << /Fields [%d 0 R %d 0 R %d 0 R] >>" % (FIRST, FIRST + 1, FIRST + 2),
    )
    document = read(data).document
    assert document.text == "A form\nFull name: Ada Byron\nagrees: yes\nSee page 9"
    assert document.boxes.find_overlapping(8, 9)[0].top == 180


def test_attached_files_are_parts() -> None:
    objects = [
        stream(b"/Type /EmbeddedFile", b"a,b\n1,2\n"),
        b"<< /Type /Filespec /F (../../etc/prices.csv) /UF (../../etc/prices.csv) /EF << /F %d 0 R >> >>" % FIRST,
    ]
    names = b"/Names << /EmbeddedFiles << /Names [(a) %d 0 R (b) %d 0 R] >> >>" % (FIRST + 1, FIRST + 1)
    data = pdf([Sheet(text(60, 700, "Offer"))], objects=objects, catalog=names)
    parts = list(PdfReader().parts(Blob("mails/offer.pdf", data)))
    assert [(part.uri, part.data) for part in parts] == [
        ("mails/offer.pdf/prices.csv", b"a,b\n1,2\n"),
        ("mails/offer.pdf/2-prices.csv", b"a,b\n1,2\n"),
    ]


def test_pages_without_anything_are_counted() -> None:
    reading = read(pdf_of([["Text."], [], ["More."], []]))
    assert reading.empty_pages == (2, 4)
    assert reading.warnings == ()
    assert len(reading.document.pages) == 4


def test_a_locked_file_says_what_to_do() -> None:
    with pytest.raises(EncryptedDocument, match=r"a\.pdf is locked with a password.*has no password.*qpdf"):
        read(locked_pdf("secret"))


def test_passwords_come_from_the_environment_by_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = PdfReader(passwords=(("old/*", "OLD_PASSWORD"), ("*.pdf", "PDF_PASSWORD")))
    blob = Blob("b.pdf", locked_pdf("secret"))
    with pytest.raises(EncryptedDocument, match="PDF_PASSWORD is not set"):
        reader.read(blob)
    monkeypatch.setenv("PDF_PASSWORD", "wrong")
    with pytest.raises(EncryptedDocument, match="PDF_PASSWORD does not open it") as caught:
        reader.read(blob)
    assert "wrong" not in str(caught.value)
    monkeypatch.setenv("PDF_PASSWORD", "secret")
    assert reader.read(blob).empty_pages == (1,)
    with pytest.raises(EncryptedDocument, match="OLD_PASSWORD"):
        reader.read(Blob("old/b.pdf", locked_pdf("secret")))


def test_a_file_that_opens_without_a_password_is_read() -> None:
    assert read(locked_pdf("")).empty_pages == (1,)


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    data = pdf_of([["Text."]])
    path = tmp_path / "a.pdf"
    path.write_bytes(data)
    assert PdfReader().read(Blob("a.pdf", path)) == PdfReader().read(Blob("a.pdf", data))


def test_a_path_that_is_no_unicode_is_read(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9.pdf"
    try:
        path.write_bytes(pdf_of([["Text."]]))
    except OSError:
        pytest.skip("this file system takes only names that are Unicode")
    assert PdfReader().read(Blob("a.pdf", path)).document.text == "Text."


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        (b"hello", "begins with b'hello'"),
        (b"%PDF-1.4\n" + bytes(100), "not a readable PDF"),
        (pdf_of([["Text."]])[:200], "not a readable PDF"),
    ],
)
def test_damaged_files_say_what_was_there(data: bytes, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        read(data)


def test_a_file_without_its_cross_references_is_mended_while_reading() -> None:
    data = pdf_of([["Text."]])
    assert read(data[: data.index(b"xref")] + b"trailer << /Root 1 0 R >>").document.text == "Text."


@pytest.mark.slow
def test_two_thousand_pages() -> None:
    reading = read(pdf_of([[f"Page {number}.", "It has two lines."] for number in range(1, 2_001)]))
    assert len(reading.document.pages) == 2_000
    assert reading.document.text[reading.document.pages[1_998] :].startswith("Page 1999.")
