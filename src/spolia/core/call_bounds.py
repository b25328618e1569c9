"""Arithmetic of upper bounds, where None says that nothing is known."""

from collections.abc import Iterable
from typing import TypeAlias

Bound: TypeAlias = int | None


def total(bounds: Iterable[Bound]) -> Bound:
    """Return the sum; None if a bound is unknown."""
    values = list(bounds)
    return None if None in values else sum(bound for bound in values if bound is not None)


def times(first: Bound, second: Bound) -> Bound:
    """Return the product; 0 if one is 0, even if the other is unknown."""
    if first == 0 or second == 0:
        return 0
    return None if first is None or second is None else first * second


def largest(bounds: Iterable[Bound]) -> Bound:
    """Return the largest; None if a bound is unknown."""
    values = list(bounds)
    return None if None in values else max((bound for bound in values if bound is not None), default=0)


def unknown(op: object, rows: int | None = None, /) -> Bound:
    """Return None: the bound of an operator that asks once for each of its hits, as `calls = unknown`."""
    return None


def smallest(*bounds: Bound) -> Bound:
    """Return the smallest known bound."""
    return min((bound for bound in bounds if bound is not None), default=None)
