"""Replacement of values inside frozen values."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from spolia.core.operator import Operator
from spolia.types import Value


def replace_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Replace each part of an operator or value by what `change` returns for it, the inner ones first. `change` returns
    unaffected parts as they are; a value without changes is the same object."""
    return change(_replace_fields(value, change))


def _replace_fields(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        items = tuple(replace_parts(item, change) for item in value)
        return (
            items if any(new_item is not old_item for new_item, old_item in zip(items, value, strict=True)) else value
        )
    if not isinstance(value, (Operator, Value)) or not is_dataclass(value):
        return value
    field_values = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    new_values = {name: replace_parts(item, change) for name, item in field_values.items()}
    if all(new_values[name] is item for name, item in field_values.items()):
        return value
    return value.from_fields(new_values) if isinstance(value, Operator) else replace(value, **new_values)
