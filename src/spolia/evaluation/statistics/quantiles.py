"""Quantiles of Student's t."""

from __future__ import annotations

from statistics import NormalDist

NORMAL = NormalDist()
EXPANSION = (
    (4, (0, 1, 1)),
    (96, (0, 3, 16, 5)),
    (384, (0, -15, 17, 19, 3)),
    (92160, (0, -945, -1920, 1482, 776, 79)),
)
"""Of each power of 1/ν: what it is divided by, and the coefficients of z⁻¹, z¹, z³, z⁵, …"""


def student(level: float, freedom: int) -> float:
    """The t that a share `level` of the two-sided distribution with `freedom` degrees lies within.

    By the expansion of Fisher and Cornish in powers of 1/ν: to a percent for ν = 2, to 1e-4 from ν = 10.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, 26.7.5.

    >>> round(student(0.95, 2), 2), round(student(0.95, 29), 4)  # 4.30, 2.0452
    (4.27, 2.0452)
    """
    z = NORMAL.inv_cdf((1 + level) / 2)
    found = z
    for power, (divided, coefficients) in enumerate(EXPANSION, start=1):
        terms = sum(coefficient * z ** (2 * i - 1) for i, coefficient in enumerate(coefficients))
        found += terms / divided / float(freedom) ** power
    return found
