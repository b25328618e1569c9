"""Where something stands: characters, lines and pages of a document, rectangles on a page."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spolia.types.value import Value


@dataclass(frozen=True)
class Span(Value):
    """A stretch of a document.

    Args:
        start: first character, an offset into the document's text, from 0.
        end: one past the last character.
        pages: first and last page, from 1; None where the format has no pages.
        lines: first and last line of the document's text, from 1; None where unknown.
    """

    start: int
    end: int
    pages: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None


@dataclass(frozen=True)
class Box(Value):
    """A rectangle on a page, in points (1/72 inch) from the upper left corner of the page as it is shown.

    Args:
        page: from 1.
        left, top, right, bottom: its sides; `left <= right`, `top <= bottom`.
    """

    page: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Boxes(Value):
    """Where the lines of a document stand on its pages, packed: a long document has a hundred thousand of them.

    A node has no boxes of its own: those of its span are looked up here, so that they survive whatever a splitter or a
    merger does.

    Args:
        packed: for each line, in the order of the text, 28 bytes: start, end and page, then the four sides.

    >>> boxes = Boxes.of([(0, 9, Box(1, 72.0, 72.0, 300.0, 84.0)), (10, 19, Box(1, 72.0, 86.0, 300.0, 98.0))])
    >>> [box.top for box in boxes.within(4, 12)], len(boxes)
    ([72.0, 86.0], 2)
    """

    packed: bytes = b""

    @classmethod
    def of(cls, lines: Iterable[tuple[int, int, Box]]) -> Boxes:
        """Boxes of lines, each with its start and end in the text of the document, in this order."""
        return cls(b"".join(
            _BOX.pack(start, end, box.page, box.left, box.top, box.right, box.bottom) for start, end, box in lines
        ))  # fmt: skip

    def __len__(self) -> int:
        return len(self.packed) // _BOX.size

    def __iter__(self) -> Iterator[tuple[int, int, Box]]:
        for start, end, page, *sides in _BOX.iter_unpack(self.packed):
            yield start, end, Box(page, *sides)

    def within(self, start: int, end: int) -> tuple[Box, ...]:
        """The boxes of the lines of which a part stands between two places of the text."""
        first = bisect_right(range(len(self)), start, key=lambda at: self._line(at)[1])
        found = []
        for at in range(first, len(self)):
            begin, _, page, *sides = self._line(at)
            if begin >= end:
                break
            found.append(Box(page, *sides))
        return tuple(found)

    def _line(self, at: int) -> tuple[Any, ...]:
        return _BOX.unpack_from(self.packed, at * _BOX.size)


_BOX = struct.Struct("<3i4f")
NO_BOXES = Boxes()
