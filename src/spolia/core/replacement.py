"""Values inside frozen values, replaced."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from spolia.core.operator import Operator
from spolia.types import Value


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """An operator or a value with whatever `change` gives in the place of each thing in it, the inner ones first.
    `change` returns what stays as it is; what nothing changes in is the same object.
    """
    return change(_within(value, change))


def _within(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        items = tuple(replaced(item, change) for item in value)
        return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
    if not isinstance(value, (Operator, Value)) or not is_dataclass(value):
        return value
    held = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    found = {name: replaced(item, change) for name, item in held.items()}
    if all(found[name] is item for name, item in held.items()):
        return value
    return value.made(found) if isinstance(value, Operator) else replace(value, **found)
