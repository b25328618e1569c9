"""What is read of each format, on files made on the spot."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from spolia.errors import EncryptedDocument, MissingExtra
from spolia.indexing.readers.markup.latex import plain_text
from spolia.indexing.readers.reader import Blob, Container, Reading, reader_of
from spolia.indexing.readers.records import Dialect, dialect_of
from spolia.indexing.readers.registry import by_suffix
from spolia.types import Region
from tests.cases import check_each
from tests.indexing.readers.compound import msg, xls
from tests.indexing.readers.fixtures import FIXTURES, PIXEL, changed_zip, epub, odf, xlsx, zip_of

NEEDS = {
    ".docx": "docx",
    ".pptx": "pptx",
    ".xlsx": "python_calamine",
    ".xls": "python_calamine",
    ".msg": "olefile",
    ".pdf": "pypdfium2",
}
READERS = by_suffix()


def read(name: str, data: bytes | None = None) -> Reading:
    module = NEEDS.get(name[name.rfind(".") :], "json")
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    reader = reader_of(name, READERS)
    assert reader is not None
    return reader.read(Blob(name, FIXTURES[name]() if data is None else data))


def parts(name: str, data: bytes | None = None) -> Iterator[Blob]:
    reader = reader_of(name, READERS)
    assert isinstance(reader, Container)
    return reader.parts(Blob(name, FIXTURES[name]() if data is None else data))


def regions(reading: Reading, kind: str) -> list[Region]:
    return [region for region in reading.document.regions if region.kind == kind]


ROWS = (("stone", "t"), ("basalt", "3.0"))
TABLES = (
    "a.md",
    "a.rst",
    "a.adoc",
    "a.org",
    "a.tex",
    "a.html",
    "a.xml",
    "a.tsv",
    "a.rtf",
    "a.docx",
    "a.pptx",
    "a.odt",
    "a.ods",
    "a.epub",
)


@check_each("name", TABLES)
def test_tables_keep_their_cells_and_stand_in_the_text(name: str) -> None:
    reading = read(name)
    table = regions(reading, "table")[0]
    assert table.rows == ROWS
    stretch = reading.document.text[table.start : table.end]
    assert all(cell in stretch for row in ROWS for cell in row)
    assert "Basalt is" not in stretch


@check_each("name", sorted(set(TABLES) - {"a.tsv", "a.ods"}))
def test_prose_headings_and_titles(name: str) -> None:
    document = read(name).document
    assert "Basalt is" in document.text
    assert "Walls" in [heading.text for heading in document.headings]
    assert document.title == "Old Stones"
    for heading in document.headings:
        assert heading.text[:4] in document.text[heading.start : heading.start + 30]
    for region in document.regions:
        assert 0 <= region.start <= region.end <= len(document.text)
    assert list(document.regions) == sorted(document.regions, key=lambda region: region.start)


@check_each(
    "name", ["a.md", "a.rst", "a.adoc", "a.org", "a.tex", "a.html", "a.rtf", "a.docx", "a.odt", "a.epub", "a.xlsx"]
)
def test_the_author_is_a_field(name: str) -> None:
    assert ("author", "Ann Lee") in read(name).document.meta


@check_each("name", ["a.md", "a.rst", "a.adoc", "a.org", "a.tex", "a.html", "a.ipynb"])
def test_code_is_a_region(name: str) -> None:
    reading = read(name)
    assert any("x = 1" in stretch or "print(3.0)" in stretch for stretch in stretches(reading, "code"))


@pytest.mark.parametrize(("name", "formula"), [("a.md", "\\rho V"), ("a.tex", "m = \\rho V")])
def test_formulas_are_regions_as_they_are_written(name: str, formula: str) -> None:
    assert [formula in stretch for stretch in stretches(read(name), "formula")] == [True]


def stretches(reading: Reading, kind: str) -> list[str]:
    return [reading.document.text[region.start : region.end] for region in regions(reading, kind)]


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.odt"])
def test_pictures_are_regions_with_their_bytes(name: str) -> None:
    reading = read(name)
    (picture,) = regions(reading, "image")
    (image,) = reading.images
    assert image.data == PIXEL
    assert picture.image == image.content_hash
    assert image.uri.startswith(f"{name}/")


# ------------------------------------------------------------------------------------------------- what each has beside


def test_slides_are_pages_and_notes_end_them() -> None:
    reading = read("a.pptx")
    document = reading.document
    first, second, third = document.pages
    assert document.text[first:second].strip().endswith("Notes:\n\nSpeak slowly.")
    assert regions(reading, "table")[1].rows == (("", "walls"), ("north", "3"), ("south", "4.5"))
    assert (reading.empty_pages, third) == ((3,), len(document.text))


def test_sheets_are_pages_under_their_names() -> None:
    reading = read("a.xlsx")
    document = reading.document
    assert document.text == "Weights\n\nstone | t\nbasalt | 3\n\nA remark.\n\nEmpty"
    assert document.pages == (0, document.text.index("Empty"))
    assert reading.empty_pages == (2,)
    assert regions(reading, "table")[0].caption == "Weights"
    assert document.meta[-2:] == (("sheet", "Weights"), ("sheet", "Empty"))


def test_sheets_of_old_excel_are_read_too() -> None:
    reading = read("a.xls", xls())
    assert (reading.document.text, reading.document.pages) == ("Weights\n\nstone | t\nbasalt | 3", (0,))
    assert [region.rows for region in regions(reading, "table")] == [(("stone", "t"), ("basalt", "3"))]


def test_macros_are_not_run_but_counted() -> None:
    assert ("macros", 1) in read("a.xlsm", changed_zip(xlsx(), {"xl/vbaProject.bin": b"x"})).dropped
    if importlib.util.find_spec("docx") is None:
        pytest.skip("python-docx is not installed")
    data = FIXTURES["a.docx"]()
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    types = zip_member(data, "[Content_Types].xml").decode()
    with_macros = types.replace(main, "application/vnd.ms-word.document.macroEnabled.main+xml")
    reading = read("a.docm", changed_zip(data, {"[Content_Types].xml": with_macros, "word/vbaProject.bin": b"x"}))
    assert "Basalt is dark." in reading.document.text


def zip_member(data: bytes, name: str) -> bytes:
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name)


def test_notes_lists_and_comments_of_opendocument() -> None:
    reading = read("a.odt")
    assert "Basalt is dark [1]. [2]\n\n[1] By weight.\n\n[2] Really?" in reading.document.text
    assert "- one\n- two" in reading.document.text
    assert reading.dropped == ()
    assert regions(reading, "image")[0].caption == "A wall of basalt"


def test_comments_of_opendocument_stand_under_their_author_and_leave_the_values_of_cells_alone() -> None:
    annotation = "<office:annotation><dc:creator>Ann</dc:creator><dc:date>2024-01-01</dc:date><text:p>Really?</text:p>"
    comment = f"{annotation}<text:p>No.</text:p></office:annotation>"
    text = read("a.odt", odf(f"<text:p>Basalt{comment} is dark.</text:p>")).document.text
    assert text == "Basalt [1] is dark.\n\n[1] Ann: Really? No."
    cell = f"<table:table-cell>{comment}<text:p>3.0</text:p></table:table-cell>"
    rows = f"<table:table-row>{cell}{cell}</table:table-row>"
    reading = read("a.ods", odf(f"<table:table>{rows}</table:table>", "spreadsheet"))
    assert reading.document.regions[0].rows == (("3.0", "3.0"),)
    assert (reading.document.text, reading.dropped) == ("3.0 | 3.0", (("comments", 2),))


def test_headers_and_footers_of_opendocument_are_counted() -> None:
    style = 'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"'
    text = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    margins = "<style:header><text:p>Memo</text:p></style:header><style:footer><text:p/></style:footer>"
    styles = f"<styles {style} {text}><style:master-page>{margins}</style:master-page></styles>"
    reading = read("a.odt", changed_zip(odf("<text:p>Basalt.</text:p>"), {"styles.xml": styles}))
    assert (reading.document.text, reading.dropped) == ("Basalt.", (("headers and footers", 1),))


def test_slides_of_opendocument_are_pages() -> None:
    reading = read("a.odp")
    text, pages = reading.document.text, reading.document.pages
    assert text[pages[2] :] == "Basalt is dark."
    assert reading.empty_pages == (2,)


@pytest.mark.slow
def test_a_million_repeated_cells_are_not_made() -> None:
    row = "<table:table-cell table:number-columns-repeated='999999999'><text:p>x</text:p></table:table-cell>"
    rows = f"<table:table-row table:number-rows-repeated='999999999'>{row}</table:table-row>"
    reading = read("a.ods", odf(f"<table:table>{rows}</table:table>", "spreadsheet"))
    (table,) = reading.document.regions
    assert (len(table.rows), len(table.rows[0])) == (1000, 1000)
    reading = read("a.ods", odf(f"<table:table>{rows * 100}</table:table>", "spreadsheet"))
    assert len(reading.document.text) < 10_000_000


def test_rtf_keeps_characters_and_counts_what_it_leaves_out() -> None:
    reading = read("a.rtf")
    assert "Basalt is dark, café €5." in reading.document.text
    assert reading.dropped == (("headers and footers", 1), ("pictures", 1))


@check_each(
    ("source", "text"),
    [
        (rb"{\rtf1\ansi\ansicpg932 \'93\'fa\'96\'7b}", "日本"),
        (rb"{\rtf1{\fonttbl{\f1\fcharset204 A;}}\f1 \'cf\'f0\'e8}", "При"),
        (rb"{\rtf1 \u-10179?\u-8704?}", "😀"),
        (rb"{\rtf1\uc2 a\u8364\'80\'80b}", "a€b"),
        (rb"{\rtf1 a{\*\unknown b}{\v hidden}c\bin3 {{{d}", "acd"),
        (rb"{\rtf1 a\~b\_c\-d\{e\}}", "a b-cd{e}"),
    ],
)
def test_characters_of_rtf(source: bytes, text: str) -> None:
    assert read("a.rtf", source).document.text == text


def test_chapters_come_in_the_order_of_the_spine_under_their_names() -> None:
    document = read("a.epub").document
    assert [heading.text for heading in document.headings] == ["Walls", "Roads"]
    assert document.text.endswith("Roads\n\nThey were long.")
    assert ("language", "en") in document.meta


def test_pictures_of_chapters_are_images_and_those_that_no_chapter_shows_are_counted() -> None:
    picture = PIXEL + bytes(100)
    book = zip_member(epub(), "OEBPS/book.opf").decode()
    items = "".join(f'<item id="{name}" href="img/{name}" media-type="image/png"/>' for name in ("a.png", "cover.png"))
    page = (
        "<html><body><p>Stones.</p><img src='../OEBPS/img/a.png' alt='A wall'/><img src='../../x.png'/></body></html>"
    )
    members = {"OEBPS/img/a.png": picture, "OEBPS/img/cover.png": picture + b"x", "OEBPS/one.xhtml": page.encode()}
    package = {"OEBPS/book.opf": book.replace("<manifest>", f"<manifest>{items}").encode(), "x.png": picture}
    reading = read("a.epub", changed_zip(epub(), {**members, **package}))
    assert [image.data for image in reading.images] == [picture]
    (region,) = regions(reading, "image")
    assert (region.image, region.caption) == (reading.images[0].content_hash, "A wall")
    assert reading.dropped == (("pictures", 1),)


def test_locked_books_say_so() -> None:
    locked = '<encryption><CipherReference URI="OEBPS/one.xhtml"/></encryption>'
    with pytest.raises(EncryptedDocument, match="locked by its seller"):
        read("a.epub", changed_zip(FIXTURES["a.epub"](), {"META-INF/encryption.xml": locked}))
    with pytest.raises(EncryptedDocument, match="password"):
        read("a.odt", changed_zip(FIXTURES["a.odt"](), {"META-INF/manifest.xml": "<m><encryption-data/></m>"}))


def test_a_notebook_gives_what_its_cells_say() -> None:
    reading = read("a.ipynb")
    assert reading.document.text == "# Walls\n\nBasalt is dark.\n\nprint(3.0)\n\n3.0\n\nValueError: too dark"
    assert reading.dropped == (("pictures", 1),)
    assert reading.document.meta == (("programming_language", "python"),)


def test_definitions_are_headings_of_source_code() -> None:
    document = read("a.py").document
    assert [(heading.level, heading.text) for heading in document.headings] == [
        (1, "class Wall"), (2, "def span"), (1, "async def load"),
    ]  # fmt: skip


def test_source_is_the_document_for_marked_texts() -> None:
    for name in ("a.md", "a.rst", "a.adoc", "a.org", "a.tex", "a.py", "a.csv", "a.json", "a.jsonl", "a.txt"):
        assert read(name).document.text == FIXTURES[name]().decode()


def test_latex_keeps_what_its_author_wrote() -> None:
    source = rb"""\title{K\"onig}
\begin{document}
\section{Old \emph{ones}~\cite{a}}
Write \verb|50%| and \url{https://a.org/b%20d}, \stone{dark}. % \section{No heading}
\begin{comment}
\section{Not yet}
\end{comment}
"""
    document = read("a.tex", source).document
    assert document.text == source.decode()
    assert document.title == "König"
    assert [heading.text for heading in document.headings] == ["Old ones"]
    assert read("a.tex").dropped == (("pictures", 1),)
    assert plain_text(r"K\"onig, \'{E}t\'e, \o, \ss, \v{c}, 5\%, a\_b, \$3, $a_1$, \textit{x}") == (
        "König, Été, ø, ß, č, 5%, a_b, $3, $a_1$, x"
    )


def test_a_record_is_a_row() -> None:
    assert regions(read("a.json"), "table")[0].rows == (("stone", "t"), ("basalt", "3.0"), ("marble", ""))
    assert regions(read("a.jsonl"), "table")[0].rows[2] == ("marble", "2.7")
    assert regions(read("a.json", b'[{"a": [1]}, {"a": 2}]'), "table") == []
    assert "not valid JSON" in read("a.json", b"{broken").warnings[0]
    assert "2 of its lines" in read("a.jsonl", b'{"a": 1}\nx\ny\n').warnings[0]


@check_each(
    ("text", "dialect"),
    [
        ("a,b\n1,2\n", Dialect(",")),
        ("a;b\n1,5;2,5\n", Dialect(";")),
        ("a\tb c\td\n1\t2, 3\t4\n", Dialect("\t")),
        ("a|b\n1|2\n", Dialect("|")),
        ("1,2\n3,4\n", Dialect(",", has_head=False)),
        ("a,a\n3,4\n", Dialect(",", has_head=False)),
        ('"a, x","b"\n"c","d"\n', Dialect(",")),
        ("one column\nonly\n", Dialect(",")),
        ("", Dialect(",", has_head=False)),
    ],
)
def test_the_dialect_of_a_table_is_found_out(text: str, dialect: Dialect) -> None:
    assert dialect_of(text) == dialect


def test_rows_may_be_ragged_and_wide_and_of_several_lines() -> None:
    assert regions(read("a.csv"), "table")[0].rows[2] == ("two\nlines", "1")
    ragged = regions(read("a.csv", b"a,b\n1\n1,2,3\n"), "table")[0].rows
    assert ragged == (("a", "b"), ("1",), ("1", "2", "3"))
    wide = ",".join(map(str, range(10_000)))
    rows = regions(read("a.csv", f"{wide}\n{wide}\n".encode()), "table")[0].rows
    assert [len(row) for row in rows] == [10_000, 10_000]
    long = "x" * 1_000_000
    assert regions(read("a.csv", f"a,b\n{long},1\n".encode()), "table")[0].rows[1][0] == long


def test_xml_gives_its_words_and_fetches_nothing() -> None:
    document = read("a.xml").document
    assert "Basalt is dark\xa0& old." in document.text or "Basalt is dark & old." in document.text


# ---------------------------------------------------------------------------------------------------------------- mails


def test_headers_are_fields_and_the_best_body_is_the_text() -> None:
    document = read("a.eml").document
    headers = (
        "From: Ann Lee <ann@a.org>\nTo: bob@b.org, Cyd <cyd@c.org>\nCc: dan@d.org\nSubject: Old Störnes\n"
        "Date: Mon, 05 Oct 2026 10:00:00 +0200"
    )
    assert (document.title, document.text) == ("Old Störnes", f"{headers}\n\nBasalt is dark, café.")
    assert document.meta == (
        ("sender", "Ann Lee <ann@a.org>"),
        ("to", "bob@b.org"),
        ("to", "Cyd <cyd@c.org>"),
        ("cc", "dan@d.org"),
        ("date", "2026-10-05T08:00:00Z"),
        ("message_id", "<1@a.org>"),
    )


def test_attachments_are_parts_and_so_are_mails_within() -> None:
    csv, mail = parts("a.eml")
    assert (csv.uri, csv.data) == ("a.eml/weights.csv", b"stone,t\nbasalt,3.0\n")
    assert mail.uri == "a.eml/attachment-2.eml"
    assert read("a.eml", mail.data).document.title == "Inside"


def test_a_mail_of_outlook_is_like_others() -> None:
    pytest.importorskip("olefile")
    document = read("a.msg", msg()).document
    headers = "From: Ann Lee <ann@a.org>\nTo: Bob; Cyd\nSubject: Old Störnes\nDate: Mon, 05 Oct 2026 08:00:00 +0000"
    assert (document.title, document.text) == ("Old Störnes", f"{headers}\n\nBasalt is dark.")
    assert document.meta == (
        ("sender", "Ann Lee <ann@a.org>"),
        ("to", "Bob"),
        ("to", "Cyd"),
        ("date", "2026-10-05T08:00:00Z"),
    )
    csv, mail = parts("a.msg", msg())
    assert (csv.uri, csv.data) == ("a.msg/.._weights.csv", b"stone,t\nbasalt,3.0\n")
    inner = read("a.eml", mail.data).document
    assert (inner.title, inner.text.rpartition("\n\n")[2]) == ("Inside", "Deep stones.")


def test_the_body_of_outlook_may_be_html_or_rtf() -> None:
    pytest.importorskip("olefile")
    html: dict[str, Any] = {"__substg1.0_1000001F": b"", "__substg1.0_10130102": b"<p>Basalt <b>is</b> dark.</p>"}
    assert read("a.msg", msg(**html)).document.text.endswith("\n\nBasalt is dark.")
    # the example of [MS-OXRTFCP] 3.1: it repeats what the dictionary begins with
    packed = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )
    rtf: dict[str, Any] = {"__substg1.0_1000001F": b"", "__substg1.0_10090102": packed}
    assert read("a.msg", msg(**rtf)).document.text.endswith("\n\nhello world")


def test_mails_of_a_box_are_parts() -> None:
    first, second = parts("a.mbox")
    assert (first.uri, second.uri) == ("a.mbox/1.eml", "a.mbox/2.eml")
    document = read("a.eml", second.data).document
    assert (document.title, document.text) == ("2", "Subject: 2\n\nStone 2.\nFrom here on.")


def test_mails_that_are_locked_say_so() -> None:
    with pytest.raises(EncryptedDocument, match="encrypted"):
        read("a.eml", b"From: a\nContent-Type: multipart/encrypted; boundary=b\n\n--b--\n")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("a.pptx", "pptx", "office"), ("a.xlsx", "python_calamine", "office"), ("a.msg", "olefile", "mail")],
)
def test_a_missing_package_is_named(name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    reader = reader_of(name, READERS)
    assert reader is not None
    with pytest.raises(MissingExtra, match=rf"spolia\[{extra}\]"):
        reader.read(Blob(name, zip_of({"xl/workbook.xml": ""})))
