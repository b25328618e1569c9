"""PDFium asked for many things at once.

A page has thousands of characters, lines and objects, and a call through the types of pypdfium2 costs several times
what PDFium does in it. Here addresses are plain numbers, and what is found goes into one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ctypes import PYFUNCTYPE, addressof, c_double, c_int, c_ulong, c_void_p, cast, create_string_buffer
from itertools import repeat
from typing import Any

import numpy as np
from pypdfium2 import raw


def _plain(function: Any, result: Any, *arguments: Any) -> Any:
    """A function of PDFium that takes addresses as numbers. No other thread runs meanwhile: a call takes less time."""
    return PYFUNCTYPE(result, *arguments)(cast(function, c_void_p).value or 0)


_count = _plain(raw.FPDFText_CountRects, c_int, c_void_p, c_int, c_int)
_rectangle = _plain(raw.FPDFText_GetRect, c_int, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p)
_box = _plain(raw.FPDFText_GetLooseCharBox, c_int, c_void_p, c_int, c_void_p)
_size = _plain(raw.FPDFText_GetFontSize, c_double, c_void_p, c_int)
_font = _plain(raw.FPDFText_GetFontInfo, c_ulong, c_void_p, c_int, c_void_p, c_ulong, c_void_p)
_object = _plain(raw.FPDFPage_GetObject, c_void_p, c_void_p, c_int)
_kind = _plain(raw.FPDFPageObj_GetType, c_int, c_void_p)
_note = _plain(raw.FPDFPage_GetAnnot, c_void_p, c_void_p, c_int)
_note_kind = _plain(raw.FPDFAnnot_GetSubtype, c_int, c_void_p)
_close_note = _plain(raw.FPDFPage_CloseAnnot, None, c_void_p)
_FONT_NAME = 200


def address(of: Any) -> int:
    """Where something of pypdfium2 lies."""
    found: int = cast(of.raw, c_void_p).value or 0
    return found


def rectangles(text_page: Any, spans: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """Where stretches of a page stand, which may be of several fonts.

    Args:
        spans: the first character of each, and how many.

    Returns:
        For each its left, bottom, right and top side in the coordinates of the file, n × 4; and which of them stand
        nowhere, n.
    """
    handle, number = address(text_page), 0
    sides = np.empty((sum(count for _, count in spans), 4))
    to, step = sides.ctypes.data, sides.strides[0]
    counts = np.zeros(len(spans), dtype=np.intp)
    for place, (start, characters) in enumerate(spans):
        counts[place] = count = max(0, min(_count(handle, start, characters), characters))
        for each in range(count):
            _rectangle(handle, each, to, to + 8, to + 16, to + 24)
            to += step
        number += count
    found = np.zeros((len(spans), 4))
    placed = counts > 0
    firsts = (np.cumsum(counts) - counts)[placed]
    if number:
        for side, least, column in ((0, np.minimum, 0), (1, np.minimum, 3), (2, np.maximum, 2), (3, np.maximum, 1)):
            found[placed, side] = least.reduceat(sides[:number, column], firsts)
    return found, ~placed


def boxes(text_page: Any, numbers: Sequence[int]) -> tuple[Any, Any]:
    """Where characters stand, of one height for all of a font. Returns for each its left, bottom, right and top side in
    the coordinates of the file, n × 4; and which of them stand nowhere, n."""
    found = np.zeros((len(numbers), 4), dtype=np.float32)  # FS_RECTF: left, top, right, bottom
    first, step = found.ctypes.data, found.strides[0]
    addresses = range(first, first + step * len(numbers), step)
    placed = list(map(_box, repeat(address(text_page)), numbers, addresses))
    return found[:, [0, 3, 2, 1]].astype(float), ~np.array(placed, dtype=bool)


def sizes(text_page: Any, numbers: Iterable[int]) -> Iterator[float]:
    """The sizes of characters as the file states them."""
    return map(_size, repeat(address(text_page)), numbers)


def fonts(text_page: Any, numbers: Iterable[int]) -> Iterator[bytes]:
    """The names of the fonts of characters."""
    handle, name, flags = address(text_page), create_string_buffer(_FONT_NAME), c_int()
    to, also = addressof(name), addressof(flags)
    for number in numbers:
        _font(handle, number, to, _FONT_NAME, also)
        yield name.value


def kinds(page: Any) -> Iterator[int]:
    """What the objects of a page are, as PDFium numbers them."""
    handle = address(page)
    return map(_kind, map(_object, repeat(handle), range(raw.FPDFPage_CountObjects(page.raw))))


def notes(page: Any) -> Iterator[int]:
    """What the notes on a page are, links among them, as PDFium numbers them."""
    handle = address(page)
    for number in range(raw.FPDFPage_GetAnnotCount(page.raw)):
        note = _note(handle, number)
        yield _note_kind(note) if note else raw.FPDF_ANNOT_UNKNOWN
        _close_note(note)
