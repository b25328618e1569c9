"""Arithmetic of upper bounds, where None says that nothing is known."""

from collections.abc import Iterable
from typing import TypeAlias

Bound: TypeAlias = int | None


def total(bounds: Iterable[Bound]) -> Bound:
    """The sum.

    >>> total([1, 2]), total([1, None])
    (3, None)
    """
    known = list(bounds)
    return None if None in known else sum(bound for bound in known if bound is not None)


def times(first: Bound, second: Bound) -> Bound:
    """The product; nothing is done an unknown number of times for nothing.

    >>> times(2, 3), times(None, 3), times(None, 0)
    (6, None, 0)
    """
    if first == 0 or second == 0:
        return 0
    return None if first is None or second is None else first * second


def most(bounds: Iterable[Bound]) -> Bound:
    """The largest.

    >>> most([1, 2]), most([1, None])
    (2, None)
    """
    known = list(bounds)
    return None if None in known else max((bound for bound in known if bound is not None), default=0)


def unknown(op: object, rows: int | None = None, /) -> Bound:
    """The bound of an operator that asks once for each of its hits: `calls = unknown`."""
    return None


def least(*bounds: Bound) -> Bound:
    """The smallest of those that are known.

    >>> least(3, None), least(None)
    (3, None)
    """
    return min((bound for bound in bounds if bound is not None), default=None)
