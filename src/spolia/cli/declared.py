"""Metadata fields that can be filtered by, as `--field NAME:KIND` declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from spolia.cli.conditions import value_of
from spolia.errors import FilterError

if TYPE_CHECKING:
    from spolia.filters import Field


def fields_of(written: Sequence[str] | None) -> tuple[Field, ...] | None:
    """The fields; None where none is declared, so that those stay that a store has.

    Args:
        written: each as `author`, `year:int` or `year:int=0`, with the value of what has none.

    Raises:
        FilterError: what is written declares no field.

    >>> fields_of(["year:int=0"])
    (Field(name='year', kind='int', default=0, max_length=None),)
    """
    return tuple(map(_field, written)) if written else None


def _field(text: str) -> Field:
    from spolia.filters import Field
    from spolia.filters.fields import Kind

    said, has_default, default = text.partition("=")
    name, _, written = (part.strip() for part in said.partition(":"))
    kinds: dict[str, Kind] = {one: one for one in get_args(Kind)}
    if (kind := kinds.get(written or "str")) is None or not name:
        raise FilterError(
            f"--field {text!r} declares no field. Write NAME, NAME:KIND or NAME:KIND=DEFAULT; {', '.join(kinds)}."
        )
    field = Field(name, kind)
    return field.but(default=value_of(field, default.strip())) if has_default else field
