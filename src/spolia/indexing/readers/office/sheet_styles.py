"""Properties of XLSX cells that the library lacks: number formats, errors, formulas without a saved value."""

import posixpath
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spolia.indexing.readers.office.number_formats import BUILT_IN, is_plain
from spolia.indexing.readers.safe_xml import parse_tree

ERRORS = frozenset(["#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A", "#GETTING_DATA", "#SPILL!",
                    "#CALC!", "#FIELD!", "#BLOCKED!", "#CONNECT!", "#BUSY!", "#UNKNOWN!"])  # fmt: skip
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_REFERENCE, _STYLE = re.compile(rb"\sr=[\"']([A-Z]{1,3})(\d{1,7})[\"']"), re.compile(rb"\ss=[\"'](\d{1,6})[\"']")
_ERROR = re.compile(rb"(?:<(?:\w+:)?f\b[^<>]*(?:/>|>[^<]*</(?:\w+:)?f>))?\s*<(?:\w+:)?v>([^<]{1,20})<")
_UNSAVED = re.compile(
    rb"<(?:\w+:)?c\b(?![^<>]*\st=[\"']str[\"'])[^<>]*>\s*<(?:\w+:)?f\b[^<>]*(?:/>|>[^<]*</(?:\w+:)?f>)"
    rb"\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)


class SheetStyles(NamedTuple):
    """Cells of a sheet that are not shown as they are saved.

    `cells`: by row and column, from 0, the format code, or the name of the error. `unsaved`: formulas without a value.
    `part`: name of the sheet's part.
    """

    cells: Mapping[int, Mapping[int, str]]
    unsaved: int = 0
    part: str = ""


NO_STYLES = SheetStyles({})


def sheet_styles(archive: zipfile.ZipFile) -> dict[str, SheetStyles]:
    """Return the styles of each sheet, by its name."""
    names = set(archive.namelist())
    codes = _codes(archive) if "xl/styles.xml" in names else {}
    special = "|".join(map(str, sorted(codes)))
    styled = rf"s=[\"'](?:{special})[\"']|" if special else ""
    cell = re.compile(rf"<(?:\w+:)?c\b(?=[^<>]*\s(?:{styled}t=[\"']e[\"']))[^<>]*>".encode())
    return {
        name: _read_styles(archive.read(path), cell, codes)._replace(part=path)
        for name, path in _sheets(archive)
        if path in names
    }


def _read_styles(sheet: bytes, cell: re.Pattern[bytes], codes: Mapping[int, str]) -> SheetStyles:
    cells: dict[int, dict[int, str]] = {}
    for tag in cell.finditer(sheet):
        place, style = _REFERENCE.search(tag[0]), _STYLE.search(tag[0])
        error = _ERROR.match(sheet, tag.end()) if b't="e"' in tag[0] or b"t='e'" in tag[0] else None
        code = error[1].decode("ascii", "replace") if error else codes.get(int(style[1])) if style else None
        if place is not None and code is not None and not tag[0].endswith(b"/>"):
            cells.setdefault(int(place[2]) - 1, {})[_column(place[1])] = code
    return SheetStyles(cells, len(_UNSAVED.findall(sheet)))


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number - 1


def _codes(archive: zipfile.ZipFile) -> dict[int, str]:
    """Return the format codes of the styles that change how values look, by the style's number."""
    root = parse_tree(archive.read("xl/styles.xml"), "xl/styles.xml")
    codes = dict(BUILT_IN)
    for number_format in root.iterfind(f"{_MAIN}numFmts/{_MAIN}numFmt"):
        codes[int(number_format.get("numFmtId") or 0)] = number_format.get("formatCode") or ""
    styles = enumerate(root.iterfind(f"{_MAIN}cellXfs/{_MAIN}xf"))
    style_codes = {number: codes.get(int(style.get("numFmtId") or 0), "") for number, style in styles}
    return {number: code for number, code in style_codes.items() if not is_plain(code)}


def _sheets(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Yield the names of the sheets and of their parts."""
    relations = parse_tree(archive.read("xl/_rels/workbook.xml.rels"), "workbook.xml.rels")
    targets = {relation.get("Id"): relation.get("Target") or "" for relation in relations}
    for sheet in parse_tree(archive.read("xl/workbook.xml"), "xl/workbook.xml").iter(f"{_MAIN}sheet"):
        path = posixpath.normpath(posixpath.join("/xl", targets.get(sheet.get(_ID), "")))
        yield sheet.get("name") or "", path.lstrip("/")
