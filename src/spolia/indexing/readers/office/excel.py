"""XLSX, XLSM, XLS: the cells of each sheet; rejects files that would fill the memory ([MS-CFB], [MS-XLS])."""

import io
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

from spolia.deferred import python_calamine as calamine
from spolia.errors import DocumentError, require
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.layout import BLANK_LINE, Layout
from spolia.indexing.readers.office.number_formats import format_value, plain_number
from spolia.indexing.readers.office.package import (
    core_properties,
    hidden_warning,
    locked_error,
    package_bytes,
    read_package,
    report_damage,
)
from spolia.indexing.readers.office.sheet_drawings import write_drawings
from spolia.indexing.readers.office.sheet_styles import ERRORS, NO_STYLES, SheetStyles, sheet_styles
from spolia.indexing.readers.reader import OLD_OFFICE, Blob, Reading
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Meta, Value

_FAT_IN_HEADER, _HEADER, _ENTRY, _NAME, _START = 76, 512, 128, 64, 116
_NO_SECTOR = 0xFFFFFFFA
"""Numbers from here on are no sectors."""
_SMALL, _WORD = 64, 1 << 32
_LOCKED, _SHEET, _SIZE, _END, _MANY = 0x002F, 0x0085, 0x0200, 0x000A, 0x00BD
_CELLS = frozenset([0x0006, _MANY, 0x00D6, 0x00FD, 0x0203, 0x0204, 0x0205, 0x027E])


def needed_cells(data: bytes) -> int:
    """Return how many cells the library makes room for: those of the rectangles that all sheets fill, or that one
    states."""
    book = _CompoundFile(data).stream("workbook", "book")
    sheets = [_rectangles(book, start) for start in _sheet_starts(book)]
    return max([sum(filled for filled, _ in sheets), *(stated_cells for _, stated_cells in sheets)])


class _CompoundFile:
    """OLE compound file. Streams are chains of sectors; those of small ones lie within another stream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        (shift,) = struct.unpack_from("<H", data, 30)
        directory, self._cutoff, small, next_table = (
            struct.unpack_from("<I", data, offset)[0] for offset in (48, 56, 60, 68)
        )
        if shift not in (9, 12):
            raise ValueError(f"its sectors have 2^{shift} bytes")
        self._size = 1 << shift
        self._next = _check_chains(_numbers(b"".join(map(self._sector, self._table_sectors(next_table)))))
        entries = self._chain(directory)
        self._entries = [entries[offset : offset + _ENTRY] for offset in range(0, len(entries) - _ENTRY + 1, _ENTRY)]
        self._small_next = _check_chains(_numbers(self._chain(small)))

    def stream(self, *names: str) -> bytes:
        """Return the content of the first stream with one of these names."""
        for entry in self._entries:
            (length,) = struct.unpack_from("<H", entry, _NAME)
            if entry[: max(0, min(length, _NAME) - 2)].decode("utf-16-le", "replace").lower() in names:
                start, size = struct.unpack_from("<II", entry, _START)
                return (self._small_chain(start) if size < self._cutoff else self._chain(start))[:size]
        raise ValueError("there is no workbook in it")

    def _table_sectors(self, next_table: int) -> Iterator[int]:
        """Yield the sectors of the table of successors. The header names the first of them."""
        yield from (number for number in _numbers(self._data[_FAT_IN_HEADER:_HEADER]) if number < _NO_SECTOR)
        visited = set[int]()
        while next_table < _NO_SECTOR and (sector := self._sector(next_table)):
            if next_table in visited:
                raise ValueError("its sectors go in circles")
            visited.add(next_table)
            *numbers, next_table = _numbers(sector.ljust(self._size, b"\xff"))
            yield from (number for number in numbers if number < _NO_SECTOR)

    def _sector(self, number: int) -> bytes:
        return self._data[(number + 1) * self._size : (number + 2) * self._size]

    def _chain(self, start: int) -> bytes:
        return b"".join(map(self._sector, _follow_chain(start, self._next)))

    def _small_chain(self, start: int) -> bytes:
        (root,) = struct.unpack_from("<I", self._entries[0], _START)
        content = self._chain(root)
        return b"".join(
            content[number * _SMALL : (number + 1) * _SMALL] for number in _follow_chain(start, self._small_next)
        )


def _numbers(content: bytes) -> tuple[int, ...]:
    return struct.unpack_from(f"<{len(content) // 4}I", content)


def _check_chains(successors: Sequence[int]) -> Sequence[int]:
    """Return the successor of each sector. Raises ValueError for a cycle, which the library would follow for ever."""
    first_start = [0] * len(successors)
    for start in range(len(successors)):
        sector = start
        while sector < len(successors) and not first_start[sector]:
            first_start[sector] = start + 1
            sector = successors[sector]
        if sector < len(successors) and first_start[sector] == start + 1:
            raise ValueError("its sectors go in circles")
    return successors


def _follow_chain(start: int, successors: Sequence[int]) -> Iterator[int]:
    while start < len(successors):
        yield start
        start = successors[start]


def _records(book: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    while offset + 4 <= len(book):
        kind, length = struct.unpack_from("<HH", book, offset)
        if kind == _END:
            return
        yield kind, book[offset + 4 : offset + 4 + length]
        offset += 4 + length


def _sheet_starts(book: bytes) -> Iterator[int]:
    """Yield where the sheets begin; nothing for a locked book, whose records are encrypted."""
    for kind, content in _records(book, 0):
        if kind == _LOCKED:
            return
        if kind == _SHEET:
            yield struct.unpack_from("<I", content)[0]


def _rectangles(book: bytes, start: int) -> tuple[int, int]:
    """Return the cells of the rectangle that a sheet fills, and of the one that it states, counted in 32 bits as the
    library does."""
    rows, columns, stated_cells = list[int](), list[int](), 0
    for kind, content in _records(book, start):
        if kind in _CELLS and len(content) >= 4:
            row, column = struct.unpack_from("<HH", content)
            rows.append(row)
            columns.append(column)
            if kind == _MANY:
                columns.append(struct.unpack_from("<H", content, len(content) - 2)[0])
        elif kind == _SIZE and len(content) >= 8:
            first, last, first_column, last_column = struct.unpack_from(
                "<4H" if len(content) < 12 else "<IIHH", content
            )
            stated_cells = max(
                stated_cells, last * last_column, (last - first) % _WORD * ((last_column - first_column) % _WORD)
            )
    return (max(rows) - min(rows) + 1) * (max(columns) - min(columns) + 1) if rows else 0, stated_cells


LARGEST_CELLS = 20_000_000
"""Cells of the rectangle that a sheet fills at most, the empty ones too; the library makes all of them."""
_PLACE = re.compile(rb"<(?:\w+:)?(row|c)\b(?:[^<>]*?\sr=[\"']\$?([A-Z]{0,3})\$?(\d{1,7})[\"'])?")
_PIECE = 1 << 20
# A tag may be cut at the end of a piece; a cut one is searched again with the next piece.
_TAIL = 300


@dataclass(frozen=True)
class XlsxReader(Value):
    """Reader of XLSX, also with macros, which are not run, and XLS.

    A sheet is a page that begins with its name as heading. Rows without a gap are a table, those of a single column
    paragraphs; texts of shapes follow. Cells are read as Excel shows them, by their formats; a formula counts as the
    value that it had when the file was saved, and one without is counted as dropped. Hidden sheets are pages without
    text, and a warning says how many there are. Pictures, charts, comments and macros are counted as dropped.
    """

    name = "xlsx"
    version = 5
    media_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    suffixes = (".xlsx", ".xlsm", ".xltx", ".xls")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        require(calamine, f"Reading {blob.uri}")
        if blob.data.startswith(OLD_OFFICE) and blob.uri.lower().endswith(".xls"):
            with report_damage(blob, "XLS"):
                # Before the library opens the file: it makes room for all cells.
                _refuse_cells(blob, "the sheets", needed_cells(blob.data))
                try:
                    return self._read(blob, io.BytesIO(blob.data), Layout(), {})
                except calamine.PasswordError as error:
                    raise locked_error(blob) from error
        return read_package(blob, "XLSX", partial(self._read_package, blob))

    def _read_package(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        _refuse_wide(blob, archive)
        layout = Layout(failures)
        styles = failures.attempt("part", lambda: sheet_styles(archive), {})
        title, meta = failures.attempt("metadata part", lambda: core_properties(archive), ("", ()))
        dropped = _count_dropped(archive.namelist(), sum(style.unsaved for style in styles.values()))
        return self._read(blob, package_bytes(archive), layout, styles, title, meta, dropped, archive)

    def _read(
        self,
        blob: Blob,
        file: io.BytesIO,
        layout: Layout,
        styles: Mapping[str, SheetStyles],
        title: str = "",
        meta: Meta = (),
        dropped: Mapping[str, int] = MappingProxyType({}),
        archive: zipfile.ZipFile | None = None,
    ) -> Reading:
        pages, empty = list[int](), list[int]()
        with _report_panics(), calamine.CalamineWorkbook.from_filelike(file) as book:
            sheets = [sheet for sheet in book.sheets_metadata if sheet.typ == calamine.SheetTypeEnum.WorkSheet]
            visible_names = [sheet.name for sheet in sheets if sheet.visible == calamine.SheetVisibleEnum.Visible]
            for name in (sheet.name for sheet in sheets):
                if name not in visible_names:
                    pages.append(len(layout))  # so that those after it keep their numbers
                    continue
                layout.gap(BLANK_LINE)
                mark = layout.mark()
                layout.write_heading(name, 1)
                pages.append(mark.start)
                length = len(layout)
                style = styles.get(name, NO_STYLES)
                layout.attempt("sheet", partial(_write_book_sheet, layout, book, name, style))
                if archive is not None:
                    layout.attempt("drawing", partial(write_drawings, layout, archive, style.part))
                if len(layout) == length:
                    empty.append(len(pages))
        warnings = hidden_warning(len(sheets) - len(visible_names), "sheet")
        meta += fields(sheet=visible_names)
        return layout.build_reading(
            self, blob, title=title, pages=pages, meta=meta, empty_pages=empty, dropped=dropped, warnings=warnings
        )


def _write_book_sheet(layout: Layout, book: Any, name: str, styles: SheetStyles) -> None:
    with _report_panics():
        write_sheet(layout, _rows(book.get_sheet_by_name(name), styles), name)


@contextmanager
def _report_panics() -> Iterator[None]:
    """Raise the library's panics, which are no `Exception`, as ValueError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ValueError(str(error)) from error
        raise


def _rows(sheet: Any, styles: SheetStyles) -> Iterator[list[str]]:
    """Yield the rows of a sheet. An empty row, of which there may be very many, has no cells."""
    _, first_column = sheet.start or (0, 0)  # the library gives the empty rows above, and not the empty columns before
    for number, row in enumerate(sheet.iter_rows()):
        cells = styles.cells.get(number)
        if cells is None:
            yield [] if row == [""] * len(row) else [_plain_cell(cell) for cell in row]
        else:
            yield [
                cell_text(cell, cells[col]) if col in cells else _plain_cell(cell)
                for col, cell in enumerate(row, first_column)
            ]


def cell_text(cell: object, code: str) -> str:
    """Return a cell as its format shows it. An error cell, which the library leaves empty, has its name as format."""
    if code in ERRORS:
        return code
    if isinstance(cell, (float, date, time, timedelta)) and not isinstance(cell, bool):
        with suppress(ValueError, ArithmeticError, LookupError):  # a format that is none shows the value
            return format_value(cell, code)
    return _plain_cell(cell)


def write_sheet(layout: Layout, rows: Iterable[Sequence[str]], name: str) -> None:
    """Write the tables of a sheet, which are its rows without a gap."""
    for is_filled, block in groupby(rows, key=any):
        if is_filled:
            _write_block(layout, list(block), name)


def _write_block(layout: Layout, rows: Sequence[Sequence[str]], caption: str) -> None:
    """Write rows that have no empty one between them, without the columns that are empty at both sides."""
    first = min(next(index for index, cell in enumerate(row) if cell) for row in rows)
    last = max(len(row) - next(index for index, cell in enumerate(reversed(row)) if cell) for row in rows)
    if last - first > 1:
        layout.write_table((row[first:last] for row in rows), caption=caption)
        return
    for row in rows:
        layout.write_paragraph(row[first])


def _plain_cell(cell: object) -> str:
    """Return a cell as a person reads it, without a number format."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float):
        return plain_number(cell)
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


def _refuse_cells(blob: Blob, subject: str, cells: int) -> None:
    if cells > LARGEST_CELLS:
        raise DocumentError(
            f"{blob.uri}: {subject} would fill {cells} cells, which are more than {LARGEST_CELLS} cells. Delete the "
            "cells far out, or save the sheet as CSV."
        )


def _extent(archive: zipfile.ZipFile, name: str) -> tuple[int, int]:
    """Return how many columns and rows a sheet's cells reach. Cells and rows without a reference follow the previous
    one."""
    row = column = width = height = 0
    rest = b""
    with archive.open(name) as file:
        while piece := file.read(_PIECE):
            text = rest + piece
            end = text.rfind(b"<", 0, -_TAIL) if len(piece) == _PIECE else len(text)
            for place in _PLACE.finditer(text, 0, max(0, end)):
                if place[1] == b"row":
                    row, column = int(place[3] or row + 1), 0
                else:
                    column = _column_number(place[2]) or column + 1
                    row = int(place[3] or row)
                width, height = max(width, column), max(height, row)
            rest = text[max(0, end) :]
    return width, height


def _column_number(letters: bytes | None) -> int:
    number = 0
    for letter in letters or b"":
        number = number * 26 + letter - 64
    return number


def _count_dropped(names: list[str], unsaved: int) -> dict[str, int]:
    kinds = ("charts", "charts/chart"), ("comments", "comments"), ("macros", "vbaProject.bin"), ("pictures", "media/")
    counts = {kind: sum(name.startswith(f"xl/{start}") for name in names) for kind, start in kinds}
    return counts | {"formulas without a saved value": unsaved}
