"""Rectangles on a page as it is shown, and batched calls to PDFium for them."""

from collections.abc import Iterable, Iterator, Sequence
from ctypes import (
    PYFUNCTYPE,
    byref,
    c_double,
    c_float,
    c_int,
    c_uint,
    c_ulong,
    c_void_p,
    cast,
    create_string_buffer,
    sizeof,
    string_at,
)
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, repeat, tee
from math import isfinite
from typing import Any, NamedTuple, Self

import numpy as np
from pypdfium2 import raw

COORDINATE_LIMIT = 200_000.0
"""Points; PDF allows pages of 14,400, and what a broken file says may be anything, infinity included."""


class Area(NamedTuple):
    """Rectangle on a page, by its sides."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def meets(self, area: "Area") -> bool:
        """Return whether two areas overlap."""
        return self[1] < area[3] and area[1] < self[3] and self[0] < area[2] and area[0] < self[2]

    def horizontal_overlap(self, area: "Area") -> float:
        """Return the share of the narrower area's width that both have in common, from 0 to 1."""
        shared = min(self.right, area.right) - max(self.left, area.left)
        return max(0.0, shared / max(min(self.width, area.width), 0.1))

    def vertical_overlap(self, area: "Area") -> float:
        """Return the share of the lower area's height that both have in common, from 0 to 1."""
        shared = min(self.bottom, area.bottom) - max(self.top, area.top)
        return max(0.0, shared / max(min(self.height, area.height), 0.1))

    @classmethod
    def from_areas(cls, areas: "Iterable[Area]") -> Self:
        """Return the smallest area around some areas."""
        lefts, tops, rights, bottoms = zip(*areas, strict=True)
        return cls(min(lefts), min(tops), max(rights), max(bottoms))


_area = partial(tuple.__new__, Area)  # `Area._make` without a frame of Python for each line of a document


@dataclass(frozen=True)
class VisiblePage:
    """Visible part of a page and its rotation: converts the file's coordinates, where y grows upwards, to those of a
    reader's eye. `quarters`: clockwise turns by 90°.

    >>> VisiblePage(0, 0, 600, 800, quarters=1).area(10, 20, 110, 40)  # a line below becomes a column at the left
    Area(left=20, top=10, right=40, bottom=110)
    """

    left: float
    bottom: float
    right: float
    top: float
    quarters: int = 0

    @classmethod
    def from_page(cls, page: Any) -> "VisiblePage":
        """Return the visible part of a page of PDFium."""
        left, bottom, right, top = map(_sane, page.get_bbox())
        return cls(left, bottom, right, top, page.get_rotation() // 90 % 4)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height as it is shown."""
        width, height = abs(self.right - self.left), abs(self.top - self.bottom)
        return (height, width) if self.quarters % 2 else (width, height)

    def area(self, left: float, bottom: float, right: float, top: float) -> Area:
        """Convert a rectangle of the file's coordinates."""
        (a, b), (c, d) = self.point(left, bottom), self.point(right, top)
        return Area(min(a, c), min(b, d), max(a, c), max(b, d))

    def areas(self, sides: Any) -> list[Area]:
        """Convert many rectangles: n × 4, left, bottom, right, top."""
        return list(map(_area, self.shown_sides(sides).tolist()))

    def shown_sides(self, sides: Any) -> Any:
        """Convert many rectangles as arrays: n × 4, left, bottom, right, top; returns left, top, right, bottom as
        shown."""
        places = _sane_places(np.asarray(sides, dtype=float).T)
        (x, other_x), (y, other_y) = self._rotate(places[0::2], places[1::2])
        visible = np.minimum(x, other_x), np.minimum(y, other_y), np.maximum(x, other_x), np.maximum(y, other_y)
        return np.array(visible).T

    def points(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Convert arrays of the file's coordinates."""
        return self._rotate(_sane_places(x), _sane_places(y))

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Convert a point of the file's coordinates."""
        return self._rotate(_sane(x), _sane(y))

    def _rotate(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Rotate numbers, or arrays of numbers."""
        if self.quarters == 1:
            return y - self.bottom, x - self.left
        if self.quarters == 2:
            return self.right - x, y - self.bottom
        if self.quarters == 3:
            return self.top - y, self.right - x
        return x - self.left, self.top - y


def _sane(value: float) -> float:
    return min(max(value, -COORDINATE_LIMIT), COORDINATE_LIMIT) if isfinite(value) else 0.0


def _sane_places(places: Any) -> Any:
    places = np.minimum(np.maximum(places, -COORDINATE_LIMIT), COORDINATE_LIMIT)
    return np.where(places == places, places, 0.0)  # some are no number


def steps(values: Any) -> Any:
    """Return how much each value differs from the one before it. `np.diff` takes five times as long for the few values
    of a page (benchmarks/pdf.py)."""
    return values[1:] - values[:-1]


def begins(changes: Any) -> Any:
    """Mark the first of each run of values. `changes`: whether each value but the first differs from the one before."""
    return np.concatenate([_TRUE, changes])


_TRUE = np.ones(1, bool)


def middle_value(values: Any) -> Any:
    """Return the median of some numbers. `np.median` takes ten times as long for the few values of a page
    (benchmarks/pdf.py)."""
    rising = np.sort(values)
    return (rising[(len(rising) - 1) // 2] + rising[len(rising) // 2]) / 2


def _fast_function(function: Any, result: Any, *arguments: Any) -> Any:
    """Wrap a function of PDFium so that it takes addresses as numbers. It keeps the interpreter's lock, since a call is
    shorter than handing it over."""
    return PYFUNCTYPE(result, *arguments)(cast(function, c_void_p).value or 0)


_count = _fast_function(raw.FPDFText_CountRects, c_int)
_rectangle = _fast_function(raw.FPDFText_GetRect, c_int)
_box = _fast_function(raw.FPDFText_GetLooseCharBox, c_int)
_size = _fast_function(raw.FPDFText_GetFontSize, c_double)
_font = _fast_function(raw.FPDFText_GetFontInfo, c_ulong)
_code = _fast_function(raw.FPDFText_GetUnicode, c_uint)
_object = _fast_function(raw.FPDFPage_GetObject, c_void_p)
_kind = _fast_function(raw.FPDFPageObj_GetType, c_int, c_void_p)
_form_count = _fast_function(raw.FPDFFormObj_CountObjects, c_int, c_void_p)
_form_object = _fast_function(raw.FPDFFormObj_GetObject, c_void_p, c_void_p, c_ulong)
_segment_count = _fast_function(raw.FPDFPath_CountSegments, c_int, c_void_p)
_segment = _fast_function(raw.FPDFPath_GetPathSegment, c_void_p, c_void_p)
_segment_kind = _fast_function(raw.FPDFPathSegment_GetType, c_int, c_void_p)
_segment_point = _fast_function(raw.FPDFPathSegment_GetPoint, c_int, c_void_p)
_closes = _fast_function(raw.FPDFPathSegment_GetClose, c_int, c_void_p)
_get_matrix = _fast_function(raw.FPDFPageObj_GetMatrix, c_int, c_void_p)
_note = _fast_function(raw.FPDFPage_GetAnnot, c_void_p)
_note_kind = _fast_function(raw.FPDFAnnot_GetSubtype, c_int, c_void_p)
_close_note = _fast_function(raw.FPDFPage_CloseAnnot, None, c_void_p)
_FONT_NAME = c_ulong(200)  # bytes; a longer name is cut


def _fields(row: Any) -> Iterator[Any]:
    """Repeat references to the fields of an array, for calls that write each."""
    return (repeat(byref(row, index * sizeof(row._type_))) for index in range(len(row)))


def rectangles(text_page: Any, spans: Sequence[tuple[int, int]]) -> tuple[Any, Any, Any]:
    """Return where stretches of a page stand, which may be of several fonts. `spans`: the first character of each, and
    how many. Returns for each its left, bottom, right and top side in the coordinates of the file, n × 4; which of them
    stand nowhere, n; and the sides of the pieces that they are made of, in their order."""
    starts, lengths = zip(*spans, strict=True) if spans else ((), ())
    page, row = text_page.raw, (c_double * 4)()
    # PDFium keeps the rectangles of the last stretch only: the next is counted when those before it have been read.
    rising, counted = tee(map(_count, repeat(page), starts, lengths))
    calls = map(_rectangle, repeat(page), chain.from_iterable(map(range, rising)), *_fields(row))
    sides = np.frombuffer(b"".join([bytes(row) for _ in calls])).reshape(-1, 4)
    counts = np.maximum(np.fromiter(counted, np.intp, len(spans)), 0)
    bounds = np.zeros((len(spans), 4))
    placed = counts > 0
    if len(sides):
        firsts = (np.cumsum(counts) - counts)[placed]
        for side, reduce, column in ((0, np.minimum, 0), (1, np.minimum, 3), (2, np.maximum, 2), (3, np.maximum, 1)):
            bounds[placed, side] = reduce.reduceat(sides[:, column], firsts)
    return bounds, ~placed, sides


def boxes(text_page: Any, numbers: Sequence[int]) -> tuple[Any, Any]:
    """Return where characters stand, of one height for all of a font: for each its left, bottom, right and top side in
    the coordinates of the file, n × 4; and which of them stand nowhere, n."""
    row, nothing = (c_float * 4)(), bytes(16)  # FS_RECTF: left, top, right, bottom
    calls = map(_box, repeat(text_page.raw), numbers, repeat(byref(row)))
    rows = [bytes(row) if placed else nothing for placed in calls]
    nowhere = np.fromiter((row is nothing for row in rows), bool, len(rows))
    rects = np.frombuffer(b"".join(rows), np.float32).reshape(-1, 4)
    return rects[:, [0, 3, 2, 1]].astype(float), nowhere


def codes(text_page: Any, count: int) -> Iterator[int]:
    """Return the code points of the first characters."""
    return map(_code, repeat(text_page.raw), range(count))


def sizes(text_page: Any, numbers: Iterable[int]) -> Iterator[float]:
    """Return the sizes of characters as the file states them."""
    return map(_size, repeat(text_page.raw), numbers)


def fonts(text_page: Any, numbers: Iterable[int]) -> Iterator[bytes]:
    """Yield the names of the fonts of characters."""
    name = create_string_buffer(_FONT_NAME.value)
    calls = map(_font, repeat(text_page.raw), numbers, repeat(name), repeat(_FONT_NAME), repeat(byref(c_int())))
    return (name.value for _ in calls)


class PageObjects:
    """Objects of a page, or of a form within it, by their addresses."""

    def __init__(self, addresses: Iterable[int]) -> None:
        self._addresses = list(addresses)
        self._kinds = np.fromiter(map(_kind, self._addresses), np.intp, len(self._addresses))

    @classmethod
    def of_page(cls, page: Any) -> "PageObjects":
        return cls(map(_object, repeat(page.raw), range(raw.FPDFPage_CountObjects(page.raw))))

    @classmethod
    def of_form(cls, form: int, limit: int) -> "PageObjects":
        """Return the first objects of a form, `limit` at most."""
        return cls(map(_form_object, repeat(form), range(min(_form_count(form), limit))))

    def of_kind(self, kind: int, limit: int) -> list[int]:
        """Return those of the first `limit` objects that are of a kind, as PDFium numbers it."""
        return [self._addresses[index] for index in (self._kinds[:limit] == kind).nonzero()[0].tolist()]


def matrices(handles: Sequence[int]) -> Any:
    """Return the matrices from the coordinates of objects to those of what they are part of: n × 6."""
    row = (c_float * 6)()
    no_change = bytes((c_float * 6)(1, 0, 0, 1, 0, 0))
    rows = [bytes(row) if has_matrix else no_change for has_matrix in map(_get_matrix, handles, repeat(byref(row)))]
    return np.frombuffer(b"".join(rows), np.float32).reshape(-1, 6).astype(float)


def strokes(paths: Sequence[int], form_matrices: Any, most_points: int, most_of_path: int) -> tuple[Any, Any, bool]:
    """Return the straight strokes of paths that are filled or drawn: n × 4, from point to point, in the coordinates of
    the page; and whether paths were left out, from `most_points` points in all on. `paths`: their addresses.
    `form_matrices`: n × 6, of the forms that they are part of. `most_of_path`: points of a path, which is left out if
    it has more.

    Args:
        paths: their addresses.
        form_matrices: n × 6, the matrices of the forms that they are part of.
        most_of_path: points of a path, which is left out if it has more.
    """
    nothing = np.empty((2, 0))
    if not paths:
        return nothing, nothing, False
    counts = np.fromiter(map(_segment_count, paths), np.intp, len(paths))
    visible = ((counts > 1) & (counts <= most_of_path)).nonzero()[0]
    cut = int(np.searchsorted(np.cumsum(counts[visible]), most_points, "right"))
    passed_over, visible = cut < len(visible), visible[:cut]
    if not len(visible):
        return nothing, nothing, passed_over
    counts, handles = counts[visible], [paths[number] for number in visible.tolist()]
    points = (stored_points if points_are_stored() else called_points)(handles, counts.tolist())
    starts = points["kind"] == raw.FPDF_SEGMENT_MOVETO
    starts[np.cumsum(counts) - counts] = True
    lasts = np.concatenate([starts[1:], _TRUE]).nonzero()[0]
    closing = lasts[points["closes"][lasts] > 0]
    ahead = ((points["kind"] == raw.FPDF_SEGMENT_LINETO) & ~starts).nonzero()[0]
    firsts = np.concatenate([ahead - 1, closing])
    ends = np.concatenate([ahead, starts.nonzero()[0][np.searchsorted(lasts, closing)]])
    places = np.concatenate([firsts, ends])
    owners = np.repeat(np.arange(len(handles)), counts)[places]
    x, y = points["place"][places].T.astype(float)
    x, y = _transform(form_matrices.T[:, visible[owners]], *_transform(matrices(handles).T[:, owners], x, y))
    return x.reshape(2, -1), y.reshape(2, -1), passed_over


_POINT = np.dtype([("place", "f4", 2), ("kind", "i1"), ("closes", "i1"), ("unused", "V2")])


def called_points(paths: Sequence[int], counts: Sequence[int]) -> Any:
    """Return the points of paths, path by path, asking PDFium for each. `counts`: how many each path has."""
    owners = chain.from_iterable(map(repeat, paths, counts))
    segments = list(map(_segment, owners, chain.from_iterable(map(range, counts))))
    place = (c_float * 2)()
    places = b"".join([bytes(place) for _ in map(_segment_point, segments, *_fields(place))])
    points = np.zeros(len(segments), _POINT)
    points["place"] = np.frombuffer(places, np.float32).reshape(-1, 2)
    points["kind"] = list(map(_segment_kind, segments))
    points["closes"] = list(map(_closes, segments))
    return points


def stored_points(paths: Sequence[int], counts: Sequence[int]) -> Any:
    """Return the same as `called_points`, from memory: PDFium keeps the points of a path next to each other, and the
    address of a segment is that of its point. Drawings have 100,000s of points, and a call for each takes longer than
    all else (benchmarks/pdf.py)."""
    firsts = map(_segment, paths, repeat(0))
    return np.frombuffer(b"".join(map(string_at, firsts, (count * _POINT.itemsize for count in counts))), _POINT)


@cache
def points_are_stored() -> bool:
    """Return whether this build of PDFium keeps points as `stored_points` reads them: tried with a path whose points
    are known."""
    path = raw.FPDFPageObj_CreateNewPath(1.0, 2.0)
    try:
        raw.FPDFPath_LineTo(path, 3.0, 4.0)
        raw.FPDFPath_BezierTo(path, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
        raw.FPDFPath_Close(path)
        from_calls, from_memory = (
            ask([cast(path, c_void_p).value or 0], [5]) for ask in (called_points, stored_points)
        )
        return all((from_calls[name] == from_memory[name]).all() for name in ("place", "kind", "closes"))
    finally:
        raw.FPDFPageObj_Destroy(path)


def _transform(matrices: Any, x: Any, y: Any) -> tuple[Any, Any]:
    a, b, c, d, e, f = matrices
    return a * x + c * y + e, b * x + d * y + f


def notes(page: Any) -> Iterator[int]:
    """Yield the kinds of the notes on a page, links among them, as PDFium numbers them."""
    for number in range(raw.FPDFPage_GetAnnotCount(page.raw)):
        note = _note(page.raw, number)
        yield _note_kind(note) if note else raw.FPDF_ANNOT_UNKNOWN
        _close_note(note)
