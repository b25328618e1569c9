"""Hidden and deleted text of office documents is left out."""

from __future__ import annotations

import io
from typing import Any

import pytest

from spolia.indexing.readers.office.docx import DocxReader
from spolia.indexing.readers.office.excel import XlsxReader
from spolia.indexing.readers.office.odf import OdfReader
from spolia.indexing.readers.office.pptx import PptxReader
from spolia.indexing.readers.office.rtf import RtfReader
from spolia.indexing.readers.reader import Blob
from tests.cases import check_each
from tests.indexing.readers.fixtures import PIXEL, odf, xlsx
from tests.indexing.sample_documents import docx_of

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
        for index, element in enumerate(parse_xml(f'<w:body xmlns:w="{W}">{body}</w:body>')):
            document.element.body.insert(index, element)

    pytest.importorskip("docx")
    return DocxReader().read(Blob("a.docx", docx_of(write))).document.text


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


@check_each(
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


@check_each(
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


def odf_style(family: str, name: str, properties: str = "", parent: str = "") -> str:
    return (
        f'<style:style style:family="{family}" style:name="{name}" style:parent-style-name="{parent}">'
        f"{properties}</style:style>"
    )


NONE = '<style:text-properties text:display="none"/>'
SHOWN = NONE.replace("none", "true")
P = "<text:p text:style-name='{}'>"
ODF_STYLES = (
    odf_style("text", "Heir", parent="Ghost")
    + odf_style("text", "Loop", parent="Pool")
    + odf_style("text", "Pool", parent="Loop")
    + odf_style("text", "Seen", SHOWN)
    + odf_style("paragraph", "Late", parent="Draft")
)
ODF_COMMON = odf_style("text", "Ghost", NONE) + odf_style("paragraph", "Draft", NONE)
NOTE = "<text:note><text:note-body><text:p>%s</text:p></text:note-body></text:note>"


def span(text: str, style: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


@check_each(
    ("body", "text"),
    [
        (f"<text:p>a{span('b', 'Ghost')}c{span('d', 'Heir')}{span('e', 'Loop')}{span('f', 'lost')}</text:p>", "acef"),
        (f"{P.format('Late')}a{span('b', 'Seen')}c{span('d', 'Heir')}</text:p><text:p>e</text:p>", "b\n\ne"),
        (f"{P.format('Draft')}a{NOTE % 'b'}</text:p><text:p>c{span('d' + NOTE % 'e', 'Ghost')}</text:p>", "c"),
        (f"<text:p>a{NOTE % span('b', 'Ghost')}</text:p>", "a [1]\n\n[1]"),
        (f"<text:h text:style-name='Draft'>a</text:h><text:list><text:list-item>{P.format('Draft')}b</text:p>"
         "</text:list-item></text:list><text:p>c</text:p>", "c"),
        ("<text:p>a<text:hidden-text text:is-hidden='true' text:condition='x'>b</text:hidden-text>c</text:p>", "ac"),
        ("<text:p>a<text:hidden-text text:condition='ooow:TRUE'>b</text:hidden-text>c</text:p>", "ac"),
        ("<text:p>a<text:hidden-text text:is-hidden='false' text:condition='TRUE'>b</text:hidden-text></text:p>", "ab"),
        ("<text:p>a<text:span><text:hidden-paragraph text:is-hidden='true'/></text:span></text:p><text:p>b</text:p>",
         "b"),
        ("<text:p>a<text:hidden-paragraph text:condition='1==2'/></text:p>", "a"),
        ("<text:section text:display='none'><text:p>a</text:p></text:section><text:p>b</text:p>", "b"),
        ("<text:section text:display='condition' text:is-hidden='true'><text:p>a</text:p></text:section>", ""),
        ("<text:section text:display='condition' text:condition='x'><text:p>a</text:p></text:section>", "a"),
        ("<text:tracked-changes><text:changed-region><text:deletion><text:p>a</text:p></text:deletion>"
         "</text:changed-region></text:tracked-changes><text:p>b<text:change text:change-id='1'/></text:p>", "b"),
        ("<table:table><table:table-row><table:table-cell><text:p text:style-name='Draft'>a</text:p></table:table-cell>"
         "<table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>", "| b"),
    ],
)  # fmt: skip
def test_hidden_and_deleted_text_of_an_odt_is_left_out(body: str, text: str) -> None:
    data = odf(body, styles=ODF_STYLES, common=ODF_COMMON)
    assert OdfReader().read(Blob("a.odt", data)).document.text == text


def test_hidden_sheets_rows_and_tracked_cells_of_an_ods_are_left_out() -> None:
    def sheet(name: str, *rows: str, style: str = "") -> str:
        return f"<table:table table:name='{name}' table:style-name='{style}'>{''.join(rows)}</table:table>"

    def row(text: str, visibility: str = "visible") -> str:
        cell = f"<table:table-cell><text:p>{text}</text:p></table:table-cell>"
        return f"<table:table-row table:visibility='{visibility}'>{cell}</table:table-row>"

    tracked_changes = (
        "<table:tracked-changes><table:previous><text:p>z</text:p></table:previous></table:tracked-changes>"
    )
    sheets = tracked_changes + sheet("One", row("a"), row("b", "collapse"), row("c", "filter"), row("", "collapse"))
    sheets += sheet("Two", row("d"), style="Off") + sheet("Three", row("e"))
    hidden = odf_style("table", "Off", '<style:table-properties table:display="false"/>')
    reading = OdfReader().read(Blob("a.ods", odf(sheets, "spreadsheet", hidden)))
    document = reading.document
    assert document.text == "One\n\na\n\nc\n\nThree\n\ne"
    assert (len(document.pages), document.pages[2]) == (3, document.text.index("Three"))
    assert reading.warnings == ("1 hidden sheet was left out.",)
    assert (reading.empty_pages, dict(reading.dropped)) == ((), {"hidden rows": 1, "tracked changes": 1})


def test_hidden_slides_of_an_odp_are_left_out_with_a_warning() -> None:
    def slide(text: str, style: str = "") -> str:
        frame = f"<draw:frame><draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame>"
        return f"<draw:page draw:style-name='{style}'>{frame}</draw:page>"

    hidden = odf_style("drawing-page", "Off", '<style:drawing-page-properties presentation:visibility="hidden"/>')
    reading = OdfReader().read(Blob("a.odp", odf(slide("a") + slide("b", "Off") + slide("c"), "presentation", hidden)))
    document = reading.document
    assert (document.text, document.pages[2], len(document.pages)) == ("a\n\nc", 3, 3)
    assert (reading.warnings, reading.empty_pages) == (("1 hidden slide was left out.",), ())
