"""Hidden and deleted text of office documents is left out."""

from __future__ import annotations

import io
from typing import Any

import pytest

from spolia.indexing.readers.office.docx import DocxReader
from spolia.indexing.readers.office.excel import XlsxReader
from spolia.indexing.readers.office.pptx import PptxReader
from spolia.indexing.readers.office.rtf import RtfReader
from spolia.indexing.readers.reader import Blob
from tests.indexing.making import docx_of
from tests.indexing.readers.fixtures import PIXEL, xlsx

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
HEIR = '<w:rStyle w:val="Heir"/>'
STYLES = (
    '<w:style w:type="character" w:styleId="Ghost"><w:rPr><w:vanish/></w:rPr></w:style>'
    '<w:style w:type="character" w:styleId="Heir"><w:basedOn w:val="Ghost"/></w:style>'
    '<w:style w:type="character" w:styleId="Seen"><w:basedOn w:val="Ghost"/>'
    '<w:rPr><w:vanish w:val="false"/></w:rPr></w:style>'
    '<w:style w:type="character" w:styleId="Loop"><w:basedOn w:val="Pool"/></w:style>'
    '<w:style w:type="character" w:styleId="Pool"><w:basedOn w:val="Loop"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Draft"><w:rPr><w:vanish/></w:rPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="LateDraft"><w:basedOn w:val="Draft"/></w:style>'
)


def docx_text(body: str, styles: str = STYLES) -> str:
    def write(document: Any) -> None:
        from docx.oxml import parse_xml

        for element in parse_xml(f'<w:styles xmlns:w="{W}">{styles}</w:styles>'):
            document.styles.element.append(element)
        for at, element in enumerate(parse_xml(f'<w:body xmlns:w="{W}">{body}</w:body>')):
            document.element.body.insert(at, element)

    pytest.importorskip("docx")
    return DocxReader().read(Blob("a.docx", docx_of(write))).document.text


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"<w:p>{run('a')}{run('b', '<w:vanish/>')}</w:p>", "a"),
        (f"<w:p>{run('a')}{run('b', '<w:specVanish/>')}</w:p>", "a"),
        (f"""<w:p>{run('a', '<w:vanish w:val="0"/>')}{run('b', '<w:vanish w:val="on"/>')}</w:p>""", "a"),
        (f"<w:p>{run('a', '<w:webHidden/>')}</w:p>", "a"),
        (f"""<w:p>{run('a')}{run('b', '<w:rStyle w:val="Ghost"/>')}{run('c', HEIR)}</w:p>""", "a"),
        (f"""<w:p>{run('a', '<w:rStyle w:val="Seen"/>')}{run('b', '<w:rStyle w:val="Loop"/>')}</w:p>""", "ab"),
        (f"""<w:p><w:pPr><w:pStyle w:val="Draft"/></w:pPr>{run('a')}{run('b', '<w:vanish w:val="0"/>')}</w:p>""", "b"),
        (f"""<w:p><w:pPr><w:pStyle w:val="LateDraft"/></w:pPr>{run('a')}</w:p><w:p>{run('b')}</w:p>""", "b"),
        (f"<w:p><w:pPr><w:rPr><w:vanish/><w:specVanish/></w:rPr></w:pPr>{run('a')}</w:p>", "a"),
        (f"<w:p><w:pPr><w:numPr/></w:pPr>{run('a', '<w:vanish/>')}</w:p><w:p>{run('b')}</w:p>", "b"),
    ],
    ids=["run", "always", "values", "web", "character style", "shows", "paragraph style", "inherited", "mark", "list"],
)  # fmt: skip
def test_hidden_text_of_a_docx_is_left_out(body: str, text: str) -> None:
    assert docx_text(body) == text


def test_two_styles_that_hide_show_the_text_again_as_word_does() -> None:
    body = f"""<w:p><w:pPr><w:pStyle w:val="Draft"/></w:pPr>{run("a", '<w:rStyle w:val="Ghost"/>')}{run("b")}</w:p>"""
    assert docx_text(body) == "a"


def test_defaults_that_hide_hold_for_what_does_not_show_itself() -> None:
    def write(document: Any) -> None:
        from docx.oxml import parse_xml

        defaults = document.styles.element.find(f"{{{W}}}docDefaults/{{{W}}}rPrDefault/{{{W}}}rPr")
        defaults.append(parse_xml(f'<w:vanish xmlns:w="{W}"/>'))
        document.add_paragraph("a")
        document.add_paragraph().add_run("b").font.hidden = False

    pytest.importorskip("docx")
    assert DocxReader().read(Blob("a.docx", docx_of(write))).document.text == "b"


def test_notes_cells_and_pictures_in_hidden_text_of_a_docx_are_left_out() -> None:
    def write(document: Any) -> None:
        document.add_paragraph("a")
        document.add_table(1, 1).cell(0, 0).paragraphs[0].add_run("b").font.hidden = True
        pictured = document.add_paragraph().add_run()
        pictured.add_picture(io.BytesIO(PIXEL))
        pictured.font.hidden = True

    pytest.importorskip("docx")
    reading = DocxReader().read(Blob("a.docx", docx_of(write)))
    assert (reading.document.text, reading.images) == ("a", ())


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (rb"{\rtf1 a{\deleted b}c\deleted d\deleted0 e}", "ace"),
        (rb"{\rtf1 a\v b\plain c}", "ac"),
        (rb"{\rtf1 a\deleted b\plain c}", "ac"),
        (rb"{\rtf1{\stylesheet{\s1\v Draft;}{\s2 Text;}}\pard\s1 a\par\pard\s2 b}", "b"),
        (rb"{\rtf1{\stylesheet{\s1\v Draft;}}\pard\s1\plain a{\v0 b}\par\pard\plain c}", "b\n\nc"),
        (rb"{\rtf1{\stylesheet{\*\cs1\v Ghost;}{\s1 Text;}}\pard\s1 a{\cs1 b}c\cs1 d\plain e}", "ace"),
        (rb"{\rtf1{\stylesheet{\*\cs1\v Ghost;}}a{\cs1\'93\u8364?}b}", "ab"),
    ],
    ids=["deleted", "plain", "deleted plain", "paragraph style", "shown in it", "character style", "signs"],
)
def test_hidden_and_deleted_text_of_rtf_is_left_out(source: bytes, text: str) -> None:
    assert RtfReader().read(Blob("a.rtf", source)).document.text == text


def test_hidden_slides_are_left_out_with_a_warning_and_the_others_keep_their_numbers() -> None:
    pptx = pytest.importorskip("pptx")
    slides = pptx.Presentation()
    for title, show in (("First", None), ("Second", "0"), ("Third", "false"), ("Fourth", "1")):
        slide = slides.slides.add_slide(slides.slide_layouts[5])
        slide.shapes.title.text = title
        slide.notes_slide.notes_text_frame.text = f"{title} note."
        if show is not None:
            slide._element.set("show", show)
    out = io.BytesIO()
    slides.save(out)
    reading = PptxReader().read(Blob("a.pptx", out.getvalue()))
    document = reading.document
    assert document.text == "First\n\nNotes:\n\nFirst note.\n\nFourth\n\nNotes:\n\nFourth note."
    assert (len(document.pages), document.pages[3]) == (4, document.text.index("Fourth"))
    assert reading.warnings == ("2 hidden slides were left out.",)
    assert reading.empty_pages == ()


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_hidden_sheets_are_left_out_with_a_warning(state: str) -> None:
    pytest.importorskip("python_calamine")
    row = '<row r="1"><c r="A1" t="inlineStr"><is><t>{}</t></is></c></row>'
    sheets = {"One": row.format("a"), "Two": row.format("b"), "Three": row.format("c")}
    reading = XlsxReader().read(Blob("a.xlsx", xlsx(sheets, {"Two": state})))
    document = reading.document
    assert document.text == "One\n\na\n\nThree\n\nc"
    assert (len(document.pages), document.pages[2]) == (3, document.text.index("Three"))
    assert reading.warnings == ("1 hidden sheet was left out.",)
    assert [value for name, value in document.meta if name == "sheet"] == ["One", "Three"]
