"""What a file shows is read, in its order, or counted: one row for each kind of content that a reader once lost.

Add a row for the next kind: a file of a few bytes, the words that the text must have in this order, words that it must
not have, the counts of what is left out, and the rows of its tables.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spolia import BM25, Corpus, Definition, Node, Query, sync
from spolia.indexing.readers.reader import Blob, Reading, reader_of
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.stores.definition import Part
from tests.indexing.readers import fixtures
from tests.indexing.readers.fixtures import changed_zip, odf, xlsx, zip_of
from tests.indexing.readers.test_every_format import NEEDS
from tests.indexing.sample_documents import docx_of

BY_NAME = by_suffix()
OFFICE = "http://schemas.openxmlformats.org"
STRICT = {
    f"{OFFICE}/wordprocessingml/2006/main": "http://purl.oclc.org/ooxml/wordprocessingml/main",
    f"{OFFICE}/drawingml/2006/main": "http://purl.oclc.org/ooxml/drawingml/main",
    f"{OFFICE}/officeDocument/2006/relationships": "http://purl.oclc.org/ooxml/officeDocument/relationships",
}


class Case(NamedTuple):
    """A kind of content: `name` and `make` of the file, and what its reading has and has not."""

    kind: str
    name: str
    make: Callable[[], bytes | str]
    words: str
    absent: str = ""
    dropped: tuple[tuple[str, int], ...] = ()
    rows: tuple[tuple[tuple[str, ...], ...], ...] | None = None


def slide(shapes: str, members: dict[str, str] | None = None, relations: str = "") -> bytes:
    """A deck of one slide with these shapes."""
    from pptx import Presentation

    deck, out = Presentation(), io.BytesIO()
    deck.slides.add_slide(deck.slide_layouts[6])
    deck.save(out)
    return changed_zip(
        out.getvalue(),
        {
            "ppt/slides/slide1.xml": f'<p:sld xmlns:a="{OFFICE}/drawingml/2006/main" '
            f'xmlns:p="{OFFICE}/presentationml/2006/main" xmlns:r="{OFFICE}/officeDocument/2006/relationships" '
            f'xmlns:mc="{OFFICE}/markup-compatibility/2006" xmlns:dgm="{OFFICE}/drawingml/2006/diagram">'
            f"<p:cSld><p:spTree><p:nvGrpSpPr><p:cNvPr id='1' name=''/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr>"
            f"<p:grpSpPr/>{shapes}</p:spTree></p:cSld></p:sld>",
            "ppt/slides/_rels/slide1.xml.rels": f'<Relationships xmlns="{OFFICE}/package/2006/relationships">'
            f'<Relationship Id="l1" Type="{OFFICE}/officeDocument/2006/relationships/slideLayout" '
            f'Target="../slideLayouts/slideLayout7.xml"/>{relations}</Relationships>',
            **(members or {}),
        },
    )


def box(text: str) -> str:
    return (
        "<p:sp><p:nvSpPr><p:cNvPr id='7' name='x'/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/>"
        f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
    )


def alternate(choice: str, fallback: str) -> str:
    return (
        "<mc:AlternateContent><mc:Choice xmlns:p14='http://schemas.microsoft.com/office/powerpoint/2010/main' "
        f"Requires='p14'>{choice}</mc:Choice><mc:Fallback>{fallback}</mc:Fallback></mc:AlternateContent>"
    )


def smart_art() -> bytes:
    points = "".join(
        f'<dgm:pt modelId="{id}"><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>'
        for id, text in (("3", "Build"), ("0", ""), ("2", "Survey"), ("1", "Measure"))
    )
    links = "".join(
        f'<dgm:cxn modelId="c{target}" srcId="{source}" destId="{target}" srcOrd="{order}" destOrd="0"/>'
        for source, target, order in (("0", "3", 1), ("0", "2", 0), ("2", "1", 0))
    )
    data = (
        f'<dgm:dataModel xmlns:dgm="{OFFICE}/drawingml/2006/diagram" xmlns:a="{OFFICE}/drawingml/2006/main">'
        f"<dgm:ptLst>{points}</dgm:ptLst><dgm:cxnLst>{links}</dgm:cxnLst></dgm:dataModel>"
    )
    frame = (
        "<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id='8' name='d'/><p:cNvGraphicFramePr/><p:nvPr/>"
        "</p:nvGraphicFramePr><p:xfrm/><a:graphic><a:graphicData "
        f"uri='{OFFICE}/drawingml/2006/diagram'><dgm:relIds r:dm='d1' r:lo='d1' r:qs='d1' r:cs='d1'/>"
        "</a:graphicData></a:graphic></p:graphicFrame>"
    )
    types = zipfile.ZipFile(io.BytesIO(slide(""))).read("[Content_Types].xml").decode()
    override = (
        '<Override PartName="/ppt/diagrams/data1.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.drawingml.diagramData+xml"/></Types>'
    )
    return slide(
        box("Before.") + frame,
        {"ppt/diagrams/data1.xml": data, "[Content_Types].xml": types.replace("</Types>", override)},
        f'<Relationship Id="d1" Type="{OFFICE}/officeDocument/2006/relationships/diagramData" '
        'Target="../diagrams/data1.xml"/>',
    )


def strict_docx() -> bytes:
    def write(document: Any) -> None:
        document.add_heading("Walls", 1)
        document.add_paragraph("Basalt is dark.")
        document.add_table(1, 2).rows[0].cells[1].text = "cell"

    with zipfile.ZipFile(io.BytesIO(docx_of(write))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for old, new in STRICT.items():
        for name, data in members.items():
            if name.endswith((".xml", ".rels")):
                members[name] = data.replace(old.encode(), new.encode())
    return zip_of(members)


def numbered_docx() -> bytes:
    """Headings `1`, `1.1` and items `(a)`, `(b)`, as numbering says; nothing of it stands in the text."""
    levels = "".join(
        f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="{text}"/></w:lvl>'
        for depth, text in enumerate(("%1", "%1.%2"))
    )
    letters = '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%1)"/></w:lvl>'
    numbering = (
        f'<w:numbering xmlns:w="{OFFICE}/wordprocessingml/2006/main">'
        f'<w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>'
        f'<w:abstractNum w:abstractNumId="1">{letters}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
        '<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num></w:numbering>'
    )

    def paragraph(text: str, number: int, level: int = 0, style: str = "ListParagraph") -> str:
        return (
            f'<w:p><w:pPr><w:pStyle w:val="{style}"/><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/>'
            f"</w:numPr></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"
        )

    body = (
        paragraph("Scope", 1, 0, "Heading1")
        + paragraph("Walls", 1, 1, "Heading2")
        + paragraph("stone", 2)
        + paragraph("sand", 2)
        + paragraph("Roads", 1, 1, "Heading2")
    )
    document = f'<w:document xmlns:w="{OFFICE}/wordprocessingml/2006/main"><w:body>{body}</w:body></w:document>'
    return changed_zip(docx_of(lambda _: None), {"word/document.xml": document, "word/numbering.xml": numbering})


def styled_xlsx() -> bytes:
    codes = ("0.0%", '#,##0.00 "CHF"', "[$€-407] #,##0.00", "00000", "dd.mm.yyyy", "[h]:mm")
    values = ("0.075", "1234.5", "99.9", "123", "45351", "1.5")
    formats = "".join(f"<numFmt numFmtId='{164 + n}' formatCode='{code}'/>" for n, code in enumerate(codes))
    styles = "".join(f'<xf numFmtId="{164 + n}"/>' for n in range(len(codes)))
    cells = "".join(f'<c r="{"ABCDEF"[n]}1" s="{n + 1}"><v>{value}</v></c>' for n, value in enumerate(values))
    rows = (
        f'<row r="1">{cells}<c r="G1" t="e"><v>#N/A</v></c><c r="H1" t="b"><v>1</v></c></row>'
        '<row r="2"><c r="A2"><f>1+2</f></c><c r="B2"><f>1+3</f><v>4</v></c></row>'
    )
    book = xlsx({"Data": rows})
    relations = zipfile.ZipFile(io.BytesIO(book)).read("xl/_rels/workbook.xml.rels").decode()
    styled = (
        f'<Relationship Id="s" Type="{OFFICE}/officeDocument/2006/relationships/styles" Target="styles.xml"/>'
        "</Relationships>"
    )
    return changed_zip(
        book,
        {
            "xl/_rels/workbook.xml.rels": relations.replace("</Relationships>", styled),
            "xl/styles.xml": f'<styleSheet xmlns="{OFFICE}/spreadsheetml/2006/main"><numFmts>'
            f"{formats}</numFmts>"
            f'<cellXfs><xf numFmtId="0"/>{styles}</cellXfs></styleSheet>',
        },
    )


def drawn_xlsx() -> bytes:
    """A sheet with a text box, SmartArt, and a shape that only older programs show."""
    drawing, relations = f"{OFFICE}/drawingml/2006/spreadsheetDrawing", f"{OFFICE}/officeDocument/2006/relationships"

    def shape(*texts: str) -> str:
        paragraphs = "".join(f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>" for text in texts)
        return f"<xdr:sp><xdr:txBody>{paragraphs}</xdr:txBody></xdr:sp>"

    def related(id: str, kind: str, target: str) -> str:
        listed = f'<Relationship Id="{id}" Type="{relations}/{kind}" Target="{target}"/>'
        return f'<Relationships xmlns="{OFFICE}/package/2006/relationships">{listed}</Relationships>'

    anchors = (
        f"<xdr:grpSp>{shape('Draft of', 'May')}</xdr:grpSp>"
        f"<mc:AlternateContent><mc:Choice>{shape('New.')}</mc:Choice><mc:Fallback>{shape('Old.')}</mc:Fallback>"
        '</mc:AlternateContent><xdr:graphicFrame><dgm:relIds r:dm="d1"/></xdr:graphicFrame>'
    )
    return changed_zip(
        xlsx(),
        {
            "xl/worksheets/_rels/sheet1.xml.rels": related("r1", "drawing", "../drawings/drawing1.xml"),
            "xl/drawings/drawing1.xml": f'<xdr:wsDr xmlns:xdr="{drawing}" xmlns:a="{OFFICE}/drawingml/2006/main" '
            f'xmlns:mc="{OFFICE}/markup-compatibility/2006" xmlns:dgm="{OFFICE}/drawingml/2006/diagram" '
            f'xmlns:r="{relations}">{anchors}</xdr:wsDr>',
            "xl/drawings/_rels/drawing1.xml.rels": related("d1", "diagramData", "../diagrams/data1.xml"),
            "xl/diagrams/data1.xml": f'<dgm:dataModel xmlns:dgm="{OFFICE}/drawingml/2006/diagram" '
            f'xmlns:a="{OFFICE}/drawingml/2006/main"><dgm:ptLst><dgm:pt modelId="1"><dgm:t><a:p><a:r><a:t>Measure'
            "</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>",
        },
    )


def odt_nested() -> bytes:
    def cell(content: str) -> str:
        return f"<table:table-cell>{content}</table:table-cell>"

    items = "".join(f"<text:list-item><text:p>{word}</text:p></text:list-item>" for word in ("first", "second"))
    inner = "".join(cell(f"<text:p>{word}</text:p>") for word in ("in1", "in2"))
    return odf(
        f"<table:table><table:table-row>{cell(f'<text:list>{items}</text:list>')}"
        f"{cell(f'<table:table><table:table-row>{inner}</table:table-row></table:table>')}</table:table-row></table:table>"
        "<text:p>x<text:note><text:note-body><text:p>note one</text:p><text:p>note two</text:p></text:note-body>"
        "</text:note></text:p>"
    )


def odp_preview() -> bytes:
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in ("basalt", "42"))
    return odf(
        f"<draw:page><draw:frame><table:table><table:table-row>{cells}</table:table-row></table:table>"
        '<draw:image xlink:href="Pictures/a.png"/></draw:frame></draw:page>',
        "presentation",
    )


def epub_notes() -> bytes:
    return changed_zip(
        fixtures.epub(),
        {
            "OEBPS/one.xhtml": '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
            "<body><h1>Walls</h1><p>Basalt&nbsp;is dark.</p><aside epub:type='footnote'><p>By weight.</p></aside>"
            "</body></html>"
        },
    )


def mail(kind: str, *parts: tuple[str, str]) -> str:
    body = "".join(f"--C\nContent-Type: {type}\n\n{text}\n" for type, text in parts)
    return (
        "From: Ann Lee <ann@a.org>\nTo: bob@b.org\nSubject: Old Stones\nMIME-Version: 1.0\n"
        f"Content-Type: multipart/{kind}; boundary=C\n\n{body}--C--\n"
    )


EVENT = (
    "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Budget review\nLOCATION:Room Vesuvius\nDTSTART:20260105T090000Z\n"
    "END:VEVENT\nEND:VCALENDAR"
)
HEADERS = "Ann Lee bob@b.org Old Stones"
SPANS = (
    "<table><tr><th>Year</th><th>Q1</th><th>Q2</th></tr>"
    '<tr><td rowspan="2">2025</td><td colspan="2">closed</td></tr><tr><td>5</td><td>7</td></tr></table>'
)
SPANNED = ((("Year", "Q1", "Q2"), ("2025", "closed", "closed"), ("2025", "5", "7")),)
WHOLE_JSON = r'{"q": "Wo liegt K\u00f6ln?", "a": "\u6771\u4eac\nQuokka \ud83d\ude00 \"lives\""}'

CASES = (
    Case("SmartArt", "a.pptx", smart_art, "Before. Survey Measure Build"),
    Case("a choice", "a.pptx", lambda: slide(alternate(box("New."), "") + box("After.")), "New. After."),
    Case(
        "a fallback", "a.pptx", lambda: slide(alternate("<p:contentPart/>", box("Old.")) + box("After.")), "Old. After."
    ),
    Case("one of two", "a.pptx", lambda: slide(alternate(box("New."), box("Old."))), "New.", "Old."),
    Case("strict", "a.docx", strict_docx, "Walls Basalt is dark. cell", rows=((("", "cell"),),)),
    Case("numbers", "a.docx", numbered_docx, "1 Scope 1.1 Walls (a) stone (b) sand 1.2 Roads"),
    Case(
        "values as shown",
        "a.xlsx",
        styled_xlsx,
        "7.5% 1,234.50 CHF € 99.90 00123 29.02.2024 36:00 #N/A TRUE 4",
        "0.075 45351",
        (("formulas without a saved value", 1),),
    ),
    Case("drawings", "a.xlsx", drawn_xlsx, "Weights basalt remark. Draft of May New. Measure Empty", "Old."),
    Case(
        "items, cells and notes",
        "a.odt",
        odt_nested,
        "first second in1 in2 note one note two",
        "firstsecond in1in2 onenote",
        rows=((("first second", "in1 in2"),),),
    ),
    Case("table behind a preview", "a.odp", odp_preview, "basalt 42", rows=((("basalt", "42"),),)),
    Case("notes", "a.epub", epub_notes, "Walls Basalt is dark. By weight. They were long."),
    Case(
        "two texts",
        "a.eml",
        lambda: mail("mixed", ("text/plain", "First."), ("text/html", "<p>Second."), ("text/plain", "List.")),
        f"{HEADERS} First. Second. List.",
    ),
    Case(
        "an event",
        "a.eml",
        lambda: mail("alternative", ("text/plain", "Invitation."), ("text/calendar; method=REQUEST", EVENT)),
        f"{HEADERS} Invitation. Budget review 2026-01-05 09:00 Room Vesuvius",
        "VEVENT",
    ),
    Case("spans", "a.html", lambda: f"<main>{SPANS}</main>", "Year closed 7", rows=SPANNED),
    Case("spans", "a.nxml", lambda: f"<article>{SPANS}</article>", "Year closed 7", rows=SPANNED),
    Case(
        "header and notes of an article",
        "a.html",
        lambda: "<article><header><h1>Walls</h1></header><p>Text.</p><footer>Note.</footer><aside>Limit.</aside>",
        "Walls Text. Note. Limit.",
    ),
    Case(
        "an entity without data",
        "a.xml",
        lambda: (
            '<!DOCTYPE p SYSTEM "p.dtd" [<!ENTITY f SYSTEM "f.tif" NDATA TIF><!NOTATION TIF SYSTEM "tif">]>'
            "<p><title>Patent</title><para>Claim.</para></p>"
        ),
        "Patent Claim.",
    ),
    Case(
        "a declaration below a comment",
        "a.xml",
        lambda: '<!-- one - two -->\n<?xml version="1.0"?><p>Basalt &amp; sand.</p>',
        "Basalt & sand.",
    ),
    Case("XML 1.1", "a.xml", lambda: '<?xml version="1.1"?><p>Basalt.</p>', "Basalt."),
    Case(
        "an encoding that XML cannot name",
        "a.xml",
        lambda: b'<?xml version="1.0" encoding="850"?><p>' + "Süd".encode("cp850") + b"</p>",
        "Süd",
    ),
    Case(
        "a workbook beside that of a chart",
        "a.pptx",
        lambda: changed_zip(fixtures.pptx(), {"ppt/embeddings/Microsoft_Excel_Worksheet7.xlsx": b"PK"}),
        "Basalt is dark.",
        dropped=(("embedded objects", 1),),
    ),
    Case("escapes", "a.json", lambda: WHOLE_JSON, "Wo liegt Köln? 東京 Quokka 😀 lives", r"\u00f6ln \nQuokka"),
    Case(
        "escapes", "a.jsonl", lambda: f"{WHOLE_JSON}\n" * 2, "Wo liegt Köln? 東京 Quokka 😀 lives", r"\u00f6ln \nQuokka"
    ),
    Case("outline", "a.org", lambda: "* Walls\nBasalt is dark.\n", "Walls Basalt is dark."),
    Case(
        "sep=",
        "a.csv",
        lambda: "sep=;\nname;amount\nAda;1,5\n",
        "name amount Ada 1,5",
        rows=((("name", "amount"), ("Ada", "1,5")),),
    ),
    Case(
        "a preamble",
        "a.csv",
        lambda: 'Export of 2026\nsource: ledger\n\nname,amount\nAda,"1,200"\nBob,7\n',
        "Export of 2026 source: ledger name amount Ada Bob",
        rows=((("name", "amount"), ("Ada", "1,200"), ("Bob", "7")),),
    ),
    Case(
        "escapes",
        "a.log",
        lambda: "\x1b[1;31mError\x1b[0m: disk\x1b]0;title\x1b\\ full\n",
        "Error: disk full",
        "\x1b 31m [0m title",
    ),
)


def read(name: str, data: bytes | str) -> Reading:
    module = NEEDS.get(name[name.rfind(".") :], "json")
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    reader = reader_of(name, BY_NAME)
    assert reader is not None
    return reader.read(Blob(name, data.encode() if isinstance(data, str) else data))


SLOW = (".pptx", ".docx")
"""Formats whose files a library makes here."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=f"{case.name[2:]}: {case.kind}",
            marks=[pytest.mark.slow] if case.name.endswith(SLOW) else [],
        )
        for case in CASES
    ],
)
def test_what_a_file_shows_is_read_in_order_or_counted(case: Case) -> None:
    reading = read(case.name, case.make())
    text, place = reading.document.text, 0
    for word in case.words.split():
        assert word in text[place:], f"{word!r} is not in {text[place:]!r}"
        place = text.index(word, place) + len(word)
    for word in case.absent.split(" ") if case.absent else ():
        assert word not in text
    assert reading.dropped == case.dropped
    assert reading.warnings == ()
    if case.rows is not None:
        assert tuple(region.rows for region in reading.document.regions if region.kind == "table") == case.rows


@pytest.mark.slow
def test_words_behind_escapes_are_found_and_cited_as_they_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.json").write_text(WHOLE_JSON, encoding="utf-8")
    (folder / "b.eml").write_text(mail("mixed", ("text/plain", "First.")), encoding="utf-8")
    (folder / "c.json").write_text(json.dumps({"q": "plain"}), encoding="utf-8")
    corpus = Corpus(tmp_path / "store.spolia")
    group = corpus.group("window", Definition(SlidingWindow(size=40, overlap=0)))
    sync(folder, corpus, groups=[group])
    for query, uri in (("Köln", "a.json"), ("Quokka", "a.json"), ("Ann Lee", "b.eml"), ("bob@b.org", "b.eml")):
        hit = BM25(group)(Query(query)).hits[0]
        assert hit.node.uri == uri
        text = corpus.snapshot().document(hit.node.document).text
        span = hit.node.span
        assert span is not None
        assert text[span.start : span.end] == hit.node.text


def test_windows_below_the_first_row_of_a_table_know_its_columns() -> None:
    rows = "".join(f"stone {number},{number} tons\n" for number in range(60))
    document = read("a.csv", f"name,weight\n{rows}").document
    pieces = [*SlidingWindow(size=60, overlap=0).pieces(Part(Node("d", document.text), document))]
    assert len(pieces) > 2
    assert "name,weight" in pieces[0].text
    assert {piece.context for piece in pieces[1:]} == {"name,weight"}
