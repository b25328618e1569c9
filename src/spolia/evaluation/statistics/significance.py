"""Tests of paired differences, and corrections of their p-values where many are looked at."""

from collections.abc import Callable, Mapping, Sequence
from math import comb, exp, log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Correction: TypeAlias = Callable[[Sequence[float]], list[float]]


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values so that with all of them below α, any false claim at all is made with a probability of at most α.

    The i-th smallest of m is multiplied by m - i + 1, and is no smaller than the one before.

    Source: Holm 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, floor = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        floor = max(floor, min(1.0, p[index] * (len(p) - rank)))
        adjusted[index] = floor
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjust p-values so that of the claims made at α, a share of at most α is false on average.

    The i-th smallest of m is multiplied by m / i, and is no larger than the one after.

    Source: Benjamini and Hochberg 1995; valid for tests that are positively dependent, as on the same questions.

    >>> [round(one, 3) for one in benjamini_hochberg([0.01, 0.04, 0.03])]
    [0.03, 0.04, 0.04]
    """
    adjusted, ceiling = [0.0] * len(p), 1.0
    for rank, index in reversed(list(enumerate(sorted(range(len(p)), key=p.__getitem__), start=1))):
        ceiling = min(ceiling, p[index] * len(p) / rank)
        adjusted[index] = ceiling
    return adjusted


CORRECTIONS: Mapping[str, Correction] = {"holm": holm, "bh": benjamini_hochberg, "none": list}
"""By the name that `Experiment` and the command line take."""


CELLS = 1 << 20
"""Draws that are in memory at the same time."""
ALL = 30
"""Up to this many differences other than zero, all signs are counted."""
CACHED = 1 << 15
"""Draws that are numbers at the same time: so few stay in the processor's cache, which makes the sums four times as
fast."""
ROUNDING = 1e-9
HALVINGS = 60


def flipped_sums(scores: Floats, draws: int, seed: int) -> Floats:
    """Sum scores (questions, columns) with random signs of the rows, the same for all columns; the result is (draws,
    columns)."""
    n = len(scores)
    random = np.random.default_rng(seed)
    # Blocks of draws bound the memory that their signs take.
    drawn_rows = max(1, CELLS // n)
    summed_rows = max(1, CACHED // n)
    positive = np.empty((summed_rows, n))  # 1 where a sign is positive
    sums = np.empty((draws, scores.shape[1]))
    for start in range(0, draws, drawn_rows):
        signs = random.integers(0, 2, (min(drawn_rows, draws - start), n), dtype=np.int8)
        for row in range(0, len(signs), summed_rows):
            block = signs[row : row + summed_rows]
            positive[: len(block)] = block
            np.matmul(positive[: len(block)], scores, out=sums[start + row : start + row + len(block)])
    return np.asarray(2 * sums - scores.sum(axis=0))


def sign_flip(differences: Floats, draw: Callable[[], Floats]) -> float:
    """Return the two-sided p-value of differences of the same questions: how often |Σ ± d| >= |Σ d|.

    If two flows were equally good, each difference might as well have the other sign. All signs are counted where at
    most thirty differences are not zero, or where all are as large; else those drawn decide, or a bound that holds for
    all signs where it says more, so that a large and steady difference is as rare as it is.

    Args:
        draw: gives their sums under signs that are drawn; called only where these decide.

    Source: Fisher 1935; Smucker, Allan and Carterette 2007 for measures of retrieval; Phipson and Smyth 2010 for the 1
    that is added to what was drawn.

    >>> sign_flip(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]), lambda: np.zeros(0))  # 2 of 2 ** 5
    0.0625
    """
    d = np.abs(differences[differences != 0])
    # Sums that equal the observed one but for rounding count as reaching it.
    x = abs(float(differences.sum())) - ROUNDING * float(d.sum())
    if x <= 0:
        return 1.0
    # Differences of one size make this a sign test, which is counted exactly for any number of questions.
    if np.ptp(d) <= ROUNDING * d[0]:
        return _sign_test(d.size, round(x / d[0]))
    if d.size <= ALL:
        return all_signs(d, x)
    sums = np.abs(draw())
    return min((1 + int((sums >= x).sum())) / (1 + sums.size), chernoff_bound(d, x))


def _sign_test(n: int, x: int) -> float:
    """Return 2 P(ahead - behind >= x) of n: the sign test."""
    right = (n + x + 1) // 2
    ways: int = sum(comb(n, k) for k in range(right, n + 1))
    return min(1.0, float(2 * ways / 2**n))


def all_signs(sizes: Floats, x: float) -> float:
    """Compute 2 P(Σ ± d >= x) over all signs: each sum of one half of them needs a sum of the other that is large
    enough.

    Source: Pagano and Tritchler 1983 for counting all; Horowitz and Sahni 1974 for the halves.
    """
    # Two halves of up to 15 differences have 2^15 sums each; all of them have 2^30.
    ours, theirs = (_signed_sums(half) for half in np.array_split(sizes, 2))
    enough = theirs.size - np.searchsorted(np.sort(theirs), x - ours)
    return min(1.0, float(2 * enough.sum() / 2.0**sizes.size))


def _signed_sums(sizes: Floats) -> Floats:
    """Return Σ ± d for all signs."""
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums + size, sums - size])
    return sums


def chernoff_bound(sizes: Floats, x: float) -> float:
    """Bound 2 P(Σ ± d >= x) by 2 exp(K(t) - t x), K(t) = Σ ln cosh(t d), at the t where that is smallest.

    It holds for all sizes, and is 2 ** (1 - n) where all signs must agree.

    Source: Chernoff 1952.
    """
    low, high = 0.0, 1 / float(sizes.mean())
    # Where all signs must agree, no t is large enough; here every tanh has long reached 1.
    while float(sizes @ np.tanh(high * sizes)) < x and high < 1e6 / float(sizes.max()):
        high *= 2
    for _ in range(HALVINGS):
        t = (low + high) / 2
        low, high = (t, high) if float(sizes @ np.tanh(t * sizes)) < x else (low, t)
    k = float(np.logaddexp(high * sizes, -high * sizes).sum() - sizes.size * log(2))
    return min(1.0, 2 * exp(k - high * x))
