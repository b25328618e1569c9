"""A page of a PDF: its text with places, tables and pictures, and what was written onto it later."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from ctypes import byref, c_ushort, sizeof
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, islice, pairwise
from typing import Any

import numpy as np
from pypdfium2 import raw

from spolia.indexing.readers.pdf.columns import Gutter, gutters_of
from spolia.indexing.readers.pdf.drawings import Drawn, Picture, drawn_on, pictures_of
from spolia.indexing.readers.pdf.geometry import Area, VisiblePage, boxes, notes
from spolia.indexing.readers.pdf.headings import Styled
from spolia.indexing.readers.pdf.lines import (
    HYPHEN,
    NO_TEXT,
    PageLine,
    PageTable,
    Written,
    by_columns,
    in_order,
    joined_lines,
    lines_of,
    measure,
    read_from_the_right,
    text_of,
)
from spolia.indexing.readers.pdf.tables import (
    NO_LETTERS,
    Letters,
    caption_of,
    grids_of,
    letters_of,
    tables_of,
    written,
)
from spolia.indexing.readers.unit_failures import Attempt

_MOST = 2_000
_LONGEST = 100_000
_SILENT = (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP)


def notes_of(page: Any, form: Any, sheet: VisiblePage, attempt: Attempt) -> Iterator[PageLine]:
    """A line for each filled field (`Name: value`) and each comment, after all other text of the page. `form`: PDFium's
    form of the document; None where it has none."""
    for number, kind in enumerate(islice(notes(page), _MOST)):
        if kind not in _SILENT and (line := attempt("annotation", partial(_note, page, number, form, sheet), None)):
            yield line


def _note(page: Any, number: int, form: Any, sheet: VisiblePage) -> PageLine | None:
    note = raw.FPDFPage_GetAnnot(page.raw, number)
    if not note:
        return None
    try:
        box = raw.FS_RECTF()
        raw.FPDFAnnot_GetRect(note, byref(box))
        words = _words(note, form)
        return PageLine(words, sheet.area(box.left, box.bottom, box.right, box.top)) if words else None
    finally:
        raw.FPDFPage_CloseAnnot(note)


def _words(note: Any, form: Any) -> str:
    kind = raw.FPDFAnnot_GetSubtype(note)
    if kind == raw.FPDF_ANNOT_WIDGET:
        return _field(note, form) if form is not None else ""
    return _string(lambda *to: raw.FPDFAnnot_GetStringValue(note, b"Contents", *to))


def _field(note: Any, form: Any) -> str:
    kind = raw.FPDFAnnot_GetFormFieldType(form, note)
    if kind in (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE):
        return ""
    name = _string(lambda *to: raw.FPDFAnnot_GetFormFieldAlternateName(form, note, *to))
    name = name or _string(lambda *to: raw.FPDFAnnot_GetFormFieldName(form, note, *to))
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        value = "yes" if raw.FPDFAnnot_IsChecked(form, note) else ""
    else:
        value = _string(lambda *to: raw.FPDFAnnot_GetFormFieldValue(form, note, *to))
    return f"{name}: {value}".removeprefix(": ") if value else ""


def _string(ask: Callable[..., int]) -> str:
    """A string of PDFium: its length is asked first; UTF-16 with a 0 at its end. Blanks are folded into one."""
    size = ask(None, 0)
    if not 2 < size <= _LONGEST:
        return ""
    buffer = (c_ushort * (size // sizeof(c_ushort)))()
    ask(buffer, size)
    return " ".join(NO_TEXT.sub("", bytes(buffer).decode("utf-16-le", "replace")).split())


_FEW = 20


@dataclass(frozen=True)
class Spot:
    """A table or a picture: its stretch of the page's text, its caption, where it stands."""

    kind: str
    start: int
    end: int
    area: Area
    rows: tuple[tuple[str, ...], ...] = ()
    caption: str = ""
    picture: Picture | None = None


@dataclass(frozen=True)
class PageText:
    """A page, written; `styled` are lines that may be headings, `sizes` counts the characters of each size."""

    written: Written
    spots: tuple[Spot, ...] = ()
    styled: tuple[Styled, ...] = ()
    sizes: Counter[float] = field(default_factory=Counter)


def leaf_of(page: "PdfPage", number: int, attempt: Attempt) -> PageText:
    """Write a page. `number`: from 1."""
    text = joined_lines(page.lines, number)
    tables = attempt("table", lambda: list(_tables(page.lines, text, attempt)), [])
    pictures = attempt("picture", lambda: list(_pictures(page, text, attempt)), [])
    sizes: Counter[float] = Counter()
    for line in page.lines:
        if line.size:
            sizes[line.size] += len(line.text)
    styled = attempt("set of headings", lambda: tuple(_styled(page.lines, text, number, sizes)), ())
    return PageText(text, tuple(sorted((*tables, *pictures), key=lambda spot: spot.start)), styled, sizes)


def _styled(lines: Sequence[PageLine], text: Written, number: int, sizes: Counter[float]) -> Iterator[Styled]:
    """The lines that may be headings: on a page with much text only bold ones, or ones larger than most of it."""
    usual = sizes.most_common(1)[0][0] if sizes and len(lines) > _FEW else 0.0
    for at, line in enumerate(lines):
        distinct = line.bold or line.size > usual
        if line.heading and line.size and distinct and not line.vertical and line.table is None:
            yield Styled(number - 1, at, int(text.places["start"][at]), line.text, line.size, line.bold)


def _tables(lines: Sequence[PageLine], text: Written, attempt: Attempt) -> Iterator[Spot]:
    rows: dict[int, tuple[PageTable, list[int]]] = {}
    for at, line in enumerate(lines):
        if line.table is not None:
            rows.setdefault(id(line.table), (line.table, []))[1].append(at)
    for table, places in rows.values():
        start, end = text.places["start"][places[0]], text.places["end"][places[-1]]
        cells = tuple(tuple(cell.replace(HYPHEN, "") for cell in row) for row in table.rows)
        caption = attempt("caption", partial(caption_of, table.area, "table", lines), ())
        yield Spot("table", int(start), int(end), table.area, cells, _said(caption))


def _pictures(page: "PdfPage", text: Written, attempt: Attempt) -> Iterator[Spot]:
    """A picture's stretch is its caption; without one it is empty, after the last line above the picture."""
    places = {id(line): at for at, line in enumerate(page.lines)} if page.pictures else {}
    for picture in page.pictures:
        caption = attempt("caption", partial(caption_of, picture.area, "image", page.lines), ())
        if caption:
            start, end = (int(text.places[side][places[id(caption[at])]]) for side, at in (("start", 0), ("end", -1)))
        else:
            above = [at for at, line in enumerate(page.lines) if line.area.bottom <= picture.area.top + 2]
            start = end = int(text.places["end"][above[-1]]) if above else 0
        yield Spot("image", start, end, picture.area, caption=_said(caption), picture=picture)


def _said(lines: Sequence[PageLine]) -> str:
    """What lines say, as one; which words a mark breaks is decided with the whole document, here most are."""
    return " ".join(line.text for line in lines).replace(f"{HYPHEN} ", "").rstrip(HYPHEN)


@dataclass(frozen=True)
class PdfPage:
    """What was read of a page: its lines in reading order, rows of tables among them."""

    lines: Sequence[PageLine] = ()
    pictures: Sequence[Picture] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    blank: bool = False


def page_of(pdf: Any, number: int, form: Any, attempt: Attempt, *, tables: bool, pictures: bool) -> PdfPage:
    """Read a page, from 0; nothing of it stays in PDFium. `form`: PDFium's of the document. `tables`: whether their
    cells are read. `pictures`: whether their bytes are."""
    with closing(pdf[number]) as page, closing(page.get_textpage()) as text_page:
        return _read(page, text_page, form, attempt, tables=tables, pictures=pictures)


def plain_page(pdf: Any, number: int) -> PdfPage:
    """The lines of a page as PDFium gives its text; where they stand is not known, but for the page."""
    with closing(pdf[number]) as page, closing(page.get_textpage()) as text_page:
        whole = Area(0.0, 0.0, *page.get_size())
        lines = (NO_TEXT.sub("", line).strip() for line in text_page.get_text_range().splitlines())
        return PdfPage([PageLine(line, whole) for line in lines if line])


def _read(page: Any, text_page: Any, form: Any, attempt: Attempt, *, tables: bool, pictures: bool) -> PdfPage:
    sheet = VisiblePage.of(page)
    text: str = text_of(text_page)
    if not text.isascii():
        text = attempt("text from the right", lambda: _turned(text_page, text, sheet), text)
    lines, pieces = lines_of(text_page, text, sheet)
    attempt("set of headings", lambda: measure(lines, text_page), None)
    drawn = attempt("set of drawings", lambda: drawn_on(page, sheet), Drawn())
    found: list[PageTable] = []
    letters = NO_LETTERS
    if tables:
        found, letters = attempt(
            "table", lambda: _tables_on(lines, drawn, text_page, text, sheet, attempt), (found, letters)
        )
    areas = [table.area for table in found]
    gutters: list[Gutter] = attempt("reading order", lambda: gutters_of(pieces, areas), [])
    if gutters:
        lines = attempt("reading order", lambda: by_columns(lines, gutters, text_page, text, sheet), lines)
    if found:
        lines = attempt("table", lambda: list(_with_tables(lines, found, letters, text)), lines)
    lines = attempt("reading order", lambda: in_order(lines), lines)
    lines = [*lines, *attempt("set of annotations", lambda: list(notes_of(page, form, sheet, attempt)), [])]
    shown, dropped = pictures_of(drawn.pictures, sheet.size, attempt, text=bool(lines), data=pictures)
    counted = {"pictures": dropped, "drawings": int(drawn.passed_over)}
    blank = not lines and not raw.FPDFPage_CountObjects(page)
    return PdfPage(lines, shown, {name: count for name, count in counted.items() if count}, blank)


def _turned(text_page: Any, text: str, sheet: VisiblePage) -> str:
    def middles(numbers: Sequence[int]) -> list[float]:
        sides = sheet.shown(boxes(text_page, numbers)[0])
        return list(((sides[:, 0] + sides[:, 2]) / 2).tolist())

    return read_from_the_right(text, middles)


def _tables_on(
    lines: list[PageLine], drawn: Drawn, text_page: Any, text: str, sheet: VisiblePage, attempt: Attempt
) -> tuple[list[PageTable], Letters]:
    """The tables of a page, and the letters in and around them."""
    grids = list(grids_of(drawn)) if lines else []
    if not grids:
        return [], NO_LETTERS
    left, top, right, bottom = np.array([line.area for line in lines]).T
    a, b, c, d = np.array([grid.area for grid in grids]).T[:, :, None]
    inside = (left < c) & (a < right) & (top < d) & (b < bottom)
    many = inside @ np.where(bottom - top > right - left, 2, 1) > 1  # one line is no table, unless it is rotated
    stretches = [(lines[at].at, lines[at].end) for at in inside[many].any(0).nonzero()[0].tolist()]
    if not stretches:
        return [], NO_LETTERS
    letters = letters_of(text_page, text, stretches, sheet)
    return tables_of(compress(grids, many), letters, text, attempt), letters


def _with_tables(lines: list[PageLine], tables: list[PageTable], letters: Letters, text: str) -> Iterator[PageLine]:
    """The lines, with the rows of each table in place of its letters, where the first of them stands."""
    owners = np.full(len(letters), -1)
    for number, table in enumerate(tables):
        owners[np.searchsorted(letters.numbers, table.letters)] = number
    put: set[int] = set()
    owned = np.concatenate([[0], np.cumsum(owners >= 0)])
    starts, ends = np.searchsorted(letters.numbers, np.array([(line.at, line.end) for line in lines]).T)
    outside = owned[starts] == owned[ends]
    for line, start, end, is_outside in zip(lines, starts.tolist(), ends.tolist(), outside.tolist(), strict=True):
        if is_outside:
            yield line
            continue
        own = slice(start, end)
        for owner, run in _runs(owners[own], letters[own]):
            if owner < 0:
                at, end = run.numbers[[0, -1]].tolist()
                yield PageLine(written(run.numbers, text), run.area, at, end + 1, line.size, line.bold)
            elif owner not in put:
                put.add(owner)
                table = tables[owner]
                for cells, area in zip(table.rows, table.areas, strict=True):
                    yield PageLine(" | ".join(cells), area, table=table)


def _runs(owners: Any, letters: Letters) -> Iterator[tuple[int, Letters]]:
    turns = (np.diff(owners) != 0).nonzero()[0] + 1
    for start, stop in pairwise([0, *turns.tolist(), len(owners)]):
        yield int(owners[start]), letters[start:stop]
