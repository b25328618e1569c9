"""Conditions on metadata as they are written on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from spolia.errors import FilterError
from spolia.filters import Condition, Field, Not, where
from spolia.filters.fields import Kind
from spolia.filters.text import list_fields, parse_value
from spolia.types import Scalar

if TYPE_CHECKING:
    from spolia.stores.corpus import NodeGroup

VALUES_SHOWN = 12
"""Values of a field that an error lists."""


def refuse_empty_source(
    conditions: Sequence[str], condition: Condition, group: NodeGroup, access: frozenset[str] | None
) -> None:
    """Refuse a condition on the second source that leaves one of the two sources without a document.

    Only documents that the asker may read count and are shown. A store with access lists and no asker (None) is
    skipped. A store without documents that the asker may read passes: there both sources are empty alike.

    Raises:
        FilterError: how many documents there are, which values the fields have, and what to write.
    """
    snapshot = group.snapshot()
    if access is None and snapshot.readers.is_restricted:
        return
    principals, records = access or frozenset(), snapshot.open.records(group.name)

    def count(filter: Condition | None) -> int:
        return records.count_documents(snapshot.allowed(group.name, principals, filter))

    def divides(filter: Condition) -> bool:
        return count(filter) > 0 and count(Not(filter)) > 0

    total = count(None)
    if total == 0 or divides(condition):
        return
    readable = "documents that you may read" if snapshot.readers.is_restricted else "documents"
    lacking = "second" if count(condition) == 0 else "first"
    how_many = f"none of the {total:,}" if lacking == "second" else f"each of the {total:,}"
    option_text = " ".join(f"--web {shlex.quote(text)}" for text in conditions)
    message = f"{option_text}: {how_many} {readable} fulfils it, so the {lacking} source would be empty."
    advice = ""
    for name in list_fields(conditions):
        values = records.values(name, snapshot.allowed(group.name, principals))
        message += f" {_describe_values(name, values)}"
        split = (candidate for candidate in values[:VALUES_SHOWN] if divides(where(**{name: [candidate]})))
        if not advice and (example := next(split, None)) is not None:
            advice = f" Write for example --web {shlex.quote(f'{name}={example}')}."
    raise FilterError(message + (advice or " Write a condition that some documents fulfil and others do not."))


def _describe_values(name: str, values: Sequence[Scalar]) -> str:
    """Describe the values of a field: all if they are few, else the first and the last.

    >>> _describe_values("source", ["local", "web"])
    "The field 'source' has the values local, web."
    >>> _describe_values("year", list(range(1990, 2020)))
    "The field 'year' has 30 values, from 1990 to 2019."
    """
    if not values:
        return f"No document has a value of the field {name!r}."
    if len(values) > VALUES_SHOWN:
        return f"The field {name!r} has {len(values):,} values, from {values[0]!s:.40} to {values[-1]!s:.40}."
    value_list = ", ".join(f"{value!s:.40}" for value in values)
    return f"The field {name!r} has the value{'s' if len(values) > 1 else ''} {value_list}."


def parse_fields(declarations: Sequence[str] | None) -> tuple[Field, ...] | None:
    """Return the declared fields; None without any, so that the store keeps its fields.

    Args:
        declarations: each as `author`, `year:int` or `year:int=0`, with the value of what has none.

    >>> parse_fields(["year:int=0"])
    (Field(name='year', kind='int', default=0, max_length=None),)
    """
    return tuple(map(_parse_field, declarations)) if declarations else None


def _parse_field(text: str) -> Field:
    declaration, has_default, default = text.partition("=")
    name, _, kind_name = (part.strip() for part in declaration.partition(":"))
    kinds: dict[str, Kind] = {literal: literal for literal in get_args(Kind)}
    if (kind := kinds.get(kind_name or "str")) is None or not name:
        raise FilterError(
            f"--field {text!r} declares no field. Write NAME, NAME:KIND or NAME:KIND=DEFAULT; {', '.join(kinds)}."
        )
    field = Field(name, kind)
    return field.but(default=parse_value(field, default.strip())) if has_default else field
