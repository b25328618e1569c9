"""What an expression is for one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from spolia.databases.cypher.functions import (
    AGGREGATES,
    aggregated,
    called,
    compared,
    computed,
    held,
    key_of,
    property_of,
)
from spolia.databases.cypher.meter import Meter
from spolia.databases.cypher.syntax import (
    Binary,
    Exists,
    Expression,
    FunctionCall,
    ListItem,
    ListOf,
    Literal,
    Pattern,
    Property,
    Unary,
    Variable,
    parts,
)
from spolia.errors import StatementError

Row = dict[str, Any]
GROUP = "\0group"
"""Where a row that stands for a group has the rows of it."""
There = Callable[[Pattern, Row], Iterator[Row]]


class Evaluator:
    """Evaluates expressions.

    Args:
        there: the ways in which a pattern is in the graph, for a row.
    """

    def __init__(self, meter: Meter, there: There) -> None:
        self.meter, self.there = meter, there

    def __call__(self, of: Expression, row: Row) -> Any:
        match of:
            case Literal(value=value):
                return value
            case Variable(name=name):
                return _variable(name, row)
            case Property(of=inner, key=key):
                return property_of(self(inner, row), key)
            case ListItem(of=inner, index=index):
                return _item(self(inner, row), self(index, row))
            case ListOf(items=items):
                return [self(item, row) for item in items]
            case Unary(mark=mark, of=inner):
                return _unary(mark, self(inner, row))
            case Binary():
                return self._binary(of, row)
            case FunctionCall():
                return self._call(of, row)
            case Exists(pattern=pattern):
                return next(self.there(pattern, row), None) is not None

    def holds(self, of: Expression | None, row: Row) -> bool:
        """Whether a condition is known to hold; no condition always does."""
        return of is None or _truth(self(of, row)) is True

    def _binary(self, of: Binary, row: Row) -> Any:
        left, right = self(of.left, row), self(of.right, row)
        self.meter.step(right)
        if of.mark in ("and", "or", "xor"):
            return _joined(of.mark, _truth(left), _truth(right))
        if of.mark in ("in", "contains", "starts", "ends"):
            return held(of.mark, left, right)
        return computed(of.mark, left, right) if of.mark in "+-*/%" else compared(of.mark, left, right)

    def _call(self, of: FunctionCall, row: Row) -> Any:
        if of.name not in AGGREGATES:
            found = called(of.name, [self(argument, row) for argument in of.arguments])
            self.meter.step(found)
            return found
        if GROUP not in row:
            raise StatementError(
                f"{of.name} may stand in RETURN and WITH only. Write WITH {of.name}(…) AS n WHERE n > 1."
            )
        if not of.arguments:
            return len(row[GROUP])
        values = (self(of.arguments[0], one) for one in row[GROUP])
        return aggregated(of.name, {key_of(value): value for value in values}.values() if of.distinct else values)


def aggregates(of: Expression) -> bool:
    """Whether an expression has an aggregate in it."""
    return (isinstance(of, FunctionCall) and of.name in AGGREGATES) or any(map(aggregates, parts(of)))


def _variable(name: str, row: Row) -> Any:
    if name not in row:
        known = ", ".join(one for one in row if one != GROUP)
        raise StatementError(f"There is no variable {name!r} here. There are: {known or 'none'}.")
    return row[name]


def _item(of: Any, index: Any) -> Any:
    if of is None or index is None:
        return None
    if isinstance(index, str):
        return property_of(of, index)
    if not isinstance(of, list) or not isinstance(index, int):
        raise StatementError("What stands before [ is no list. Write the name of a list.")
    return of[index] if -len(of) <= index < len(of) else None


def _unary(mark: str, value: Any) -> Any:
    if mark in ("is null", "is not null"):
        return (value is None) == (mark == "is null")
    if mark == "not":
        truth = _truth(value)
        return None if truth is None else not truth
    return computed("-", 0, value)


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise StatementError(f"{str(value)!r:.40} is neither true nor false. Write a comparison.")


def _joined(mark: str, left: bool | None, right: bool | None) -> bool | None:
    """Truths put together, of which one may not be known."""
    if mark == "xor":
        return None if left is None or right is None else left != right
    decides = mark == "or"
    if left is decides or right is decides:
        return decides
    return None if left is None or right is None else not decides
