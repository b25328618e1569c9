"""A small file of every format, made on the spot: about stones, with a heading, a table and whatever the format has.

What is written here by hand has the same bytes at any time.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from typing import Any

from tests.indexing.sample_documents import docx_of, pdf_of

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
"""A PNG of one dot."""
_ODF = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0" '
    'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    'xmlns:meta="urn:oasis:names:tc:opendocument:xmlns:meta:1.0" '
    'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0" '
    'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0"'
)


def zip_of(members: Mapping[str, bytes | str], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o600 << 16
            archive.writestr(info, content, compression)
    return out.getvalue()


def changed_zip(data: bytes, members: Mapping[str, bytes | str]) -> bytes:
    """An archive with some members added or replaced."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        original_members = {name: archive.read(name) for name in archive.namelist()}
    return zip_of(original_members | dict(members))


def tar_of(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def docx() -> bytes:
    def write(document: Any) -> None:
        document.core_properties.title, document.core_properties.author = "Old Stones", "Ann Lee"
        document.add_heading("Walls", 1)
        document.add_paragraph("Basalt is dark.")
        table = document.add_table(2, 2)
        for cell, text in zip(
            (cell for row in table.rows for cell in row.cells), ("stone", "t", "basalt", "3.0"), strict=True
        ):
            cell.text = text
        document.add_picture(io.BytesIO(PIXEL))

    return docx_of(write)


def pptx() -> bytes:
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    slides = Presentation()
    slides.core_properties.title, slides.core_properties.author = "Old Stones", "Ann Lee"
    first = slides.slides.add_slide(slides.slide_layouts[5])
    first.shapes.title.text = "Walls"
    first.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "Basalt is dark."
    table = first.shapes.add_table(2, 2, 0, 0, Inches(2), Inches(1)).table
    for cell_number, text in enumerate(("stone", "t", "basalt", "3.0")):
        table.cell(cell_number // 2, cell_number % 2).text = text
    first.notes_slide.notes_text_frame.text = "Speak slowly."
    second = slides.slides.add_slide(slides.slide_layouts[6])
    second.shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["north", "south"]
    data.add_series("walls", (3.0, 4.5))
    second.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, Inches(2), Inches(2), data)
    slides.slides.add_slide(slides.slide_layouts[6])
    out = io.BytesIO()
    slides.save(out)
    return out.getvalue()


def xlsx(sheets: Mapping[str, str] | None = None, states: Mapping[str, str] | None = None) -> bytes:
    """By hand; sheets: the XML of their rows by name; states: `hidden` or `veryHidden` by name."""
    rows = (
        '<row r="1"><c r="A1" t="inlineStr"><is><t>stone</t></is></c>'
        '<c r="B1" t="inlineStr"><is><t>t</t></is></c></row>'
        '<row r="2"><c r="A2" t="inlineStr"><is><t>basalt</t></is></c><c r="B2"><f>1+2</f><v>3</v></c></row>'
        '<row r="4"><c r="A4" t="inlineStr"><is><t>A remark.</t></is></c></row>'
    )
    sheets = sheets or {"Weights": rows, "Empty": ""}
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    listed = "".join(
        f'<sheet name="{name}" sheetId="{number}" state="{(states or {}).get(name, "visible")}" r:id="r{number}"/>'
        for number, name in enumerate(sheets, 1)
    )
    linked = "".join(
        f'<Relationship Id="r{sheet_number}" Type="{relations}/worksheet" Target="worksheets/sheet{sheet_number}.xml"/>'
        for sheet_number in range(1, len(sheets) + 1)
    )
    members = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{package}"><Relationship Id="r1" Type="{relations}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{relations}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}">{linked}</Relationships>',
        "docProps/core.xml": "<p xmlns:dc='http://purl.org/dc/elements/1.1/'><dc:creator>Ann Lee</dc:creator></p>",
    }
    for sheet_number, xml in enumerate(sheets.values(), 1):
        members[f"xl/worksheets/sheet{sheet_number}.xml"] = (
            f'<worksheet xmlns="{main}"><sheetData>{xml}</sheetData></worksheet>'
        )
    return zip_of(members)


def odf(body: str, kind: str = "text", styles: str = "", common: str = "") -> bytes:
    meta = "<dc:title>Old Stones</dc:title><meta:initial-creator>Ann Lee</meta:initial-creator>"
    return zip_of(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "styles.xml": f"<office:document-styles {_ODF}><office:styles>{common}</office:styles>"
            "</office:document-styles>",
            "content.xml": f"<office:document-content {_ODF}>"
            f"<office:automatic-styles>{styles}</office:automatic-styles><office:body><office:{kind}>{body}</office:{kind}>"
            "</office:body></office:document-content>",
            "meta.xml": f"<office:document-meta {_ODF}><office:meta>{meta}</office:meta></office:document-meta>",
            "Pictures/a.png": PIXEL,
        }
    )


def odt() -> bytes:
    note = (
        "<text:note><text:note-citation>1</text:note-citation>"
        "<text:note-body><text:p>By weight.</text:p></text:note-body></text:note>"
    )
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in ("basalt", "3.0"))
    return odf(
        '<text:h text:outline-level="1">Walls</text:h>'
        f"<text:p>Basalt<text:s text:c='2'/>is dark{note}."
        "<office:annotation><text:p>Really?</text:p></office:annotation></text:p>"
        "<text:list><text:list-item><text:p>one</text:p></text:list-item><text:list-item><text:p>two</text:p></text:list-item>"
        "</text:list><table:table><table:table-header-rows><table:table-row><table:table-cell><text:p>stone</text:p>"
        "</table:table-cell><table:table-cell><text:p>t</text:p></table:table-cell></table:table-row>"
        f"</table:table-header-rows><table:table-row>{cells}</table:table-row></table:table>"
        "<text:p><draw:frame><svg:desc>A wall of basalt</svg:desc>"
        "<draw:image xlink:href='Pictures/a.png'/></draw:frame></text:p>"
    )


def ods() -> bytes:
    def row(*texts: str) -> str:
        cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in texts)
        return f"<table:table-row>{cells}<table:table-cell table:number-columns-repeated='16000'/></table:table-row>"

    empty = "<table:table-row table:number-rows-repeated='1000000'><table:table-cell/></table:table-row>"
    return odf(
        f"<table:table table:name='Weights'>{row('stone', 't')}{row('basalt', '3.0')}{empty}</table:table>",
        "spreadsheet",
    )


def odp() -> bytes:
    return odf(
        "<draw:page><draw:frame><draw:text-box><text:p>Walls</text:p></draw:text-box></draw:frame></draw:page><draw:page/>"
        "<draw:page><draw:frame><draw:text-box><text:p>Basalt is dark.</text:p>"
        "</draw:text-box></draw:frame></draw:page>",
        "presentation",
    )


def epub() -> bytes:
    chapter = '<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'
    return zip_of(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
            "OEBPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
            "<metadata><dc:title>Old Stones</dc:title><dc:creator>Ann Lee</dc:creator>"
            "<dc:language>en</dc:language></metadata>"
            '<manifest><item id="b" href="two%20.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="a" href="one.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/></manifest>'
            '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="lost"/></spine></package>',
            "OEBPS/toc.ncx": '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>Roads</text>'
            '</navLabel><content src="two%20.xhtml#x"/></navPoint></navMap></ncx>',
            "OEBPS/one.xhtml": chapter.format(
                "<h1>Walls</h1><p>Basalt is dark.</p><table><tr><th>stone</th><th>t</th></tr>"
                "<tr><td>basalt</td><td>3.0</td></tr></table>"
            ),
            "OEBPS/two .xhtml": chapter.format("<p>They were long.</p>"),
        }
    )


def eml() -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Cc"] = "Ann Lee <ann@a.org>", "bob@b.org, Cyd <cyd@c.org>", "dan@d.org"
    mail["Subject"], mail["Date"], mail["Message-ID"] = "Old Störnes", "Mon, 05 Oct 2026 10:00:00 +0200", "<1@a.org>"
    mail.set_content("Basalt is dark, café.")
    mail.add_alternative("<p>Basalt is <b>dark</b>, café.</p>", subtype="html")
    mail.add_attachment(b"stone,t\nbasalt,3.0\n", maintype="text", subtype="csv", filename="weights.csv")
    inner = EmailMessage()
    inner["Subject"] = "Inside"
    inner.set_content("Deep stones.")
    mail.add_attachment(inner)
    for number, part in enumerate(mail.walk()):
        if part.get_content_maintype() == "multipart":
            part.set_boundary(f"=={number}==")
    return mail.as_bytes()


def mbox() -> bytes:
    mails = (f"From ann@a.org Mon Oct  5 10:00:00 2026\nSubject: {n}\n\nStone {n}.\n>From here on.\n\n" for n in (1, 2))
    return "".join(mails).encode()


def ipynb() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# Walls\n", "\n", "Basalt is dark."]},
        {
            "cell_type": "code",
            "source": "print(3.0)",
            "outputs": [
                {"output_type": "stream", "text": ["3.0\n"]},
                {"output_type": "display_data", "data": {"image/png": "AAAA"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "too dark"},
            ],
        },
    ]
    return json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}).encode()


TEX = rb"""\documentclass{article}
\title{Old Stones}\author{Ann Lee}
\begin{document}
\section{Walls} % a remark
Basalt is \emph{dark}~\cite{lee}, caf\'e.
\[ m = \rho V \]
\begin{tabular}{lr} \hline stone & t \\ basalt & 3.0 \\ \end{tabular}
\begin{verbatim}
x = 1
\end{verbatim}
\includegraphics{a.png}
\end{document}
"""
RST = b"""Old Stones
==========

:author: Ann Lee

Walls
-----

Basalt is dark.

+--------+-----+
| stone  | t   |
+========+=====+
| basalt | 3.0 |
+--------+-----+

.. code:: python

   x = 1
"""
MD = b"""---
title: Old Stones
author: Ann Lee
---
# Walls

Basalt is dark.

| stone | t |
|---|---|
| basalt | 3.0 |

```python
x = 1
```

$$
m = \\rho V
$$
"""
ADOC = b"""= Old Stones
:author: Ann Lee

== Walls

Basalt is dark.

.Weights
|===
|stone |t
|basalt |3.0
|===

----
x = 1
----
"""
ORG = b"""#+TITLE: Old Stones
#+AUTHOR: Ann Lee

* TODO Walls :old:

Basalt is dark.

| stone  |   t |
|--------+-----|
| basalt | 3.0 |

#+BEGIN_SRC python
x = 1
#+END_SRC
"""
ICS = b"""BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Walls
LOCATION:Room Basalt
ORGANIZER;CN=Ann Lee:mailto:ann@a.org
DTSTART;TZID=Europe/Berlin:20261005T100000
DESCRIPTION:Basalt is dark.\\nAnd
  old.
BEGIN:VALARM
DESCRIPTION:Reminder
END:VALARM
END:VEVENT
BEGIN:VTODO
SUMMARY:Weigh the stones
DUE;VALUE=DATE:20261009
END:VTODO
END:VCALENDAR
"""
HTML = b"""<!DOCTYPE html><html lang="en"><head><title>Old Stones</title><meta name="author" content="Ann Lee"></head>
<body><h1>Walls</h1><p>Basalt is dark.</p>
<table><caption>Weights</caption><tr><th>stone<th>t<tr><td>basalt<td>3.0</table>
<pre>x = 1</pre><img src="a.png" alt="A wall of basalt stones"></body></html>"""
XML = b"""<?xml version="1.0"?><!DOCTYPE book PUBLIC "-//x//y" "http://127.0.0.1:1/book.dtd">
<book><title>Old Stones</title><sec><title>Walls</title><p>Basalt is <i>dark</i>&nbsp;&amp; old.</p>
<table><tr><th>stone</th><th>t</th></tr><tr><td>basalt</td><td>3.0</td></tr></table></sec></book>"""
RTF = rb"""{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\stylesheet{\s1\outlinelevel0 heading 1;}}
{\info{\title Old Stones}{\author Ann Lee}}{\header Top}
{\pard\s1 Walls\par}\pard Basalt is \b dark\b0 , caf\'e9 \u8364?5.\par
\trowd\pard\intbl stone\cell t\cell\row\trowd\pard\intbl basalt\cell 3.0\cell\row\pard{\pict 00}}"""
PY = b"class Wall:\n    def span(self):\n        return 3.0\n\n\nasync def load():\n    pass\n"

FIXTURES: dict[str, Callable[[], bytes]] = {
    "a.txt": lambda: b"Old Stones.\r\nBasalt is dark.\n",
    "a.srt": lambda: b"1\n00:01:05,000 --> 00:01:07,500\nBasalt is dark.\n",
    "a.md": lambda: MD,
    "a.rst": lambda: RST,
    "a.adoc": lambda: ADOC,
    "a.org": lambda: ORG,
    "a.tex": lambda: TEX,
    "a.py": lambda: PY,
    "a.html": lambda: HTML,
    "a.xml": lambda: XML,
    "a.csv": lambda: b'stone,t\nbasalt,3.0\n"two\nlines",1\n',
    "a.tsv": lambda: b"stone\tt\nbasalt\t3.0\n",
    "a.json": lambda: b'[{"stone": "basalt", "t": 3.0}, {"stone": "marble"}]',
    "a.jsonl": lambda: b'{"stone": "basalt", "t": 3.0}\n{"stone": "marble", "t": 2.7}\n',
    "a.ipynb": ipynb,
    "a.rtf": lambda: RTF,
    "a.docx": docx,
    "a.pptx": pptx,
    "a.xlsx": xlsx,
    "a.odt": odt,
    "a.ods": ods,
    "a.odp": odp,
    "a.epub": epub,
    "a.ics": lambda: ICS,
    "a.eml": eml,
    "a.mbox": mbox,
    "a.zip": lambda: zip_of({"one.txt": "Basalt is dark.", "in/two.md": MD}),
    "a.tar": lambda: tar_of({"one.txt": b"Basalt is dark.", "in/two.md": MD}),
    "a.tar.gz": lambda: gzip.compress(tar_of({"one.txt": b"Basalt is dark."}), mtime=0),
    "a.txt.gz": lambda: gzip.compress(b"Basalt is dark.", mtime=0),
    "a.txt.bz2": lambda: bz2.compress(b"Basalt is dark."),
    "a.txt.xz": lambda: lzma.compress(b"Basalt is dark."),
    "a.pdf": lambda: pdf_of([["Basalt is dark."]]),
}
"""By name. All have the words `Basalt is dark` but those of rows and code."""
