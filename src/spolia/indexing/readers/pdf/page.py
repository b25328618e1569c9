"""A page of a PDF: text with places, tables and pictures, and annotations."""

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
from spolia.indexing.readers.pdf.drawings import PageDrawings, Picture, find_drawings, pictures_of
from spolia.indexing.readers.pdf.geometry import Area, VisiblePage, boxes, notes
from spolia.indexing.readers.pdf.headings import HeadingCandidate
from spolia.indexing.readers.pdf.lines import (
    HYPHEN,
    NO_TEXT,
    PageLine,
    PageTable,
    PlacedText,
    join_lines,
    lines_of,
    measure_lines,
    order_columns,
    order_lines,
    text_of,
    turn_right_to_left,
)
from spolia.indexing.readers.pdf.tables import (
    NO_LETTERS,
    Letters,
    caption_of,
    grids_of,
    letters_of,
    tables_of,
    write_letters,
)
from spolia.indexing.readers.unit_failures import Attempt

_MOST_NOTES = 2_000
_LONGEST = 100_000
_SILENT = (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP)


def notes_of(page: Any, form: Any, sheet: VisiblePage, attempt: Attempt) -> Iterator[PageLine]:
    """Yield a line for each filled field (`Name: value`) and each comment, after all other text of the page. `form`:
    PDFium's form of the document; None if it has none."""
    for number, kind in enumerate(islice(notes(page), _MOST_NOTES)):
        if kind not in _SILENT and (
            line := attempt("annotation", partial(_note_line, page, number, form, sheet), None)
        ):
            yield line


def _note_line(page: Any, number: int, form: Any, sheet: VisiblePage) -> PageLine | None:
    note = raw.FPDFPage_GetAnnot(page.raw, number)
    if not note:
        return None
    try:
        box = raw.FS_RECTF()
        raw.FPDFAnnot_GetRect(note, byref(box))
        words = _note_text(note, form)
        return PageLine(words, sheet.area(box.left, box.bottom, box.right, box.top)) if words else None
    finally:
        raw.FPDFPage_CloseAnnot(note)


def _note_text(note: Any, form: Any) -> str:
    kind = raw.FPDFAnnot_GetSubtype(note)
    if kind == raw.FPDF_ANNOT_WIDGET:
        return _field_text(note, form) if form is not None else ""
    return _read_string(lambda *to: raw.FPDFAnnot_GetStringValue(note, b"Contents", *to))


def _field_text(note: Any, form: Any) -> str:
    kind = raw.FPDFAnnot_GetFormFieldType(form, note)
    if kind in (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE):
        return ""
    name = _read_string(lambda *to: raw.FPDFAnnot_GetFormFieldAlternateName(form, note, *to))
    name = name or _read_string(lambda *to: raw.FPDFAnnot_GetFormFieldName(form, note, *to))
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        value = "yes" if raw.FPDFAnnot_IsChecked(form, note) else ""
    else:
        value = _read_string(lambda *to: raw.FPDFAnnot_GetFormFieldValue(form, note, *to))
    return f"{name}: {value}".removeprefix(": ") if value else ""


def _read_string(ask: Callable[..., int]) -> str:
    """Read a string of PDFium, whose length is asked first: UTF-16 with a 0 at its end. Blanks are folded into one."""
    size = ask(None, 0)
    if not 2 < size <= _LONGEST:  # 2 bytes are the 0 at the end alone
        return ""
    buffer = (c_ushort * (size // sizeof(c_ushort)))()
    ask(buffer, size)
    return " ".join(NO_TEXT.sub("", bytes(buffer).decode("utf-16-le", "replace")).split())


_FEW_LINES = 20


@dataclass(frozen=True)
class PageRegion:
    """Table or picture on a page: its stretch of the page's text, its caption, its place."""

    kind: str
    start: int
    end: int
    area: Area
    rows: tuple[tuple[str, ...], ...] = ()
    caption: str = ""
    picture: Picture | None = None


@dataclass(frozen=True)
class PageText:
    """Text of a page. `styled` are lines that may be headings; `sizes` counts the characters of each size."""

    placed_text: PlacedText
    regions: tuple[PageRegion, ...] = ()
    styled: tuple[HeadingCandidate, ...] = ()
    sizes: Counter[float] = field(default_factory=Counter)


def layout_page(page: "PdfPage", number: int, attempt: Attempt) -> PageText:
    """Write a page with its regions. `number`: from 1."""
    text = join_lines(page.lines, number)
    tables = attempt("table", lambda: list(_table_regions(page.lines, text, attempt)), [])
    pictures = attempt("picture", lambda: list(_picture_regions(page, text, attempt)), [])
    sizes: Counter[float] = Counter()
    for line in page.lines:
        if line.size:
            sizes[line.size] += len(line.text)
    styled = attempt("set of headings", lambda: tuple(_heading_candidates(page.lines, text, number, sizes)), ())
    return PageText(text, tuple(sorted((*tables, *pictures), key=lambda spot: spot.start)), styled, sizes)


def _heading_candidates(
    lines: Sequence[PageLine], text: PlacedText, number: int, sizes: Counter[float]
) -> Iterator[HeadingCandidate]:
    """Yield the lines that may be headings: on a page with much text only bold ones, or ones larger than most of it."""
    usual = sizes.most_common(1)[0][0] if sizes and len(lines) > _FEW_LINES else 0.0
    for index, line in enumerate(lines):
        distinct = line.bold or line.size > usual
        if line.heading and line.size and distinct and not line.is_vertical and line.table is None:
            yield HeadingCandidate(number - 1, index, int(text.places["start"][index]), line.text, line.size, line.bold)


def _table_regions(lines: Sequence[PageLine], text: PlacedText, attempt: Attempt) -> Iterator[PageRegion]:
    rows: dict[int, tuple[PageTable, list[int]]] = {}
    for index, line in enumerate(lines):
        if line.table is not None:
            rows.setdefault(id(line.table), (line.table, []))[1].append(index)
    for table, places in rows.values():
        start, end = text.places["start"][places[0]], text.places["end"][places[-1]]
        cells = tuple(tuple(cell.replace(HYPHEN, "") for cell in row) for row in table.rows)
        caption = attempt("caption", partial(caption_of, table.area, "table", lines), ())
        yield PageRegion("table", int(start), int(end), table.area, cells, _join_caption(caption))


def _picture_regions(page: "PdfPage", text: PlacedText, attempt: Attempt) -> Iterator[PageRegion]:
    """Yield the regions of pictures. Their stretch is the caption; without one it is empty, after the last line above
    the picture."""
    places = {id(line): index for index, line in enumerate(page.lines)} if page.pictures else {}
    for picture in page.pictures:
        caption = attempt("caption", partial(caption_of, picture.area, "image", page.lines), ())
        if caption:
            start, end = (
                int(text.places[side][places[id(caption[index])]]) for side, index in (("start", 0), ("end", -1))
            )
        else:
            lines_above = [index for index, line in enumerate(page.lines) if line.area.bottom <= picture.area.top + 2]
            start = end = int(text.places["end"][lines_above[-1]]) if lines_above else 0
        yield PageRegion("image", start, end, picture.area, caption=_join_caption(caption), picture=picture)


def _join_caption(lines: Sequence[PageLine]) -> str:
    """Join lines to one text. Which words a mark breaks is decided with the whole document; here most are."""
    return " ".join(line.text for line in lines).replace(f"{HYPHEN} ", "").rstrip(HYPHEN)


@dataclass(frozen=True)
class PdfPage:
    """Content of a page: its lines in reading order, rows of tables among them."""

    lines: Sequence[PageLine] = ()
    pictures: Sequence[Picture] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    blank: bool = False


def read_page(pdf: Any, number: int, form: Any, attempt: Attempt, *, tables: bool, pictures: bool) -> PdfPage:
    """Read a page, from 0; nothing of it stays in PDFium. `form`: PDFium's form of the document. `tables`: whether to
    read cells. `pictures`: whether to read their bytes."""
    with closing(pdf[number]) as page, closing(page.get_textpage()) as text_page:
        return _read_open_page(page, text_page, form, attempt, tables=tables, pictures=pictures)


def read_plain_page(pdf: Any, number: int) -> PdfPage:
    """Read the lines of a page as PDFium gives its text, without their places."""
    with closing(pdf[number]) as page, closing(page.get_textpage()) as text_page:
        page_area = Area(0.0, 0.0, *page.get_size())
        lines = (NO_TEXT.sub("", line).strip() for line in text_page.get_text_range().splitlines())
        return PdfPage([PageLine(line, page_area) for line in lines if line])


def _read_open_page(page: Any, text_page: Any, form: Any, attempt: Attempt, *, tables: bool, pictures: bool) -> PdfPage:
    sheet = VisiblePage.from_page(page)
    text: str = text_of(text_page)
    if not text.isascii():
        text = attempt("text from the right", lambda: _turn_letters(text_page, text, sheet), text)
    lines, pieces = lines_of(text_page, text, sheet)
    attempt("set of headings", lambda: measure_lines(lines, text_page), None)
    drawings = attempt("set of drawings", lambda: find_drawings(page, sheet), PageDrawings())
    page_tables: list[PageTable] = []
    letters = NO_LETTERS
    if tables:
        page_tables, letters = attempt(
            "table", lambda: _find_tables(lines, drawings, text_page, text, sheet, attempt), (page_tables, letters)
        )
    areas = [table.area for table in page_tables]
    gutters: list[Gutter] = attempt("reading order", lambda: gutters_of(pieces, areas), [])
    if gutters:
        lines = attempt("reading order", lambda: order_columns(lines, gutters, text_page, text, sheet), lines)
    if page_tables:
        lines = attempt("table", lambda: list(_insert_tables(lines, page_tables, letters, text)), lines)
    lines = attempt("reading order", lambda: order_lines(lines), lines)
    # After the order: notes follow all other text of the page.
    lines = [*lines, *attempt("set of annotations", lambda: list(notes_of(page, form, sheet, attempt)), [])]
    page_pictures, dropped = pictures_of(drawings.pictures, sheet.size, attempt, text=bool(lines), data=pictures)
    counts = {"pictures": dropped, "drawings": int(drawings.passed_over)}
    # With objects and no text it may be a scan, which needs OCR.
    blank = not lines and not raw.FPDFPage_CountObjects(page)
    return PdfPage(lines, page_pictures, {name: count for name, count in counts.items() if count}, blank)


def _turn_letters(text_page: Any, text: str, sheet: VisiblePage) -> str:
    def middles(numbers: Sequence[int]) -> list[float]:
        sides = sheet.shown_sides(boxes(text_page, numbers)[0])
        return list(((sides[:, 0] + sides[:, 2]) / 2).tolist())

    return turn_right_to_left(text, middles)


def _find_tables(
    lines: list[PageLine], drawings: PageDrawings, text_page: Any, text: str, sheet: VisiblePage, attempt: Attempt
) -> tuple[list[PageTable], Letters]:
    """Find the tables of a page, and the letters in and around them."""
    grids = list(grids_of(drawings)) if lines else []
    if not grids:
        return [], NO_LETTERS
    left, top, right, bottom = np.array([line.area for line in lines]).T
    a, b, c, d = np.array([grid.area for grid in grids]).T[:, :, None]
    is_inside = (left < c) & (a < right) & (top < d) & (b < bottom)
    many = is_inside @ np.where(bottom - top > right - left, 2, 1) > 1  # one line is no table, unless it is rotated
    stretches = [(lines[number].start, lines[number].end) for number in is_inside[many].any(0).nonzero()[0].tolist()]
    if not stretches:
        return [], NO_LETTERS
    letters = letters_of(text_page, text, stretches, sheet)
    return tables_of(compress(grids, many), letters, text, attempt), letters


def _insert_tables(lines: list[PageLine], tables: list[PageTable], letters: Letters, text: str) -> Iterator[PageLine]:
    """Yield the lines, with the rows of each table in place of its letters, at the first of them."""
    owners = np.full(len(letters), -1)
    for number, table in enumerate(tables):
        owners[np.searchsorted(letters.numbers, table.letters)] = number
    inserted: set[int] = set()
    owned = np.concatenate([[0], np.cumsum(owners >= 0)])
    starts, ends = np.searchsorted(letters.numbers, np.array([(line.start, line.end) for line in lines]).T)
    outside = owned[starts] == owned[ends]
    for line, start, end, is_outside in zip(lines, starts.tolist(), ends.tolist(), outside.tolist(), strict=True):
        if is_outside:
            yield line
            continue
        span = slice(start, end)
        for owner, run in _runs(owners[span], letters[span]):
            if owner < 0:
                first, end = run.numbers[[0, -1]].tolist()
                yield PageLine(write_letters(run.numbers, text), run.area, first, end + 1, line.size, line.bold)
            elif owner not in inserted:
                inserted.add(owner)
                table = tables[owner]
                for cells, area in zip(table.rows, table.areas, strict=True):
                    yield PageLine(" | ".join(cells), area, table=table)


def _runs(owners: Any, letters: Letters) -> Iterator[tuple[int, Letters]]:
    turns = (np.diff(owners) != 0).nonzero()[0] + 1
    for start, stop in pairwise([0, *turns.tolist(), len(owners)]):
        yield int(owners[start]), letters[start:stop]
