"""Metadata of documents and nodes, in columns, so that a filter checks all nodes of a group together."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from spolia.errors import FilterError
from spolia.filters import FILE_FIELDS, And, AnyOf, Between, Field, Leaf, Not, Or, Schema, combine_filters
from spolia.stores.access.allowed_nodes import Allowed, Mask
from spolia.stores.backends import sql
from spolia.stores.backends.rows import EARLIEST_NS, unpack_values
from spolia.stores.snapshot.shared_array import SharedArray, positions_of
from spolia.types import Filter, Meta, Scalar, Time

RunStatement = Callable[[str, Any], list[Any]]
"""Runs a statement and gives its rows."""
FindHolders = Callable[[Leaf, Field], Sequence[int] | None]
"""Gives the keys of the nodes that fulfil a condition on a field, in any order; None where it does not know."""
Keys = npt.NDArray[np.int64]
T = TypeVar("T")


class SourceFile(NamedTuple):
    """File of a source in the backend; times in nanoseconds, 0 where they are not known."""

    uri: str
    size: int
    created_ns: int
    modified_ns: int
    accessed_ns: int


def _utc(time_ns: int) -> Scalar:
    if not time_ns or time_ns < EARLIEST_NS:
        return None
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_OF_FILE: Mapping[str, Callable[[SourceFile], Scalar]] = {
    "file_name": lambda file: PurePosixPath(file.uri).name,
    "file_type": lambda file: PurePosixPath(file.uri).suffix.lower().removeprefix("."),
    "file_size": lambda file: file.size,
    "file_created": lambda file: _utc(file.created_ns),
    "file_modified": lambda file: _utc(file.modified_ns),
    "file_accessed": lambda file: _utc(file.accessed_ns),
}


def file_meta(uri: str, size: int, created_ns: int, modified_ns: int, accessed_ns: int) -> Meta:
    """Return the fields of a file: name, suffix, bytes, times; a time that is not known is left out.

    >>> file_meta("old/Stones.TXT", 12, 0, 1_700_000_000_000_000_000, 0)[:4]
    (('file_name', 'Stones.TXT'), ('file_type', 'txt'), ('file_size', 12), ('file_modified', '2023-11-14T22:13:20Z'))
    """
    file = SourceFile(uri, size, created_ns, modified_ns, accessed_ns)
    return tuple((name, value) for name, read_field in _OF_FILE.items() if (value := read_field(file)) is not None)


def with_file_fields(meta: Meta, of_file: Meta) -> Meta:
    """Add the fields of a document's file to its metadata: for one name, the document's own value counts if it fits.

    >>> said = (("file_name", "Old Stones"), ("file_size", "large"))
    >>> with_file_fields(said, (("file_name", "a.txt"), ("file_size", 12)))[1:]
    (('file_size', 'large'), ('file_size', 12))
    """
    kinds = {field.name: field for field in FILE_FIELDS}
    own_names = {name for name, value in meta if name in kinds and kinds[name].fits(value)}
    return meta + tuple(pair for pair in of_file if pair[0] not in own_names)


class DocumentMetadata:
    """Metadata of the documents at a generation, read on first use.

    They stay packed: of a hundred thousand, to decode all takes half a second, and a filter asks for one field.
    """

    def __init__(self, ask: RunStatement, generation: int, previous: "DocumentMetadata | None" = None) -> None:
        self._ask, self.generation = ask, generation
        self._since = previous.generation if previous is not None else generation
        self._packed: dict[int, str] | None = None
        self._files: dict[int, tuple[SourceFile, ...]] | None = None
        if previous is not None and previous._packed is not None:
            self._packed = self._without_changed(previous._packed) | dict(self._of_changed(sql.METADATA_OF_DOCUMENTS))
        if previous is not None and previous._files is not None:
            self._files = self._without_changed(previous._files) | _files_of(self._of_changed(sql.FILES_OF_DOCUMENTS))

    @cached_property
    def changed(self) -> Keys:
        """Keys of the documents that differ from the generation before, or went; asked for only where it was read."""
        rows = self._ask(sql.CHANGED_DOCUMENTS, {"since": self._since, "at": self.generation})
        return np.array([key for (key,) in rows], dtype=np.int64)

    def _of_changed(self, statement: str) -> list[Any]:
        return self._ask(statement, {"keys": json.dumps(self.changed.tolist()), "at": self.generation})

    def values(self, documents: Iterable[int], field: Field) -> Iterator[Sequence[Scalar]]:
        """Yield for each document all values that fit to a field; those of its files where it has none."""
        if self._packed is None:
            self._packed = dict(self._ask(sql.DOCUMENT_METADATA, {"at": self.generation}))
        packed, read_field = self._packed, _OF_FILE.get(field.name)
        if read_field is not None and self._files is None:
            self._files = _files_of(self._ask(sql.FILES, {"at": self.generation}))
        # Documents with equal metadata share one text, so that each text is decoded once.
        start, cache = f"[{json.dumps(field.name, ensure_ascii=False)},", dict[str, tuple[Scalar, ...]]()
        for document in documents:
            text = packed.get(document)
            if text is None:
                yield ()
                continue
            fitting = cache.get(text)
            if fitting is None:
                values = _values_after(start, text)
                fitting = cache[text] = tuple(value for value in values if value is not None and field.fits(value))
            if not fitting and read_field is not None and self._files is not None:
                fitting = tuple(
                    value for file in self._files.get(document, ()) if (value := read_field(file)) is not None
                )
            yield fitting

    def _without_changed(self, entries: dict[int, T]) -> dict[int, T]:
        unchanged = entries.copy()
        for key in self.changed.tolist():
            unchanged.pop(key, None)
        return unchanged


def _files_of(rows: Iterable[Any]) -> dict[int, tuple[SourceFile, ...]]:
    files_by_document: dict[int, tuple[SourceFile, ...]] = {}
    for document, *file in rows:
        files_by_document[document] = (*files_by_document.get(document, ()), SourceFile(*file))
    return files_by_document


_decode = json.JSONDecoder().raw_decode


def _values_after(start: str, text: str) -> Iterator[Scalar]:
    """Decode the values of one name in packed metadata: `start` begins its pairs.

    No text in them looks like that: JSON has a backslash before each quote in it.

    >>> list(_values_after('["by",', '[["by","Ann"],["at","[\\\\"by\\\\",1]"],["by",2]]'))
    ['Ann', 2]
    """
    place = text.find(start)
    while place >= 0:
        yield _decode(text, place + len(start))[0]
        place = text.find(start, place + 1)


def meta_of(packed: str) -> Meta:
    """Decode metadata from the backend, without fields that have no value."""
    return tuple(pair for pair in unpack_values(packed) if pair[1] is not None)


def metadata_text(meta: Meta, fields: Sequence[str]) -> str:
    """Return a line `name: value` for each of these fields that has a value; several values share one line.

    >>> metadata_text((("year", 1999), ("by", "Ann"), ("by", "Bob"), ("isbn", None)), ("by", "isbn", "year", "size"))
    'by: Ann, Bob\\nyear: 1999'
    """
    texts_by_name = {name: [str(value) for key, value in meta if key == name and value is not None] for name in fields}
    return "\n".join(f"{name}: {', '.join(values)}" for name, values in texts_by_name.items() if values)


def _numbers(listed: str | None) -> Keys:
    return np.fromstring(listed or "", dtype=np.int64, sep=",")


Positions = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
_DTYPES: Mapping[str, Any] = {"str": object, "int": np.int64, "float": np.float64, "bool": np.bool_, "time": object}
_EXACT = 2**53
"""Integers up to which a float has each of them."""


@dataclass(frozen=True, eq=False)
class Column:
    """Values of a field: the node at `rows[i]`, which may occur more than once, has `values[codes[i]]`."""

    rows: Positions
    codes: Codes
    values: npt.NDArray[Any]

    def holding(self, leaf: Leaf, count: int) -> Mask:
        mask = np.zeros(count, dtype=np.bool_)
        mask[self.rows[_matching_values(leaf, self.values)[self.codes]]] = True
        return mask

    def move_rows(self, places: Positions) -> "Column":
        """Move the nodes: that at position `p` to `places[p]`; drop those where that is -1."""
        rows = places[self.rows]
        stays = rows >= 0
        rows, codes = rows[stays], self.codes[stays]
        # With few values, dropping unused ones would not pay.
        if len(self.values) <= len(rows):
            return Column(rows, codes, self.values)
        used, new_codes = np.unique(codes, return_inverse=True)  # values that nobody has any more go
        return Column(rows, new_codes.astype(np.int32), self.values[used])


class ValueCodes:
    def __init__(self, field: Field, initial: npt.NDArray[Any] | None = None) -> None:
        self.field = field
        self._initial = _typed((), field) if initial is None else initial
        self._numbers: dict[Scalar, int] = {value: code for code, value in enumerate(self._initial.tolist())}

    def codes(self, values: Iterable[Scalar]) -> Codes:
        numbers = self._numbers
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int32)

    @property
    def values(self) -> npt.NDArray[Any]:
        fresh = list(self._numbers)[len(self._initial) :]
        return np.concatenate([self._initial, _typed(fresh, self.field)]) if fresh else self._initial


def _typed(values: Iterable[Scalar], field: Field) -> npt.NDArray[Any]:
    """Build an array of the field's type; of Python objects where numpy would compare values in another way."""
    listed = list(values)
    array = np.empty(len(listed), dtype=_DTYPES[field.kind] if _are_exact(listed) else object)
    array[:] = [Time(str(value)) for value in listed] if field.kind == "time" else listed
    return array


def _are_exact(values: Iterable[Scalar]) -> bool:
    """Return whether numpy compares these numbers as Python does, whatever their types."""
    return all(not isinstance(value, int) or -_EXACT <= value <= _EXACT for value in values)


def _matching_values(leaf: Leaf, values: npt.NDArray[Any]) -> Mask:
    """Return which values fulfil a condition: what `leaf.holds` says, vectorised where numpy can."""
    if isinstance(leaf, AnyOf) and values.dtype != object and _are_exact(leaf.values):
        return np.isin(values, np.array(leaf.values))
    if isinstance(leaf, Between) and values.dtype != object and _are_exact(leaf.operands()):
        return _within_bounds(leaf, values)
    are_times = len(values) > 0 and isinstance(values[0], Time)
    holds = set(leaf.values).__contains__ if isinstance(leaf, AnyOf) and not are_times else leaf.holds
    return np.fromiter(map(holds, values.tolist()), dtype=np.bool_, count=len(values))


def _within_bounds(leaf: Between, values: npt.NDArray[Any]) -> Mask:
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


# Filters whose allowed nodes are kept.
_KEPT = 64


@dataclass(frozen=True)
class RecordKind:
    """Statements that give rows; see `spolia.stores.backends.sql`. `own`: metadata beside what is inherited."""

    live: str
    dead: str
    last: str
    own: str


_NODES = RecordKind(sql.RECORDS, sql.DEAD_RECORDS, sql.LAST_RECORD, sql.OWN_METADATA)
_DOCUMENTS = RecordKind(sql.WHOLE_RECORDS, sql.DEAD_WHOLE_RECORDS, sql.LAST_WHOLE_RECORD, "")


def _unknown(leaf: Leaf, field: Field, /) -> None:
    return None


class Records:
    """Columns that filters and access read: of the nodes of a group, or of all documents for None, at a generation."""

    def __init__(
        self,
        ask: RunStatement,
        group: str | None,
        inherited: DocumentMetadata,
        schema: Schema,
        previous: "Records | None" = None,
    ) -> None:
        self.schema, self._ask, self._group, self._inherited = schema, ask, group, inherited
        self._kind = kind = _DOCUMENTS if group is None else _NODES
        self._values = {"grp": group, "at": inherited.generation}
        self.last: int = next((key for (key,) in ask(kind.last, self._values)), 0)
        self._own: dict[int, Meta] | None = None
        self._columns: dict[Field, Column] = {}
        self._allowed: dict[object, Allowed] = {}
        ((*columns, own),) = ask(kind.live, {**self._values, "known": previous.last if previous else 0})
        self._has_own: bool = own > 0 or (previous is not None and previous._has_own)
        self._hold([SharedArray(_numbers(column)) for column in columns])
        if previous is not None:
            self._take_over(previous)

    def _hold(self, arrays: Sequence[SharedArray]) -> None:
        self._arrays = arrays
        self.keys, self._documents, self._audiences = (array.values for array in arrays)

    def for_generation(self, inherited: DocumentMetadata, schema: Schema) -> "Records":
        return Records(self._ask, self._group, inherited, schema, self)

    def allowed(
        self, audiences: frozenset[int] | None, filter: Filter | None, holders: FindHolders = _unknown
    ) -> Allowed:
        """Return the nodes of these audiences that fulfil a filter; None stands for all.

        `holders` is asked first; where it does not know, metadata are read.
        """
        if audiences is None and filter is None:
            return Allowed(self.keys)
        effective_filter = combine_filters(filter)
        key = (
            audiences,
            None if effective_filter is None else effective_filter.digest,
        )  # 1 and True are equal, and not one condition
        allowed = self._allowed.get(key)
        if allowed is None:
            mask = self._all() if effective_filter is None else self._mask(effective_filter, holders)
            if audiences is not None:
                mask = mask & np.isin(self._audiences, list(audiences))
            # Users bring new filters all the time, so the cache is bounded.
            if len(self._allowed) >= _KEPT:
                self._allowed = {}
            allowed = self._allowed[key] = Allowed(self.keys, None if mask.all() else mask)
        return allowed

    def count_documents(self, allowed: Allowed) -> int:
        """Count the documents that these nodes are of."""
        return len(np.unique(self._documents[allowed.positions()]))

    def values(self, name: str, allowed: Allowed) -> list[Scalar]:
        """Return the values that these nodes have of a field, each once, in order."""
        column = self._column(self.schema.by_name[name])
        codes = column.codes[np.isin(column.rows, allowed.positions())]
        return sorted(column.values[np.unique(codes)].tolist())

    # Filters.

    def _mask(self, filter: Filter, holders: FindHolders) -> Mask:
        if isinstance(filter, And | Or):
            is_and = isinstance(filter, And)
            masks = (self._mask(part, holders) for part in filter.filters)
            return reduce(np.logical_and if is_and else np.logical_or, masks, np.full(len(self.keys), is_and))
        if isinstance(filter, Not):
            return ~self._mask(filter.filter, holders)
        if isinstance(filter, Leaf):
            return self._holding(filter, holders)
        raise FilterError(
            f"{filter!r:.80} is not a filter that a store knows. Write AnyOf, Between, And, Or, Not of spolia.filters."
        )

    def _holding(self, leaf: Leaf, holders: FindHolders) -> Mask:
        self.schema.check(leaf)
        field = self.schema.by_name[leaf.field]
        if field not in self._columns and (keys := holders(leaf, field)) is not None:
            return np.isin(self.keys, np.array(keys, dtype=np.int64), assume_unique=True)
        return self._column(field).holding(leaf, len(self.keys))

    def _all(self) -> Mask:
        return np.ones(len(self.keys), dtype=np.bool_)

    # Columns.

    def _column(self, field: Field) -> Column:
        column = self._columns.get(field)
        if column is None:
            coding = ValueCodes(field)
            rows, codes = self._entries(coding, np.arange(len(self.keys)))
            column = self._columns[field] = Column(rows, codes, coding.values)
        return column

    def _entries(self, coding: ValueCodes, positions: Positions) -> tuple[Positions, Codes]:
        """Return the values of a field that the nodes at these positions have: positions again, and codes."""
        parts = [self._document_entries(coding, positions), self._own_entries(coding, positions)]
        if coding.field.default is not None:
            without = np.setdiff1d(positions, np.concatenate([rows for rows, _ in parts]))
            parts.append((without, np.repeat(coding.codes([coding.field.default]), len(without))))
        return np.concatenate([rows for rows, _ in parts]), np.concatenate([codes for _, codes in parts])

    def _document_entries(self, coding: ValueCodes, positions: Positions) -> tuple[Positions, Codes]:
        documents, places = np.unique(self._documents[positions], return_inverse=True)
        values_by_document = list(self._inherited.values(documents.tolist(), coding.field))
        lengths = np.fromiter(map(len, values_by_document), dtype=np.int64, count=len(values_by_document))
        starts, counts = np.cumsum(lengths) - lengths, lengths[places]
        rows = np.repeat(positions, counts)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        codes = coding.codes(chain.from_iterable(values_by_document))
        return rows, codes[np.repeat(starts[places], counts) + offsets]

    def _own_entries(self, coding: ValueCodes, positions: Positions) -> tuple[Positions, Codes]:
        if self._own is None:
            self._own = self._read_own(0) if self._has_own else {}
        own_meta, field = self._own, coding.field
        pairs = zip(positions.tolist(), self.keys[positions].tolist(), strict=True) if own_meta else ()
        entries = [
            (position, value)
            for position, key in pairs
            for name, value in own_meta.get(key, ())
            if name == field.name and field.fits(value)
        ]
        rows = np.array([position for position, _ in entries], dtype=np.int64)
        return rows, coding.codes(value for _, value in entries)

    def _read_own(self, last_key: int) -> dict[int, Meta]:
        rows = self._ask(self._kind.own, {**self._values, "known": last_key}) if self._kind.own else ()
        return {key: meta_of(meta) for key, meta in rows}

    # What has not changed.

    def _take_over(self, previous: "Records") -> None:
        """Put what an earlier generation knows of the nodes that live on in front of the nodes that were born since."""
        dead_values = {**self._values, "since": previous._inherited.generation}
        dead = [key for (key,) in self._ask(self._kind.dead, dead_values)]
        gone = positions_of(dead, previous.keys)
        pairs = zip(previous._arrays, self._arrays, strict=True)
        self._hold([inherited.without(gone).appended(fresh_count.values) for inherited, fresh_count in pairs])
        if (own := previous._own) is not None:
            self._own = own | self._read_own(previous.last)
            for key in dead:
                self._own.pop(key, None)
        if previous._columns or previous._allowed:
            self._take_over_columns(previous, gone)

    def _take_over_columns(self, previous: "Records", gone: Positions) -> None:
        stays = np.ones(len(previous.keys), dtype=np.bool_)
        stays[gone] = False
        kept_count = np.count_nonzero(stays)
        is_changed = np.isin(self._documents, self._inherited.changed)
        is_changed[kept_count:] = True
        places = np.full(len(previous.keys), -1, dtype=np.int64)
        places[stays] = np.where(is_changed[:kept_count], -1, np.arange(kept_count))
        # A copy: other threads may search the earlier snapshot meanwhile.
        for field, column in previous._columns.copy().items():
            if self.schema.by_name.get(field.name) == field:
                self._columns[field] = self._update_column(field, column.move_rows(places), np.flatnonzero(is_changed))
        # A mask fits the very same nodes with the same metadata and fields only.
        if self.schema == previous.schema and kept_count == len(previous.keys) and not is_changed.any():
            self._allowed = previous._allowed.copy()

    def _update_column(self, field: Field, column: Column, positions: Positions) -> Column:
        if not len(positions):
            return column
        coding = ValueCodes(field, column.values)
        rows, codes = self._entries(coding, positions)
        return Column(np.concatenate([column.rows, rows]), np.concatenate([column.codes, codes]), coding.values)
