"""The order of scores."""

from __future__ import annotations

import math


def falling(score: float) -> float:
    """A key that sorts scores from the best to the worst; NaN, which no comparison holds for, is of the worst.

    >>> sorted([1.0, math.nan, 3.0, 2.0], key=falling)
    [3.0, 2.0, 1.0, nan]
    """
    return math.inf if math.isnan(score) else -score
