"""The lines of a page and where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import byref, c_double
from typing import Any

from pypdfium2 import raw

from spolia.indexing.readers.pages.area import Area, Sheet
from spolia.indexing.readers.pages.line import NO_TEXT, Line

_LINE = re.compile("[^\r\n\ufffe]*[^\r\n\ufffe \t][^\r\n\ufffe]*\ufffe*")

_count, _get = raw.FPDFText_CountRects, raw.FPDFText_GetRect


def text_of(text_page: Any) -> str:
    """All characters of a page, one for each of PDFium's, so that places in it are places there."""
    text: str = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) != count:  # characters beyond 16 bits, and those without a meaning
        codes = (raw.FPDFText_GetUnicode(text_page, at) for at in range(count))
        text = "".join(chr(code) if 0 < code < 0x110000 else "\x00" for code in codes)
    return text


def lines_of(text_page: Any, text: str, sheet: Sheet) -> Iterator[Line]:
    """The lines in the order of the file. One that holds no text is left out."""
    area, clean = Where(text_page, sheet).area, not NO_TEXT.search(text)
    for found in _LINE.finditer(text):
        words = (found[0] if clean else NO_TEXT.sub("", found[0])).strip()
        if words:
            start, end = found.span()
            yield Line(words, area(start, end - start), start)


class Where:
    """Where characters of a page stand."""

    def __init__(self, text_page: Any, sheet: Sheet) -> None:
        self._page, self._sheet = text_page.raw, sheet
        self._sides = c_double(), c_double(), c_double(), c_double()  # left, top, right, bottom
        self._to = tuple(map(byref, self._sides))

    def area(self, start: int, count: int) -> Area:
        """That of some characters, which may be of several fonts; nothing at the corner for those without a place."""
        page, to = self._page, self._to
        left, top, right, bottom = self._sides
        rectangles = _count(page, start, count)
        if rectangles < 1 or not _get(page, 0, *to):
            return Area(0.0, 0.0, 0.0, 0.0)
        a, b, c, d = left.value, bottom.value, right.value, top.value
        for number in range(1, rectangles):
            _get(page, number, *to)
            if left.value < a:
                a = left.value
            if bottom.value < b:
                b = bottom.value
            if right.value > c:
                c = right.value
            if top.value > d:
                d = top.value
        return self._sheet.area(a, b, c, d)
