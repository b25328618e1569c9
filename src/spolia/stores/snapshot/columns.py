"""The values of a metadata field for all nodes of a group, so that a condition is looked at for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spolia.filters import AnyOf, Between, Field, Leaf
from spolia.stores.access.allowed_nodes import Mask
from spolia.types import Scalar, Time

Positions = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
_DTYPES: Mapping[str, Any] = {"str": object, "int": np.int64, "float": np.float64, "bool": np.bool_, "time": object}
_EXACT = 2**53
"""Integers up to which a float has each of them."""


@dataclass(frozen=True, eq=False)
class Column:
    """The values of a field: the node at position `rows[i]` has the value `values[codes[i]]`.

    A node may stand there more than once, or not at all; every value stands in `values` once.
    """

    rows: Positions
    codes: Codes
    values: npt.NDArray[Any]

    def holding(self, leaf: Leaf, count: int) -> Mask:
        """Which of `count` nodes have a value that fulfils a condition."""
        mask = np.zeros(count, dtype=np.bool_)
        mask[self.rows[_holding(leaf, self.values)[self.codes]]] = True
        return mask

    def moved(self, places: Positions) -> Column:
        """The nodes elsewhere: that at position `p` at `places[p]`, or gone where that is -1."""
        rows = places[self.rows]
        stays = rows >= 0
        rows, codes = rows[stays], self.codes[stays]
        if len(self.values) <= len(rows):
            return Column(rows, codes, self.values)
        used, again = np.unique(codes, return_inverse=True)  # values that nobody has any more go
        return Column(rows, again.astype(np.int32), self.values[used])


class ValueCodes:
    """Numbers for values, equal ones for equal values.

    Args:
        field: whose values these are.
        known: have the first numbers.
    """

    def __init__(self, field: Field, known: npt.NDArray[Any] | None = None) -> None:
        self.field = field
        self._known = _typed((), field) if known is None else known
        self._numbers: dict[Scalar, int] = {value: code for code, value in enumerate(self._known.tolist())}

    def codes(self, values: Iterable[Scalar]) -> Codes:
        """The number of each value of the field."""
        numbers = self._numbers
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int32)

    @property
    def values(self) -> npt.NDArray[Any]:
        """All values, in the order of their numbers."""
        fresh = list(self._numbers)[len(self._known) :]
        return np.concatenate([self._known, _typed(fresh, self.field)]) if fresh else self._known


def _typed(values: Iterable[Scalar], field: Field) -> npt.NDArray[Any]:
    """Values as an array of the field's type; of Python's own objects where numpy would not compare them as Python."""
    listed = list(values)
    array = np.empty(len(listed), dtype=_DTYPES[field.kind] if _are_exact(listed) else object)
    array[:] = [Time(str(value)) for value in listed] if field.kind == "time" else listed
    return array


def _are_exact(values: Iterable[Scalar]) -> bool:
    """Whether numpy compares these numbers as Python does, whatever their types."""
    return all(not isinstance(value, int) or -_EXACT <= value <= _EXACT for value in values)


def _holding(leaf: Leaf, values: npt.NDArray[Any]) -> Mask:
    """Which values fulfil a condition: what `leaf.holds` says, for all of them at once where numpy can."""
    if isinstance(leaf, AnyOf) and values.dtype != object and _are_exact(leaf.values):
        return np.isin(values, np.array(leaf.values))
    if isinstance(leaf, Between) and values.dtype != object and _are_exact(leaf.operands()):
        return _within(leaf, values)
    are_times = len(values) > 0 and isinstance(values[0], Time)
    holds = set(leaf.values).__contains__ if isinstance(leaf, AnyOf) and not are_times else leaf.holds
    return np.fromiter(map(holds, values.tolist()), dtype=np.bool_, count=len(values))


def _within(leaf: Between, values: npt.NDArray[Any]) -> Mask:
    mask = np.ones(len(values), dtype=np.bool_)
    for bound, compare in (
        (leaf.at_least, np.greater_equal),
        (leaf.at_most, np.less_equal),
        (leaf.above, np.greater),
        (leaf.below, np.less),
    ):
        if bound is not None:
            mask &= compare(values, bound).astype(np.bool_)
    return mask
