"""What is drawn on a page besides its letters: rules and pictures."""

import struct
import zlib
from collections.abc import Iterator
from ctypes import byref, c_float, c_uint, cast, create_string_buffer
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from pypdfium2 import PdfBitmap, PdfMatrix, raw

from spolia.indexing.readers.pdf.geometry import FARTHEST, Area, VisiblePage, form_objects, matrices, objects, strokes
from spolia.indexing.readers.unit_failures import Attempt

_COLOURS = {1: 0, 3: 2, 4: 6}  # channels to PNG's colour type


def png_of(pixels: Any) -> bytes:
    """The PNG of an array of bytes: height × width, for colours × 3 (red, green, blue) or × 4 (and opacity).

    Portable Network Graphics, W3C Recommendation, 2003.
    """
    height, width, *channels = pixels.shape
    rows = np.zeros((height, 1 + width * (channels[0] if channels else 1)), np.uint8)  # each begins with filter 0
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels[0] if channels else 1], 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows.data, 6)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


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
    found: list[tuple[Area, Any]], size: tuple[float, float], attempt: Attempt, *, text: bool, data: bool
) -> tuple[list[Picture], int]:
    """The pictures of a page, and the number of skipped ones. A picture that fills a page without text
    is its scan."""
    kept: dict[Area, Picture] = {}
    dropped = 0
    for area, object in found:
        if not text and area.width * area.height >= _WHOLE * size[0] * size[1]:
            continue
        if len(kept) == _MOST or not area.meets(Area(0.0, 0.0, *size)):
            dropped += 1
        else:
            kept[area] = Picture(area, *(attempt("picture", partial(_read, object), ()) if data else ()))
            dropped += data and not kept[area].data
    return list(kept.values()), dropped


def _read(object: Any) -> tuple[bytes, str] | tuple[()]:
    """The bytes of a picture and their suffix; none where they are damaged, or far too many."""
    if list(_filters(object)) == ["DCTDecode"]:
        return _stored(object), ".jpg"
    width, height = c_uint(), c_uint()
    raw.FPDFImageObj_GetImagePixelSize(object, byref(width), byref(height))
    if not 0 < width.value * height.value <= _MOST_PIXELS:
        return ()
    bitmap = raw.FPDFImageObj_GetBitmap(object)
    if not bitmap:
        return ()
    pixels = PdfBitmap.from_raw(bitmap).to_numpy()
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


_MOST_OBJECTS = 20_000
_MOST_POINTS = 2_000
_DEEPEST = 4
"""Forms within forms."""
_STRAIGHT = 0.75
"""Points that a rule may be off."""
_SHORTEST = 4.0
_THICKEST = 2.0
_NEARLY = 4.0
"""Points between rules on one line that are one."""
_SMALLEST_PICTURE = 24.0


NO_RULES = np.empty((0, 3))


@dataclass
class Drawn:
    """Pictures and rules on a page. Rules are straight lines: n × 3, where each lies across, and from where to where it
    goes."""

    across: Any = field(default_factory=lambda: NO_RULES)
    down: Any = field(default_factory=lambda: NO_RULES)
    pictures: list[tuple[Area, Any]] = field(default_factory=list)  # with PDFium's object, while the page is open
    passed_over: bool = False  # some of very many objects were not looked at


class Drawing(NamedTuple):
    """A path or an image, also of a form within the page: its address, its kind, and how the coordinates of what it is
    part of lead to the page's."""

    handle: int
    kind: int
    matrix: PdfMatrix


def drawn_on(page: Any, sheet: VisiblePage) -> Drawn:
    """Rules and pictures of a page."""
    drawings = list(islice(_drawings(objects(page), PdfMatrix(), _DEEPEST), _MOST_OBJECTS + 1))
    passed_over = len(drawings) > _MOST_OBJECTS
    paths = [drawing for drawing in drawings[:_MOST_OBJECTS] if drawing.kind == raw.FPDF_PAGEOBJ_PATH]
    images = [drawing for drawing in drawings[:_MOST_OBJECTS] if drawing.kind == raw.FPDF_PAGEOBJ_IMAGE]
    areas = [_bounds(image, sheet) for image in images]
    across, down = _rules(_strokes(paths, sheet), areas)
    pictures = [
        (area, cast(image.handle, raw.FPDF_PAGEOBJECT))
        for image, area in zip(images, areas, strict=True)
        if min(area.width, area.height) >= _SMALLEST_PICTURE
    ]
    return Drawn(across, down, pictures, passed_over)


def _drawings(handles: list[tuple[int, int]], matrix: PdfMatrix, depth: int) -> Iterator[Drawing]:
    for handle, kind in handles[: _MOST_OBJECTS * 5]:
        if kind in (raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE):
            yield Drawing(handle, kind, matrix)
        elif kind == raw.FPDF_PAGEOBJ_FORM and depth:
            inner = PdfMatrix(*matrices([handle])[0].tolist()).multiply(matrix)
            yield from _drawings(form_objects(handle, _MOST_OBJECTS), inner, depth - 1)


def _bounds(image: Drawing, sheet: VisiblePage) -> Area:
    left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
    object = cast(image.handle, raw.FPDF_PAGEOBJECT)
    raw.FPDFPageObj_GetBounds(object, byref(left), byref(bottom), byref(right), byref(top))
    matrix = image.matrix
    return sheet.area(*matrix.on_point(left.value, bottom.value), *matrix.on_point(right.value, top.value))


def _strokes(paths: list[Drawing], sheet: VisiblePage) -> Any:
    """The straight strokes of paths as they are shown: n × 4, from point to point."""
    forms = {id(path.matrix): path.matrix.get() for path in paths}
    numbers = {form: number for number, form in enumerate(forms)}
    outer = np.array([*forms.values()], float).reshape(-1, 6)
    outer = outer[np.array([numbers[id(path.matrix)] for path in paths], np.intp)]
    return sheet.ends(strokes([path.handle for path in paths], outer, _MOST_POINTS))


def _rules(strokes: Any, images: list[Area]) -> tuple[Any, Any]:
    """The rules across and down. A thin rectangle gives one for each long side. `images`: their areas; some writers
    make rules as images of one row of dots."""
    thin = [_middle(area) for area in images if min(area.width, area.height) <= _THICKEST]
    x, y = np.concatenate([strokes, np.array(thin).reshape(-1, 4)]).reshape(-1, 2, 2).transpose(2, 0, 1)
    width, height = abs(x[:, 0] - x[:, 1]), abs(y[:, 0] - y[:, 1])
    flat = (height <= _STRAIGHT) & (width >= _SHORTEST)
    steep = (width <= _STRAIGHT) & (height >= _SHORTEST)
    return tuple(
        np.column_stack([at.mean(1), along.min(1), along.max(1)])
        for at, along in ((y[flat], x[flat]), (x[steep], y[steep]))
    )


def _middle(area: Area) -> tuple[float, float, float, float]:
    """The stroke through the middle of a thin picture."""
    x, y = area.middle
    return (area.left, y, area.right, y) if area.height <= _THICKEST else (x, area.top, x, area.bottom)


def merged(rules: Any) -> Any:
    """Rules on one line that touch, or nearly, as one; from the first line to the last.

    >>> merged(np.array([[10, 0, 50], [10.5, 52, 90], [40, 0, 9]])).tolist()
    [[10.0, 0.0, 90.0], [40.0, 0.0, 9.0]]
    """
    if not len(rules):
        return rules
    rules = rules[np.argsort(rules[:, 0], kind="stable")]
    line = np.cumsum(np.diff(rules[:, 0], prepend=rules[0, 0]) > _THICKEST)  # but for the thickness of a stroke
    order = np.lexsort((rules[:, 1], line))
    first = rules[np.searchsorted(line, line), 0]
    _, start, end = rules[order].T
    reach = np.maximum.accumulate(end + 4 * FARTHEST * line) - 4 * FARTHEST * line  # none reaches another line
    begins = np.append(True, (np.diff(line) > 0) | (start[1:] > reach[:-1] + _NEARLY)).nonzero()[0]
    return np.column_stack([first[begins], start[begins], np.maximum.reduceat(end, begins)])
