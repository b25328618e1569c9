"""Columns that a file draws row by row: the white space between them, found by where pieces of text follow each other.

Most files draw columns one after the other. Others draw the first line of each column, then the second of each; read
in that order, sentences of different columns mix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import numpy as np

from spolia.indexing.readers.pdf.geometry import Area, middle_value, steps

_LEAST_GAP = 6.0
"""Points between columns."""
_LEAST_ROWS = 4
_LEAST_STRETCH = 3
_LEAST_EMS = 11.0
"""Width of a column, in heights of its lines: cells of tables without rules are narrower."""
_LEAST_FILLED = 0.66
"""Share of the column's width that the letters of its lines take: in prose they do, in cells of tables not."""
_SHORT_LINES = 0.3
"""Share of the lines of a column that may be shorter, as at the ends of paragraphs."""
_LEAST_SHARE = 0.5
"""Share of the rows of a column that have a row of the next column beside them."""
_MOST_GUTTERS = 8
_FARTHEST = 2.0
"""Heights of a line between lines of a column."""


@dataclass(frozen=True)
class Gutter:
    """White space between two columns: its sides, and from where to where it goes down."""

    left: float
    top: float
    bottom: float
    right: float

    @property
    def middle(self) -> float:
        """Return the middle of its width."""
        return (self.left + self.right) / 2

    def crosses(self, area: Area) -> bool:
        """Return whether a line of text goes through it."""
        return self.top <= area.middle[1] <= self.bottom and area.left < self.left and self.right < area.right

    def side(self, area: Area) -> int:
        """Return on which side a line stands: -1 left, 1 right, 0 across, above or below."""
        if not self.top <= area.middle[1] <= self.bottom:
            return 0
        return -1 if area.right <= self.right else 1 if area.left >= self.left else 0


def gutters_of(pieces: Any, tables: Sequence[Area] = ()) -> list[Gutter]:
    """Find the gutters between columns that are drawn row by row. `pieces`: n × 4, where the pieces of text stand on a
    page, in the order of the file; left, top, right, bottom as shown. `tables`: no gutter goes through them."""
    if len(pieces) < 2 * _LEAST_ROWS:
        return []
    for table in tables:
        x, y = (pieces[:, 0] + pieces[:, 2]) / 2, (pieces[:, 1] + pieces[:, 3]) / 2
        pieces = pieces[(x < table.left) | (x > table.right) | (y < table.top) | (y > table.bottom)]
    left, top, right, bottom = pieces.T
    gap = left[1:] - right[:-1]
    if (gap >= _LEAST_GAP).sum() < _LEAST_ROWS:  # nearly all pages, which saves time
        return []
    bottom = np.maximum(bottom, top + 1.0)  # letters of a font that is missing have no height
    pieces = np.array([left, top, right, bottom]).T
    height = bottom - top
    smaller_height = np.minimum(height[:-1], height[1:])
    level = abs(steps(top + bottom)) < 2 * smaller_height  # columns may have different base lines
    pairs = (level & (gap >= np.maximum(_LEAST_GAP, 0.6 * smaller_height))).nonzero()[
        0
    ]  # each with the piece that follows
    if len(pairs) < _LEAST_ROWS or middle_value(right - left) < middle_value(height):  # text from the top down
        return []
    rows = np.concatenate([[0], np.cumsum(~level | (gap < -smaller_height))])
    walls = np.array([((table.top + table.bottom) / 2, table.left, table.right) for table in tables]).reshape(-1, 3)
    gutters: list[Gutter] = []
    for _ in range(_MOST_GUTTERS):
        if len(pairs) < _LEAST_ROWS:
            break
        place = _densest_place(right[pairs], left[pairs + 1])
        is_here = (right[pairs] <= place) & (left[pairs + 1] >= place)
        if is_here.sum() < _LEAST_ROWS:
            break
        sides = float(right[pairs[is_here]].max()), float(left[pairs[is_here] + 1].min())
        if sides[1] - sides[0] >= _LEAST_GAP and _is_prose(pieces, rows, rows[pairs[is_here]], *sides):
            gutters += _find_stretches(pieces, rows, walls, rows[pairs[is_here]], *sides)
        pairs = pairs[~is_here]
    return gutters


def _is_prose(pieces: Any, rows: Any, gutter_rows: Any, left: float, right: float) -> bool:
    """Return whether the lines on both sides of a gutter fill their columns. `rows`: of each piece. `gutter_rows`: the
    rows that have the gutter."""
    number = np.searchsorted(gutter_rows, rows)
    is_inside = (number < len(gutter_rows)) & (gutter_rows[np.minimum(number, len(gutter_rows) - 1)] == rows)
    widths, number, pieces = (pieces[:, 2] - pieces[:, 0])[is_inside], number[is_inside], pieces[is_inside]
    height = middle_value(pieces[:, 3] - pieces[:, 1])
    for side_mask, edge in ((pieces[:, 2] <= left + 1, left), (pieces[:, 0] >= right - 1, right)):
        ink = np.bincount(number[side_mask], widths[side_mask], len(gutter_rows))
        outer_edge = _quantile(pieces[side_mask, 0], 0.05) if edge == left else _quantile(pieces[side_mask, 2], 0.95)
        column = abs(edge - outer_edge)
        if column < _LEAST_EMS * height or _quantile(ink, _SHORT_LINES) < _LEAST_FILLED * column:
            return False
    return True


def _quantile(values: Any, share: float) -> float:
    """Return the value below which a share of all lies, between two of them in proportion. `np.percentile` takes ten
    times as long for the few values of a page (benchmarks/pdf.py)."""
    rising = np.sort(values).tolist()
    place = (len(rising) - 1) * share
    low, high = rising[floor(place)], rising[ceil(place)]
    return float(low + (high - low) * (place - floor(place)))


def _densest_place(starts: Any, ends: Any) -> float:
    """Return a place that most intervals hold."""
    places = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])
    order = np.lexsort((-steps, places))
    depth = np.cumsum(steps[order])
    best = int(depth.argmax())
    following = min(best + 1, len(order) - 1)
    return float(places[order[best]] + places[order[following]]) / 2


def _find_stretches(pieces: Any, rows: Any, walls: Any, gutter_rows: Any, left: float, right: float) -> list[Gutter]:
    """Return the gutter, from the first to the last row beside it, in parts if text or a table is across it. `walls`: n
    × 3, the height of a table, its left and its right side."""
    middle = (left + right) / 2
    gutters: list[Gutter] = []
    crossing = (pieces[:, 0] < middle) & (pieces[:, 2] > middle)
    tables = walls[(walls[:, 1] < middle) & (walls[:, 2] > middle), 0]
    ends = np.sort(np.concatenate([(pieces[crossing, 1] + pieces[crossing, 3]) / 2, tables]))
    pieces, rows = pieces[~crossing], rows[~crossing]
    parts = np.searchsorted(ends, (pieces[:, 1] + pieces[:, 3]) / 2)
    has_gutter = np.isin(rows, gutter_rows)
    for part in np.unique(parts[has_gutter]):
        is_here = has_gutter & (parts == part)
        top, bottom = pieces[is_here, 1].min(), pieces[is_here, 3].max()
        level = (parts == part) & (pieces[:, 1] < bottom) & (pieces[:, 3] > top)
        most_rows = max(len(np.unique(rows[level & side])) for side in (pieces[:, 0] < middle, pieces[:, 0] > middle))
        if len(np.unique(rows[is_here])) >= max(_LEAST_STRETCH, _LEAST_SHARE * most_rows):
            gutters.append(Gutter(left, *_extend(pieces[parts == part], top, bottom), right))
    return gutters


def _extend(rectangles: Any, top: float, bottom: float) -> tuple[float, float]:
    """Extend a stretch by the lines above and below it that follow closely: one column is longer than the other."""
    for upper, lower in sorted(rectangles[:, [1, 3]].tolist()):
        if upper - bottom < _FARTHEST * (lower - upper):
            bottom = max(bottom, lower)
    for upper, lower in sorted(rectangles[:, [1, 3]].tolist(), reverse=True):
        if top - lower < _FARTHEST * (lower - upper):
            top = min(top, upper)
    return top, bottom
