"""How much each passage counts."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence


def weights(scores: Sequence[float], temperature: float = 1.0) -> list[float]:
    """λ = softmax(s / τ); they sum to 1.

    An infinite score counts as the largest number of its sign. One that is NaN counts nothing, unless all are, which
    then count the same.

    >>> [round(weight, 3) for weight in weights([2.0, 1.0, float("nan")])]
    [0.731, 0.269, 0.0]
    """
    known = [score for score in scores if not math.isnan(score)]
    if not known:
        return [1 / len(scores) for _ in scores]
    highest = _finite(max(known))
    likely = [0.0 if math.isnan(score) else math.exp((_finite(score) - highest) / temperature) for score in scores]
    total = math.fsum(likely)
    return [each / total for each in likely]


def _finite(score: float) -> float:
    half = sys.float_info.max / 2  # so that the difference of two is finite
    return max(-half, min(half, score))
