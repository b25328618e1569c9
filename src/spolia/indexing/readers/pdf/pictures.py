"""The pictures on a page: where they stand, and their bytes when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref, c_uint, create_string_buffer
from dataclasses import dataclass
from typing import Any

import pypdfium2
from pypdfium2 import raw

from spolia.indexing.readers.pdf.geometry import Area
from spolia.indexing.readers.pictures.png import png_of

_MOST = 100
_MOST_PIXELS = 64_000_000
_WHOLE = 0.85


@dataclass(frozen=True)
class Picture:
    """Where a picture stands; its bytes as JPEG or PNG, and the suffix of that; none if nobody asked."""

    area: Area
    data: bytes = b""
    suffix: str = ""


def pictures_of(
    found: list[tuple[Area, Any]], size: tuple[float, float], *, text: bool, data: bool
) -> tuple[list[Picture], int]:
    """The pictures of a page, and the number of those that were passed over.

    Args:
        size: width and height of the page.
        text: whether the page has text; if not, a picture that fills it is the scan of a page.
        data: whether the bytes are wanted.
    """
    kept: dict[Area, Picture] = {}
    dropped = 0
    for area, object in found:
        if not text and area.width * area.height >= _WHOLE * size[0] * size[1]:
            continue
        if len(kept) == _MOST or not _on(area, size):
            dropped += 1
        elif data:
            read = _read(object)
            kept[area] = Picture(area, *read) if read else Picture(area)
            dropped += not read
        else:
            kept[area] = Picture(area)
    return list(kept.values()), dropped


def _on(area: Area, size: tuple[float, float]) -> bool:
    return area.right > 0 and area.bottom > 0 and area.left < size[0] and area.top < size[1]


def _read(object: Any) -> tuple[bytes, str] | None:
    """The bytes of a picture and their suffix; None where they are damaged, or far too many."""
    if list(_filters(object)) == ["DCTDecode"]:
        return _stored(object), ".jpg"
    width, height = c_uint(), c_uint()
    raw.FPDFImageObj_GetImagePixelSize(object, byref(width), byref(height))
    if not 0 < width.value * height.value <= _MOST_PIXELS:
        return None
    bitmap = raw.FPDFImageObj_GetBitmap(object)
    if not bitmap:
        return None
    pixels = pypdfium2.PdfBitmap.from_raw(bitmap).to_numpy()
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    elif pixels.ndim == 3:
        pixels = pixels[:, :, [2, 1, 0]]  # PDFium's blue, green, red; its opacity says nothing here
    return png_of(pixels), ".png"


def _filters(object: Any) -> Iterator[str]:
    name = create_string_buffer(64)
    for number in range(min(raw.FPDFImageObj_GetImageFilterCount(object), 8)):
        raw.FPDFImageObj_GetImageFilter(object, number, name, len(name))
        yield name.value.decode("ascii", "replace")


def _stored(object: Any) -> bytes:
    size = raw.FPDFImageObj_GetImageDataRaw(object, None, 0)
    data = create_string_buffer(size)
    raw.FPDFImageObj_GetImageDataRaw(object, data, size)
    return data.raw
