"""Conditions on metadata as they are written on the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from spolia.errors import FilterError
from spolia.filters import And, Between, Condition, Field, Not, Schema, where
from spolia.filters.fields import Kind
from spolia.types import Scalar, Time

if TYPE_CHECKING:
    from spolia.stores.corpus import NodeGroup

WRITTEN = re.compile(r"\s*([^=<>!]+?)\s*(>=|<=|!=|=|>|<|\bin\b)\s*([^=<>!\s].*?)\s*", re.S)
EXAMPLES = "--where year=2020, --where 'tag in a,b', --where 'year>=2020' or --where 'file_modified>2026-01-31'"
VALUES_SHOWN = 12
"""Values of a field that an error lists."""
_BOUNDS = {">=": "at_least", "<=": "at_most", ">": "above", "<": "below"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def condition_of(written: Sequence[str], schema: Schema) -> Condition | None:
    """All of these conditions; None for none.

    Args:
        written: each as `year=2020`, `tag in a,b`, `year>=2020`, `year<2022` or `kind!=draft`. A year, month or day is
            all of it: `file_modified>2026-01` begins with the first of February, in UTC.

    >>> from spolia.filters import Field, Schema
    >>> condition_of(["year in 2020, 2021"], Schema([Field("year", "int")]))
    AnyOf(field='year', values=(2020, 2021))
    >>> condition_of(["file_modified<=2026-01-31"], Schema())
    Between(field='file_modified', at_least=None, at_most='2026-01-31', above=None, below=None)
    """
    found = [_condition(text, schema) for text in written]
    return None if not found else found[0] if len(found) == 1 else And(tuple(found))


def named_fields(written: Sequence[str]) -> tuple[str, ...]:
    """The fields that conditions name, each once.

    >>> named_fields(["source=web", "year>=2020", "source!=mail"])
    ('source', 'year')
    """
    return tuple(dict.fromkeys(parts.group(1) for parts in map(WRITTEN.fullmatch, written) if parts is not None))


def refuse_empty_source(
    written: Sequence[str], condition: Condition, group: NodeGroup, access: frozenset[str] | None
) -> None:
    """Refuse a condition on the second source that leaves one of the two sources without a document.

    Only documents that the asker may read count and are shown. A store with access lists and no asker (None) is
    skipped. A store without documents that the asker may read passes: there both sources are empty alike.

    Raises:
        FilterError: how many documents there are, which values the fields have, and what to write.
    """
    snapshot = group.snapshot()
    if access is None and snapshot.readers.restricted:
        return
    who, records = access or frozenset(), snapshot.open.records(group.name)

    def count(wanted: Condition | None) -> int:
        return records.documents(snapshot.allowed(group.name, who, wanted))

    def divides(wanted: Condition) -> bool:
        return count(wanted) > 0 and count(Not(wanted)) > 0

    total = count(None)
    if total == 0 or divides(condition):
        return
    readable = "documents that you may read" if snapshot.readers.restricted else "documents"
    lacking = "second" if count(condition) == 0 else "first"
    how_many = f"none of the {total:,}" if lacking == "second" else f"each of the {total:,}"
    options = " ".join(f"--web {shlex.quote(one)}" for one in written)
    said = f"{options}: {how_many} {readable} fulfils it, so the {lacking} source would be empty."
    advice = ""
    for name in named_fields(written):
        values = records.values(name, snapshot.allowed(group.name, who))
        said += f" {_told(name, values)}"
        split = (one for one in values[:VALUES_SHOWN] if divides(where(**{name: [one]})))
        if not advice and (found := next(split, None)) is not None:
            advice = f" Write for example --web {shlex.quote(f'{name}={found}')}."
    raise FilterError(said + (advice or " Write a condition that some documents fulfil and others do not."))


def _told(name: str, values: Sequence[Scalar]) -> str:
    """The values of a field in words: all if they are few, else the first and the last.

    >>> _told("source", ["local", "web"])
    "The field 'source' has the values local, web."
    >>> _told("year", list(range(1990, 2020)))
    "The field 'year' has 30 values, from 1990 to 2019."
    """
    if not values:
        return f"No document has a value of the field {name!r}."
    if len(values) > VALUES_SHOWN:
        return f"The field {name!r} has {len(values):,} values, from {values[0]!s:.40} to {values[-1]!s:.40}."
    listed = ", ".join(f"{one!s:.40}" for one in values)
    return f"The field {name!r} has the value{'s' if len(values) > 1 else ''} {listed}."


def _condition(text: str, schema: Schema) -> Condition:
    parts = WRITTEN.fullmatch(text)
    if parts is None:
        raise FilterError(f"{text!r} is no condition. Write for example {EXAMPLES}.")
    name, sign, said = parts.groups()
    field = schema.by_name.get(name)
    if field is None:
        raise FilterError(
            f"There is no metadata field {name!r} to filter by. Declared are: {', '.join(sorted(schema.by_name))}. "
            f"Write one of these, or declare it: spolia sync FOLDER --store STORE --field {shlex.quote(name)}:KIND."
        )
    values = [value_of(field, one.strip()) for one in (said.split(",") if sign == "in" else [said])]
    if sign in _BOUNDS:
        return Between(name, **{_BOUNDS[sign]: values[0]})
    found = where(**{name: values})
    return Not(found) if sign == "!=" else found


def value_of(field: Field, text: str) -> Any:
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


def fields_of(written: Sequence[str] | None) -> tuple[Field, ...] | None:
    """The fields; None where none is declared, so that those stay that a store has.

    Args:
        written: each as `author`, `year:int` or `year:int=0`, with the value of what has none.

    >>> fields_of(["year:int=0"])
    (Field(name='year', kind='int', default=0, max_length=None),)
    """
    return tuple(map(_field, written)) if written else None


def _field(text: str) -> Field:
    said, has_default, default = text.partition("=")
    name, _, written = (part.strip() for part in said.partition(":"))
    kinds: dict[str, Kind] = {one: one for one in get_args(Kind)}
    if (kind := kinds.get(written or "str")) is None or not name:
        raise FilterError(
            f"--field {text!r} declares no field. Write NAME, NAME:KIND or NAME:KIND=DEFAULT; {', '.join(kinds)}."
        )
    field = Field(name, kind)
    return field.but(default=value_of(field, default.strip())) if has_default else field
