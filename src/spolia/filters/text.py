"""Conditions on metadata as a text: `year>=2020`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spolia.errors import FilterError
from spolia.filters.conditions import And, Between, Condition, Not, where
from spolia.filters.fields import Field, Schema
from spolia.types import Time

# An operand begins with no sign: `year==2020` is refused, not compared with the text "=2020".
CONDITION = re.compile(r"\s*([^=<>!]+?)\s*(>=|<=|!=|=|>|<|\bin\b)\s*([^=<>!\s].*?)\s*", re.S)
EXAMPLES = "year=2020, 'tag in a,b', 'year>=2020' or 'file_modified>2026-01-31'"
_BOUNDS = {">=": "at_least", "<=": "at_most", ">": "above", "<": "below"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def condition_of(texts: Sequence[str], schema: Schema) -> Condition | None:
    """Parse conditions, all of which must hold; None for none.

    Args:
        texts: each as `year=2020`, `tag in a,b`, `year>=2020`, `year<2022` or `kind!=draft`. A year, month or day is
            all of it: `file_modified>2026-01` begins with the first of February, in UTC.

    >>> from spolia.filters import Field, Schema
    >>> condition_of(["year in 2020, 2021"], Schema([Field("year", "int")]))
    AnyOf(field='year', values=(2020, 2021))
    >>> condition_of(["file_modified<=2026-01-31"], Schema())
    Between(field='file_modified', at_least=None, at_most='2026-01-31', above=None, below=None)
    """
    conditions = [_parse_condition(text, schema) for text in texts]
    return None if not conditions else conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def list_fields(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the fields that conditions name, each once.

    >>> list_fields(["source=web", "year>=2020", "source!=mail"])
    ('source', 'year')
    """
    return tuple(dict.fromkeys(parts.group(1) for parts in map(CONDITION.fullmatch, texts) if parts is not None))


def _parse_condition(text: str, schema: Schema) -> Condition:
    parts = CONDITION.fullmatch(text)
    if parts is None:
        raise FilterError(f"{text!r} is not a condition. Write for example {EXAMPLES}.")
    name, sign, operand = parts.groups()
    field = schema.by_name.get(name)
    if field is None:
        raise FilterError(
            f"There is no metadata field {name!r} to filter by. Declared are: {', '.join(sorted(schema.by_name))}. "
            f"Write one of these, or declare it: spolia sync FOLDER --store STORE --field {shlex.quote(name)}:KIND."
        )
    # Only `in` takes a list: a comma in `name=Smith, John` is part of the text.
    values = [parse_value(field, part.strip()) for part in (operand.split(",") if sign == "in" else [operand])]
    if sign in _BOUNDS:
        return Between(name, **{_BOUNDS[sign]: values[0]})
    condition = where(**{name: values})
    return Not(condition) if sign == "!=" else condition


def parse_value(field: Field, text: str) -> Any:
    read, holds, example = KINDS[field.kind]
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        raise FilterError(
            f"{text!r} is not valid: the field {field.name!r} holds {holds}. Write for example "
            f"'{field.name}{'=' if field.kind == 'bool' else '>='}{example.replace('FIELD', field.name)}'."
        ) from error


KINDS: Mapping[str, tuple[Callable[[str], Any], str, str]] = {
    "str": (str, "texts", "text"),
    "int": (int, "whole numbers", "7"),
    "float": (float, "numbers", "0.5"),
    "bool": (lambda text: _TRUTH[text.lower()], "true or false", "true"),
    "time": (lambda text: str(Time(text)), "times", "2026-01-31' or 'FIELD>=2026-01-31T09:30:00Z"),
}
"""By kind: how a value is read, what a field holds, and an example."""
