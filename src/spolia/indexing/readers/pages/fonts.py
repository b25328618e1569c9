"""How large and how bold the letters of a line are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ctypes import byref, c_int, create_string_buffer
from typing import Any

from pypdfium2 import raw

from spolia.indexing.readers.pages.headings import may_be_heading
from spolia.indexing.readers.pages.line import Line

_BOLD = re.compile(rb"bold|black|heavy|[-,]?medi\b|cmbx|[-_,]b[di]?\b", re.IGNORECASE)
_SAMPLED = 4
_LARGEST = 1000.0
_USUAL = 4.0, 40.0


def measure(lines: Iterable[Line], text_page: Any) -> None:
    """Note the style of each line that may be a heading, and the size of every fourth one; the first letter decides."""
    matrix, flags, name = raw.FS_MATRIX(), c_int(), create_string_buffer(200)
    page, to, also = text_page.raw, byref(matrix), byref(flags)
    for number, line in enumerate(lines):
        line.heading = may_be_heading(line.text)
        if not line.heading and number % _SAMPLED:
            continue
        size = raw.FPDFText_GetFontSize(page, line.at)
        if not _USUAL[0] < size < _USUAL[1]:  # then the file writes with letters of 1 point, enlarged
            raw.FPDFText_GetMatrix(page, line.at, to)
            size *= abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5
        line.size = round(2 * size) / 2 if 0 < size < _LARGEST else 0.0
        if line.heading:
            raw.FPDFText_GetFontInfo(page, line.at, name, len(name), also)
            line.bold = bool(_BOLD.search(name.value))
