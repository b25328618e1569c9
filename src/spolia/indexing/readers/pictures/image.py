"""Pictures as documents: what they say of themselves, and the text in them, recognised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.indexing.readers.pages.area import Area
from spolia.indexing.readers.pages.binding import bound
from spolia.indexing.readers.pages.leaf import Leaf
from spolia.indexing.readers.pages.line import Line
from spolia.indexing.readers.pages.writing import written
from spolia.indexing.readers.pictures.described import description_of
from spolia.indexing.readers.pictures.frames import dpi_of, grey, opened, pages_of
from spolia.indexing.readers.pictures.ocr import OCR, Ocr, Recognised
from spolia.indexing.readers.reading import Blob, Reading
from spolia.types import Box, Region, Value

_POINTS = 72.0
_SMALL = 1500
"""Dots along the shorter side: of less, letters are known better when enlarged."""
_LEAST_SURE = 60.0


@dataclass(frozen=True)
class ImageReader(Value):
    """Reads PNG, JPEG, GIF, WebP, TIFF and BMP: the description in the file, then the text that Tesseract finds.

    The whole document is one region with the picture, so that it can be a node of its own. The pages of a TIFF are
    pages; of an animation the first picture is read.

    Args:
        ocr: how text is recognised, if Tesseract is installed; None for not at all.
    """

    ocr: Ocr | None = OCR

    name = "image"
    version = 1
    media_type = "image"
    suffixes = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with opened(blob) as image:
            kind, (width, height) = str(image.format), _points(image)
            description = description_of(image)
            found = [self._recognised(page) for page in pages_of(image, blob)]
            others = 0 if kind == "TIFF" else getattr(image, "n_frames", 1) - 1
        whole = Area(0.0, 0.0, width, height)
        first = [Line(description, whole)] if description else []
        lines = [[*(first if number == 1 else ()), *page.lines] for number, page in enumerate(found, 1)]
        made = bound([Leaf(written(page, number)) for number, page in enumerate(lines, 1)], [])
        region = Region("image", 0, len(made.text), image=blob.content_hash, caption=description, box=Box(1, *whole))
        pages = made.starts if len(found) > 1 else ()
        document = blob.document(self, made.text, pages=pages, regions=(region,), boxes=made.boxes)
        return Reading(
            document.but(media_type=f"image/{kind.lower()}"),
            empty_pages=tuple(number for number, page in enumerate(lines, 1) if not page),
            ocr_pages=tuple(number for number, page in enumerate(found, 1) if page.lines),
            dropped=(("further pictures", others),) if others else (),
            images=(blob,),
            warnings=tuple(dict.fromkeys(_warnings(found))),
            lacks=self.lacking() if any(page.why for page in found) else "",
        )

    def lacking(self) -> str:
        """What is missing to read the text in pictures."""
        return self.ocr.lacking() if self.ocr else ""

    def _recognised(self, page: Any) -> Recognised:
        """The text of a page; `why` there is none if it could not be looked for."""
        import numpy as np

        why = self.ocr.lacking() if self.ocr else "it was not asked for (ocr=None)"
        dots, dpi = grey(page), dpi_of(page)  # decoded in any case: a damaged picture is none
        if why or not self.ocr:
            return Recognised(why=why)
        if min(dots.size) < _SMALL and dots.width * dots.height < 2 * _SMALL**2:
            dots, dpi = dots.resize((2 * dots.width, 2 * dots.height)), 2 * dpi
        return self.ocr.recognise(np.asarray(dots), dpi)


def _points(image: Any) -> tuple[float, float]:
    scale = _POINTS / dpi_of(image)
    return image.size[0] * scale, image.size[1] * scale


def _warnings(found: list[Recognised]) -> Iterator[str]:
    for page in found:
        if page.why:
            yield f"The text in the picture was not read; it needs OCR: {page.why}."
        elif page.lines and page.sure < _LEAST_SURE:
            yield f"The text recognised in the picture may be wrong: Tesseract is sure of {page.sure:.0f} % of it."
