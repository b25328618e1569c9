"""Files that are made to do harm, and files that are not what their names say."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from spolia.errors import DocumentError, EncryptedDocument, SpoliaError
from spolia.indexing.readers.archives import refuse_many
from spolia.indexing.readers.office import excel
from spolia.indexing.readers.reader import Blob, reader_of
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from tests.cases import check_each
from tests.indexing.readers.compound import record, xls
from tests.indexing.readers.fixtures import FIXTURES, PIXEL, changed_zip, odf, xlsx, zip_of
from tests.indexing.readers.test_every_format import read

LAUGHS = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(8)
)
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">'


@pytest.mark.parametrize("head", [LAUGHS, OUTSIDE, '<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1:1/"> %a;'])
def test_entities_are_not_declared(head: str) -> None:
    with pytest.raises(DocumentError, match="declares the entity"):
        read("a.xml", f"<?xml version='1.0'?>{head}]><x>&a;</x>".encode())
    body = f"{head}]><office:document-content xmlns:office='o'>&a;</office:document-content>"
    with pytest.raises(DocumentError, match="declares the entity"):
        read("a.odt", changed_zip(FIXTURES["a.odt"](), {"content.xml": body}))
    with pytest.raises(DocumentError, match="declares the entity"):
        read("a.epub", changed_zip(FIXTURES["a.epub"](), {"META-INF/container.xml": f"{head}]><x>&a;</x>"}))
    for name, part in (
        ("a.xlsx", "xl/workbook.xml"),
        ("a.docx", "word/document.xml"),
        ("a.pptx", "ppt/presentation.xml"),
    ):
        try:
            reading = read(name, changed_zip(FIXTURES[name](), {part: f"<?xml version='1.0'?>{head}]><x>&a;</x>"}))
        except SpoliaError:
            continue
        assert len(reading.document.text) < 1000
        assert "root:" not in reading.document.text


DEEP = 100_000


@pytest.mark.slow
@check_each(
    ("name", "data"),
    [
        ("a.html", b"<div>" * DEEP + b"Stone."),
        ("a.html", b"<table><tr><td>" * DEEP + b"Stone."),
        ("a.xml", b"<a>" * DEEP + b"Stone." + b"</a>" * DEEP),
        ("a.json", b"[" * DEEP + b'"Stone."' + b"]" * DEEP),
        ("a.jsonl", b"[" * DEEP + b'"Stone."' + b"]" * DEEP),
        ("a.rtf", b"{\\rtf1 " + b"{" * DEEP + b"Stone." + b"}" * DEEP + b"}"),
        ("a.tex", b"{" * DEEP + b"Stone." + b"}" * DEEP),
        ("a.md", b"> " * DEEP + b"Stone."),
        ("a.py", b"(" * DEEP + b"Stone."),
    ],
)
def test_nesting_of_a_hundred_thousand_levels_is_read(name: str, data: bytes) -> None:
    assert "Stone." in read(name, data).document.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.ipynb", b'{"cells":' + b"[" * DEEP),
        ("a.odt", odf("<text:section>" * DEEP + "x" + "</text:section>" * DEEP)),
        ("a.eml", b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(5000))),
    ],
)
def test_nesting_that_cannot_be_read_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(DocumentError, match=name.replace(".", r"\.")):
        read(name, data)


@pytest.mark.slow
@check_each("name", ["a.txt", "a.md", "a.rst", "a.adoc", "a.tex", "a.py", "a.csv", "a.html", "a.rtf", "a.eml"])
def test_a_line_of_a_megabyte_is_read(name: str) -> None:
    begin = {"a.rtf": b"{\\rtf1 ", "a.eml": b"From: a\n\n"}.get(name, b"")
    assert len(read(name, begin + b"Stone, " * 150_000).document.text) > 1_000_000


def test_what_repeats_itself_in_front_matter_is_left_out() -> None:
    lines = [
        "a0: &a0 [x, x]",
        *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)),
        "tags: *a39",
        "title: *a39",
    ]
    document = read("a.md", "\n".join(("---", *lines, "---", "# Stones")).encode()).document
    assert (document.title, document.meta) == ("Stones", (("a0", "x"), ("a0", "x")))


@pytest.mark.parametrize(
    "row",
    [
        '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
        '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576">' + "<c><v>1</v></c>" * 100 + "</row>",
        "<row r='1'><c r='XFD1'><v>1</v></c></row><row r='1048576'><c><v>1</v></c></row>",
    ],
)
def test_a_cell_far_out_does_not_fill_the_memory(row: str) -> None:
    with pytest.raises(DocumentError, match="more than 20000000 cells"):
        read("a.xlsx", xlsx({"Far": row}))


@pytest.mark.parametrize(
    "far",
    [
        record(0x0203, struct.pack("<3Hd", 65_535, 65_535, 0, 3.0)),
        record(0x0200, struct.pack("<IIHHH", 0, 65_536, 0, 65_535, 0)),
        record(0x0200, struct.pack("<IIHHH", 0, 0xFFFFFFFF, 0, 1, 0)),
        record(0x0200, struct.pack("<IIHHH", 0, 65_536, 65_535, 65_534, 0)),
        record(0x0200, struct.pack("<IIHHH", 2, 0, 0, 2, 0)),
    ],
    ids=["cell", "columns", "rows", "columns backwards", "rows backwards"],
)
def test_a_sheet_of_old_excel_that_says_to_be_large_does_not_fill_the_memory(far: bytes) -> None:
    with pytest.raises(DocumentError, match="more than 20000000 cells"):
        read("a.xls", xls(far))


@pytest.mark.slow
def test_rows_that_are_empty_cost_nothing_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    cells: list[object] = []
    monkeypatch.setattr(excel, "_plain_cell", lambda cell: str(cells.append(cell) or cell))  # type: ignore[func-returns-value]
    text = read("a.xls", xls(record(0x0203, struct.pack("<3Hd", 60_000, 200, 0, 7.5)))).document.text
    assert text.endswith("basalt | 3.0\n\n7.5")
    assert len(cells) == 3 * 201


def test_a_book_of_old_excel_whose_sectors_go_in_circles_is_refused() -> None:
    data = xls()
    table = len(data) - 512
    for number in range(3):
        circle = data[: table + 4 * number] + struct.pack("<I", number) + data[table + 4 * number + 4 :]
        with pytest.raises(DocumentError, match="in circles"):
            read("a.xls", circle)
    further = data[:68] + bytes(8) + data[76:]  # the list of tables is said to go on at the first sector, forever
    with pytest.raises(DocumentError, match=r"a\.xls is not a readable XLS"):
        read("a.xls", further)


def test_what_the_library_panics_at_is_a_damaged_file() -> None:
    with pytest.raises(DocumentError, match=r"a\.xls is not a readable XLS: ValueError: range end index"):
        read("a.xls", xls().replace(b"\x09\x08\x10\0", b"\x09\x08\0\0", 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("a.docx", "word/x.xml"),
        ("a.pptx", "ppt/x.xml"),
        ("a.xlsx", "xl/x.xml"),
        ("a.odt", "x.xml"),
        ("a.epub", "x.xml"),
    ],
)
def test_documents_that_are_bombs_are_refused(name: str, part: str) -> None:
    with pytest.raises(DocumentError, match=r"would unpack from \d+ to \d+ bytes"):
        read(name, changed_zip(FIXTURES[name](), {part: bytes(60_000_000)}))


def test_a_document_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(zip_of({f"word/{n}": "" for n in range(1000)}))
    with path.open("rb") as file, pytest.raises(DocumentError, match="1000 entries"):
        refuse_many(file, "a.docx", 999)


# ---------------------------------------------------------------------------------------------------------- wrong names

PAGE = b"<!DOCTYPE html>\n<html><body><p>Stones.</body></html>"


@check_each(
    ("name", "data", "said"),
    [
        ("a.txt", PIXEL, "it is a PNG image"),
        ("a.md", PAGE, r"is an HTML page.*suffix \.html"),
        ("a.txt", b"\xef\xbb\xbf  <html >", "is an HTML page"),
        ("a.csv", PAGE, "is an HTML page"),
        ("a.json", zip_of({"a": "b"}), "it is a ZIP archive"),
        ("a.html", b"%PDF-1.7 rest", "it is a PDF"),
        ("a.py", b"{\\rtf1 x}", "it is an RTF document"),
        ("a.eml", PIXEL, "is a PNG image, not a mail"),
        ("a.docx", PIXEL, "is a PNG image, not a DOCX"),
        ("a.docx", xlsx(), "is an XLSX, not a DOCX"),
        ("a.xlsx", zip_of({"a.txt": "x"}), "is a ZIP archive, not an XLSX"),
        ("a.odt", zip_of({"META-INF/container.xml": "x"}), "is an EPUB, not an OpenDocument file"),
        ("a.epub", odf(""), "is an OpenDocument file, not an EPUB"),
        ("a.rtf", b"plain text", "not a readable RTF"),
        ("a.mbox", b"plain text", "not a mailbox"),
        ("a.zip", PIXEL, "not a readable ZIP archive"),
        ("a.tar.gz", zip_of({"a": "b"}), "not a readable archive"),
        ("a.pptx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "old Office file"),
    ],
)
def test_what_is_not_what_its_name_says_is_refused_in_words(name: str, data: bytes, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        read(name, data)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx"])
def test_locked_documents_say_so(name: str) -> None:
    locked = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(EncryptedDocument, match="locked with a password"):
        read(name, locked)


def test_a_file_that_is_two_things_is_read_as_what_its_name_says() -> None:
    ambiguous = b"%PDF-1.4\n% \n" + zip_of({"one.txt": "Basalt is dark."})
    reader = reader_of("a.zip", by_suffix())
    assert [part.data for part in reader.parts(Blob("a.zip", ambiguous))] == [b"Basalt is dark."]  # type: ignore[union-attr]
    with pytest.raises(DocumentError, match="it is a PDF"):
        read("a.txt", ambiguous)


@pytest.mark.slow
def test_names_that_are_not_utf_8_do_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.md", "a.docx", "a.zip", "a.eml"):
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe" + name.encode())).write_bytes(FIXTURES[name]())
    report = sync(folder, Corpus(str(tmp_path / "notes.spolia")))
    assert report.failed == ()
    assert report.added >= 4


@pytest.mark.parametrize("piece", ["1", "1.1", ".1", "+1"])
def test_digits_in_a_table_of_asciidoc_take_linear_time(piece: str) -> None:
    table = f"|===\n|a |b\n|{piece * 100_000} |c\n|===\n"
    assert piece in read("a.adoc", table.encode()).document.text
