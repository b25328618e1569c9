"""Rectangles on a page as it is shown, and batched calls to PDFium for them."""

from collections.abc import Iterable, Iterator, Sequence
from ctypes import PYFUNCTYPE, addressof, c_double, c_int, c_uint, c_ulong, c_void_p, cast, create_string_buffer
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from math import isfinite
from typing import Any, NamedTuple, Self

import numpy as np
from pypdfium2 import raw

FARTHEST = 200_000.0
"""Points; PDF allows pages of 14,400, and what a broken file says may be anything, infinity included."""


class Area(NamedTuple):
    """A rectangle: its sides."""

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

    def meets(self, other: "Area") -> bool:
        """Whether a part of both is the same."""
        return self[1] < other[3] and other[1] < self[3] and self[0] < other[2] and other[0] < self[2]

    def beside(self, other: "Area") -> float:
        """How much of the narrower one's width both share, from 0 to 1."""
        shared = min(self.right, other.right) - max(self.left, other.left)
        return max(0.0, shared / max(min(self.width, other.width), 0.1))

    def level(self, other: "Area") -> float:
        """How much of the lower one's height both share, from 0 to 1."""
        shared = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, shared / max(min(self.height, other.height), 0.1))

    @classmethod
    def around(cls, areas: "Iterable[Area]") -> Self:
        """The smallest one around some."""
        lefts, tops, rights, bottoms = zip(*areas, strict=True)
        return cls(min(lefts), min(tops), max(rights), max(bottoms))


_area = partial(tuple.__new__, Area)  # `Area._make` without a frame of Python for each line of a document


@dataclass(frozen=True)
class VisiblePage:
    """The visible part of a page and how it is turned: leads from the file's coordinates, where y grows upwards, to
    those of a reader's eye. `quarters`: clockwise turns by 90°.

    >>> VisiblePage(0, 0, 600, 800, quarters=1).area(10, 20, 110, 40)  # a line below becomes a column at the left
    Area(left=20, top=10, right=40, bottom=110)
    """

    left: float
    bottom: float
    right: float
    top: float
    quarters: int = 0

    @classmethod
    def of(cls, page: Any) -> "VisiblePage":
        """That of a page of PDFium."""
        left, bottom, right, top = map(_sane, page.get_bbox())
        return cls(left, bottom, right, top, page.get_rotation() // 90 % 4)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height as it is shown."""
        width, height = abs(self.right - self.left), abs(self.top - self.bottom)
        return (height, width) if self.quarters % 2 else (width, height)

    def area(self, left: float, bottom: float, right: float, top: float) -> Area:
        """A rectangle of the file's coordinates as it is shown."""
        (a, b), (c, d) = self.point(left, bottom), self.point(right, top)
        return Area(min(a, c), min(b, d), max(a, c), max(b, d))

    def areas(self, sides: Any) -> list[Area]:
        """Many rectangles together: n × 4, left, bottom, right, top."""
        return list(map(_area, self.shown(sides).tolist()))

    def shown(self, sides: Any) -> Any:
        """Many rectangles as arrays: n × 4, left, bottom, right, top; back left, top, right, bottom as shown."""
        sides = np.asarray(sides, dtype=float)
        x, y = self.points(sides[:, 0::2].T, sides[:, 1::2].T)
        return np.array([np.minimum(*x), np.minimum(*y), np.maximum(*x), np.maximum(*y)]).T

    def ends(self, strokes: Any) -> Any:
        """Many strokes: n × 4, from point to point."""
        x, y = self.points(strokes[:, 0::2].T, strokes[:, 1::2].T)
        return np.array([x[0], y[0], x[1], y[1]]).T

    def points(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Arrays of the file's coordinates as they are shown."""
        return self._turned(_sane_places(x), _sane_places(y))

    def point(self, x: float, y: float) -> tuple[float, float]:
        """A point of the file's coordinates as it is shown."""
        return self._turned(_sane(x), _sane(y))

    def _turned(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Numbers, or arrays of them."""
        if self.quarters == 1:
            return y - self.bottom, x - self.left
        if self.quarters == 2:
            return self.right - x, y - self.bottom
        if self.quarters == 3:
            return self.top - y, self.right - x
        return x - self.left, self.top - y


def _sane(value: float) -> float:
    return min(max(value, -FARTHEST), FARTHEST) if isfinite(value) else 0.0


def _sane_places(places: Any) -> Any:
    places = np.minimum(np.maximum(places, -FARTHEST), FARTHEST)
    return np.where(places == places, places, 0.0)  # some are no number


def _plain(function: Any, result: Any, *arguments: Any) -> Any:
    """A function of PDFium that takes addresses as numbers. No other thread runs meanwhile: a call takes less time."""
    return PYFUNCTYPE(result, *arguments)(cast(function, c_void_p).value or 0)


_count = _plain(raw.FPDFText_CountRects, c_int, c_void_p, c_int, c_int)
_rectangle = _plain(raw.FPDFText_GetRect, c_int, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p)
_box = _plain(raw.FPDFText_GetLooseCharBox, c_int, c_void_p, c_int, c_void_p)
_size = _plain(raw.FPDFText_GetFontSize, c_double, c_void_p, c_int)
_font = _plain(raw.FPDFText_GetFontInfo, c_ulong, c_void_p, c_int, c_void_p, c_ulong, c_void_p)
_code = _plain(raw.FPDFText_GetUnicode, c_uint, c_void_p, c_int)
_object = _plain(raw.FPDFPage_GetObject, c_void_p, c_void_p, c_int)
_kind = _plain(raw.FPDFPageObj_GetType, c_int, c_void_p)
_form_count = _plain(raw.FPDFFormObj_CountObjects, c_int, c_void_p)
_form_object = _plain(raw.FPDFFormObj_GetObject, c_void_p, c_void_p, c_ulong)
_segment_count = _plain(raw.FPDFPath_CountSegments, c_int, c_void_p)
_segment = _plain(raw.FPDFPath_GetPathSegment, c_void_p, c_void_p, c_int)
_segment_kind = _plain(raw.FPDFPathSegment_GetType, c_int, c_void_p)
_segment_point = _plain(raw.FPDFPathSegment_GetPoint, c_int, c_void_p, c_void_p, c_void_p)
_closes = _plain(raw.FPDFPathSegment_GetClose, c_int, c_void_p)
_mode = _plain(raw.FPDFPath_GetDrawMode, c_int, c_void_p, c_void_p, c_void_p)
_get_matrix = _plain(raw.FPDFPageObj_GetMatrix, c_int, c_void_p, c_void_p)
_note = _plain(raw.FPDFPage_GetAnnot, c_void_p, c_void_p, c_int)
_note_kind = _plain(raw.FPDFAnnot_GetSubtype, c_int, c_void_p)
_close_note = _plain(raw.FPDFPage_CloseAnnot, None, c_void_p)
_FONT_NAME = 200


def address(of: Any) -> int:
    """Where something of pypdfium2 lies."""
    found: int = cast(of.raw, c_void_p).value or 0
    return found


def rectangles(text_page: Any, spans: Sequence[tuple[int, int]]) -> tuple[Any, Any, Any]:
    """Where stretches of a page stand, which may be of several fonts. `spans`: the first character of each, and how
    many. Returns for each its left, bottom, right and top side in the coordinates of the file, n × 4; which of them
    stand nowhere, n; and the sides of the pieces that they are made of, in their order."""
    handle = address(text_page)
    sides = np.empty((sum(count for _, count in spans), 4))
    to, step = sides.ctypes.data, sides.itemsize * 4  # its strides are 0 if it is empty
    counts = np.zeros(len(spans), dtype=np.intp)
    for place, (start, characters) in enumerate(spans):
        count = _count(handle, start, characters)
        if count > 0:
            counts[place] = count = min(count, characters)
            for each in range(count):
                _rectangle(handle, each, to, to + 8, to + 16, to + 24)
                to += step
    found = np.zeros((len(spans), 4))
    placed = counts > 0
    number = int(counts.sum())
    if number:
        firsts = (np.cumsum(counts) - counts)[placed]
        for side, least, column in ((0, np.minimum, 0), (1, np.minimum, 3), (2, np.maximum, 2), (3, np.maximum, 1)):
            found[placed, side] = least.reduceat(sides[:number, column], firsts)
    return found, ~placed, sides[:number]


def boxes(text_page: Any, numbers: Sequence[int]) -> tuple[Any, Any]:
    """Where characters stand, of one height for all of a font. Returns for each its left, bottom, right and top side in
    the coordinates of the file, n × 4; and which of them stand nowhere, n."""
    found = np.zeros((len(numbers), 4), dtype=np.float32)  # FS_RECTF: left, top, right, bottom
    first, step = found.ctypes.data, found.itemsize * 4
    addresses = range(first, first + step * len(numbers), step)
    placed = list(map(_box, repeat(address(text_page)), numbers, addresses))
    return found[:, [0, 3, 2, 1]].astype(float), ~np.array(placed, dtype=bool)


def codes(text_page: Any, count: int) -> Iterator[int]:
    """The code points of the first characters."""
    return map(_code, repeat(address(text_page)), range(count))


def sizes(text_page: Any, numbers: Iterable[int]) -> Iterator[float]:
    """The sizes of characters as the file states them."""
    return map(_size, repeat(address(text_page)), numbers)


def fonts(text_page: Any, numbers: Iterable[int]) -> Iterator[bytes]:
    """The names of the fonts of characters."""
    handle, name, flags = address(text_page), create_string_buffer(_FONT_NAME), c_int()
    to, also = addressof(name), addressof(flags)
    for number in numbers:
        _font(handle, number, to, _FONT_NAME, also)
        yield name.value


def objects(page: Any) -> list[tuple[int, int]]:
    """The objects of a page: the address of each, and its kind, as PDFium numbers them."""
    handles = list(map(_object, repeat(address(page)), range(raw.FPDFPage_CountObjects(page.raw))))
    return list(zip(handles, map(_kind, handles), strict=True))


def form_objects(form: int, most: int) -> list[tuple[int, int]]:
    """The same of a form within a page, which has an address: `most` of them."""
    handles = list(map(_form_object, repeat(form), range(min(_form_count(form), most))))
    return list(zip(handles, map(_kind, handles), strict=True))


def matrices(handles: Sequence[int]) -> Any:
    """How the coordinates of objects lead to those of what they are part of: n × 6."""
    found = np.zeros((len(handles), 6), np.float32)
    found[:, [0, 3]] = 1
    list(map(_get_matrix, handles, range(found.ctypes.data, found.ctypes.data + 24 * len(handles), 24)))
    return found.astype(float)


def strokes(paths: Sequence[int], outer: Any, most: int, most_of_path: int) -> tuple[Any, bool]:
    """The straight strokes of paths that are filled or drawn: n × 4, from point to point, in the coordinates of the
    page; and whether paths were left out, from `most` points in all on. `paths`: their addresses. `outer`: n × 6, the
    matrices of the forms that they are part of. `most_of_path`: points of a path, which is left out if it has more."""
    if not paths:
        return np.empty((0, 4)), False
    counts = np.fromiter(map(_segment_count, paths), np.intp, len(paths))
    modes = np.zeros((len(paths), 2), np.int32)
    fill = range(modes.ctypes.data, modes.ctypes.data + 8 * len(paths), 8)
    list(map(_mode, paths, fill, (at + 4 for at in fill)))
    drawn = ((counts > 1) & (counts <= most_of_path) & modes.any(1)).nonzero()[0]
    cut = int(np.searchsorted(np.cumsum(counts[drawn]), most, "right"))
    passed_over, drawn = cut < len(drawn), drawn[:cut]
    if not len(drawn):
        return np.empty((0, 4)), passed_over
    counts, handles = counts[drawn], [paths[number] for number in drawn.tolist()]
    owner = np.repeat(np.arange(len(handles)), counts)
    owners = chain.from_iterable(map(repeat, handles, counts.tolist()))
    segments = list(map(_segment, owners, chain.from_iterable(map(range, counts.tolist()))))
    kind = np.fromiter(map(_segment_kind, segments), np.intp, len(segments))
    starts = kind == raw.FPDF_SEGMENT_MOVETO
    starts[np.cumsum(counts) - counts] = True
    lasts = np.append(starts[1:], True).nonzero()[0]
    closed = lasts[np.fromiter(map(_closes, (segments[at] for at in lasts.tolist())), bool, len(lasts))]
    ahead = ((kind == raw.FPDF_SEGMENT_LINETO) & ~starts).nonzero()[0]
    begins = np.concatenate([ahead - 1, closed])
    ends = np.concatenate([ahead, starts.nonzero()[0][np.searchsorted(lasts, closed)]])
    needed = np.zeros(len(segments), bool)
    needed[begins] = needed[ends] = True
    places = needed.nonzero()[0]
    points = np.zeros((len(segments), 2), np.float32)
    to = (points.ctypes.data + 8 * places).tolist()
    list(map(_segment_point, (segments[at] for at in places.tolist()), to, (at + 4 for at in to)))
    x, y = _moved(outer[drawn][owner], *_moved(matrices(handles)[owner], *points.T.astype(float)))
    return np.column_stack([x[begins], y[begins], x[ends], y[ends]]), passed_over


def _moved(matrix: Any, x: Any, y: Any) -> tuple[Any, Any]:
    a, b, c, d, e, f = matrix.T
    return a * x + c * y + e, b * x + d * y + f


def notes(page: Any) -> Iterator[int]:
    """What the notes on a page are, links among them, as PDFium numbers them."""
    handle = address(page)
    for number in range(raw.FPDFPage_GetAnnotCount(page.raw)):
        note = _note(handle, number)
        yield _note_kind(note) if note else raw.FPDF_ANNOT_UNKNOWN
        _close_note(note)
