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


def to_finite(scores: Sequence[float] | Numbers) -> Numbers:
    """Return float64[n] without NaN, which counts as the lowest of the others; infinity becomes the largest number."""
    numbers = np.asarray(scores, dtype=np.float64)
    if np.isfinite(numbers).all():
        return numbers
    bounded = np.nan_to_num(numbers, nan=np.nan)  # replaces infinities only
    is_number = ~np.isnan(bounded)
    return np.where(is_number, bounded, bounded[is_number].min() if is_number.any() else 0.0)


def min_max(scores: Sequence[float]) -> tuple[list[float], float]:
    """Scale by (s - min) / (max - min): the list's best is 1, its worst 0, absent 0. All equal, or only one: all 1.

    >>> min_max([4.0, 3.0, 2.0]), min_max([5.0])
    (([1.0, 0.5, 0.0], 0.0), ([1.0], 0.0))
    """
    return _scale_from_lowest(scores).tolist(), 0.0


def theoretical_min_max(scores: Sequence[float], minimum: float) -> tuple[list[float], float]:
    """Scale by (s - m) / (max - m), m the lowest possible score of the retriever; absent 0. No score above m: all 1.

    Keeps what min-max loses: how much better the best is than the worst found. m (`minimum`) is -1 for a cosine, 0 for
    BM25; scores below it are taken as m.

    >>> theoretical_min_max([4.0, 3.0], 0.0)
    ([1.0, 0.75], 0.0)
    """
    return _scale_above(to_finite(scores), minimum).tolist(), 0.0


def _scale_from_lowest(scores: Sequence[float]) -> Numbers:
    numbers = to_finite(scores)
    return _scale_above(numbers, numbers.min(initial=math.inf))


def _scale_above(numbers: Numbers, minimum: float) -> Numbers:
    halves = numbers / 2 - minimum / 2  # so that no difference is too large for a float
    span = halves.max(initial=0.0)
    return np.maximum(halves, 0.0) / span if span > 0 else np.ones(len(numbers))


def z_score(scores: Sequence[float]) -> tuple[list[float], float]:
    """Scale by (s - μ) / σ, counted from what is absent: 3 below the mean, or the list's lowest if that is lower. So
    absent is 0, as in the other scalings, and a list of one hit gives it 3. All equal: all 3.

    >>> z_score([3.0, 1.0]), z_score([5.0])
    (([4.0, 2.0], 0.0), ([3.0], 0.0))
    """
    deviations = _deviations(scores)
    return (deviations - deviations.min(initial=-3.0)).tolist(), 0.0


def _deviations(scores: Sequence[float]) -> Numbers:
    """Return (s - μ) / σ; all 0 if all are equal."""
    values = _scale_from_lowest(scores)  # affine, so z is the same, and squares neither overflow nor vanish
    if not values.min(initial=1.0) < 1:  # all are 1, since all scores are equal: no deviation to divide by
        return values - 1
    differences = values - math.fsum(values.tolist()) / len(values)
    return differences / math.sqrt(math.fsum((differences * differences).tolist()) / len(values))


def three_sigma(scores: Sequence[float]) -> tuple[list[float], float]:
    """Scale by (s - (μ - 3σ)) / 6σ, cut to 0 … 1; absent 0. All equal: all 0.5. Known as distribution-based score
    fusion.

    >>> three_sigma([5.0])
    ([0.5], 0.0)
    """
    return np.clip((_deviations(scores) + 3) / 6, 0.0, 1.0).tolist(), 0.0
