"""Paired permutation tests: how often a difference as large as this comes of signs drawn by lot."""

from __future__ import annotations

from itertools import product
from math import comb, log, sqrt
from typing import TYPE_CHECKING, TypeAlias

from spolia.evaluation.statistics.quantiles import NORMAL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

CELLS = 1 << 20
ALL = 12
"""With so many differences that are not zero, all signs are tried."""
RARE = 10
"""Where fewer draws than this reach the difference, how rare it is is computed."""
ROUNDING = 1e-9


def flipped_sums(scores: Floats, draws: int, seed: int) -> Floats:
    """Sums of every column with a sign for each row drawn by lot, the same signs for all columns.

    The sum of the differences of two columns is then the difference of their sums.

    Args:
        scores: shape (questions, columns).

    Returns:
        Shape (draws, columns).
    """
    import numpy as np

    n, random = len(scores), np.random.default_rng(seed)
    found, size = [], max(1, CELLS // n)
    for start in range(0, draws, size):
        signs = 2.0 * random.integers(0, 2, (min(size, draws - start), n), dtype=np.int8) - 1.0
        found.append(signs @ scores)
    return np.concatenate(found)


def sign_flip(differences: Floats, drawn: Floats) -> float:
    """The two-sided p-value of differences of the same questions: how often |Σ ± d| >= |Σ d|.

    If two flows were equally good, each difference might as well have the other sign. All signs are tried where few
    differences are not zero, or counted where all are as large; else those drawn decide, and where fewer than ten of
    them reach the difference, the tail is computed.

    Args:
        differences: one for each question.
        drawn: their sums under signs that were drawn.

    Source: Fisher 1935; Smucker, Allan and Carterette 2007 for measures of retrieval.

    >>> import numpy as np
    >>> sign_flip(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]), np.zeros(0))  # 2 of 2 ** 5
    0.0625
    """
    import numpy as np

    d = np.abs(differences[differences != 0])
    x = abs(float(differences.sum())) * (1 - ROUNDING)
    if not d.size or x == 0:
        return 1.0
    if np.ptp(d) <= ROUNDING * d[0]:
        return _counted(d.size, round(x / d[0]))
    if d.size <= ALL:
        signs = np.array(list(product((1.0, -1.0), repeat=d.size)))
        return float((np.abs(signs @ d) >= x).mean())
    reached = int((np.abs(drawn) >= x).sum())
    return (1 + reached) / (1 + drawn.size) if reached >= RARE else min(1.0, tail(d, x))


def _counted(n: int, x: int) -> float:
    """The sign test: 2 P(ahead - behind >= x) of n."""
    right = (n + x + 1) // 2
    ways: int = sum(comb(n, k) for k in range(right, n + 1))
    return min(1.0, float(2 * ways / 2**n))


def tail(sizes: Floats, x: float) -> float:
    """2 P(Σ ± d >= x) by a saddle point: with K(t) = Σ ln cosh(t d) and K'(t) = x,

        P = 1 - Φ(r) + φ(r) (1/u - 1/r),  r = √(2(tx - K)),  u = t √K''.

    Args:
        sizes: the absolute differences.

    Source: Lugannani and Rice 1980; Robinson 1982 for permutation tests.
    """
    import numpy as np

    least = 2.0 ** (1 - int(sizes.size))
    low, high = 0.0, 1 / float(sizes.mean())
    while float(sizes @ np.tanh(high * sizes)) < x and high < 1e6 / float(sizes.max()):
        high *= 2
    for _ in range(60):
        t = (low + high) / 2
        low, high = (t, high) if float(sizes @ np.tanh(t * sizes)) < x else (low, t)
    k = float(np.logaddexp(t * sizes, -t * sizes).sum() - sizes.size * log(2))
    r = sqrt(max(2 * (t * x - k), 0.0))
    curve = float((sizes / np.cosh(np.minimum(t * sizes, 300.0))) @ (sizes / np.cosh(np.minimum(t * sizes, 300.0))))
    u = t * sqrt(curve)
    if r < 1e-6 or u < 1e-12:
        return least if r > 1 else 1.0
    return max(least, 2 * (NORMAL.cdf(-r) + NORMAL.pdf(r) * (1 / u - 1 / r)))
