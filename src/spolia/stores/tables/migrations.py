"""Bringing a store of an earlier schema to this one: forward only, in the transaction of whoever opens it first.

Each step goes from one schema to the next, and is never changed once stores of the next one are out. What is derived
from the tables stays as it is, so that no step may give rows other keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from spolia.errors import StoreError, StoreTooNew
from spolia.stores.failpoints import fail_point
from spolia.stores.tables import sql
from spolia.stores.tables.rows import StoreVersion, reader_versions
from spolia.stores.truth import Connection


def is_earlier(store: object, version: int, anew: str) -> bool:
    """Whether a store has an earlier schema, from which it can be brought to this one.

    Args:
        store: where it is, for the message.
        version: of its schema.
        anew: how it is made from nothing.

    Raises:
        StoreTooNew: it has a later schema.
        StoreError: its schema is older than any step here.
    """
    if version > sql.SCHEMA_VERSION:
        raise StoreTooNew(
            f"{store} has schema {version}, written by a newer version of Spolia; this one knows up to "
            f"{sql.SCHEMA_VERSION}. Write: pip install -U spolia"
        )
    if version < min(STEPS):
        raise StoreError(
            f"{store} has schema {version}, written by an early version of Spolia; this one reads {min(STEPS)} to "
            f"{sql.SCHEMA_VERSION}. Make it anew: {anew}"
        )
    return version < sql.SCHEMA_VERSION


def migrate(connection: Connection, version: int) -> None:
    """Bring the tables from a schema to this one, inside a transaction."""
    for step in range(version, sql.SCHEMA_VERSION):
        fail_point("migrate.step")
        STEPS[step](connection)
    fail_point("migrate.commit")


def _from_5(connection: Connection) -> None:
    """Publications get ids. Versions of readers, which stood in the manifest of the main group, go to the sources."""
    for statement in sql.FROM_5:
        connection.execute(statement)
    for generation, _ in connection.execute(sql.GENERATIONS).fetchall():
        connection.execute(sql.ADD_PUBLICATION, StoreVersion.after(generation - 1))
    for (written,) in connection.execute(sql.MANIFESTS).fetchall():
        manifest = json.loads(written)
        if manifest["definition"] and manifest["reader"]:  # one that was written by hand says what it wants there
            for name, reader in reader_versions(manifest["reader"]).items():
                start = json.dumps({"reader": name}, ensure_ascii=False, separators=(",", ":"))[:-1]
                connection.execute(sql.NAME_READER, (reader, start, start))
            text = json.dumps(manifest | {"reader": ""}, ensure_ascii=False, sort_keys=True)
            connection.execute(sql.DEFINE, {"grp": manifest["group"], "manifest": text})


STEPS: Mapping[int, Callable[[Connection], None]] = {5: _from_5}
"""By the schema that each starts from."""
