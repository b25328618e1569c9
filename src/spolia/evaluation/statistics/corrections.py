"""What is left of p-values when many differences are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Correction: TypeAlias = Callable[[Sequence[float]], list[float]]


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted so that with all of them below α, any false claim at all is made with a probability of at most α.

    The i-th smallest of m is multiplied by m - i + 1, and is no smaller than the one before.

    Source: Holm 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    found, least = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        least = max(least, min(1.0, p[index] * (len(p) - rank)))
        found[index] = least
    return found


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjusted so that of the claims made at α, a share of at most α is false on average.

    The i-th smallest of m is multiplied by m / i, and is no larger than the one after.

    Source: Benjamini and Hochberg 1995; valid for tests that are positively dependent, as on the same questions.

    >>> [round(one, 3) for one in benjamini_hochberg([0.01, 0.04, 0.03])]
    [0.03, 0.04, 0.04]
    """
    found, most = [0.0] * len(p), 1.0
    for rank, index in reversed(list(enumerate(sorted(range(len(p)), key=p.__getitem__), start=1))):
        most = min(most, p[index] * len(p) / rank)
        found[index] = most
    return found


CORRECTIONS: Mapping[str, Correction] = {"holm": holm, "bh": benjamini_hochberg, "none": list}
"""By the name that `Experiment` and the command line take."""
