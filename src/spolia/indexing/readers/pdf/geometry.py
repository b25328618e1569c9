"""Rectangles on a page as it is shown: points from its upper left corner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, Self

import numpy as np

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

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies in it."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def meets(self, other: Area) -> bool:
        """Whether a part of both is the same."""
        return self[1] < other[3] and other[1] < self[3] and self[0] < other[2] and other[0] < self[2]

    def beside(self, other: Area) -> float:
        """How much of the narrower one's width both share, from 0 to 1."""
        shared = min(self.right, other.right) - max(self.left, other.left)
        return max(0.0, shared / max(min(self.width, other.width), 0.1))

    def level(self, other: Area) -> float:
        """How much of the lower one's height both share, from 0 to 1."""
        shared = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, shared / max(min(self.height, other.height), 0.1))

    @classmethod
    def around(cls, areas: Iterable[Area]) -> Self:
        """The smallest one around some.

        >>> Area.around([Area(0, 0, 1, 1), Area(2, 1, 3, 4)])
        Area(left=0, top=0, right=3, bottom=4)
        """
        lefts, tops, rights, bottoms = zip(*areas, strict=True)
        return cls(min(lefts), min(tops), max(rights), max(bottoms))


_area = partial(tuple.__new__, Area)  # `Area._make` without a frame of Python for each line of a document


@dataclass(frozen=True)
class VisiblePage:
    """The visible part of a page and how it is turned: leads from the file's coordinates to those of a reader's eye.

    Args:
        left, bottom, right, top: of the visible part, in the file's coordinates, where y grows upwards.
        quarters: clockwise turns by 90° when it is shown.

    >>> VisiblePage(0, 0, 600, 800, quarters=1).area(10, 20, 110, 40)  # a line below becomes a column at the left
    Area(left=20, top=10, right=40, bottom=110)
    """

    left: float
    bottom: float
    right: float
    top: float
    quarters: int = 0

    @classmethod
    def of(cls, page: Any) -> VisiblePage:
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
        if not self.quarters and -FARTHEST < left <= right < FARTHEST and -FARTHEST < bottom <= top < FARTHEST:
            return Area(left - self.left, self.top - top, right - self.left, self.top - bottom)
        (a, b), (c, d) = self.point(left, bottom), self.point(right, top)
        return Area(min(a, c), min(b, d), max(a, c), max(b, d))

    def areas(self, sides: Any) -> list[Area]:
        """Many rectangles at once: n × 4, left, bottom, right, top.

        >>> VisiblePage(0, 0, 600, 800, quarters=1).areas([[10, 20, 110, 40]])
        [Area(left=20.0, top=10.0, right=40.0, bottom=110.0)]
        """
        return list(map(_area, self.shown(sides).tolist()))

    def shown(self, sides: Any) -> Any:
        """Many rectangles as arrays: n × 4, left, bottom, right, top; back left, top, right, bottom as shown."""
        sides = np.asarray(sides, dtype=float)
        sane = np.where(np.isfinite(sides), np.clip(sides, -FARTHEST, FARTHEST), 0.0)
        x, y = self._turned(sane[:, 0::2], sane[:, 1::2])
        return np.column_stack([x.min(1), y.min(1), x.max(1), y.max(1)])

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
