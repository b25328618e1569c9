"""The declared metadata fields of a store, as text in its truth."""

from __future__ import annotations

import json
from dataclasses import asdict

from spolia.errors import FilterError, SpoliaError, StoreCorrupt
from spolia.filters import Field, Schema
from spolia.stores.tables import sql
from spolia.stores.tables.rows import unpacked
from spolia.stores.truth import Connection


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


def misfit(connection: Connection, before: Schema, now: Schema) -> FilterError | None:
    """Why something that lives does not fit to what is declared now; None if all does.

    Args:
        connection: of the writer, in its transaction.
        before: what everything fits to.
    """
    other = Schema(field for field in now if field not in before)
    if not other:
        return None
    try:
        for whose, meta in connection.each(sql.LIVE_METADATA):
            other.check_values(unpacked(meta), whose)
    except FilterError as error:
        return error
    return None
