"""Publishing a generation: derived files durable first, then one row and the commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from spolia.errors import StoreCorrupt, StoreError
from spolia.filters import Schema
from spolia.stores.failpoints import fail_point
from spolia.stores.manifest import Manifest
from spolia.stores.tables import sql
from spolia.stores.tables.rows import StoreVersion, indexed_text
from spolia.stores.tables.schema import written_schema
from spolia.stores.truth import Connection, Truth

KEPT = 2
"""Generations that are kept even if nobody reads them."""
REMEMBERED = 10_000
"""Publications whose ids are kept: by these, what was derived from one is known to belong to this store's past."""

Indexes = dict[str, tuple[int, int]]
"""For each group, the generation whose folder holds its lexical index, and the last node key that was known then."""


class Publication:
    """The next generation of a store on its way, inside the writer's transaction."""

    def __init__(
        self, store: Truth, connection: Connection, generation: int, manifests: dict[str, Manifest], schema: Schema
    ) -> None:
        self.store, self.connection, self.generation = store, connection, generation
        self.version = StoreVersion.after(generation - 1)
        self.manifests, self.schema = manifests, schema
        self.mended: list[str] = []

    def publish(self, indexes: Indexes, embedded_to: Mapping[tuple[str, str], int]) -> Indexes:
        """Make it durable and visible; returns its lexical indexes.

        Args:
            indexes: those of the published generation; a group that is not among them is indexed from nothing.
            embedded_to: for each group and embedder, the node key up to which all nodes are known to have vectors.
        """
        self._refuse_lacking_vectors(embedded_to)
        fresh = {group: self._indexed(group, indexes.get(group)) for group in sorted(self.manifests)}
        self.store.pin(self.generation)
        taken = self._forget_old_generations()
        fail_point("publish.row")
        self.connection.execute(sql.PUBLISH, (self.generation, json.dumps(fresh), written_schema(self.schema)))
        self.connection.execute(sql.ADD_PUBLICATION, self.version)
        self.connection.execute(sql.FORGET_PUBLICATIONS, (self.generation - REMEMBERED,))
        fail_point("publish.commit")
        self.connection.execute(sql.COMMIT)
        fail_point("publish.committed")
        taken.clear()
        return fresh

    def _refuse_lacking_vectors(self, embedded_to: Mapping[tuple[str, str], int]) -> None:
        for group, manifest in self.manifests.items():
            for embedder in (embedding.embedder for embedding in manifest.embeddings):
                key = embedded_to.get((group, embedder), 0)
                values = {"grp": group, "key": key, "embedder": embedder, "at": self.generation}
                if lacking := self.connection.execute(sql.LACKING, values).fetchone()[0]:
                    raise StoreError(
                        f"{lacking} nodes of group {group!r} have no vector by {embedder!r}; nothing was "
                        "published. Write writer.add_vectors for all that writer.unembedded and "
                        "writer.unembedded_pictures give, then publish."
                    )

    # The lexical index of a group.

    def _indexed(self, group: str, base: tuple[int, int] | None) -> tuple[int, int]:
        last_key: int = self.connection.execute(sql.LAST_KEY).fetchone()[0]
        if base is not None:
            try:
                return self._updated(group, base, last_key)
            except StoreCorrupt as error:
                self.mended.append(f"The lexical index of group {group!r} was built again: {error}")
        self._freeze(group, None, last_key)
        return self.generation, last_key

    def _updated(self, group: str, base: tuple[int, int], last_key: int) -> tuple[int, int]:
        at, known = base
        dead: int = self.connection.execute(sql.DEAD_COUNT, (group, at, known)).fetchone()[0]
        added = self.connection.execute(sql.NEW_NODES, (group, known)).fetchone()
        if not dead and added is None:
            return base
        is_worn = dead and self.store.is_worn(self.manifests[group], at, dead)
        self._freeze(group, None if is_worn else base, last_key)
        return self.generation, last_key

    def _freeze(self, group: str, base: tuple[int, int] | None, last_key: int) -> None:
        at, known = base or (0, 0)
        dead = (key for (key,) in self.connection.each(sql.DEAD_KEYS, (group, at, known)))
        self.store.freeze(
            self.manifests[group],
            at if base else None,
            self.generation,
            dead if base else (),
            self._added(group, known),
        )

    def _added(self, group: str, known: int) -> Iterator[tuple[int, str, int]]:
        for key, context, text, search_text, audience in self.connection.each(sql.NEW_NODES, (group, known)):
            yield key, indexed_text(context, text, search_text), audience

    # What nobody needs any more.

    def _forget_old_generations(self) -> list[object]:
        """Forget generations but the last ones and those that somebody reads, and the rows that only they see.

        The exclusive leases on them are held until that is committed.
        """
        kept = [row[0] for row in self.connection.execute(sql.GENERATIONS)]
        taken: list[object] = []
        for generation in kept[: 1 - KEPT]:
            if (lease := self.store.unleased(self.connection, generation)) is not None:
                taken.append(lease)
                self.connection.execute(sql.FORGET, (generation,))
        fail_point("publish.purge")
        for statement in sql.PURGE:
            self.connection.execute(statement)
        return taken
