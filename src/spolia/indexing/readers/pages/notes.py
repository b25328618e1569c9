"""What was written onto a page after it was made: filled fields of a form, comments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_ushort, sizeof
from itertools import islice
from typing import Any

from pypdfium2 import raw

from spolia.indexing.readers.pages.area import Area, Sheet
from spolia.indexing.readers.pages.bulk import notes
from spolia.indexing.readers.pages.line import NO_TEXT, Line

_MOST = 2_000
_LONGEST = 100_000
_SILENT = (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP)


def notes_of(page: Any, form: Any, sheet: Sheet) -> Iterator[Line]:
    """A line for each filled field (`Name: value`) and each comment, after all other text of the page.

    Args:
        form: PDFium's form of the document; None where it has none.
    """
    for number, kind in enumerate(islice(notes(page), _MOST)):
        note = raw.FPDFPage_GetAnnot(page.raw, number) if kind not in _SILENT else None
        if not note:
            continue
        try:
            if words := _words(note, form):
                yield Line(words, _area(note, sheet))
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


def _area(note: Any, sheet: Sheet) -> Area:
    box = raw.FS_RECTF()
    raw.FPDFAnnot_GetRect(note, byref(box))
    return sheet.area(box.left, box.bottom, box.right, box.top)
