"""Pages that are pictures: drawn, and read by recognising their letters."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from spolia.indexing.readers.pages.file import ONE_AT_A_TIME
from spolia.indexing.readers.pages.noticed import Noticed
from spolia.indexing.readers.pages.page import Page
from spolia.indexing.readers.pictures.ocr import Ocr

_POINTS = 72.0
_MOST_PIXELS = 50_000_000


def recognised(pdf: Any, number: int, page: Page, ocr: Ocr | None, noticed: Noticed) -> Page:
    """A page without text, with what Tesseract finds on it; number: from 0."""
    lacking = ocr.lacking() if ocr else "it was not asked for (ocr=None)"
    if ocr is None or lacking:
        noticed.unseen.setdefault(lacking, []).append(number + 1)
        return page
    pixels, dpi = _drawn(pdf, number, ocr.dpi)
    found = ocr.recognise(pixels, dpi)
    if found.why:
        noticed.unseen.setdefault(found.why, []).append(number + 1)
    elif found.lines:
        noticed.recognised[number + 1] = found.sure
    return replace(page, lines=found.lines)


def _drawn(pdf: Any, number: int, dpi: float) -> tuple[Any, float]:
    """A page in grey and its dots per inch, which are fewer for a page of absurd size."""
    with ONE_AT_A_TIME, closing(pdf[number]) as page:
        width, height = (min(max(side, 1.0), 1e6) for side in page.get_size())
        dpi = min(dpi, _POINTS * (_MOST_PIXELS / (width * height)) ** 0.5)
        with closing(page.render(scale=dpi / _POINTS, grayscale=True)) as bitmap:
            pixels = bitmap.to_numpy()
            return (pixels[:, :, 0] if pixels.ndim == 3 else pixels).copy(), dpi
