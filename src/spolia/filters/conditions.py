"""Conditions on metadata fields, and what combines them.

Times are periods: a year, a month, a day, a second. A condition holds for a time when it does for all of its period, so
that 2024 finds its months, days and moments, what is above 2024 begins after it, and what is at most 2024 ends with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Never, TypeAlias

from spolia.errors import FilterError
from spolia.types import Filter, Record, Scalar, Time, scalar_of

Operand: TypeAlias = Scalar | date
Bound: TypeAlias = int | float | str | date | None
"""What may be written; days and moments are kept as texts."""


class Condition(Filter):
    """Base of all filters. `a & b`, `a | b` and `~a` combine them."""

    def leaves(self) -> Iterator[Leaf]:
        """The conditions on single fields within it."""
        raise NotImplementedError

    def __and__(self, other: Condition) -> And:
        return And((*_joined(And, self), *_joined(And, other)))

    def __or__(self, other: Condition) -> Or:
        return Or((*_joined(Or, self), *_joined(Or, other)))

    def __invert__(self) -> Not:
        return Not(self)


class Leaf(Condition):
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

    A time is one of these when it lies within one of them.

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
        if isinstance(value, Time):
            periods = map(Time.of, map(str, self.values))
            return any(one.first <= value.first and value.last <= one.last for one in periods)
        return value in self.values

    def operands(self) -> tuple[Scalar, ...]:
        return self.values


@dataclass(frozen=True)
class Between(Leaf):
    """A value of the field is within these bounds; None for no bound.

    A time is within them with all of its period, and a bound is a whole period: at most 2024 is to the end of it.

    >>> Between("year", at_least=2020, below=2022).accepts({"year": (2021,)})
    True
    >>> Between("day", at_most=date(2026, 11, 21)).accepts({"day": (Time("2026-11-21T09:30:00Z"),)})
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
            object.__setattr__(self, name, self._scalar(getattr(self, name)))

    def holds(self, value: Scalar, /) -> bool:
        first, last = _ends(value, is_time=(is_time := isinstance(value, Time)))
        return (
            (self.at_least is None or first >= _ends(self.at_least, is_time=is_time)[0])
            and (self.at_most is None or last <= _ends(self.at_most, is_time=is_time)[1])
            and (self.above is None or first > _ends(self.above, is_time=is_time)[1])
            and (self.below is None or last < _ends(self.below, is_time=is_time)[0])
        )

    def operands(self) -> tuple[Scalar, ...]:
        bounds = (self.at_least, self.at_most, self.above, self.below)
        return tuple(bound for bound in bounds if bound is not None)


@dataclass(frozen=True)
class _Several(Condition):
    """Conditions of conditions."""

    filters: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _refuse_others(self, self.filters)

    def leaves(self) -> Iterator[Leaf]:
        for part in self.filters:
            yield from part.leaves()


@dataclass(frozen=True)
class And(_Several):
    """All of these hold; nothing to fulfil holds."""

    def accepts(self, record: Record, /) -> bool:
        return all(part.accepts(record) for part in self.filters)


@dataclass(frozen=True)
class Or(_Several):
    """At least one of these holds; of none, none does."""

    def accepts(self, record: Record, /) -> bool:
        return any(part.accepts(record) for part in self.filters)


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


def _joined(kind: type[And] | type[Or], one: Condition) -> tuple[Condition, ...]:
    """Its parts, where it combines in the same way: a chain of many stays one level deep."""
    return one.filters if isinstance(one, (And, Or)) and type(one) is kind else (one,)


def _ends(value: Any, *, is_time: bool) -> tuple[Any, Any]:
    """First and last second of a time; other values are their own ends."""
    if not is_time:
        return value, value
    time = value if isinstance(value, Time) else Time.of(value)
    return time.first, time.last


def _refuse_others(condition: Condition, parts: object) -> None:
    for part in parts if isinstance(parts, tuple) else (parts,):
        if not isinstance(part, Condition):
            raise FilterError(
                f"{type(condition).__name__} is made of {part!r:.80} ({type(part).__name__}), which is not a "
                "condition. Write conditions, several as a tuple: where(lang='en') & ~where(kind='draft')."
            )


def where(*texts: Never, **fields: Operand | Iterable[Operand]) -> Condition:
    """Each field is equal to its value, or to one of its values; no field at all is fulfilled by everything.

    A time is all of its period: `where(file_modified="2026-11")`, `where(file_modified=date(2026, 11, 21))`.

    >>> where(lang="en", year=(2020, 2021))
    And(filters=(AnyOf(field='lang', values=('en',)), AnyOf(field='year', values=(2020, 2021))))
    """
    if texts:
        raise FilterError(f"where takes values by field, and was given {texts[0]!r:.80}. Write where(year=2020).")
    parts = tuple(AnyOf(name, _values(wanted)) for name, wanted in fields.items())
    return parts[0] if len(parts) == 1 else And(parts)


def _values(wanted: Operand | Iterable[Operand]) -> tuple[Operand, ...]:
    return tuple(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes)) else (wanted,)  # type: ignore[return-value]


def narrowed(*filters: Filter | None) -> Condition | None:
    """All of these together; None without any. Raises `FilterError` if one is not a filter, never skips it."""
    given = tuple(part for part in filters if part is not None)
    for part in given:
        if not isinstance(part, Condition):
            raise FilterError(
                f"{part!r:.80} ({type(part).__name__}) is not a filter. Write one of spolia.filters, for example "
                "where(lang='en') or Between('year', at_least=2020)."
            )
    return (given[0] if len(given) == 1 else And(given)) if given else None  # type: ignore[arg-type, return-value]
