"""What is drawn on a page besides its letters: rules and pictures."""

import struct
import zlib
from collections.abc import Iterator
from ctypes import byref, c_float, c_uint, c_void_p, cast, create_string_buffer
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from pypdfium2 import PdfBitmap, PdfMatrix, raw

from spolia.indexing.readers.pdf.geometry import Area, VisiblePage, kinds, strokes
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
_DEEPEST = 3
_STRAIGHT = 0.75
"""Points that a rule may be off."""
_SHORTEST = 4.0
_THICKEST = 2.0
_NEARLY = 4.0
"""Points between rules on one line that are one."""
_SMALLEST_PICTURE = 24.0


class Rule(NamedTuple):
    """A straight line: where it lies across, and from where to where it goes."""

    at: float
    start: float
    end: float


class Drawing(NamedTuple):
    """A path or an image, also of a form within the page: its address, and how its coordinates lead to the page's."""

    kind: int
    handle: int
    matrix: PdfMatrix


@dataclass
class Drawn:
    """Pictures and rules on a page."""

    across: list[Rule] = field(default_factory=list)
    down: list[Rule] = field(default_factory=list)
    pictures: list[tuple[Area, Any]] = field(default_factory=list)  # with PDFium's object, while the page is open
    passed_over: bool = False  # some of very many objects were not looked at


def drawn_on(page: Any, sheet: VisiblePage) -> Drawn:
    """Rules and pictures of a page."""
    objects = list(islice(_objects(page), _MOST_OBJECTS + 1))
    found = Drawn(passed_over=len(objects) > _MOST_OBJECTS)
    paths = [drawing for drawing in objects[:_MOST_OBJECTS] if drawing.kind == raw.FPDF_PAGEOBJ_PATH]
    _add_rules(found, strokes(*_handles_and_matrices(paths), _MOST_POINTS), sheet)
    images = [drawing for drawing in objects[:_MOST_OBJECTS] if drawing.kind == raw.FPDF_PAGEOBJ_IMAGE]
    for image in images:
        object = cast(image.handle, raw.FPDF_PAGEOBJECT)
        _add_picture(found, object, _bounds(object, image.matrix, sheet))
    return found


def _handles_and_matrices(paths: list[Drawing]) -> tuple[list[int], Any]:
    matrices = np.array([drawing.matrix.get() for drawing in paths], dtype=float).reshape(-1, 6)
    return [drawing.handle for drawing in paths], matrices


def _add_picture(found: Drawn, object: Any, area: Area) -> None:
    """A picture, or a rule, which some writers make as a picture of one row of dots."""
    x, y = area.middle
    if min(area.width, area.height) >= _SMALLEST_PICTURE:
        found.pictures.append((area, object))
    elif area.height <= _THICKEST and area.width >= _SHORTEST:
        found.across.append(Rule(y, area.left, area.right))
    elif area.width <= _THICKEST and area.height >= _SHORTEST:
        found.down.append(Rule(x, area.top, area.bottom))


_AS_IT_IS = PdfMatrix()


def _objects(page: Any) -> Iterator[Drawing]:
    for handle, kind in islice(kinds(page), _MOST_OBJECTS * 5):
        if kind in (raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE):
            yield Drawing(kind, handle, _AS_IT_IS)
        elif kind == raw.FPDF_PAGEOBJ_FORM:
            yield from _within(cast(handle, raw.FPDF_PAGEOBJECT), _AS_IT_IS, _DEEPEST)


def _within(form: Any, outer: PdfMatrix, depth: int) -> Iterator[Drawing]:
    matrix = _matrix(form).multiply(outer)
    for number in range(min(raw.FPDFFormObj_CountObjects(form), _MOST_OBJECTS)):
        object = raw.FPDFFormObj_GetObject(form, number)
        kind = raw.FPDFPageObj_GetType(object)
        if kind == raw.FPDF_PAGEOBJ_FORM and depth:
            yield from _within(object, matrix, depth - 1)
        elif kind in (raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE):
            yield Drawing(kind, cast(object, c_void_p).value or 0, matrix)


def _matrix(object: Any) -> PdfMatrix:
    found = raw.FS_MATRIX()
    is_known = raw.FPDFPageObj_GetMatrix(object, byref(found))
    return PdfMatrix.from_raw(found) if is_known else PdfMatrix()


def _bounds(object: Any, matrix: PdfMatrix, sheet: VisiblePage) -> Area:
    left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
    raw.FPDFPageObj_GetBounds(object, byref(left), byref(bottom), byref(right), byref(top))
    return sheet.area(*matrix.on_point(left.value, bottom.value), *matrix.on_point(right.value, top.value))


def _add_rules(found: Drawn, strokes: Any, sheet: VisiblePage) -> None:
    """Straight strokes: n × 4, from point to point. A thin rectangle gives one for each long side."""
    x, y = sheet.points(strokes[:, 0::2], strokes[:, 1::2])
    flat = (abs(y[:, 0] - y[:, 1]) <= _STRAIGHT) & (abs(x[:, 0] - x[:, 1]) >= _SHORTEST)
    steep = ~flat & (abs(x[:, 0] - x[:, 1]) <= _STRAIGHT) & (abs(y[:, 0] - y[:, 1]) >= _SHORTEST)
    for rules, at, along in ((found.across, y[flat], x[flat]), (found.down, x[steep], y[steep])):
        rules += map(Rule, at.mean(1).tolist(), along.min(1).tolist(), along.max(1).tolist())


def merged(rules: list[Rule]) -> list[Rule]:
    """Rules on one line that touch, or nearly, as one.

    >>> merged([Rule(10, 0, 50), Rule(10.5, 52, 90), Rule(40, 0, 9)])
    [Rule(at=10, start=0, end=90), Rule(at=40, start=0, end=9)]
    """
    found: list[Rule] = []
    for group in _close(sorted(rules)):
        for rule in sorted(group, key=lambda rule: rule.start):
            if found and found[-1].at == group[0].at and rule.start <= found[-1].end + _NEARLY:
                found[-1] = Rule(found[-1].at, found[-1].start, max(found[-1].end, rule.end))
            else:
                found.append(Rule(group[0].at, rule.start, rule.end))
    return found


def _close(rules: list[Rule]) -> Iterator[list[Rule]]:
    """Groups of sorted rules that lie at one place, but for the thickness of a stroke."""
    if not rules:
        return
    breaks = [number for number, (one, two) in enumerate(pairwise(rules), 1) if two.at - one.at > _THICKEST]
    for start, end in pairwise([0, *breaks, len(rules)]):
        yield rules[start:end]
