"""Conditions on metadata as a language model writes them: `{"field": "year", "is": ">=", "value": 2020}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spolia.errors import FilterError
from spolia.filters import And, AnyOf, Between, Condition, Field, Not, Or, Schema
from spolia.types import Scalar

_DEPTH = 5
_EQUAL = ("=", "==", "is", "eq", "equals", "in", "one of", "contains")
_UNEQUAL = ("!=", "<>", "is not", "ne", "not in", "not")
_BOUNDS = {">=": "at_least", "gte": "at_least", "<=": "at_most", "lte": "at_most", ">": "above", "gt": "above",
           "<": "below", "lt": "below"}  # fmt: skip


def condition_of(written: Any, schema: Schema, depth: int = 0) -> Condition:
    """The condition that is written.

    Args:
        written: a field, what it is compared by and a value or a list of values; `{"any": [...]}`, `{"all": [...]}`
            and `{"not": {...}}` combine others.
        schema: the fields that there are; a text that stands for a number or a truth is taken as such.

    Raises:
        FilterError: what is wrong, and what to write.

    >>> schema = Schema((Field("year", "int"), Field("lang")))
    >>> old, other = {"field": "year", "is": "<", "value": "2020"}, {"field": "lang", "value": ["de", "en"]}
    >>> condition_of({"any": [old, other]}, schema).accepts({"year": (2021,), "lang": ("en",)})
    True
    """
    if not isinstance(written, Mapping) or depth > _DEPTH:
        raise FilterError(f"{written!r:.80} is no condition. Write field, is and value.")
    for name, kind in (("any", Or), ("all", And)):
        if isinstance(parts := written.get(name), list) and parts:
            return kind(tuple(condition_of(part, schema, depth + 1) for part in parts))
    if "not" in written and "field" not in written:
        return Not(condition_of(written["not"], schema, depth + 1))
    found = _leaf(written, schema)
    schema.check(found)
    return found


def _leaf(written: Mapping[str, Any], schema: Schema) -> Condition:
    name, compared = str(written.get("field")), str(written.get("is", "=")).strip().lower()
    field = schema.by_name.get(name) or Field(name or "?")
    given = written.get("value")
    values = tuple(_meant(one, field) for one in (given if isinstance(given, list) else [given]) if one is not None)
    if not values:
        raise FilterError(f"The condition on {name!r:.60} has no value. Write a value, or a list of values.")
    if compared in _EQUAL:
        return AnyOf(name, values)
    if compared in _UNEQUAL:
        return Not(AnyOf(name, values))
    if compared in _BOUNDS and len(values) == 1:
        return Between(name, **{_BOUNDS[compared]: values[0]})
    raise FilterError(
        f"{name!r:.60} is compared by {compared!r:.20}. Write =, !=, <, <=, > or >= with one value, or in."
    )


def _meant(value: Any, field: Field) -> Scalar:
    """A value of the field's kind, where it is written as another one that means the same."""
    if isinstance(value, str) and field.kind in ("int", "float"):
        try:
            return int(value) if field.kind == "int" else float(value)
        except ValueError:
            return value
    if isinstance(value, str) and field.kind == "bool" and value.lower() in ("true", "false", "yes", "no"):
        return value.lower() in ("true", "yes")
    if isinstance(value, float) and field.kind == "int" and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and field.kind in ("str", "time"):
        return str(value)
    if not isinstance(value, (str, int, float)):
        raise FilterError(f"{value!r:.60} is no value. Write a text, a number or true or false.")
    return value
