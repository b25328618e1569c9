"""The dots of a picture file, decoded only after their stated number was looked at."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from struct import error as StructError
from typing import Any

from spolia.errors import DocumentError, MissingExtra
from spolia.indexing.readers.reading import Blob

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
_MOST_PIXELS = 120_000_000
_MOST_PAGES = 1_000
_SIXTEEN_BITS = 257
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, StructError, OverflowError, IndexError, KeyError, TypeError)
"""What Pillow raises on damaged files, depending on their format."""


@contextmanager
def opened(blob: Blob) -> Iterator[Any]:
    """The picture of Pillow; what fails while it is open is a `DocumentError`."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtra("images", "pillow", f"Reading {blob.uri}") from error
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
                f"{blob.uri} is no picture that can be read: {why}; it has {blob.size} "
                f"bytes and begins with {file.read(8)!r}. Fetch it again, or save it anew with a program that opens it."
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
    import numpy as np
    from PIL import Image, ImageOps

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
