"""XLSX and XLS: sheets are pages under a heading of their name; blocks of rows are tables."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import groupby
from typing import Any

from spolia.errors import DocumentError, MissingExtra
from spolia.indexing.readers.fields import fields
from spolia.indexing.readers.layout import BLANK_LINE, Layout
from spolia.indexing.readers.office.old_excel import cells_of
from spolia.indexing.readers.office.packages import damaged, locked, package
from spolia.indexing.readers.office.properties import properties
from spolia.indexing.readers.reading import Blob, Reading
from spolia.indexing.readers.signatures import OLD_OFFICE
from spolia.types import Value

LARGEST_CELLS = 20_000_000
"""Cells of the rectangle that a sheet fills at most, the empty ones too; the library makes all of them."""
_PLACE = re.compile(rb"<(?:\w+:)?(row|c)\b(?:[^<>]*?\sr=[\"']\$?([A-Z]{0,3})\$?(\d{1,7})[\"'])?")
_PIECE = 1 << 20
_TAIL = 300


@dataclass(frozen=True)
class XlsxReader(Value):
    """Reads XLSX, also with macros, which are not run, and XLS.

    A sheet is a page that begins with its name as heading. Rows without a gap are a table, those of a single column
    paragraphs. A formula counts as the value that it had when the file was saved. Hidden sheets are read. Pictures,
    charts, comments and macros are counted as dropped.
    """

    name = "xlsx"
    version = 1
    media_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    suffixes = (".xlsx", ".xlsm", ".xltx", ".xls")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        try:
            import python_calamine
        except ImportError as error:
            raise MissingExtra("office", "python-calamine", f"Reading {blob.uri}") from error
        if blob.data.startswith(OLD_OFFICE) and blob.uri.lower().endswith(".xls"):
            try:
                _refuse_cells(blob, "the sheets", cells_of(blob.data))
                return self._read(blob, python_calamine)
            except DocumentError:
                raise
            except python_calamine.PasswordError as error:
                raise locked(blob) from error
            except Exception as error:  # the library raises whatever the damage leads to
                raise damaged(blob, "XLS", error) from error
        with package(blob, "XLSX", "xl/") as archive:
            _refuse_wide(blob, archive)
            reading = self._read(blob, python_calamine)
            title, meta = properties(archive)
            document = reading.document.but(title=title, meta=meta + reading.document.meta)
            return reading.but(document=document, dropped=_dropped(archive.namelist()))

    def _read(self, blob: Blob, calamine: Any) -> Reading:
        layout, pages, empty = Layout(), list[int](), list[int]()
        with _raised(), calamine.CalamineWorkbook.from_filelike(io.BytesIO(blob.data)) as book:
            sheets = [sheet.name for sheet in book.sheets_metadata if sheet.typ == calamine.SheetTypeEnum.WorkSheet]
            for name in sheets:
                layout.gap(BLANK_LINE)
                mark = layout.mark()
                layout.heading(name, 1)
                pages.append(mark.start)
                if not _write(layout, name, book.get_sheet_by_name(name)):
                    empty.append(len(pages))
        document = blob.document(
            self,
            layout.text(),
            pages=tuple(pages),
            headings=tuple(layout.headings),
            regions=layout.in_order(),
            meta=fields(sheet=sheets),
        )
        return Reading(document, empty_pages=tuple(empty))


@contextmanager
def _raised() -> Iterator[None]:
    """What the library panics at, which is no `Exception`, as an error like others."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ValueError(str(error)) from error
        raise


def _write(layout: Layout, name: str, sheet: Any) -> bool:
    """Write the tables of a sheet; whether there is anything."""
    rows = (_texts(row) for row in sheet.iter_rows())
    found = False
    for is_filled, block in groupby(rows, key=any):
        if is_filled:
            found = True
            write_block(layout, list(block), name)
    return found


def _texts(row: list[object]) -> list[str]:
    """The cells of a row in words; nothing of a row that is empty, of which there may be very many."""
    return [] if row == [""] * len(row) else [_said(cell) for cell in row]


def write_block(layout: Layout, rows: Sequence[Sequence[str]], caption: str) -> None:
    """Write rows that have no empty one between them, without the columns that are empty at both sides."""
    first = min(next(at for at, cell in enumerate(row) if cell) for row in rows)
    last = max(len(row) - next(at for at, cell in enumerate(reversed(row)) if cell) for row in rows)
    if last - first > 1:
        layout.table((row[first:last] for row in rows), caption=caption)
        return
    for row in rows:
        layout.gap(BLANK_LINE)
        layout.write(row[first])
    layout.gap(BLANK_LINE)


def _said(cell: object) -> str:
    """A cell as a person reads it."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else f"{cell:.15g}"
    if isinstance(cell, datetime):
        return cell.isoformat(" ") if cell.time() != time() else cell.date().isoformat()
    if isinstance(cell, (date, time, timedelta)):
        return str(cell)
    return str(cell).strip()


def _refuse_wide(blob: Blob, archive: zipfile.ZipFile) -> None:
    """Refuse sheets with a cell so far out that the library would fill the memory with empty ones."""
    for name in archive.namelist():
        if name.startswith("xl/worksheets/") and name.endswith(".xml"):
            width, height = _extent(archive, name)
            _refuse_cells(blob, f"a sheet of {height} rows and {width} columns", width * height)


def _refuse_cells(blob: Blob, what: str, cells: int) -> None:
    if cells > LARGEST_CELLS:
        raise DocumentError(
            f"{blob.uri}: {what} would fill {cells} cells, which are more than {LARGEST_CELLS} cells. Delete the cells "
            "far out, or save the sheet as CSV."
        )


def _extent(archive: zipfile.ZipFile, name: str) -> tuple[int, int]:
    """Columns and rows that a sheet's cells reach at most; cells and rows that name no place follow each other."""
    row = column = width = height = 0
    kept = b""
    with archive.open(name) as file:
        while piece := file.read(_PIECE):
            text = kept + piece
            end = text.rfind(b"<", 0, -_TAIL) if len(piece) == _PIECE else len(text)
            for place in _PLACE.finditer(text, 0, max(0, end)):
                if place[1] == b"row":
                    row, column = int(place[3] or row + 1), 0
                else:
                    column = _number(place[2]) or column + 1
                    row = int(place[3] or row)
                width, height = max(width, column), max(height, row)
            kept = text[max(0, end) :]
    return width, height


def _number(letters: bytes | None) -> int:
    found = 0
    for letter in letters or b"":
        found = found * 26 + letter - 64
    return found


def _dropped(names: list[str]) -> tuple[tuple[str, int], ...]:
    starts = {
        "charts": "xl/charts/chart",
        "comments": "xl/comments",
        "macros": "xl/vbaProject.bin",
        "pictures": "xl/media/",
    }
    counted = ((kind, sum(name.startswith(start) for name in names)) for kind, start in starts.items())
    return tuple((kind, count) for kind, count in counted if count)
