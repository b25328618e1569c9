"""What stands below a picture or above a table and says what it is: `Figure 3: A column`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from spolia.indexing.readers.pages.area import Area
from spolia.indexing.readers.pages.line import Line

_FIGURE = r"Fig(?:ure|ura)?|Abb(?:ildung)?|Bild|Рис(?:унок)?|图|圖|図|그림|Image|Chart|Diagram|Scheme|Plate"
_TABLE = r"Tab(?:le|elle|leau|la|ela)?|Таблица|表|표"
_BEGINS = {
    kind: re.compile(rf"(?:{words})s?\.?\s*[A-Z]?\.?[\dIVX]+(?:\.\d+)*\s*(?:[.:|—–-]|\s|$)", re.IGNORECASE)
    for kind, words in (("image", _FIGURE), ("table", _TABLE))
}
_FARTHEST = 60.0
_MOST_LINES = 12


def caption_of(area: Area, kind: str, lines: Sequence[Line]) -> Sequence[Line]:
    """The lines of the nearest caption above or below a region; none if there is none.

    Args:
        kind: `image` or `table`.
        lines: of the page, in the order in which they are read.
    """
    found = [
        (distance, number)
        for number, line in enumerate(lines)
        if line.table is None and _BEGINS[kind].match(line.text) and area.beside(line.area) > 0.3
        if (distance := max(line.area.top - area.bottom, area.top - line.area.bottom)) < _FARTHEST
    ]
    return list(_paragraph(lines, min(found)[1])) if found else ()


def _paragraph(lines: Sequence[Line], first: int) -> Iterator[Line]:
    """A line and those that go on close below it."""
    yield lines[first]
    for before, line in zip(lines[first:], lines[first + 1 : first + _MOST_LINES], strict=False):
        there, height = line.area, max(before.area.height, 1.0)
        close = before.area.level(there) > 0.4 or there.top - before.area.bottom < 0.6 * height
        if line.table or not close or (before.area.beside(there) < 0.3 and before.area.level(there) <= 0.4):
            return
        if there.top < before.area.top - height or any(begins.match(line.text) for begins in _BEGINS.values()):
            return
        yield line
