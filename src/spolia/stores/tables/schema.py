"""The declared metadata fields of a store, as text in its truth."""

from __future__ import annotations

import json
from dataclasses import asdict

from spolia.errors import SpoliaError, StoreCorrupt
from spolia.filters import Field, Schema


def written_schema(schema: Schema) -> str:
    """The fields as JSON."""
    return json.dumps([asdict(field) for field in schema], ensure_ascii=False) if schema else ""


def read_schema(text: str) -> Schema:
    """The fields that were written.

    >>> read_schema(written_schema(Schema((Field("year", "int"),))))
    (Field(name='year', kind='int', default=None, max_length=None),)
    """
    try:
        return Schema(Field(**field) for field in json.loads(text or "[]"))
    except (ValueError, TypeError, SpoliaError) as error:
        raise StoreCorrupt(f"The declared fields of the store cannot be understood: {text!r} ({error}).") from error
