"""Which documents and nodes count: conditions on declared metadata fields, with one meaning on every store.

A field may have several values (a document under two names has two). A condition holds when one of them fulfils it. A
node without a value takes the field's default; without a default no condition on the field holds, so that its negation
does. 0, False and "" are values like any other. A field that is not declared is an error, never an empty result.

>>> from spolia.filters import where, Between
>>> condition = where(lang=("en", "de")) & Between("year", at_least=2020) & ~where(kind="draft")
>>> condition.accepts({"lang": ("de",), "year": (2021,)})
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from spolia.errors import FilterError
from spolia.types import Filter, Meta, Record, Scalar, Value, is_day, is_time, scalar_of

Kind: TypeAlias = Literal["str", "int", "float", "bool", "time"]
KINDS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "time": str}
Operand: TypeAlias = Scalar | date
Bound: TypeAlias = int | float | str | date | None
"""What may be written; days and moments are kept as texts."""


@dataclass(frozen=True)
class Field(Value):
    """A metadata field that can be filtered.

    Args:
        name: as it stands in the metadata.
        kind: type of its values: `str`, `int`, `float`, `bool`, or `time`: years, months, days and moments in UTC, as
            texts that sort as they follow each other: `2026`, `2026-11-21`, `2026-11-21T09:30:00Z`.
        default: value of what has none; None for no value.
        max_length: characters of a text, at most; None for no limit.

    Raises:
        FilterError: for a default that is no value of the field, an empty name, an unknown kind, a length of what has
            none.

    >>> Field("year", "int", default=0).default
    0
    """

    name: str
    kind: Kind = "str"
    default: Scalar = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise FilterError(f"A field is called {self.name!r}. Write a name: Field('year', 'int').")
        if self.kind not in KINDS:
            raise FilterError(f"Field {self.name!r} has kind {self.kind!r}. Write one of: {', '.join(KINDS)}.")
        if self.max_length is not None and (self.kind != "str" or self.max_length < 1):
            raise FilterError(
                f"Field {self.name!r} holds {self.kind} with max_length={self.max_length!r}. It is the number of "
                "characters of a text, at least 1; leave it away for other kinds."
            )
        if self.default is not None:
            self.check(self.default, "the default")

    def check(self, value: Scalar, whose: str) -> None:
        """Refuse what is no value of the field.

        Args:
            whose: what has the value, for the message.
        """
        fits = type(value) is KINDS[self.kind] or (self.kind == "float" and type(value) is int)
        if fits and self.kind == "time" and not is_time(str(value)):
            raise FilterError(
                f"Field {self.name!r} holds times, and {whose} is {value!r:.80}. Write a date, a datetime with its "
                "time zone, or a text like '2026-11-21' or '2026-11-21T09:30:00Z'."
            )
        if not fits or value != value:
            raise FilterError(
                f"Field {self.name!r} holds {self.kind}, and {whose} is {value!r:.80} ({type(value).__name__}). "
                f"Write a {self.kind}, or declare Field({self.name!r}, {type(value).__name__!r})."
            )
        if self.max_length is not None and isinstance(value, str) and len(value) > self.max_length:
            raise FilterError(
                f"Field {self.name!r} holds at most {self.max_length} characters, and {whose} has {len(value)}. "
                f"Shorten it, or declare the field with another max_length."
            )

    def values(self, meta: Meta) -> tuple[Scalar, ...]:
        """The values of the field in metadata: all pairs of its name, else the default, else none."""
        found = tuple(value for name, value in meta if name == self.name and value is not None)
        return found or (() if self.default is None else (self.default,))


FILE_FIELDS: tuple[Field, ...] = (
    Field("file_name"),
    Field("file_type"),
    Field("file_size", "int"),
    Field("file_created", "time"),
    Field("file_modified", "time"),
    Field("file_accessed", "time"),
)
"""Fields of every file that a document was read from, without being declared: name without folders, suffix without dot,
bytes, and three times in UTC, as they were when the file was indexed."""


class Condition(Filter):
    """Base of all filters. `a & b`, `a | b` and `~a` combine them."""

    def leaves(self) -> Iterator[Leaf]:
        """The conditions on single fields within it."""
        raise NotImplementedError

    def __and__(self, other: Condition) -> And:
        return And((self, other))

    def __or__(self, other: Condition) -> Or:
        return Or((self, other))

    def __invert__(self) -> Not:
        return Not(self)


class Leaf(Condition):
    """A condition on one field."""

    field: str

    def holds(self, value: Scalar, /) -> bool:
        """Whether one value fulfils it."""
        raise NotImplementedError

    def operands(self) -> tuple[Scalar, ...]:
        """What values are compared with."""
        raise NotImplementedError

    def accepts(self, record: Record, /) -> bool:
        return any(self.holds(value) for value in record.get(self.field, ()))

    def leaves(self) -> Iterator[Leaf]:
        yield self

    def _scalar(self, operand: Operand) -> Scalar:
        """What is compared with, as metadata hold it."""
        try:
            return scalar_of(operand)
        except ValueError as error:
            raise FilterError(
                f"{type(self).__name__}({self.field!r}) compares with a value that is none: {error}."
            ) from error


@dataclass(frozen=True)
class AnyOf(Leaf):
    """A value of the field is one of these; with one it is equality, with none it never holds.

    >>> AnyOf("year", (0,)).accepts({"year": (0,)}), AnyOf("year", (0,)).accepts({})
    (True, False)
    """

    field: str
    values: tuple[Scalar, ...]

    if TYPE_CHECKING:

        def __init__(self, field: str, values: tuple[Operand, ...]) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.values, tuple):
            raise FilterError(
                f"AnyOf({self.field!r}) has {self.values!r:.80} ({type(self.values).__name__}). Write a tuple of "
                f"values: AnyOf({self.field!r}, ('a', 'b')); or where({self.field}=...)."
            )
        object.__setattr__(self, "values", tuple(map(self._scalar, self.values)))

    def holds(self, value: Scalar, /) -> bool:
        return value in self.values

    def operands(self) -> tuple[Scalar, ...]:
        return self.values


@dataclass(frozen=True)
class Between(Leaf):
    """A value of the field is within these bounds; None for no bound. A date is the whole day.

    >>> Between("year", at_least=2020, below=2022).accepts({"year": (2021,)})
    True
    >>> Between("file_modified", at_most=date(2026, 11, 21)).accepts({"file_modified": ("2026-11-21T09:30:00Z",)})
    True
    """

    field: str
    at_least: int | float | str | None = None
    at_most: int | float | str | None = None
    above: int | float | str | None = None
    below: int | float | str | None = None

    if TYPE_CHECKING:

        def __init__(
            self, field: str, at_least: Bound = None, at_most: Bound = None, above: Bound = None, below: Bound = None
        ) -> None: ...

    def __post_init__(self) -> None:
        if not self.operands():
            raise FilterError(f"Between({self.field!r}) has no bound. Write at_least=, at_most=, above= or below=.")
        for name in ("at_least", "at_most", "above", "below"):
            bound = getattr(self, name)
            is_end = is_day(bound) and name in ("at_most", "above")
            object.__setattr__(self, name, f"{bound}T23:59:59Z" if is_end else self._scalar(bound))

    def holds(self, value: Scalar, /) -> bool:
        found: object = value
        return (
            (self.at_least is None or found >= self.at_least)  # type: ignore[operator]
            and (self.at_most is None or found <= self.at_most)  # type: ignore[operator]
            and (self.above is None or found > self.above)  # type: ignore[operator]
            and (self.below is None or found < self.below)  # type: ignore[operator]
        )

    def operands(self) -> tuple[Scalar, ...]:
        bounds = (self.at_least, self.at_most, self.above, self.below)
        return tuple(bound for bound in bounds if bound is not None)


@dataclass(frozen=True)
class And(Condition):
    """All of these hold; nothing to fulfil holds."""

    filters: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _refuse_others(self, self.filters)

    def accepts(self, record: Record, /) -> bool:
        return all(part.accepts(record) for part in self.filters)

    def leaves(self) -> Iterator[Leaf]:
        for part in self.filters:
            yield from part.leaves()


@dataclass(frozen=True)
class Or(Condition):
    """At least one of these holds; of none, none does."""

    filters: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _refuse_others(self, self.filters)

    def accepts(self, record: Record, /) -> bool:
        return any(part.accepts(record) for part in self.filters)

    def leaves(self) -> Iterator[Leaf]:
        for part in self.filters:
            yield from part.leaves()


@dataclass(frozen=True)
class Not(Condition):
    """This does not hold; so it is fulfilled where the field has no value."""

    filter: Condition

    def __post_init__(self) -> None:
        _refuse_others(self, (self.filter,))

    def accepts(self, record: Record, /) -> bool:
        return not self.filter.accepts(record)

    def leaves(self) -> Iterator[Leaf]:
        yield from self.filter.leaves()


def _refuse_others(condition: Condition, parts: object) -> None:
    for part in parts if isinstance(parts, tuple) else (parts,):
        if not isinstance(part, Condition):
            raise FilterError(
                f"{type(condition).__name__} is made of {part!r:.80} ({type(part).__name__}), which is no condition. "
                "Write conditions, several as a tuple: where(lang='en') & ~where(kind='draft')."
            )


def where(**fields: Operand | Iterable[Operand]) -> Condition:
    """Each field is equal to its value, or to one of its values; no field at all is fulfilled by everything.

    A date is the whole day: `where(file_modified=date(2026, 11, 21))`.

    >>> where(lang="en", year=(2020, 2021))
    And(filters=(AnyOf(field='lang', values=('en',)), AnyOf(field='year', values=(2020, 2021))))
    """
    parts = tuple(_equal(name, _values(wanted)) for name, wanted in fields.items())
    return parts[0] if len(parts) == 1 else And(parts)


def _values(wanted: Operand | Iterable[Operand]) -> tuple[Operand, ...]:
    return tuple(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes)) else (wanted,)  # type: ignore[return-value]


def _equal(field: str, values: tuple[Operand, ...]) -> Condition:
    days = tuple(Between(field, at_least=value, at_most=value) for value in values if is_day(value))
    others = tuple(value for value in values if not is_day(value))
    parts = (*((AnyOf(field, others),) if others or not days else ()), *days)
    return parts[0] if len(parts) == 1 else Or(parts)


class Schema(tuple[Field, ...]):
    """The declared fields of a store, and those of every file.

    Raises:
        FilterError: two fields of one name, or one of a field of every file.
    """

    implied: ClassVar[tuple[Field, ...]] = FILE_FIELDS

    def __new__(cls, fields: Iterable[Field] = ()) -> Schema:
        found = super().__new__(cls, fields)
        taken = {field.name for field in cls.implied}
        for field in found:
            if not isinstance(field, Field):
                raise FilterError(f"{field!r:.80} is no field. Write Field(name, kind): Field('year', 'int').")
            if field.name in taken:
                raise FilterError(
                    f"Field {field.name!r} is declared twice, or is one that every file has "
                    f"({', '.join(implied.name for implied in cls.implied)}). Declare it once, under a name of its own."
                )
            taken.add(field.name)
        return found

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """Each field by its name."""
        return {field.name: field for field in (*self.implied, *self)}

    def check(self, filter: Condition) -> None:
        """Refuse a filter on a field that is not declared, or with values of another type.

        Raises:
            FilterError: and which fields there are.
        """
        known = self.by_name
        for leaf in filter.leaves():
            field = known.get(leaf.field)
            if field is None:
                raise FilterError(
                    f"There is no metadata field {leaf.field!r} to filter by. Declared are: {', '.join(sorted(known))}."
                    f" Write one of these, or declare it: sync(folder, corpus, fields=(Field({leaf.field!r}, ...),))."
                )
            for operand in leaf.operands():
                field.check(operand, "the filter's value")

    def check_values(self, meta: Meta, whose: str) -> None:
        """Refuse metadata that a field, declared or of every file, cannot hold.

        Args:
            whose: what has the metadata, for the message.
        """
        for name, value in meta:
            if name in self.by_name and value is not None:
                self.by_name[name].check(value, whose)

    def record(self, meta: Meta) -> Record:
        """The values of every field, defaults filled in."""
        return {field.name: field.values(meta) for field in (*self.implied, *self)}


def narrowed(*filters: Filter | None) -> Condition | None:
    """All of these together; None where there is none.

    Raises:
        FilterError: one of them is no filter. It is never passed over: more would be found than may be.
    """
    given = tuple(part for part in filters if part is not None)
    for part in given:
        if not isinstance(part, Condition):
            raise FilterError(
                f"{part!r:.80} ({type(part).__name__}) is no filter. Write one of spolia.filters, for example "
                "where(lang='en') or Between('year', at_least=2020)."
            )
    return (given[0] if len(given) == 1 else And(given)) if given else None  # type: ignore[arg-type, return-value]
