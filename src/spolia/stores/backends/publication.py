"""The declared metadata fields of a store, as text in its truth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from spolia.errors import SpoliaError, StoreCorrupt, StoreError, StoreTooNew
from spolia.filters import Field, Schema
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection, translated
from spolia.stores.backends.rows import StoreVersion, indexed_text, reader_versions
from spolia.stores.files import fail_point
from spolia.stores.manifest import Manifest


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


class Transaction:
    """Begins with the first change, so that a writer without changes writes nothing.

    Attributes:
        visible: whether it holds something that readers will see.
        ended: whether it can be used no more, after an error or when it was closed.
    """

    def __init__(self, store: Backend, connection: Connection) -> None:
        self.store, self.connection = store, connection
        self.began = self.visible = self.ended = False

    def refuse_if_ended(self) -> None:
        """Raise unless it can be used."""
        if self.ended:
            raise StoreError(
                f"This writer of {self.store} has ended, by an error or by leaving its block. "
                "Write: with corpus.writer() as writer: ..."
            )

    def begin(self) -> None:
        """Begin, unless it has begun."""
        self.refuse_if_ended()
        if not self.began:
            with self.or_end("written"):
                self.connection.execute(sql.BEGIN)
            self.began = True

    def commit(self) -> None:
        """Keep what it holds, and have the next change begin another one."""
        with self.or_end("written"):
            fail_point("publish.commit")
            self.connection.execute(sql.COMMIT)
        self.renew()

    def renew(self) -> None:
        """It was committed: the next change begins another one."""
        self.began = self.visible = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read from it."""
        self.refuse_if_ended()
        with translated(self.store, "read"):
            yield

    @contextmanager
    def change(self, *, visible: bool = True) -> Iterator[None]:
        """One change, whole or not at all; an error takes back this change only."""
        self.begin()
        connection = self.connection
        with self.or_end("written"):
            connection.execute(sql.MARK)
        try:
            with translated(self.store, "written"):
                yield
                connection.execute(sql.KEEP)
        except BaseException:
            if connection.in_transaction:
                connection.execute(sql.UNDO)
                connection.execute(sql.KEEP)
            else:  # all was taken back, as SQLite does when the disk is full, and a server whose connection is lost
                self.ended = True
            raise
        self.visible = self.visible or visible

    @contextmanager
    def or_end(self, doing: str) -> Iterator[None]:
        """An error takes back everything, and the writer ends."""
        try:
            with translated(self.store, doing):
                yield
        except BaseException:
            self.ended = True
            if self.connection.in_transaction:
                self.connection.execute(sql.ROLLBACK)
            raise


KEPT = 2
"""Generations that are kept even if nobody reads them."""
REMEMBERED = 10_000
"""Publications whose ids are kept: by these, what was derived from one is known to belong to this store's past."""

Indexes = dict[str, tuple[int, int]]
"""For each group, the generation whose folder holds its lexical index, and the last node key that was known then."""


class Publication:
    """The next generation of a store on its way, inside the writer's transaction."""

    def __init__(
        self, store: Backend, connection: Connection, generation: int, manifests: dict[str, Manifest], schema: Schema
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
