"""How large and how bold the letters of a line are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ctypes import byref
from functools import lru_cache
from typing import Any

from pypdfium2 import raw

from spolia.indexing.readers.pages.bulk import fonts, sizes
from spolia.indexing.readers.pages.headings import may_be_heading
from spolia.indexing.readers.pages.line import Line

_BOLD = re.compile(rb"bold|black|heavy|[-,]?medi\b|cmbx|[-_,]b[di]?\b", re.IGNORECASE)
_SAMPLED = 4
_LARGEST = 1000.0
_USUAL = 4.0, 40.0


def measure(lines: Sequence[Line], text_page: Any) -> None:
    """Note the style of each line that may be a heading, and the size of every fourth one; the first letter decides."""
    for line in lines:
        line.heading = may_be_heading(line.text)
    asked = [line for number, line in enumerate(lines) if line.heading or not number % _SAMPLED]
    for line, size in zip(asked, sizes(text_page, [line.at for line in asked]), strict=True):
        if not _USUAL[0] < size < _USUAL[1]:  # then the file writes with letters of 1 point, enlarged
            size *= _enlarged(text_page, line.at)
        line.size = round(2 * size) / 2 if 0 < size < _LARGEST else 0.0
    headings = [line for line in asked if line.heading]
    for line, name in zip(headings, fonts(text_page, [line.at for line in headings]), strict=True):
        line.bold = _is_bold(name)


def _enlarged(text_page: Any, at: int) -> float:
    """How many times."""
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(text_page.raw, at, byref(matrix))
    return float(abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5)


@lru_cache(maxsize=1_024)
def _is_bold(font: bytes) -> bool:
    return bool(_BOLD.search(font))
