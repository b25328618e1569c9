"""Conditions on metadata fields, and what combines them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, TypeAlias

from spolia.errors import FilterError
from spolia.types import Filter, Record, Scalar, is_day, scalar_of

Operand: TypeAlias = Scalar | date
Bound: TypeAlias = int | float | str | date | None
"""What may be written; days and moments are kept as texts."""


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
