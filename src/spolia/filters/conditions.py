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
        """Yield the conditions on single fields within it."""
        raise NotImplementedError

    def __and__(self, condition: Condition) -> And:
        return And((*_flatten(And, self), *_flatten(And, condition)))

    def __or__(self, condition: Condition) -> Or:
        return Or((*_flatten(Or, self), *_flatten(Or, condition)))

    def __invert__(self) -> Not:
        return Not(self)


class Leaf(Condition):
    """Condition on one field."""

    field: str

    def holds(self, value: Scalar, /) -> bool:
        """Return whether one value fulfils it."""
        raise NotImplementedError

    def operands(self) -> tuple[Scalar, ...]:
        """Return the values that the field is compared with."""
        raise NotImplementedError

    def accepts(self, record: Record, /) -> bool:
        return any(self.holds(value) for value in record.get(self.field, ()))

    def leaves(self) -> Iterator[Leaf]:
        yield self

    def _scalar(self, operand: Operand) -> Scalar:
        """Convert an operand to the form in which metadata hold it."""
        try:
            return scalar_of(operand)
        except ValueError as error:
            raise FilterError(
                f"{type(self).__name__}({self.field!r}) compares with a value that is none: {error}."
            ) from error


@dataclass(frozen=True)
class AnyOf(Leaf):
    """Condition that the field has one of these values; with one it is equality, with none it never holds.

    A time is one of these when it lies within one of them.

    >>> AnyOf("year", (0,)).accepts({"year": (0,)}), AnyOf("year", (0,)).accepts({})
    (True, False)
    """

    field: str
    values: tuple[Scalar, ...]

    if TYPE_CHECKING:  # For checkers: a date is accepted, and kept as a text.

        def __init__(self, field: str, values: tuple[Operand, ...]) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.values, tuple):
            raise FilterError(
                f"AnyOf({self.field!r}) has {self.values!r:.80} ({type(self.values).__name__}). Write a tuple of "
                f"values: AnyOf({self.field!r}, ('a', 'b')); or where({self.field}=...)."
            )
        # frozen: dates become the texts that metadata hold
        object.__setattr__(self, "values", tuple(map(self._scalar, self.values)))

    def holds(self, value: Scalar, /) -> bool:
        if isinstance(value, Time):
            # compared as periods: a day lies in its year though the texts differ
            periods = map(Time.from_text, map(str, self.values))
            return any(period.first <= value.first and value.last <= period.last for period in periods)
        return value in self.values

    def operands(self) -> tuple[Scalar, ...]:
        return self.values


@dataclass(frozen=True)
class Between(Leaf):
    """Condition that a value of the field is within these bounds; None for no bound.

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
        if not self.operands():  # it would hold for every node with a value, which nobody writes on purpose
            raise FilterError(f"Between({self.field!r}) has no bound. Write at_least=, at_most=, above= or below=.")
        for name in ("at_least", "at_most", "above", "below"):
            object.__setattr__(self, name, self._scalar(getattr(self, name)))  # frozen: see `AnyOf`

    def holds(self, value: Scalar, /) -> bool:
        first, last = _find_period(value, is_time=(is_time := isinstance(value, Time)))
        return (
            (self.at_least is None or first >= _find_period(self.at_least, is_time=is_time)[0])
            and (self.at_most is None or last <= _find_period(self.at_most, is_time=is_time)[1])
            and (self.above is None or first > _find_period(self.above, is_time=is_time)[1])
            and (self.below is None or last < _find_period(self.below, is_time=is_time)[0])
        )

    def operands(self) -> tuple[Scalar, ...]:
        bounds = (self.at_least, self.at_most, self.above, self.below)
        return tuple(bound for bound in bounds if bound is not None)


@dataclass(frozen=True)
class _Combination(Condition):
    """Base of conditions made of several others."""

    filters: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _refuse_non_conditions(self, self.filters)

    def leaves(self) -> Iterator[Leaf]:
        for part in self.filters:
            yield from part.leaves()


@dataclass(frozen=True)
class And(_Combination):
    """Condition that all of these hold; with none it holds."""

    def accepts(self, record: Record, /) -> bool:
        return all(part.accepts(record) for part in self.filters)


@dataclass(frozen=True)
class Or(_Combination):
    """Condition that at least one of these holds; with none it does not."""

    def accepts(self, record: Record, /) -> bool:
        return any(part.accepts(record) for part in self.filters)


@dataclass(frozen=True)
class Not(Condition):
    """Condition that this one does not hold; so it is fulfilled where the field has no value."""

    filter: Condition

    def __post_init__(self) -> None:
        _refuse_non_conditions(self, (self.filter,))

    def accepts(self, record: Record, /) -> bool:
        return not self.filter.accepts(record)

    def leaves(self) -> Iterator[Leaf]:
        yield from self.filter.leaves()


def _flatten(kind: type[And] | type[Or], condition: Condition) -> tuple[Condition, ...]:
    """Return its parts if it combines in the same way, so that a chain of many stays one level deep."""
    return condition.filters if isinstance(condition, (And, Or)) and type(condition) is kind else (condition,)


def _find_period(value: Any, *, is_time: bool) -> tuple[Any, Any]:
    """Return the first and last second of a time; other values are their own ends."""
    if not is_time:
        return value, value
    time = value if isinstance(value, Time) else Time.from_text(value)
    return time.first, time.last


def _refuse_non_conditions(condition: Condition, parts: object) -> None:
    for part in parts if isinstance(parts, tuple) else (parts,):
        if not isinstance(part, Condition):
            raise FilterError(
                f"{type(condition).__name__} is made of {part!r:.80} ({type(part).__name__}), which is not a "
                "condition. Write conditions, several as a tuple: where(lang='en') & ~where(kind='draft')."
            )


def where(*texts: Never, **fields: Operand | Iterable[Operand]) -> Condition:
    """Require each field to equal its value or one of its values; without fields everything passes.

    A time is all of its period: `where(file_modified="2026-11")`, `where(file_modified=date(2026, 11, 21))`.

    >>> where(lang="en", year=(2020, 2021))
    And(filters=(AnyOf(field='lang', values=('en',)), AnyOf(field='year', values=(2020, 2021))))
    """
    if texts:
        raise FilterError(f"where takes values by field, and was given {texts[0]!r:.80}. Write where(year=2020).")
    parts = tuple(AnyOf(name, _to_operands(operand)) for name, operand in fields.items())
    return parts[0] if len(parts) == 1 else And(parts)


def _to_operands(operand: Operand | Iterable[Operand]) -> tuple[Operand, ...]:
    return tuple(operand) if isinstance(operand, Iterable) and not isinstance(operand, (str, bytes)) else (operand,)  # type: ignore[return-value]


def combine_filters(*filters: Filter | None) -> Condition | None:
    """Require all of these together; None without any. Raises `FilterError` for one that is not a filter."""
    conditions = tuple(part for part in filters if part is not None)
    for part in conditions:
        if not isinstance(part, Condition):
            raise FilterError(
                f"{part!r:.80} ({type(part).__name__}) is not a filter. Write one of spolia.filters, for example "
                "where(lang='en') or Between('year', at_least=2020)."
            )
    return (conditions[0] if len(conditions) == 1 else And(conditions)) if conditions else None  # type: ignore[arg-type, return-value]
