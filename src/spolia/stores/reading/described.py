"""Metadata as text."""

from __future__ import annotations

from collections.abc import Sequence

from spolia.types import Meta


def described(meta: Meta, fields: Sequence[str]) -> str:
    """A line `name: value` for each of these fields that has a value; several values stand in one line.

    >>> described((("year", 1999), ("by", "Ann"), ("by", "Bob"), ("isbn", None)), ("by", "isbn", "year", "size"))
    'by: Ann, Bob\\nyear: 1999'
    """
    found = {name: [str(value) for key, value in meta if key == name and value is not None] for name in fields}
    return "\n".join(f"{name}: {', '.join(values)}" for name, values in found.items() if values)
