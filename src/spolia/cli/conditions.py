"""Conditions on metadata as they are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from spolia.errors import FilterError

if TYPE_CHECKING:
    from spolia.filters import Condition, Field, Schema
    from spolia.types import Scalar

WRITTEN = re.compile(r"\s*([^=<>!]+?)\s*(>=|<=|!=|=|\bin\b)\s*(.*?)\s*", re.S)
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_READ: Mapping[str, Callable[[str], Scalar]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: _TRUTH[text.lower()],
}


def condition_of(written: Sequence[str], schema: Schema) -> Condition | None:
    """All of these conditions; None for none.

    Args:
        written: each as `year=2020`, `tag in a,b`, `year>=2020`, `year<=2022` or `kind!=draft`.
        schema: the declared fields, which say what type a value has.

    Raises:
        FilterError: what is written is no condition, of no declared field, or of no value that it can have.

    >>> from spolia.filters import Field, Schema
    >>> condition_of(["year in 2020, 2021"], Schema([Field("year", "int")]))
    AnyOf(field='year', values=(2020, 2021))
    """
    from spolia.filters import And

    found = [_condition(text, schema) for text in written]
    return None if not found else found[0] if len(found) == 1 else And(tuple(found))


def _condition(text: str, schema: Schema) -> Condition:
    from spolia.filters import AnyOf, Between, Not

    parts = WRITTEN.fullmatch(text)
    if parts is None:
        raise FilterError(f"{text!r} is no condition. Write for example --where year=2020 or --where 'tag in a,b'.")
    name, sign, said = parts.groups()
    schema.check(AnyOf(name, ()))
    field = schema.by_name[name]
    values = tuple(_value(field, one.strip()) for one in (said.split(",") if sign == "in" else [said]))
    if sign == ">=":
        return Between(name, at_least=values[0])
    if sign == "<=":
        return Between(name, at_most=values[0])
    return Not(AnyOf(name, values)) if sign == "!=" else AnyOf(name, values)


def _value(field: Field, text: str) -> Scalar:
    try:
        return _READ[field.kind](text)
    except (ValueError, KeyError) as error:
        raise FilterError(f"Field {field.name!r} holds {field.kind}, and {text!r} is none. Write one.") from error
