"""The metadata of a group's nodes as columns, so that a filter is looked at for all of them at once.

A column holds the values of one field: for each value the position of the node that has it. A node may stand there more
than once, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from spolia.errors import FilterError
from spolia.filters import And, AnyOf, Between, Field, Leaf, Not, Or, Schema
from spolia.stores.reading.allowed import Allowed, Mask
from spolia.stores.tables import sql
from spolia.types import Filter, Meta, Scalar

Positions = npt.NDArray[np.int64]
_DTYPES: Mapping[str, Any] = {"str": object, "int": np.int64, "float": np.float64, "bool": np.bool_}
_MASKS_KEPT = 64
_EXACT = 2**53
"""Integers up to which a float has each of them."""


@dataclass(frozen=True, eq=False)
class Column:
    """The values of a field: `values[i]` belongs to the node at position `rows[i]`."""

    rows: Positions
    values: npt.NDArray[Any]


class Records:
    """What is known of the nodes of a group at a generation, for filters and access.

    Args:
        rows: runs a statement and gives its rows.
        group: name of the group.
        generation: at which.
        schema: the declared fields.
    """

    def __init__(self, rows: Callable[[str, Any], list[Any]], group: str, generation: int, schema: Schema) -> None:
        self.schema, self._rows, self._at = schema, rows, {"at": generation}
        found = rows(sql.RECORDS, {"grp": group, "at": generation})
        self.keys = np.array([row[0] for row in found], dtype=np.int64)
        self._documents = np.array([row[1] for row in found], dtype=np.int64)
        self._audiences = np.array([row[2] for row in found], dtype=np.int64)
        self._own = {position: _meta(row[3]) for position, row in enumerate(found) if row[3]}
        self._inherited: dict[int, Meta] | None = None
        self._columns: dict[str, Column] = {}
        self._masks: dict[object, Mask] = {}

    def allowed(self, audiences: frozenset[int] | None, filter: Filter | None) -> Allowed:
        """The nodes of these audiences that fulfil a filter.

        Args:
            audiences: None for all.
            filter: None for all.

        Raises:
            FilterError: for a field that is not declared, or values of another type.
        """
        if audiences is None and filter is None:
            return Allowed(self.keys)
        key = (audiences, None if filter is None else filter.digest)  # 1 and True are equal, and not one condition
        mask = self._masks.get(key)
        if mask is None:
            mask = np.ones(len(self.keys), dtype=np.bool_) if filter is None else self._mask(filter)
            if audiences is not None:
                mask = mask & np.isin(self._audiences, list(audiences))
            if len(self._masks) >= _MASKS_KEPT:
                self._masks = {}
            self._masks[key] = mask
        return Allowed(self.keys, mask)

    # Filters.

    def _mask(self, filter: Filter) -> Mask:
        if isinstance(filter, And):
            return reduce(np.logical_and, map(self._mask, filter.filters), self._all())
        if isinstance(filter, Or):
            return reduce(np.logical_or, map(self._mask, filter.filters), ~self._all())
        if isinstance(filter, Not):
            return ~self._mask(filter.filter)
        if isinstance(filter, Leaf):
            return self._leaf(filter)
        raise FilterError(
            f"{filter!r} is no filter that a store knows. Write one of spolia.filters: AnyOf, Between, And, Or, Not."
        )

    def _all(self) -> Mask:
        return np.ones(len(self.keys), dtype=np.bool_)

    def _leaf(self, leaf: Leaf) -> Mask:
        self.schema.check(leaf)
        column = self._column(self.schema.by_name[leaf.field])
        mask = np.zeros(len(self.keys), dtype=np.bool_)
        mask[column.rows[_holding(leaf, column.values)]] = True
        return mask

    # Columns.

    def _column(self, field: Field) -> Column:
        found = self._columns.get(field.name)
        if found is None:
            found = self._columns[field.name] = self._made(field)
        return found

    def _made(self, field: Field) -> Column:
        documents, places = np.unique(self._documents, return_inverse=True)
        inherited = self._of_documents()
        values: list[Scalar] = []
        starts = np.zeros(len(documents) + 1, dtype=np.int64)
        for number, document in enumerate(documents):
            values += [value for name, value in inherited.get(int(document), ()) if name == field.name]
            starts[number + 1] = len(values)
        counts = np.diff(starts)[places]
        rows = np.repeat(np.arange(len(self.keys)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        taken = _typed(values, field)[np.repeat(starts[:-1][places], counts) + within]
        return self._with_own_and_default(field, Column(rows, taken))

    def _with_own_and_default(self, field: Field, inherited: Column) -> Column:
        own = [
            (position, value)
            for position, meta in self._own.items()
            for name, value in meta
            if name == field.name and value is not None
        ]
        rows = np.concatenate([inherited.rows, np.array([position for position, _ in own], dtype=np.int64)])
        values = np.concatenate([inherited.values, _typed([value for _, value in own], field)])
        if field.default is None:
            return Column(rows, values)
        without = np.setdiff1d(np.arange(len(self.keys)), rows)
        return Column(
            np.concatenate([rows, without]),
            np.concatenate([values, _typed([field.default] * len(without), field)]),
        )

    def _of_documents(self) -> dict[int, Meta]:
        if self._inherited is None:
            found = {key: _meta(meta) for key, meta in self._rows(sql.DOCUMENT_RECORDS, self._at)}
            for document, *source in self._rows(sql.SOURCE_RECORDS, self._at):
                found[document] = found.get(document, ()) + file_meta(*source)
            self._inherited = {key: tuple(p for p in meta if p[1] is not None) for key, meta in found.items()}
        return self._inherited


def file_meta(uri: str, size: int, created_ns: int, modified_ns: int, accessed_ns: int) -> Meta:
    """The fields of a file: name, suffix, bytes, times; a time that is not known is left out.

    >>> file_meta("old/Stones.TXT", 12, 0, 1_700_000_000_000_000_000, 0)[:4]
    (('file_name', 'Stones.TXT'), ('file_type', 'txt'), ('file_size', 12), ('file_modified', '2023-11-14T22:13:20Z'))
    """
    path = PurePosixPath(uri)
    times = (("file_created", created_ns), ("file_modified", modified_ns), ("file_accessed", accessed_ns))
    return (
        ("file_name", path.name),
        ("file_type", path.suffix.lower().removeprefix(".")),
        ("file_size", size),
        *((name, _utc(time_ns)) for name, time_ns in times if time_ns),
    )


def _utc(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _meta(packed: str) -> Meta:
    return tuple((name, value) for name, value in json.loads(packed)) if packed else ()


def _typed(values: Iterable[Scalar], field: Field) -> npt.NDArray[Any]:
    """Values as an array of the field's type.

    Raises:
        FilterError: one of them is of another type: it was stored before the field was declared.
    """
    listed = list(values)
    for value in listed:
        field.check(value, "a stored value")
    array = np.empty(len(listed), dtype=_DTYPES[field.kind] if _are_exact(listed) else object)
    array[:] = listed
    return array


def _are_exact(values: Iterable[Scalar]) -> bool:
    """Whether numpy compares these numbers as Python does, whatever their types."""
    return all(not isinstance(value, int) or -_EXACT <= value <= _EXACT for value in values)


def _holding(leaf: Leaf, values: npt.NDArray[Any]) -> Mask:
    """Which values fulfil a condition: what `leaf.holds` says, for all of them at once where numpy can."""
    if values.dtype == object or not _are_exact(leaf.operands()):
        holds = set(leaf.values).__contains__ if isinstance(leaf, AnyOf) else leaf.holds
        return np.fromiter(map(holds, values.tolist()), dtype=np.bool_, count=len(values))
    if isinstance(leaf, AnyOf):
        return np.isin(values, np.array(leaf.values))
    assert isinstance(leaf, Between)
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
