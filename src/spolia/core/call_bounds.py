"""Arithmetic of upper bounds, where None says that nothing is known."""

from collections.abc import Iterable
from typing import TypeAlias

Bound: TypeAlias = int | None


def total(bounds: Iterable[Bound]) -> Bound:
    """The sum; None if one is unknown."""
    known = list(bounds)
    return None if None in known else sum(bound for bound in known if bound is not None)


def times(first: Bound, second: Bound) -> Bound:
    """The product; 0 if one is 0, whatever the other is."""
    if first == 0 or second == 0:
        return 0
    return None if first is None or second is None else first * second


def most(bounds: Iterable[Bound]) -> Bound:
    """The largest; None if one is unknown."""
    known = list(bounds)
    return None if None in known else max((bound for bound in known if bound is not None), default=0)


def unknown(op: object, rows: int | None = None, /) -> Bound:
    """The bound of an operator that asks once for each of its hits: `calls = unknown`."""
    return None


def least(*bounds: Bound) -> Bound:
    """The smallest known bound."""
    return min((bound for bound in bounds if bound is not None), default=None)
