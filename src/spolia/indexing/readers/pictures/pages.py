"""Reading of pictures with Pillow: descriptions, pages and recognised text."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from struct import error as StructError
from typing import Any, Protocol

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from spolia.errors import DocumentError
from spolia.indexing.readers.pdf.document import assemble_document
from spolia.indexing.readers.pdf.geometry import Area
from spolia.indexing.readers.pdf.lines import NO_TEXT, PageLine, join_lines
from spolia.indexing.readers.pdf.page import PageText
from spolia.indexing.readers.pictures.ocr import Ocr, Recognition
from spolia.indexing.readers.reader import Blob, FileReader, ProgramReader, Reading, nonzero_counts
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Box, Region

_EXIF_DESCRIPTION, _EXIF_TITLE = 0x010E, 0x9C9B
_TEXT_KEYS = ("Description", "Title", "Comment", "comment")
_LONGEST = 10_000


def description_of(image: Any) -> str:
    """Return the first description in a picture of Pillow; empty without one."""
    exif = image.getexif()
    title = exif.get(_EXIF_TITLE)
    wide = bytes(title).decode("utf-16-le", "replace") if isinstance(title, (bytes, tuple)) else ""
    candidates = (exif.get(_EXIF_DESCRIPTION), wide, *(image.info.get(name) for name in _TEXT_KEYS))
    return next((words for value in candidates if (words := _words(value))), "")


def _words(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""
    return " ".join(NO_TEXT.sub("", text[:_LONGEST].replace("\0", "")).split())


_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
# A small file can state gigabytes of dots.
_MOST_PIXELS = 120_000_000
_MOST_PAGES = 1_000
# 65,535 / 255: from 16 bits a dot to 8.
_SIXTEEN_BITS = 257
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, StructError, OverflowError, IndexError, KeyError, TypeError)
"""What Pillow raises on damaged files, depending on their format."""


@contextmanager
def open_picture(blob: Blob) -> Iterator[Any]:
    """Open a picture with Pillow. Whatever fails while it is open becomes a `DocumentError`."""
    with blob.open() as file:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of damaged metadata, and of sizes that are looked at below
                # Without the list, Pillow tries all its formats, and its EPS plugin would start
                # Ghostscript.
                with Image.open(file, formats=_FORMATS) as image:
                    _refuse_huge(image, blob)
                    yield image
        except (*_BROKEN, Image.DecompressionBombError) as error:
            file.seek(0)  # pillow has read on, and the error shows how the file begins
            is_unknown = isinstance(error, UnidentifiedImageError)  # which names an object in memory, or a path
            reason = "it has no known format, or ends too early" if is_unknown else str(error) or type(error).__name__
            raise DocumentError(
                f"{blob.uri} is not a readable picture: {reason}; it has {blob.size} "
                f"bytes and begins with {file.read(8)!r}. Fetch or save it again with a program that opens it."
            ) from error


def pages_of(image: Any, blob: Blob) -> Iterator[Any]:
    """Yield the pages of a TIFF, or the first picture of another format."""
    count = _MOST_PAGES if image.format == "TIFF" else 1
    for number in range(count):
        try:
            image.seek(number)
        except EOFError:
            return
        # Each page of a TIFF has a size of its own.
        _refuse_huge(image, blob)
        yield image


def _refuse_huge(image: Any, blob: Blob) -> None:
    width, height = image.size
    if width * height > _MOST_PIXELS:
        raise DocumentError(
            f"{blob.uri} says that it is {width} × {height} dots large, and {_MOST_PIXELS:,} are the most that are "
            "decoded. Make it smaller, or take it out of the folder."
        )


def to_grey(image: Any) -> Any:
    """Convert the current page to grey on white, turned as it is meant to be seen."""
    picture = ImageOps.exif_transpose(image)
    # Pillow cuts 16 bits at 255 when it converts to grey, so that most is white.
    if picture.mode.startswith(("I", "F")):
        return Image.fromarray(np.clip(np.asarray(picture, np.float64) / _SIXTEEN_BITS, 0, 255).astype(np.uint8))
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture)
    return picture.convert("L")


def dpi_of(image: Any) -> float:
    """Return the dots per inch that a picture states; 72 if that is not plausible."""
    stated_dpi = image.info.get("dpi") or (0, 0)
    dpi = float(stated_dpi[0]) if isinstance(stated_dpi, tuple) and stated_dpi else 0.0
    return dpi if 30 <= dpi <= 2400 else 72.0


_POINTS = 72.0
_SMALL = 1500
"""Dots along the shorter side: of less, letters are known better when enlarged."""
_MINIMUM_CONFIDENCE = 60.0


_UNREADABLE = Recognition()


class PictureReader(FileReader, ProgramReader, Protocol):
    """Reader with the settings that pictures are read by."""

    @property
    def ocr(self) -> Ocr | None: ...


def read_picture(reader: PictureReader, blob: Blob) -> Reading:
    """Read the content of a picture."""
    failures = UnitFailures()
    with open_picture(blob) as image:
        kind, scale = str(image.format), _POINTS / dpi_of(image)
        width, height = (side * scale for side in image.size)
        description = failures.attempt("description", lambda: description_of(image), "")
        recognitions, following = list[Recognition](), partial(next, pages_of(image, blob), None)
        while (page := failures.attempt("page", following, _UNREADABLE)) is not None:
            recognise_page = partial(_recognise, reader.ocr, page)
            place = f"page {len(recognitions) + 1}"
            recognitions.append(
                page if page is _UNREADABLE else failures.attempt("page", recognise_page, _UNREADABLE, place=place)
            )
        if all(page is _UNREADABLE for page in recognitions):  # `is`: an empty page has an equal value and was read
            raise ValueError(" ".join(failures.warnings()).rstrip("."))
        further_pictures = 0 if kind == "TIFF" else getattr(image, "n_frames", 1) - 1
    page_area = Area(0.0, 0.0, width, height)
    first = [PageLine(description, page_area)] if description else []
    lines = [[*(first if number == 1 else ()), *page.lines] for number, page in enumerate(recognitions, 1)]
    content = assemble_document(
        [PageText(join_lines(page, number)) for number, page in enumerate(lines, 1)], [], blob.uri, failures
    )
    region = Region("image", 0, len(content.text), image=blob.content_hash, caption=description, box=Box(1, *page_area))
    pages = content.starts if len(recognitions) > 1 else ()
    document = blob.document(reader, content.text, pages=pages, regions=(region,), boxes=content.boxes)
    return Reading(
        document.but(media_type=f"image/{kind.lower()}"),
        empty_pages=tuple(number for number, page in enumerate(lines, 1) if not page),
        ocr_pages=tuple(number for number, page in enumerate(recognitions, 1) if page.lines),
        dropped=nonzero_counts({"further pictures": further_pictures, **failures.dropped()}),
        images=(blob,),
        warnings=(*failures.warnings(), *dict.fromkeys(_warnings(recognitions))),
        lacks=reader.lacking() if any(page.failure for page in recognitions) else "",
    )


def _recognise(ocr: Ocr | None, page: Any) -> Recognition:
    """Recognise the text of a page, or return why OCR could not run."""
    failure = ocr.lacking() if ocr else "it was not asked for (ocr=None)"
    dots, dpi = to_grey(page), dpi_of(page)  # decoded in any case: a damaged picture is none
    if failure or not ocr:
        return Recognition(failure=failure)
    # A long and narrow one is large enough, and twice as large would take four times as long.
    if min(dots.size) < _SMALL and dots.width * dots.height < 2 * _SMALL**2:
        dots, dpi = dots.resize((2 * dots.width, 2 * dots.height)), 2 * dpi
    return ocr.recognise(np.asarray(dots), dpi)


def _warnings(recognitions: list[Recognition]) -> Iterator[str]:
    for page in recognitions:
        if page.failure:
            yield f"The text in the picture was not read; it needs OCR: {page.failure}."
        elif page.lines and page.confidence < _MINIMUM_CONFIDENCE:
            yield (
                f"The text recognised in the picture may be wrong: Tesseract is sure of {page.confidence:.0f} % of it."
            )
