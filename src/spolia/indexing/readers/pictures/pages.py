"""What a picture says of itself: its description in EXIF, in the texts of a PNG, in a comment."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from struct import error as StructError
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from spolia.errors import DocumentError
from spolia.indexing.readers.pdf.document import bound
from spolia.indexing.readers.pdf.geometry import Area
from spolia.indexing.readers.pdf.lines import NO_TEXT, PageLine, joined_lines
from spolia.indexing.readers.pdf.page import PageText
from spolia.indexing.readers.pictures.image import Ocr, Recognised
from spolia.indexing.readers.reader import Blob, Reading, counted
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Box, Region

if TYPE_CHECKING:
    from spolia.indexing.readers.pictures.image import ImageReader

_EXIF_DESCRIPTION, _EXIF_TITLE = 0x010E, 0x9C9B
_TEXTS = ("Description", "Title", "Comment", "comment")
_LONGEST = 10_000


def description_of(image: Any) -> str:
    """The first description that a picture of Pillow has; empty if none."""
    exif = image.getexif()
    title = exif.get(_EXIF_TITLE)
    wide = bytes(title).decode("utf-16-le", "replace") if isinstance(title, (bytes, tuple)) else ""
    said = (exif.get(_EXIF_DESCRIPTION), wide, *(image.info.get(name) for name in _TEXTS))
    return next((words for value in said if (words := _words(value))), "")


def _words(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""
    return " ".join(NO_TEXT.sub("", text[:_LONGEST].replace("\0", "")).split())


_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
_MOST_PIXELS = 120_000_000
_MOST_PAGES = 1_000
_SIXTEEN_BITS = 257
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, StructError, OverflowError, IndexError, KeyError, TypeError)
"""What Pillow raises on damaged files, depending on their format."""


@contextmanager
def opened(blob: Blob) -> Iterator[Any]:
    """The picture of Pillow; what fails while it is open is a `DocumentError`."""
    with blob.open() as file:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of damaged metadata, and of sizes that are looked at below
                with Image.open(file, formats=_FORMATS) as image:
                    _refuse_huge(image, blob)
                    yield image
        except (*_BROKEN, Image.DecompressionBombError) as error:
            file.seek(0)
            is_unknown = isinstance(error, UnidentifiedImageError)  # which names an object in memory, or a path
            why = "it has no known format, or ends too early" if is_unknown else str(error) or type(error).__name__
            raise DocumentError(
                f"{blob.uri} is not a readable picture: {why}; it has {blob.size} "
                f"bytes and begins with {file.read(8)!r}. Fetch or save it again with a program that opens it."
            ) from error


def pages_of(image: Any, blob: Blob) -> Iterator[Any]:
    """The pages of a TIFF, of others the first picture."""
    count = _MOST_PAGES if image.format == "TIFF" else 1
    for number in range(count):
        try:
            image.seek(number)
        except EOFError:
            return
        _refuse_huge(image, blob)
        yield image


def _refuse_huge(image: Any, blob: Blob) -> None:
    width, height = image.size
    if width * height > _MOST_PIXELS:
        raise DocumentError(
            f"{blob.uri} says that it is {width} × {height} dots large, and {_MOST_PIXELS:,} are the most that are "
            "decoded. Make it smaller, or take it out of the folder."
        )


def grey(image: Any) -> Any:
    """The present page as it is meant to be seen, in grey on white."""
    seen = ImageOps.exif_transpose(image)
    if seen.mode.startswith(("I", "F")):
        return Image.fromarray(np.clip(np.asarray(seen, np.float64) / _SIXTEEN_BITS, 0, 255).astype(np.uint8))
    if seen.mode in ("RGBA", "LA", "PA") or "transparency" in seen.info:
        seen = seen.convert("RGBA")
        paper = Image.new("RGBA", seen.size, "white")
        seen = Image.alpha_composite(paper, seen)
    return seen.convert("L")


def dpi_of(image: Any) -> float:
    """Dots per inch as the picture states them; 72 where it says nothing sensible."""
    stated = image.info.get("dpi") or (0, 0)
    dpi = float(stated[0]) if isinstance(stated, tuple) and stated else 0.0
    return dpi if 30 <= dpi <= 2400 else 72.0


_POINTS = 72.0
_SMALL = 1500
"""Dots along the shorter side: of less, letters are known better when enlarged."""
_LEAST_SURE = 60.0


_UNREADABLE = Recognised()


def reading_of(reader: "ImageReader", blob: Blob) -> Reading:
    """The content of a picture."""
    failures = UnitFailures()
    with opened(blob) as image:
        kind, scale = str(image.format), _POINTS / dpi_of(image)
        width, height = (side * scale for side in image.size)
        description = failures.attempt("description", lambda: description_of(image), "")
        found, following = list[Recognised](), partial(next, pages_of(image, blob), None)
        while (page := failures.attempt("page", following, _UNREADABLE)) is not None:
            read = partial(_recognised, reader.ocr, page)
            place = f"page {len(found) + 1}"
            found.append(page if page is _UNREADABLE else failures.attempt("page", read, _UNREADABLE, place=place))
        if all(page is _UNREADABLE for page in found):
            raise ValueError(" ".join(failures.warnings()).rstrip("."))
        others = 0 if kind == "TIFF" else getattr(image, "n_frames", 1) - 1
    whole = Area(0.0, 0.0, width, height)
    first = [PageLine(description, whole)] if description else []
    lines = [[*(first if number == 1 else ()), *page.lines] for number, page in enumerate(found, 1)]
    made = bound([PageText(joined_lines(page, number)) for number, page in enumerate(lines, 1)], [], blob.uri, failures)
    region = Region("image", 0, len(made.text), image=blob.content_hash, caption=description, box=Box(1, *whole))
    pages = made.starts if len(found) > 1 else ()
    document = blob.document(reader, made.text, pages=pages, regions=(region,), boxes=made.boxes)
    return Reading(
        document.but(media_type=f"image/{kind.lower()}"),
        empty_pages=tuple(number for number, page in enumerate(lines, 1) if not page),
        ocr_pages=tuple(number for number, page in enumerate(found, 1) if page.lines),
        dropped=counted({"further pictures": others, **failures.dropped()}),
        images=(blob,),
        warnings=(*failures.warnings(), *dict.fromkeys(_warnings(found))),
        lacks=reader.lacking() if any(page.why for page in found) else "",
    )


def _recognised(ocr: Ocr | None, page: Any) -> Recognised:
    """The text of a page, or `why` OCR could not run."""
    why = ocr.lacking() if ocr else "it was not asked for (ocr=None)"
    dots, dpi = grey(page), dpi_of(page)  # decoded in any case: a damaged picture is none
    if why or not ocr:
        return Recognised(why=why)
    if min(dots.size) < _SMALL and dots.width * dots.height < 2 * _SMALL**2:
        dots, dpi = dots.resize((2 * dots.width, 2 * dots.height)), 2 * dpi
    return ocr.recognise(np.asarray(dots), dpi)


def _warnings(found: list[Recognised]) -> Iterator[str]:
    for page in found:
        if page.why:
            yield f"The text in the picture was not read; it needs OCR: {page.why}."
        elif page.lines and page.sure < _LEAST_SURE:
            yield f"The text recognised in the picture may be wrong: Tesseract is sure of {page.sure:.0f} % of it."
