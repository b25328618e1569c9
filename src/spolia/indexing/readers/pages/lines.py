"""The lines of a page and where they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pypdfium2 import raw

from spolia.indexing.readers.pages.area import Area, Sheet
from spolia.indexing.readers.pages.bulk import rectangles
from spolia.indexing.readers.pages.line import NO_TEXT, Line

_LINE = re.compile("[^\r\n\ufffe]*[^\r\n\ufffe \t][^\r\n\ufffe]*\ufffe*")

_NOWHERE = Area(0.0, 0.0, 0.0, 0.0)


def text_of(text_page: Any) -> str:
    """All characters of a page, one for each of PDFium's, so that places in it are places there."""
    text: str = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) != count:  # characters beyond 16 bits, and those without a meaning
        codes = (raw.FPDFText_GetUnicode(text_page, at) for at in range(count))
        text = "".join(chr(code) if 0 < code < 0x110000 else "\x00" for code in codes)
    return text


def lines_of(text_page: Any, text: str, sheet: Sheet) -> list[Line]:
    """The lines in the order of the file. One that holds no text is left out."""
    found = list(_LINE.finditer(text))
    texts = [line[0].strip() for line in found]
    if NO_TEXT.search(text):
        texts = [NO_TEXT.sub("", text).strip() for text in texts]
    areas = areas_of(text_page, [(line.start(), line.end() - line.start()) for line in found], sheet)
    return [Line(words, area, line.start()) for words, area, line in zip(texts, areas, found, strict=True) if words]


def areas_of(text_page: Any, spans: Sequence[tuple[int, int]], sheet: Sheet) -> list[Area]:
    """Where stretches of a page stand; nothing at the corner for those that stand nowhere.

    Args:
        spans: the first character of each, and how many.
    """
    sides, nowhere = rectangles(text_page, spans)
    areas = sheet.areas(sides)
    for number in nowhere.nonzero()[0]:
        areas[number] = _NOWHERE
    return areas
