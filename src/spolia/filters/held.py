"""Whether documents and nodes have the fields that are declared, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spolia.filters.fields import Schema
from spolia.types import Meta

_NAMED = 12


def notes_on(schema: Schema, described: Iterable[tuple[str, Meta]]) -> tuple[str, ...]:
    """What a person should know of the declared fields: which values are passed over, and which nobody has.

    Args:
        schema: the declared fields.
        described: documents and nodes, each by a name for the message, with their metadata.

    >>> from spolia.filters import Field
    >>> notes_on(Schema((Field("tags"),)), [("document a.md", (("keywords", "stones"),))])
    ("No document has a value of the field 'tags'. The names that documents have are: keywords.",)
    """
    had, passed_over, first = set[str](), Counter[str](), dict[str, str]()
    names: dict[str, None] = {}
    fields = {field.name: field for field in schema}
    for whose, meta in described:
        misfit = set[str]()
        for name, value in meta:
            names.setdefault(name)
            if (field := fields.get(name)) is None or value is None:
                continue
            if field.fits(value):
                had.add(name)
            else:
                misfit.add(name)
                if name not in first:
                    first[name] = next(schema.misfits(((name, value),), whose))
        passed_over.update(misfit)
    return tuple(
        _note(name, passed_over[name], first.get(name), names) for name in fields if name in first or name not in had
    )


def _note(name: str, count: int, first: str | None, names: Iterable[str]) -> str:
    if first is not None:
        return first if count == 1 else f"{first} So are those of {count - 1} others."
    listed = list(names)
    shown = ", ".join(listed[:_NAMED]) + (f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else "")
    return f"No document has a value of the field {name!r}. The names that documents have are: {shown or 'none'}."
