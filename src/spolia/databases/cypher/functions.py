"""Functions of values and aggregates. None is unknown."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spolia.databases.graph_file import Entity, Relation
from spolia.errors import StatementError

_LARGEST = 100_000


def bounded(value: Any) -> Any:
    """A value that was computed, unless it has grown too large."""
    if isinstance(value, (str, list)) and len(value) > _LARGEST:
        raise StatementError(f"A value has more than {_LARGEST} characters or entries. Write a narrower statement.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise StatementError("A number is larger than 64 bits. Write a statement with smaller ones.")
    return value


def compared(mark: str, left: Any, right: Any) -> bool | None:
    """Whether two values compare so; None where one is not known, or they are of different kinds.

    >>> compared("<", 1, 2.5), compared("=", "1", 1), compared("<", "a", 1), compared("=", None, None)
    (True, False, None, None)
    """
    if left is None or right is None:
        return None
    if mark in ("=", "<>"):
        return (_kind(left) == _kind(right) and left == right) == (mark == "=")
    if _kind(left) != _kind(right) or _kind(left) not in ("number", "text", "truth"):
        return None
    order = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return bool(order[mark])


def held(mark: str, left: Any, right: Any) -> bool | None:
    """IN, CONTAINS, STARTS WITH, ENDS WITH."""
    if left is None or right is None:
        return None
    if mark == "in":
        if not isinstance(right, list):
            raise StatementError(f"IN wants a list, not {shown(right)!r:.40}. Write x IN ['a', 'b'].")
        found = [compared("=", left, one) for one in right]
        return True if True in found else None if None in found else False
    if not (isinstance(left, str) and isinstance(right, str)):
        return None
    return {"contains": right in left, "starts": left.startswith(right), "ends": left.endswith(right)}[mark]


def computed(mark: str, left: Any, right: Any) -> Any:
    """Sums, products and texts or lists put together.

    >>> computed("+", "a", 1), computed("/", 7, 2), computed("+", [1], 2), computed("*", None, 2)
    ('a1', 3, [1, 2], None)
    """
    if left is None or right is None:
        return None
    if mark == "+" and (isinstance(left, list) or isinstance(right, list)):
        return bounded((left if isinstance(left, list) else [left]) + (right if isinstance(right, list) else [right]))
    if mark == "+" and (isinstance(left, str) or isinstance(right, str)):
        return bounded(f"{shown(left)}{shown(right)}")
    if _kind(left) != "number" or _kind(right) != "number":
        raise StatementError(f"{shown(left)!r:.40} {mark} {shown(right)!r:.40} cannot be computed. Write numbers.")
    if mark in "/%" and right == 0:
        raise StatementError("A number is divided by 0. Write a condition against it.")
    try:
        whole = isinstance(left, int) and isinstance(right, int)
        if mark == "/":
            return bounded(math.trunc(left / right) if whole else left / right)
        if mark == "%":
            return int(math.fmod(left, right)) if whole else math.fmod(left, right)
        return bounded(left + right if mark == "+" else left - right if mark == "-" else left * right)
    except OverflowError as error:
        raise StatementError("A number is too large. Write a statement with smaller ones.") from error


def called(name: str, arguments: list[Any]) -> Any:
    """A function of values; of what is not known, nothing is known.

    >>> called("tolower", ["ANN"]), called("size", ["abc"]), called("coalesce", [None, 2])
    ('ann', 3, 2)
    """
    if name == "coalesce":
        return next((one for one in arguments if one is not None), None)
    if (function := FUNCTIONS.get(name)) is None:
        raise StatementError(
            f"There is no function {name!r}. There are: {', '.join(sorted((*FUNCTIONS, *AGGREGATES)))}."
        )
    if any(one is None for one in arguments):
        return None
    try:
        return bounded(function(*arguments))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        given = ", ".join(str(shown(one))[:40] for one in arguments)
        raise StatementError(f"{name}({given}) cannot be computed: {error}.") from error


def aggregated(name: str, values: Iterable[Any]) -> Any:
    """An aggregate of the values that are known."""
    known = [value for value in values if value is not None]
    if name == "count":
        return len(known)
    if name == "collect":
        return bounded(known)
    if name in ("sum", "avg"):
        if wrong := [value for value in known if _kind(value) != "number"]:
            raise StatementError(f"{name} is of numbers, and {shown(wrong[0])!r:.40} is none.")
        return bounded(sum(known)) if name == "sum" else math.fsum(known) / len(known) if known else None
    return (min if name == "min" else max)(known, key=rank, default=None)


def rank(value: Any) -> tuple[int, Any]:
    """Where a value stands among others when they are sorted; what is not known is last."""
    kinds = ("list", "text", "truth", "number")
    if value is None:
        return (9, 0)
    if isinstance(value, (Entity, Relation)):
        return (0, str(shown(value)))
    return (1 + kinds.index(_kind(value)), [rank(one) for one in value] if isinstance(value, list) else value)


def key_of(value: Any) -> Any:
    """A hashable key, equal for equal values."""
    if isinstance(value, list):
        return ("list", *map(key_of, value))
    return (_kind(value), value)


def shown(value: Any) -> Any:
    """A value as a row has it: nodes by their names, relationships by their types, lists as texts."""
    if isinstance(value, Entity):
        return value.name
    if isinstance(value, Relation):
        return value.type
    return ", ".join(str(shown(one)) for one in value) if isinstance(value, list) else value


def property_of(value: Any, key: str) -> Any:
    """A property of a node or a relationship; not known where it has none."""
    if value is None:
        return None
    if not isinstance(value, (Entity, Relation)):
        raise StatementError(
            f"{shown(value)!r:.40} has no properties, only nodes and relationships have. Write node.{key}."
        )
    return dict(value.properties).get(key)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "list" if isinstance(value, list) else type(value).__name__


def _range(first: int, last: int, step: int = 1) -> list[int]:
    found = range(first, last + (1 if step > 0 else -1), step)
    if len(found) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST} entries")
    return list(found)


def _number(value: Any, kind: Callable[[Any], Any]) -> Any:
    try:
        return kind(float(value)) if isinstance(value, (str, int, float)) else None
    except (ValueError, OverflowError):
        return None


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "tolower": lambda text: text.lower(),
    "toupper": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "size": len,
    "length": len,
    "reverse": lambda value: value[::-1],
    "split": lambda text, mark: text.split(mark),
    "replace": lambda text, old, new: _replaced(text, old, new),
    "substring": lambda text, start, length=None: text[start:] if length is None else text[start : start + length],
    "left": lambda text, length: text[:length],
    "right": lambda text, length: text[-length:] if length else "",
    "tostring": lambda value: str(shown(value)),
    "tointeger": lambda value: _number(value, int),
    "tofloat": lambda value: _number(value, float),
    "abs": abs,
    "round": lambda number, digits=0: float(math.floor(number * 10**digits + 0.5)) / 10**digits,
    "floor": lambda number: float(math.floor(number)),
    "ceil": lambda number: float(math.ceil(number)),
    "head": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "range": _range,
    "id": lambda entity: entity.id,
    "elementid": lambda entity: entity.id,
    "labels": lambda entity: list(entity.labels),
    "type": lambda relation: relation.type,
    "keys": lambda holder: [key for key, _ in holder.properties],
}
AGGREGATES = ("avg", "collect", "count", "max", "min", "sum")


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) * max(len(new) - len(old), 0) > _LARGEST:
        raise ValueError("it grows too long")
    return text.replace(old, new)
