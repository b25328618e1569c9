"""Formulas of Office as LaTeX."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from spolia.indexing.readers.office.omml import to_latex
from spolia.indexing.readers.office.pptx import PptxReader
from spolia.indexing.readers.reader import Blob
from tests.cases import check_each
from tests.indexing.readers.test_hidden import docx_text

M = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def r(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def e(text: str, name: str = "e") -> str:
    return f"<m:{name}>{r(text)}</m:{name}>"


def latex_of(xml: str) -> str:
    return to_latex(fromstring(f'<m:oMath xmlns:m="{M}">{xml}</m:oMath>'))


@check_each(
    ("xml", "text"),
    [
        (f"<m:f>{e('1', 'num')}{e('2', 'den')}</m:f>", r"\frac{1}{2}"),
        (f"<m:rad>{e('3', 'deg')}{e('x')}</m:rad>", r"\sqrt[3]{x}"),
        (f"<m:rad><m:deg/>{e('x')}</m:rad>", r"\sqrt{x}"),
        (f"<m:sSup>{e('x')}{e('2', 'sup')}</m:sSup>", "x^{2}"),
        (f"<m:sSub>{e('ab')}{e('i', 'sub')}</m:sSub>", "{ab}_{i}"),
        (f"<m:sSubSup>{e('x')}{e('i', 'sub')}{e('2', 'sup')}</m:sSubSup>", "x_{i}^{2}"),
        (f"<m:sPre>{e('1', 'sub')}{e('2', 'sup')}{e('X')}</m:sPre>", "{}_{1}^{2}X"),
        (f"<m:nary>{e('0', 'sub')}{e('1', 'sup')}{e('x')}</m:nary>", r"\int_{0}^{1} x"),
        (f"<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr>{e('i', 'sub')}<m:sup/>{e('x')}</m:nary>", r"\sum_{i} x"),
        (f"<m:d>{e('x')}{e('y')}</m:d>", r"\left( x | y \right)"),
        (f"<m:func>{e('sin', 'fName')}{e('x')}</m:func>", r"\sin x"),
        (f"<m:acc>{e('x')}</m:acc>", r"\hat{x}"),
        (f"<m:bar>{e('x')}</m:bar>", r"\underline{x}"),
        (
            f"<m:m><m:mr>{e('a')}{e('b')}</m:mr><m:mr>{e('c')}{e('d')}</m:mr></m:m>",
            r"\begin{matrix}a & b \\ c & d\end{matrix}",
        ),
        (f"<m:eqArr>{e('a')}{e('b')}</m:eqArr>", r"\begin{aligned}a \\ b\end{aligned}"),
        (f"<m:limLow>{e('lim')}{e('n', 'lim')}</m:limLow>", r"\lim_{n}"),
        (f"<m:limUpp>{e('x')}{e('n', 'lim')}</m:limUpp>", r"\overset{n}{x}"),
        (f"<m:groupChr>{e('x')}</m:groupChr>", r"\underbrace{x}"),
        (f"<m:box>{e('x')}</m:box><m:unheard>{e('y')}</m:unheard>", "xy"),
        (r("50% {$}"), r"50\% \{\$\}"),
    ],
)  # fmt: skip
def test_each_element_is_latex(xml: str, text: str) -> None:
    assert latex_of(xml) == text


def test_nesting_is_bounded_and_keeps_the_text() -> None:
    xml = r("x")
    for _ in range(200):
        xml = f"<m:nary><m:sub>{xml}</m:sub><m:sup/>{e('y')}</m:nary>"
    assert latex_of(xml).count("y") == 200


A = 'xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main"'


def test_a_pptx_shows_its_formulas_in_texts_cells_and_titles_and_not_the_pictures_of_them() -> None:
    pptx = pytest.importorskip("pptx")
    from pptx.oxml import parse_xml

    def add(frame: Any, formula: str) -> None:
        frame.text = "So "
        frame.paragraphs[0]._p.append(parse_xml(f'<a14:m {A} xmlns:m="{M}">{formula}</a14:m>'))

    def add_fallback(shape: Any) -> None:
        mc = "http://schemas.openxmlformats.org/markup-compatibility/2006"
        alternatives = parse_xml(
            f'<mc:AlternateContent xmlns:mc="{mc}"><mc:Choice {A} Requires="a14"/><mc:Fallback/></mc:AlternateContent>'
        )
        shape._element.addprevious(alternatives)
        alternatives[1].append(deepcopy(shape._element))
        for text in alternatives[1].iter("{http://schemas.openxmlformats.org/drawingml/2006/main}t"):
            text.text = "no formula"
        alternatives[0].append(shape._element)

    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[5])
    add(slide.shapes.title.text_frame, f"<m:oMath>{r('n')}</m:oMath>")
    text = slide.shapes.add_textbox(0, 0, 9, 9)
    whole = f"<m:oMathPara><m:oMath><m:f>{e('1', 'num')}{e('2', 'den')}</m:f></m:oMath></m:oMathPara>"
    add(text.text_frame, whole)
    table = slide.shapes.add_table(1, 2, 0, 0, 9, 9)
    add(table.table.cell(0, 0).text_frame, f"<m:oMath><m:sSup>{e('x')}{e('2', 'sup')}</m:sSup></m:oMath>")
    table.table.cell(0, 1).text = "area"
    for shape in (text, table):
        add_fallback(shape)
    out = io.BytesIO()
    slides.save(out)
    document = PptxReader().read(Blob("a.pptx", out.getvalue())).document
    assert document.text == r"So $n$" "\n\n" r"So $\frac{1}{2}$" "\n\n" r"So $x^{2}$ | area"
    assert [document.text[region.start : region.end] for region in document.regions if region.kind == "formula"] == [
        r"So $\frac{1}{2}$"
    ]


def test_a_docx_shows_its_formulas_without_what_is_deleted() -> None:
    body = f"<w:p><w:r><w:t>So </w:t></w:r><m:oMath xmlns:m='{M}'>{r('x')}<w:del>{r('y')}</w:del></m:oMath></w:p>"
    assert docx_text(body) == "So $x$"
