"""DOCX."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from typing import Any

import pytest

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.office.docx import DocxReader
from spolia.indexing.readers.reader import Blob, Reading
from tests.cases import check_each
from tests.indexing.sample_documents import docx_of

pytest.importorskip("docx")
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def read(data: bytes) -> Reading:
    return DocxReader().read(Blob("a.docx", data))


def write_document(document: Any) -> None:
    document.core_properties.title = ""
    document.add_heading("Old Stones", 0)
    document.add_paragraph("An introduction.")
    document.add_heading("Walls", 1)
    document.add_paragraph("first", style="List Bullet").add_run(" item")
    table = document.add_table(2, 2)
    for number, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"cell {number}"
    document.add_heading("Roads", 2)
    document.add_paragraph("The end.")


def test_paragraphs_headings_and_tables_come_in_order() -> None:
    document = read(docx_of(write_document)).document
    assert document.text.split("\n\n") == [
        "Old Stones",
        "An introduction.",
        "Walls",
        document.text.split("\n\n")[3],
        "cell 0 | cell 1\ncell 2 | cell 3",
        "Roads",
        "The end.",
    ]
    assert document.text.split("\n\n")[3].endswith("first item")
    assert [(heading.level, heading.text) for heading in document.headings] == [
        (1, "Old Stones"), (1, "Walls"), (2, "Roads"),
    ]  # fmt: skip
    for heading in document.headings:
        assert document.text[heading.start :].startswith(heading.text)
    assert document.title == "Old Stones"


def with_body(xml: str) -> bytes:
    def write(document: Any) -> None:
        from docx.oxml import parse_xml

        for element in parse_xml(f'<w:body xmlns:w="{W}">{xml}</w:body>'):
            document.element.body.insert(0, element)

    return docx_of(write)


def test_insertions_links_and_content_controls_are_read_and_deletions_are_not() -> None:
    text = read(
        with_body(
            "<w:sdt><w:sdtPr/><w:sdtContent><w:p><w:r><w:t>In a control. </w:t></w:r>"
            "<w:ins><w:r><w:t>Inserted. </w:t></w:r></w:ins><w:del><w:r><w:delText>Deleted.</w:delText></w:r></w:del>"
            "<w:hyperlink><w:r><w:t>A link.</w:t></w:r></w:hyperlink></w:p></w:sdtContent></w:sdt>"
        )
    ).document.text
    assert text == "In a control. Inserted. A link."


@pytest.mark.slow
def test_a_bomb_is_refused_by_the_size_that_it_states() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(60_000_000))
    with pytest.raises(DocumentError, match=r"would unpack from \d+ to 60000000 bytes"):
        read(out.getvalue())


@pytest.mark.slow
def test_a_bomb_that_lies_about_its_size_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(60_000_000))
    data = out.getvalue().replace(struct.pack("<I", 60_000_000), struct.pack("<I", 10))
    with pytest.raises(DocumentError):
        read(data)


def test_entities_that_grow_are_not_expanded() -> None:
    data = docx_of(lambda document: document.add_paragraph("Text."))
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(8)
    )
    body = "<w:body><w:p><w:r><w:t>&i;</w:t></w:r></w:p></w:body>"
    xml = f'<?xml version="1.0"?>{bomb}]><w:document xmlns:w="{W}">{body}</w:document>'
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for part in old.infolist():
            new.writestr(part, xml if part.filename == "word/document.xml" else old.read(part))
    try:
        text = read(out.getvalue()).document.text
    except DocumentError:
        return
    assert len(text) < 1000


@check_each(
    ("data", "kind", "said"),
    [
        (b"", DocumentError, "0 bytes"),
        (b"hello", DocumentError, "begins with b'hell'"),
        (b"PK\x03\x04rest", DocumentError, "not a zip"),
        (docx_of(lambda document: None)[:3000], DocumentError, "not a readable DOCX"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), DocumentError, "old Office file"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le"),
            EncryptedDocument,
            "locked with a password",
        ),
    ],
)
def test_what_is_no_docx_says_what_it_is(data: bytes, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        read(data)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docx", None)
    with pytest.raises(MissingExtra, match=r"spolia\[office\]"):
        read(b"")


def test_comments_stand_below_what_they_are_about_and_headers_are_counted() -> None:
    def write(document: Any) -> None:
        first = document.add_paragraph("Granite is hard.")
        document.add_comment(first.runs, text="How hard?", author="Ann", initials="A")
        document.add_paragraph("Basalt is dark.")
        document.sections[0].header.paragraphs[0].text = "Memo 77"

    reading = read(docx_of(write))
    assert reading.document.text == "Granite is hard. [1]\n\n[1] Ann: How hard?\n\nBasalt is dark."
    assert reading.dropped == (("headers and footers", 1),)


def test_a_comment_that_nothing_read_refers_to_is_counted() -> None:
    def write(document: Any) -> None:
        document.add_comment(document.add_paragraph("Granite.").runs, text="Hard?", author="", initials="")
        document.add_comment(document.add_paragraph("Basalt.").runs, text="Dark?", author="Bo", initials="B")
        document.paragraphs[1]._p.remove(document.paragraphs[1].runs[-1]._r)

    reading = read(docx_of(write))
    assert reading.document.text == "Granite. [1]\n\n[1] Hard?\n\nBasalt."
    assert reading.dropped == (("comments", 1),)
