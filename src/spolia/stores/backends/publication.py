"""The next generation of a store: what lives in it, the transaction around its changes, and its publication."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spolia.core.run_context import check_cancelled
from spolia.errors import StoreBusy, StoreCorrupt, StoreError
from spolia.filters import Schema
from spolia.stores import lexical
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection
from spolia.stores.backends.rows import (
    Audiences,
    SourceRow,
    Stamp,
    StoredLists,
    StoreVersion,
    Unmade,
    document_of,
    guarded,
    hash_of,
    hash_of_document,
    hash_of_picture,
    indexed_text,
    node_of,
    nodes_to_index,
    read_schema,
    unpacked,
    written_schema,
)
from spolia.stores.files import fail_point, is_scattered, is_split, is_worn, lacks_columns, translated
from spolia.stores.manifest import Manifest, read
from spolia.types import Document, Meta, Node

NONE: Mapping[str, bytes] = MappingProxyType({})

_PAGE = 1_000
_NOW = sql.ALIVE - 1
"""Later than any generation: what lives then was published, or will be next."""


@dataclass(frozen=True)
class Lacking:
    """A node that has no vector yet; its vector is found by `hash`, and `text` is what is indexed."""

    hash: bytes
    node: str
    document: str
    text: str

    @property
    def is_picture(self) -> bool:
        return self.hash != hash_of(self.text)


class Draft:
    """Reads the live rows of a store with what was changed: base of `Writer`, which changes them, and `Staging`."""

    store: Backend
    generation: int
    manifests: dict[str, Manifest]
    schema: Schema
    declared: Schema
    """The fields that were published, and those that will be."""
    indexes: dict[str, tuple[int, int]]
    embedded_to: dict[tuple[str, str], int]
    """By group and embedder, the node key up to which all nodes have vectors; publications note it."""
    _connection: Connection
    _audiences: Audiences

    def _read_what_is_published(self) -> None:
        generation, indexes = self._connection.execute(sql.GENERATIONS).fetchall()[-1]
        self.generation = int(generation)
        self.indexes = {name: (at, key) for name, (at, key) in json.loads(indexes).items()}
        manifests = [read(row[0]) for row in self._connection.execute(sql.MANIFESTS)]
        self.manifests = {manifest.group: manifest for manifest in manifests}
        self._audiences = Audiences(self._connection)
        self.schema = self.declared = read_schema(self._one(sql.FIELDS, (self.generation,))[0])
        self._read_embedded()

    def _read_embedded(self) -> None:
        rows = self._connection.execute(sql.EMBEDDED_TO).fetchall()
        self.embedded_to = {(group, embedder): key for group, embedder, key in rows}

    def _reading(self) -> AbstractContextManager[None]:
        return translated(self.store, "read")

    def _rows(self, every: str, some: str, uris: Iterable[str] | None) -> list[Any]:
        with self._reading():
            if uris is None:
                return self._connection.execute(every, {"at": _NOW} if ":at" in every else ()).fetchall()
            values = {"uris": json.dumps(list(uris))} | ({"at": _NOW} if ":at" in some else {})
            return self._connection.execute(some, values).fetchall()

    # Of sources, `uris` are those that are wanted; None for all.

    def stamps(self, uris: Iterable[str] | None = None) -> dict[str, Stamp]:
        """What tells whether a source, or what is in it, as `mails/offer.eml/prices.pdf`, has changed, by uri."""
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in self._rows(sql.STAMPS, sql.STAMPS_OF_URIS, uris)}

    def sources(self, uris: Iterable[str] | None = None) -> dict[str, SourceRow]:
        return {row[0]: SourceRow(*row) for row in self._rows(sql.SOURCES, sql.SOURCES_OF_URIS, uris)}

    def cursors(self) -> dict[str, dict[str, str]]:
        """How far each source was read: by its name, then by item."""
        found: dict[str, dict[str, str]] = {}
        with self._reading():
            for source, item, cursor in self._connection.execute(sql.ALL_CURSORS):
                found.setdefault(source, {})[item] = cursor
        return found

    def cursor(self, source: str, item: str) -> str:
        """How far an item of a source was read; empty if it was not."""
        with self._reading():
            row = self._one(sql.CURSOR, (source, item))
        return str(row[0]) if row else ""

    def metadata(self) -> Iterator[tuple[str, Meta]]:
        """The metadata of all documents and nodes that have some, with changes; each by a readable name."""
        with self._reading():
            for whose, meta in self._connection.each(sql.LIVE_METADATA):
                yield whose, unpacked(meta)

    def documents(self) -> Iterator[Document]:
        readers = StoredLists(self._connection)
        with self._reading():
            for row in self._connection.each(sql.DOCUMENTS, {"at": _NOW}):
                yield document_of(row, readers)

    def nodes(self, document: str, group: str) -> list[Node]:
        at = {"document": document, "grp": group, "first": 0, "last": sql.ALIVE, "at": _NOW}
        readers = StoredLists(self._connection)
        with self._reading():
            return [node_of(row, readers) for row in self._connection.execute(sql.NUMBERED, at).fetchall()]

    def holders(self, document: str) -> list[SourceRow]:
        """The sources that hold a document, by its id; with what was changed."""
        with self._reading():
            key = self._live_key(document)
            rows = self._connection.execute(sql.LIVE_SOURCES_OF, (key,)).fetchall() if key is not None else []
            return [SourceRow(*row) for row in rows]

    def births(self, uris: Iterable[str] | None = None) -> dict[str, int]:
        """The generations in which the rows of live sources were written, by uri."""
        return dict(self._rows(sql.BIRTHS, sql.BIRTHS_OF_URIS, uris))

    def holds(self, document: Document) -> bool:
        """Whether a document is there as it is, so that putting it needs no nodes."""
        if (there := self._live(document.id)) is None:
            return False
        with self._reading():
            return bool(there[1] == hash_of_document(document, self._audiences.digest(document.readers)))

    def meta_of(self, document: str) -> Meta | None:
        """The metadata of a document by its id, with changes; None if the id is unknown."""
        if (there := self._live(document)) is None:
            return None
        with self._reading():
            return unpacked(there[3])

    def document_key(self, id: str) -> int | None:
        """Distinguishes a live document from earlier ones with its id; None if the id is unknown."""
        return self._live_key(id)

    def document_keys(self, ids: Iterable[str]) -> dict[str, int]:
        """The same for several documents; unknown ids are left out."""
        with self._reading():
            return dict(self._connection.execute(sql.KEYS_OF_DOCUMENTS, {"ids": json.dumps(list(ids))}).fetchall())

    def _live_key(self, id: str) -> int | None:
        there = self._live(id)
        return there[0] if there else None

    def _live(self, id: str) -> Any:
        """Key, hash, birth and metadata of a document; None for an unknown id."""
        with self._reading():
            return self._one(sql.LIVE_DOCUMENT, (id,))

    def _one(self, statement: str, values: Any = ()) -> Any:
        return self._connection.execute(statement, values).fetchone()

    def dependent(self, uris: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """The uris and reports of sources of which more than their bytes tells how they are read."""
        return sorted(self._rows(sql.SOURCES_DEPENDENT, sql.SOURCES_DEPENDENT_OF_URIS, uris))

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Who may read what each source, and what is in it, holds, by its uri; with what was changed."""
        lists = StoredLists(self._connection)
        with self._reading():
            found = self._rows(sql.READERS_OF_SOURCES, sql.READERS_OF_URIS, uris)
            return {uri: lists[audience] for uri, audience in found}

    def access_lists(self, uris: Iterable[str] | None = None) -> dict[str, tuple[tuple[str, ...], int]]:
        """Who may read each document that sources hold, and whether one or more hold it, 1 or 2; by its id."""
        lists = StoredLists(self._connection)
        with self._reading():
            found = self._rows(sql.HELD, sql.HELD_OF_URIS, uris)
            return {document: (lists[audience], holders) for document, audience, holders in found}

    def access_list_of(self, document: str) -> tuple[tuple[str, ...], int] | None:
        """The same of one document, by its id; None where no source holds it."""
        with self._reading():
            row = self._one(sql.HELD_OF_ID, (document,))
            return (StoredLists(self._connection)[row[1]], row[2]) if row else None

    def is_restricted(self) -> bool:
        """Whether anything was ever stored that not everybody may read."""
        with self._reading():
            return self._one(sql.IS_RESTRICTED) is not None

    def is_restricted_now(self) -> bool:
        """Whether something is there that not everybody may read; with what was changed."""
        with self._reading():
            return self._one(sql.IS_RESTRICTED_NOW) is not None

    def document(self, id: str) -> Document:
        with self._reading():
            row = self._one(sql.DOCUMENT, {"id": id, "at": _NOW})
            if row is None:
                raise StoreError(f"There is no document {id!r} in {self.store}. Write the id of one of documents().")
            return document_of(row, StoredLists(self._connection))

    def unmade(self) -> tuple[Unmade, ...]:
        with self._reading():
            return tuple(Unmade(*row) for row in self._connection.execute(sql.UNMADE, {"at": _NOW}))

    # Vectors.

    def unembedded(self, group: str, embedder: str) -> Iterator[tuple[bytes, str]]:
        """Hash and text of each text that has no vector by this embedder; see also `unembedded_pictures`."""
        return ((one.hash, one.text) for one in self._lacking(group, embedder) if not one.is_picture)

    def unembedded_pictures(self, group: str, embedder: str) -> Iterator[tuple[Lacking, bytes]]:
        """The nodes whose pictures lack a vector by this embedder, each picture once; StoreError if one was not put."""
        pictures = self.manifests[group].by_picture
        for one in self._lacking(group, embedder) if pictures else ():
            if one.is_picture:
                yield one, self._picture(one)

    def _picture(self, one: Lacking) -> bytes:
        with self._reading():
            for key, image in self._connection.execute(sql.LIVE_IMAGES, (one.document,)).fetchall():
                if hash_of_picture(image) == one.hash:
                    return bytes(self._one(sql.LIVE_IMAGE, (key, image))[0])
        raise StoreError(
            f"Node {one.node!r} shows a picture that its document was put without. Write put(document, nodes, source, "
            "images) with all pictures that its regions name."
        )

    def _lacking(self, group: str, embedder: str) -> Iterator[Lacking]:
        seen: set[bytes] = set()
        key = self.embedded_to.get((group, embedder), 0)
        embedded_to: int | None = None
        while True:
            with self._reading():
                last_key = self._one(sql.LAST_KEY)[0]
                values = {"grp": group, "key": key, "embedder": embedder, "limit": _PAGE}
                rows = self._connection.execute(sql.UNEMBEDDED, values).fetchall()
            if embedded_to is None:
                embedded_to = rows[0][0] - 1 if rows else last_key
            for _, found, id, document, *texts in rows:
                if found not in seen and not self._is_pending(embedder, found):
                    seen.add(found)
                    yield Lacking(found, id, document, indexed_text(*texts))
            if len(rows) < _PAGE:
                self.embedded_to[group, embedder] = embedded_to  # need not be looked at again before publishing
                return
            key = rows[-1][0]

    def _is_pending(self, embedder: str, hash: bytes) -> bool:
        """Whether a vector was added and is not written yet."""
        raise NotImplementedError


_POLL_S = 0.02


def wait_for_right(take: Callable[[], bool], place: object, holder: Callable[[], str], timeout_s: float) -> None:
    """Try to take the right to write until that succeeds; `StoreBusy` if it was not free in time."""
    end = time.monotonic() + timeout_s
    while not take():
        if time.monotonic() >= end:
            whose = holder()
            error = StoreBusy(
                f"{place} is being written by {whose}; it did not finish within {timeout_s:g} s. Wait for it or end "
                "it, then try again; to wait longer: --wait 600 on the command line, in Python "
                "Corpus(path, wait_s=600)."
            )
            error.holder = whose
            raise error
        check_cancelled()
        time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))


class Transaction:
    """Begins with the first change. `visible`: readers will see a change; `ended`: it cannot be used any more."""

    def __init__(self, store: Backend, connection: Connection) -> None:
        self.store, self.connection = store, connection
        self.began = self.visible = self.ended = self.is_whole = False

    def refuse_if_ended(self) -> None:
        if self.ended:
            raise StoreError(
                f"This writer of {self.store} has ended, by an error or by leaving its block. "
                "Write: with corpus.writer() as writer: ..."
            )

    def begin(self) -> None:
        self.refuse_if_ended()
        if not self.began:
            with self.or_end("written"):
                self.connection.execute(sql.BEGIN)
            self.began = True

    def commit(self) -> None:
        with self.or_end("written"):
            fail_point("publish.commit")
            self.connection.execute(sql.COMMIT)
        self.renew()

    def renew(self) -> None:
        self.began = self.visible = False

    @contextmanager
    def change(self, *, visible: bool = True) -> Iterator[None]:
        """One change, whole or not at all; an error takes back this change only."""
        self.begin()
        if self.is_whole:
            yield
            self.visible = self.visible or visible
            return
        connection = self.connection
        with self.or_end("written"):
            connection.execute(sql.MARK)
        try:
            with translated(self.store, "written"):
                yield
                connection.execute(sql.KEEP)
        except BaseException:
            if connection.in_transaction:
                self._take_back(sql.UNDO, sql.KEEP)
            else:  # all was taken back, as SQLite does when the disk is full, and a server whose connection is lost
                self.ended = True
            raise
        self.visible = self.visible or visible

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Changes that are not taken back one by one: an error takes back everything, and the writer ends."""
        self.is_whole = True
        try:
            with self.or_end("written"):
                yield
        finally:
            self.is_whole = False

    @contextmanager
    def or_end(self, doing: str) -> Iterator[None]:
        """An error takes back everything, and the writer ends."""
        try:
            with translated(self.store, doing):
                yield
        except BaseException:
            self.ended = True
            if self.connection.in_transaction:
                self._take_back(sql.ROLLBACK)
            raise

    def _take_back(self, *statements: str) -> None:
        """Take back what an error has interrupted. A server that is gone has done that: the error says so, not this."""
        try:
            for statement in statements:
                self.connection.execute(statement)
        except Exception as error:
            self.ended = True
            if self.store.problem("written", error) is None:
                raise


KEPT = 2
"""Generations that are kept even if nobody reads them."""
REMEMBERED = 10_000
"""Publications whose ids are kept: by these, what was derived from one is known to belong to this store's past."""

_MOVED = 32
"""Nodes that are moved at most to have the segments of a lexical index merged."""

Indexes = dict[str, tuple[int, int]]
"""For each group, the generation whose folder holds its lexical index, and the last node key that was known then."""


class Publication:
    def __init__(
        self, store: Backend, connection: Connection, generation: int, manifests: dict[str, Manifest], schema: Schema
    ) -> None:
        self.store, self.connection, self.generation = store, connection, generation
        self.version = StoreVersion.after(generation - 1)
        self.manifests, self.schema = manifests, schema
        self._fields = [field.name for field in schema]
        self.mended: list[str] = []

    def publish(
        self, indexes: Indexes, embedded_to: Mapping[tuple[str, str], int] | None, *, merged: bool = False
    ) -> Indexes:
        """Make it durable and visible; returns its lexical indexes. Without `embedded_to`, nodes may lack vectors."""
        if embedded_to is not None:
            self._refuse_lacking_vectors(embedded_to)
            self._note_embedded()
        fresh = {group: self._indexed(group, indexes.get(group), merged) for group in sorted(self.manifests)}
        self.store.pin(self.generation)
        taken = self._forget_old_generations()
        fail_point("publish.row")
        row = guarded(self.generation, json.dumps(fresh), written_schema(self.schema))
        self.connection.execute(sql.PUBLISH, row)
        self.connection.execute(sql.ADD_PUBLICATION, guarded(*self.version))
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

    def _note_embedded(self) -> None:
        """Note that all nodes have vectors, so that nobody looks at these nodes again."""
        last_key: int = self.connection.execute(sql.LAST_KEY).fetchone()[0]
        self.connection.execute(sql.FORGET_EMBEDDED)
        for group, manifest in self.manifests.items():
            for how in manifest.embeddings:
                self.connection.execute(sql.SET_EMBEDDED, guarded(group, how.embedder, last_key))

    # The lexical index of a group.

    def _indexed(self, group: str, base: tuple[int, int] | None, merged: bool) -> tuple[int, int]:
        last_key: int = self.connection.execute(sql.LAST_KEY).fetchone()[0]
        if base is not None:
            try:
                return self._updated(group, base, last_key, merged)
            except StoreCorrupt as error:
                self.mended.append(f"The lexical index of group {group!r} was built again: {error}")
        self._freeze(group, None, last_key)
        return self.generation, last_key

    def _updated(self, group: str, base: tuple[int, int], last_key: int, merged: bool) -> tuple[int, int]:
        at, known = base
        folder = self.store.published_index(group, at)
        merged = merged and folder is not None and is_scattered(folder)
        dead: int = self.connection.execute(sql.DEAD_COUNT, (group, at, known)).fetchone()[0]
        added = self.connection.execute(sql.HAS_NEW_NODES, (group, known)).fetchone()
        is_lacking = folder is not None and lacks_columns(folder, self._fields)
        if not dead and added is None and not merged and not is_lacking:
            return base
        is_fresh = is_lacking or (folder is not None and (is_worn(folder, dead) or (merged and is_split(folder))))
        self._freeze(group, None if is_fresh else base, last_key, merged=merged and not is_fresh)
        return self.generation, last_key

    def _freeze(self, group: str, base: tuple[int, int] | None, last_key: int, *, merged: bool = False) -> None:
        if (target := self.store.published_index(group, self.generation)) is None:
            return

        at, known = base or (0, 0)
        dead = (key for (key,) in self.connection.each(sql.DEAD_KEYS, (group, at, known)))
        lexical.index_writer.freeze(
            target,
            self.store.published_index(group, at) if base else None,
            dead if base else (),
            nodes_to_index(self.connection.each(sql.NEW_NODES, (group, known))),
            self.manifests[group].analyzer,
            moved=nodes_to_index(self.connection.each(sql.LAST_NODES, (group, last_key, _MOVED))) if merged else (),
            fields=self._fields,
        )

    # What nobody needs any more.

    def _forget_old_generations(self) -> list[object]:
        """Forget generations that nobody reads, and their rows; returns the leases to hold until the commit."""
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
