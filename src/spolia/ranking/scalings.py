"""Scores of lists of different kinds on a common scale; an absent document never counts more than a present one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from spolia.deferred import numpy as np

if TYPE_CHECKING:
    from spolia.types.arrays import Numbers

Scaling: TypeAlias = Callable[[Sequence[float]], tuple[list[float], float]]
"""Maps the scores of a list to values on a common scale, and gives the value of a document that is absent."""


def finite(scores: Sequence[float] | Numbers) -> Numbers:
    """float64[n] without NaN, which counts as the least of the others; infinity is the largest number of its sign."""
    given = np.asarray(scores, dtype=np.float64)
    if np.isfinite(given).all():
        return given
    found = np.nan_to_num(given, nan=np.nan)
    known = ~np.isnan(found)
    return np.where(known, found, found[known].min() if known.any() else 0.0)


def min_max(scores: Sequence[float]) -> tuple[list[float], float]:
    """(s - min) / (max - min), so that the list's best is 1 and its worst 0; absent 0. All equal, or only one: all 1.

    >>> min_max([4.0, 3.0, 2.0]), min_max([5.0])
    (([1.0, 0.5, 0.0], 0.0), ([1.0], 0.0))
    """
    return _from_least(scores).tolist(), 0.0


def theoretical_min_max(scores: Sequence[float], minimum: float) -> tuple[list[float], float]:
    """(s - m) / (max - m) with m the least score that the retriever could give; absent 0. No score above m: all 1.

    Keeps what min-max loses: how much better the best is than the worst found. m (`minimum`) is -1 for a cosine, 0 for
    BM25; scores below it are taken as m.

    >>> theoretical_min_max([4.0, 3.0], 0.0)
    ([1.0, 0.75], 0.0)
    """
    return _above(finite(scores), minimum).tolist(), 0.0


def _from_least(scores: Sequence[float]) -> Numbers:
    given = finite(scores)
    return _above(given, given.min(initial=math.inf))


def _above(given: Numbers, minimum: float) -> Numbers:
    halves = given / 2 - minimum / 2  # so that no difference is too large for a float
    span = halves.max(initial=0.0)
    return np.maximum(halves, 0.0) / span if span > 0 else np.ones(len(given))


def z_score(scores: Sequence[float]) -> tuple[list[float], float]:
    """(s - μ) / σ over the list, counted from what is absent: 3 below the mean, or the list's least if that is lower.
    So absent is 0, as in the other scalings, and a list of one hit gives it 3. All equal: all 3.

    >>> z_score([3.0, 1.0]), z_score([5.0])
    (([4.0, 2.0], 0.0), ([3.0], 0.0))
    """
    found = _deviations(scores)
    return (found - found.min(initial=-3.0)).tolist(), 0.0


def _deviations(scores: Sequence[float]) -> Numbers:
    """(s - μ) / σ; all equal: all 0."""
    values = _from_least(scores)  # affine, so z is the same, and squares neither overflow nor vanish
    if not values.min(initial=1.0) < 1:
        return values - 1
    apart = values - math.fsum(values.tolist()) / len(values)
    return apart / math.sqrt(math.fsum((apart * apart).tolist()) / len(values))


def three_sigma(scores: Sequence[float]) -> tuple[list[float], float]:
    """(s - (μ - 3σ)) / 6σ, cut to 0 … 1; absent 0. All equal: all 0.5. Also called distribution-based score fusion.

    >>> three_sigma([5.0])
    ([0.5], 0.0)
    """
    return np.clip((_deviations(scores) + 3) / 6, 0.0, 1.0).tolist(), 0.0
