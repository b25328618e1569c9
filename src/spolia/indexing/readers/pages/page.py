"""A page of a PDF, read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from pypdfium2 import PdfiumError, raw

from spolia.indexing.readers.pages.area import Sheet
from spolia.indexing.readers.pages.bidi import read_from_the_right
from spolia.indexing.readers.pages.drawn import drawn_on
from spolia.indexing.readers.pages.fonts import measure
from spolia.indexing.readers.pages.grids import Grid, grids_of
from spolia.indexing.readers.pages.letters import Letter, area_of, letters_of, written
from spolia.indexing.readers.pages.line import Line
from spolia.indexing.readers.pages.lines import areas_of, lines_of, text_of
from spolia.indexing.readers.pages.notes import notes_of
from spolia.indexing.readers.pages.order import in_order
from spolia.indexing.readers.pages.pictures import Picture, pictures_of
from spolia.indexing.readers.pages.tables import Table, tables_of


@dataclass(frozen=True)
class Wanted:
    """What is read of pages besides their text.

    Args:
        tables: the cells of tables.
        pictures: the bytes of pictures.
        styles: sizes of letters, to find headings by.
        form: PDFium's form of the document.
    """

    tables: bool = True
    pictures: bool = False
    styles: bool = True
    form: Any = None


@dataclass(frozen=True)
class Page:
    """What was read.

    Args:
        lines: in the order in which a person reads them; rows of tables among them.
        pictures: in the order of the file.
        dropped: what was seen and not read, and how many.
        blank: whether there is nothing on it at all.
        why: it could not be read, if it could not.
    """

    lines: Sequence[Line] = ()
    pictures: Sequence[Picture] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    blank: bool = False
    why: str = ""


def page_of(pdf: Any, number: int, wanted: Wanted) -> Page:
    """Read a page, from 0; nothing of it stays in PDFium. One that is damaged is empty and says why."""
    try:
        with closing(pdf[number]) as page, closing(page.get_textpage()) as text_page:
            return _read(page, text_page, wanted)
    except PdfiumError as error:
        return Page(why=str(error))


def _read(page: Any, text_page: Any, wanted: Wanted) -> Page:
    sheet = Sheet.of(page)
    text = text_of(text_page)
    if not text.isascii():
        text = read_from_the_right(text, lambda numbers: areas_of(text_page, [(at, 1) for at in numbers], sheet))
    lines = lines_of(text_page, text, sheet)
    if wanted.styles:
        measure(lines, text_page)
    drawn = drawn_on(page, sheet)
    if wanted.tables and (grids := list(grids_of(drawn))):
        letters = letters_of(text_page, text, _within(grids, lines, len(text)), sheet)
        if tables := tables_of(grids, letters, text):
            lines = list(_with_tables(lines, tables, letters, text))
    lines = [*in_order(lines), *notes_of(page, wanted.form, sheet)]
    pictures, dropped = pictures_of(drawn.pictures, sheet.size, text=bool(lines), data=wanted.pictures)
    counted = {"pictures": dropped, "drawings": int(drawn.passed_over)}
    blank = not lines and not raw.FPDFPage_CountObjects(page)
    return Page(lines, pictures, {name: count for name, count in counted.items() if count}, blank)


def _within(grids: list[Grid], lines: list[Line], end: int) -> Iterator[tuple[int, int]]:
    """The stretches of the lines of which a part stands in a grid."""
    areas = [grid.area for grid in grids]
    for line, stop in zip(lines, [*(line.at for line in lines[1:]), end], strict=True):
        if any(area.meets(line.area) for area in areas):
            yield line.at, stop


def _with_tables(lines: list[Line], tables: list[Table], letters: list[Letter], text: str) -> Iterator[Line]:
    """The lines, with the rows of each table in place of its letters, where the first of them stands."""
    owner = {at: table for table in tables for at in table.letters}
    numbers = [letter.at for letter in letters]
    put: set[int] = set()
    ends = [line.at for line in lines[1:]] + [len(text)]
    for line, end in zip(lines, ends, strict=True):
        own = letters[bisect_left(numbers, line.at) : bisect_left(numbers, end)]
        owners = [owner.get(letter.at) for letter in own]
        if not any(owners):
            yield line
            continue
        for table, run in _runs(own, owners):
            if table is None:
                yield Line(written(run, text), area_of(run), run[0].at, line.size, line.bold)
            elif id(table) not in put:
                put.add(id(table))
                yield from _rows(table)


def _runs(letters: list[Letter], owners: list[Table | None]) -> Iterator[tuple[Table | None, list[Letter]]]:
    start = 0
    for at in range(1, len(letters) + 1):
        if at == len(letters) or owners[at] is not owners[start]:
            yield owners[start], letters[start:at]
            start = at


def _rows(table: Table) -> Iterator[Line]:
    for cells, area in zip(table.rows, table.areas, strict=True):
        yield Line(" | ".join(cells), area, table=table)
