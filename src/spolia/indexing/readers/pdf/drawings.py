"""Drawings on a page besides its letters: rules and pictures."""

import struct
import zlib
from collections.abc import Iterator
from ctypes import byref, c_float, c_uint, cast, create_string_buffer
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pypdfium2 import PdfBitmap, PdfMatrix, raw

from spolia.indexing.readers.pdf.geometry import (
    COORDINATE_LIMIT,
    Area,
    PageObjects,
    VisiblePage,
    begins,
    matrices,
    steps,
    strokes,
)
from spolia.indexing.readers.unit_failures import Attempt

_COLOURS = {1: 0, 3: 2, 4: 6}  # channels to PNG's colour type


def png_of(pixels: Any) -> bytes:
    """Encode an array of bytes as PNG: height × width, for colours × 3 (red, green, blue) or × 4 (and opacity).

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


_MOST_PICTURES = 100
_MOST_PIXELS = 64_000_000  # a small file may state a picture of any size
_PAGE_SHARE = 0.85


@dataclass(frozen=True)
class Picture:
    """Place of a picture; its bytes as JPEG or PNG, and their suffix; none if they were not requested."""

    area: Area
    data: bytes = b""
    suffix: str = ""


def pictures_of(
    images: list[tuple[Area, Any]], size: tuple[float, float], attempt: Attempt, *, text: bool, data: bool
) -> tuple[list[Picture], int]:
    """Return the pictures of a page, and the number of skipped ones. A picture that fills a page without text is its
    scan."""
    pictures: dict[Area, Picture] = {}
    dropped = 0
    for area, object in images:
        if not text and area.width * area.height >= _PAGE_SHARE * size[0] * size[1]:
            continue
        if len(pictures) == _MOST_PICTURES or not area.meets(Area(0.0, 0.0, *size)):
            dropped += 1
        else:
            pictures[area] = Picture(area, *(attempt("picture", partial(_read_picture, object), ()) if data else ()))
            dropped += data and not pictures[area].data
    return list(pictures.values()), dropped


def _read_picture(object: Any) -> tuple[bytes, str] | tuple[()]:
    """Return the bytes of a picture and their suffix; nothing if they are damaged, or far too many."""
    if list(_filters(object)) == ["DCTDecode"]:  # a JPEG stays as it is: as PNG it would be larger
        return _stored_bytes(object), ".jpg"
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


def _stored_bytes(object: Any) -> bytes:
    size = raw.FPDFImageObj_GetImageDataRaw(object, None, 0)
    data = create_string_buffer(size)
    raw.FPDFImageObj_GetImageDataRaw(object, data, size)
    return data.raw


_MOST_OBJECTS = 20_000
_MOST_POINTS = 20_000
"""Points of all paths of a page: what has more is no table but a picture."""
_MOST_OF_PATH = 2_000
_DEEPEST = 4
"""Forms within forms."""
_STRAIGHT = 0.75
"""Points that a rule may be off."""
_SHORTEST = 4.0
_THICKEST = 2.0
_RULE_GAP = 4.0
"""Points between rules on one line that are one."""
_SMALLEST_PICTURE = 24.0


NO_RULES = np.empty((0, 3))


@dataclass
class PageDrawings:
    """Pictures and rules on a page. Rules are straight lines: n × 3, the place of each across its direction, and from
    where to where it goes."""

    horizontal: Any = field(default_factory=lambda: NO_RULES)
    vertical: Any = field(default_factory=lambda: NO_RULES)
    pictures: list[tuple[Area, Any]] = field(default_factory=list)  # with PDFium's object, while the page is open
    passed_over: bool = False  # some of very many objects were not looked at


class DrawnForm(NamedTuple):
    """Paths and images of a page, or of a form within it, by their addresses; and the matrix to page coordinates."""

    paths: list[int]
    images: list[int]
    matrix: PdfMatrix


def find_drawings(page: Any, sheet: VisiblePage) -> PageDrawings:
    """Find the rules and pictures of a page."""
    drawn_forms, room = list[DrawnForm](), _MOST_OBJECTS
    for form in _walk_forms(PageObjects.of_page(page), PdfMatrix(), _DEEPEST):
        drawn_forms.append(DrawnForm(form.paths[:room], form.images[: max(0, room - len(form.paths))], form.matrix))
        room -= len(form.paths) + len(form.images)
        if room < 0:
            break
    paths = [path for form in drawn_forms for path in form.paths]
    images = [(_bounds(image, form.matrix, sheet), image) for form in drawn_forms for image in form.images]
    if not paths and not images:  # as on half of all pages
        return PageDrawings(passed_over=room < 0)
    outer = np.repeat([form.matrix.get() for form in drawn_forms], [len(form.paths) for form in drawn_forms], 0)
    x, y, cut = strokes(paths, outer, _MOST_POINTS, _MOST_OF_PATH)
    horizontal, vertical = _rules(*sheet.points(x, y), [area for area, _ in images])
    pictures = [
        (area, cast(image, raw.FPDF_PAGEOBJECT))
        for area, image in images
        if min(area.width, area.height) >= _SMALLEST_PICTURE
    ]
    return PageDrawings(horizontal, vertical, pictures, passed_over=cut or room < 0)


def _walk_forms(objects: PageObjects, matrix: PdfMatrix, depth: int) -> Iterator[DrawnForm]:
    kinds = (raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_FORM)
    paths, images, forms = (objects.of_kind(kind, 5 * _MOST_OBJECTS) for kind in kinds)
    yield DrawnForm(paths, images, matrix)
    for form, form_matrix in zip(forms, matrices(forms).tolist(), strict=True) if depth and forms else ():
        yield from _walk_forms(
            PageObjects.of_form(form, _MOST_OBJECTS), PdfMatrix(*form_matrix).multiply(matrix), depth - 1
        )


def _bounds(image: int, matrix: PdfMatrix, sheet: VisiblePage) -> Area:
    left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
    object = cast(image, raw.FPDF_PAGEOBJECT)
    raw.FPDFPageObj_GetBounds(object, byref(left), byref(bottom), byref(right), byref(top))
    return sheet.area(*matrix.on_point(left.value, bottom.value), *matrix.on_point(right.value, top.value))


def _rules(x: Any, y: Any, images: list[Area]) -> tuple[Any, Any]:
    """Return the horizontal and vertical rules. A thin rectangle gives one for each long side. `images`: their areas;
    some writers make rules as images of one row of dots."""
    if thin := [_middle_stroke(area) for area in images if min(area.width, area.height) <= _THICKEST]:
        ends = np.array(thin).T
        x, y = np.hstack([x, ends[0::2]]), np.hstack([y, ends[1::2]])
    width, height = abs(x[0] - x[1]), abs(y[0] - y[1])
    flat = ((height <= _STRAIGHT) & (width >= _SHORTEST)).nonzero()[0]
    steep = ((width <= _STRAIGHT) & (height >= _SHORTEST)).nonzero()[0]
    return _rules_along(y[:, flat], x[:, flat]), _rules_along(x[:, steep], y[:, steep])


def _rules_along(places: Any, extents: Any) -> Any:
    if not places.size:
        return NO_RULES
    return np.array([(places[0] + places[1]) / 2, np.minimum(*extents), np.maximum(*extents)]).T


def _middle_stroke(area: Area) -> tuple[float, float, float, float]:
    """Return the stroke through the middle of a thin picture."""
    x, y = area.middle
    return (area.left, y, area.right, y) if area.height <= _THICKEST else (x, area.top, x, area.bottom)


def merge_rules(rules: Any) -> Any:
    """Merge rules on one line that touch, or nearly; from the first line to the last.

    >>> merge_rules(np.array([[10, 0, 50], [10.5, 52, 90], [40, 0, 9]])).tolist()
    [[10.0, 0.0, 90.0], [40.0, 0.0, 9.0]]
    """
    if len(rules) < 2:
        return rules
    places, start, end = rules[np.argsort(rules[:, 0], kind="stable")].T
    line = np.zeros(len(places), np.intp)
    np.cumsum(steps(places) > _THICKEST, out=line[1:])  # but for the thickness of a stroke
    order = np.lexsort((start, line))
    first = places[np.searchsorted(line, line)]
    start, end = start[order], end[order]
    reached = (
        np.maximum.accumulate(end + 4 * COORDINATE_LIMIT * line) - 4 * COORDINATE_LIMIT * line
    )  # none reaches another line
    firsts = begins((line[1:] > line[:-1]) | (start[1:] > reached[:-1] + _RULE_GAP)).nonzero()[0]
    return np.array([first[firsts], start[firsts], np.maximum.reduceat(end, firsts)]).T
