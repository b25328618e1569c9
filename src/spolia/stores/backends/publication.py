"""Next generation of a store: what lives in it, the transaction around its changes, and its publication."""

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
    dump_schema,
    hash_of,
    hash_of_document,
    hash_of_picture,
    indexed_text,
    node_of,
    nodes_to_index,
    read_schema,
    unpack_values,
    with_digest,
)
from spolia.stores.files import fail_point, is_scattered, is_split, is_worn, lacks_columns, store_errors
from spolia.stores.manifest import Manifest, read
from spolia.types import Document, Meta, Node

NO_IMAGES: Mapping[str, bytes] = MappingProxyType({})

# Rows read together; other statements run between two pages.
_PAGE = 1_000
_NOW = sql.ALIVE - 1
"""Later than any generation: what lives then was published, or will be next."""


@dataclass(frozen=True)
class UnembeddedNode:
    """Node that has no vector yet; its vector is found by `hash`, and `text` is what is indexed."""

    hash: bytes
    node: str
    document: str
    text: str

    @property
    def is_picture(self) -> bool:
        return self.hash != hash_of(self.text)


class Draft:
    """Live rows of a store with what was changed: base of `Writer`, which changes them, and `Staging`."""

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

    def _read_published(self) -> None:
        generation, indexes = self._connection.execute(sql.GENERATIONS).fetchall()[-1]
        self.generation = int(generation)
        self.indexes = {name: (base, key) for name, (base, key) in json.loads(indexes).items()}
        manifests = [read(row[0]) for row in self._connection.execute(sql.MANIFESTS)]
        self.manifests = {manifest.group: manifest for manifest in manifests}
        self._audiences = Audiences(self._connection)
        self.schema = self.declared = read_schema(self._fetch_one(sql.FIELDS, (self.generation,))[0])
        self._read_embedded()

    def _read_embedded(self) -> None:
        rows = self._connection.execute(sql.EMBEDDED_TO).fetchall()
        self.embedded_to = {(group, embedder): key for group, embedder, key in rows}

    def _read_errors(self) -> AbstractContextManager[None]:
        return store_errors(self.store, "read")

    def _rows(self, all_rows: str, rows_of_uris: str, uris: Iterable[str] | None) -> list[Any]:
        with self._read_errors():
            if uris is None:
                return self._connection.execute(all_rows, {"at": _NOW} if ":at" in all_rows else ()).fetchall()
            values = {"uris": json.dumps(list(uris))} | ({"at": _NOW} if ":at" in rows_of_uris else {})
            return self._connection.execute(rows_of_uris, values).fetchall()

    # Of sources, `uris` are those that are wanted; None for all.

    def stamps(self, uris: Iterable[str] | None = None) -> dict[str, Stamp]:
        """Return by uri what tells whether a source, or an item in it such as `mails/offer.eml/prices.pdf`, has
        changed."""
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in self._rows(sql.STAMPS, sql.STAMPS_OF_URIS, uris)}

    def sources(self, uris: Iterable[str] | None = None) -> dict[str, SourceRow]:
        return {row[0]: SourceRow(*row) for row in self._rows(sql.SOURCES, sql.SOURCES_OF_URIS, uris)}

    def cursors(self) -> dict[str, dict[str, str]]:
        """Return how far each source was read: by its name, then by item."""
        cursors: dict[str, dict[str, str]] = {}
        with self._read_errors():
            for source, item, cursor in self._connection.execute(sql.ALL_CURSORS):
                cursors.setdefault(source, {})[item] = cursor
        return cursors

    def cursor(self, source: str, item: str) -> str:
        """Return how far an item of a source was read; empty if it was not."""
        with self._read_errors():
            row = self._fetch_one(sql.CURSOR, (source, item))
        return str(row[0]) if row else ""

    def metadata(self) -> Iterator[tuple[str, Meta]]:
        """Yield the metadata of all documents and nodes that have some, with changes; each by a readable name."""
        with self._read_errors():
            for name, meta in self._connection.stream_rows(sql.LIVE_METADATA):
                yield name, unpack_values(meta)

    def documents(self) -> Iterator[Document]:
        readers = StoredLists(self._connection)
        with self._read_errors():
            for row in self._connection.stream_rows(sql.DOCUMENTS, {"at": _NOW}):
                yield document_of(row, readers)

    def nodes(self, document: str, group: str) -> list[Node]:
        values = {"document": document, "grp": group, "first": 0, "last": sql.ALIVE, "at": _NOW}
        readers = StoredLists(self._connection)
        with self._read_errors():
            return [node_of(row, readers) for row in self._connection.execute(sql.NUMBERED, values).fetchall()]

    def holders(self, document: str) -> list[SourceRow]:
        """Return the sources that hold a document, by its id, with changes."""
        with self._read_errors():
            key = self._live_key(document)
            rows = self._connection.execute(sql.LIVE_SOURCES_OF, (key,)).fetchall() if key is not None else []
            return [SourceRow(*row) for row in rows]

    def births(self, uris: Iterable[str] | None = None) -> dict[str, int]:
        """Return the generations in which the rows of live sources were written, by uri."""
        return dict(self._rows(sql.BIRTHS, sql.BIRTHS_OF_URIS, uris))

    def holds(self, document: Document) -> bool:
        """Return whether a document is stored unchanged, so that putting it needs no nodes."""
        if (live_row := self._live_row(document.id)) is None:
            return False
        with self._read_errors():
            return bool(live_row[1] == hash_of_document(document, self._audiences.digest(document.readers)))

    def meta_of(self, document: str) -> Meta | None:
        """Return the metadata of a document by its id, with changes; None if the id is unknown."""
        if (live_row := self._live_row(document)) is None:
            return None
        with self._read_errors():
            return unpack_values(live_row[3])

    def document_key(self, id: str) -> int | None:
        """Return the key that distinguishes a live document from earlier ones with its id; None for an unknown id."""
        return self._live_key(id)

    def document_keys(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the keys of several live documents by id; unknown ids are left out."""
        with self._read_errors():
            return dict(self._connection.execute(sql.KEYS_OF_DOCUMENTS, {"ids": json.dumps(list(ids))}).fetchall())

    def _live_key(self, id: str) -> int | None:
        live_row = self._live_row(id)
        return live_row[0] if live_row else None

    def _live_row(self, id: str) -> Any:
        """Return key, hash, birth and metadata of a document; None for an unknown id."""
        with self._read_errors():
            return self._fetch_one(sql.LIVE_DOCUMENT, (id,))

    def _fetch_one(self, statement: str, values: Any = ()) -> Any:
        return self._connection.execute(statement, values).fetchone()

    def dependent_sources(self, uris: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """Return the uris and reports of sources whose reading depends on more than their bytes."""
        return sorted(self._rows(sql.SOURCES_DEPENDENT, sql.SOURCES_DEPENDENT_OF_URIS, uris))

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Return who may read each source and what is in it, by its uri, with changes."""
        lists = StoredLists(self._connection)
        with self._read_errors():
            rows = self._rows(sql.READERS_OF_SOURCES, sql.READERS_OF_URIS, uris)
            return {uri: lists[audience] for uri, audience in rows}

    def access_lists(self, uris: Iterable[str] | None = None) -> dict[str, tuple[tuple[str, ...], int]]:
        """Return by id who may read each held document, and 1 or 2: whether one source holds it or more."""
        lists = StoredLists(self._connection)
        with self._read_errors():
            rows = self._rows(sql.HELD, sql.HELD_OF_URIS, uris)
            return {document: (lists[audience], holders) for document, audience, holders in rows}

    def access_list_of(self, document: str) -> tuple[tuple[str, ...], int] | None:
        """Return the readers of one document and the number of its holders, 1 or 2; None if no source holds it."""
        with self._read_errors():
            row = self._fetch_one(sql.HELD_OF_ID, (document,))
            return (StoredLists(self._connection)[row[1]], row[2]) if row else None

    def is_restricted(self) -> bool:
        """Return whether anything was ever stored that not everybody may read."""
        with self._read_errors():
            return self._fetch_one(sql.IS_RESTRICTED) is not None

    def is_restricted_now(self) -> bool:
        """Return whether anything is stored, with changes, that not everybody may read."""
        with self._read_errors():
            return self._fetch_one(sql.IS_RESTRICTED_NOW) is not None

    def document(self, id: str) -> Document:
        with self._read_errors():
            row = self._fetch_one(sql.DOCUMENT, {"id": id, "at": _NOW})
            if row is None:
                raise StoreError(f"There is no document {id!r} in {self.store}. Write the id of one of documents().")
            return document_of(row, StoredLists(self._connection))

    def unmade(self) -> tuple[Unmade, ...]:
        with self._read_errors():
            return tuple(Unmade(*row) for row in self._connection.execute(sql.UNMADE, {"at": _NOW}))

    # Vectors.

    def unembedded(self, group: str, embedder: str) -> Iterator[tuple[bytes, str]]:
        """Return hash and text of each text that has no vector by this embedder; see also `unembedded_pictures`."""
        return ((item.hash, item.text) for item in self._unembedded_nodes(group, embedder) if not item.is_picture)

    def unembedded_pictures(self, group: str, embedder: str) -> Iterator[tuple[UnembeddedNode, bytes]]:
        """Yield nodes whose pictures lack a vector by this embedder, each picture once; raise StoreError if one was not
        put."""
        shows_pictures = self.manifests[group].by_picture
        for item in self._unembedded_nodes(group, embedder) if shows_pictures else ():
            if item.is_picture:
                yield item, self._read_picture(item)

    def _read_picture(self, item: UnembeddedNode) -> bytes:
        with self._read_errors():
            for key, image in self._connection.execute(sql.LIVE_IMAGES, (item.document,)).fetchall():
                if hash_of_picture(image) == item.hash:
                    return bytes(self._fetch_one(sql.LIVE_IMAGE, (key, image))[0])
        raise StoreError(
            f"Node {item.node!r} shows a picture that its document was put without. Write put(document, nodes, source, "
            "images) with all pictures that its regions name."
        )

    def _unembedded_nodes(self, group: str, embedder: str) -> Iterator[UnembeddedNode]:
        hashes: set[bytes] = set()
        key = self.embedded_to.get((group, embedder), 0)
        embedded_to: int | None = None
        while True:
            with self._read_errors():
                # Before the rows: nodes that come in between are not counted.
                last_key = self._fetch_one(sql.LAST_KEY)[0]
                values = {"grp": group, "key": key, "embedder": embedder, "limit": _PAGE}
                rows = self._connection.execute(sql.UNEMBEDDED, values).fetchall()
            if embedded_to is None:
                embedded_to = rows[0][0] - 1 if rows else last_key
            for _, hash, id, document, *texts in rows:
                if hash not in hashes and not self._is_pending(embedder, hash):
                    hashes.add(hash)
                    yield UnembeddedNode(hash, id, document, indexed_text(*texts))
            if len(rows) < _PAGE:
                self.embedded_to[group, embedder] = embedded_to  # need not be looked at again before publishing
                return
            key = rows[-1][0]

    def _is_pending(self, embedder: str, hash: bytes) -> bool:
        """Return whether a vector was added and is not written yet."""
        raise NotImplementedError


_POLL_S = 0.02  # polled, not waited for: a run that waits can be cancelled


def wait_for_right(take: Callable[[], bool], place: object, holder: Callable[[], str], timeout_s: float) -> None:
    """Try to take the right to write until that succeeds; `StoreBusy` if it was not free in time."""
    end = time.monotonic() + timeout_s
    while not take():
        if time.monotonic() >= end:
            owner = holder()
            error = StoreBusy(
                f"{place} is being written by {owner}; it did not finish within {timeout_s:g} s. Wait for it or end "
                "it, then try again; to wait longer: --wait 600 on the command line, in Python "
                "Corpus(path, wait_s=600)."
            )
            error.holder = owner
            raise error
        check_cancelled()
        time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))


class Transaction:
    """Transaction that begins with the first change. `visible`: readers will see a change; `ended`: it cannot be used
    any more."""

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
            with self.end_on_error("written"):
                self.connection.execute(sql.BEGIN)
            self.began = True

    def commit(self) -> None:
        with self.end_on_error("written"):
            fail_point("publish.commit")
            self.connection.execute(sql.COMMIT)
        self.renew()

    def renew(self) -> None:
        self.began = self.visible = False

    @contextmanager
    def change(self, *, visible: bool = True) -> Iterator[None]:
        """Make one change, whole or not at all; an error takes back this change only."""
        self.begin()
        if self.is_whole:
            yield
            self.visible = self.visible or visible
            return
        connection = self.connection
        with self.end_on_error("written"):
            connection.execute(sql.MARK)
        try:
            with store_errors(self.store, "written"):
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
        """Group changes that are not taken back one by one: an error takes back everything, and the writer ends."""
        self.is_whole = True
        try:
            with self.end_on_error("written"):
                yield
        finally:
            self.is_whole = False

    @contextmanager
    def end_on_error(self, doing: str) -> Iterator[None]:
        """Take back everything on an error, and end the writer."""
        try:
            with store_errors(self.store, doing):
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
            if self.store.translate_error("written", error) is None:
                raise


KEPT_GENERATIONS = 2
"""Generations that are kept even if nobody reads them."""
KEPT_PUBLICATIONS = 10_000
"""Publications whose ids are kept: by these, what was derived from one is known to belong to this store's past."""

_MAX_MOVED = 32
"""Nodes that are moved at most to have the segments of a lexical index merged."""

Indexes = dict[str, tuple[int, int]]
"""For each group, the generation whose folder holds its lexical index, and the last node key that was known then."""


class Publication:
    def __init__(
        self, store: Backend, connection: Connection, generation: int, manifests: dict[str, Manifest], schema: Schema
    ) -> None:
        self.store, self.connection, self.generation = store, connection, generation
        self.version = StoreVersion.next_version(generation - 1)
        self.manifests, self.schema = manifests, schema
        self._fields = [field.name for field in schema]
        self.mended: list[str] = []

    def publish(
        self, indexes: Indexes, embedded_to: Mapping[tuple[str, str], int] | None, *, merged: bool = False
    ) -> Indexes:
        """Make the generation durable and visible; return its lexical indexes. Without `embedded_to`, nodes may lack
        vectors."""
        if embedded_to is not None:
            self._refuse_lacking_vectors(embedded_to)
            self._note_embedded()
        new_indexes = {
            group: self._publish_index(group, indexes.get(group), merged) for group in sorted(self.manifests)
        }
        # Before the commit: a reader that sees the generation must be able to lease it.
        self.store.pin(self.generation)
        leases = self._forget_old_generations()
        fail_point("publish.row")
        row = with_digest(self.generation, json.dumps(new_indexes), dump_schema(self.schema))
        self.connection.execute(sql.PUBLISH, row)
        self.connection.execute(sql.ADD_PUBLICATION, with_digest(*self.version))
        self.connection.execute(sql.FORGET_PUBLICATIONS, (self.generation - KEPT_PUBLICATIONS,))
        fail_point("publish.commit")
        self.connection.execute(sql.COMMIT)
        fail_point("publish.committed")
        # The leases end after the commit: until then no reader may take a generation that is deleted.
        leases.clear()
        return new_indexes

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
            for embedding in manifest.embeddings:
                self.connection.execute(sql.SET_EMBEDDED, with_digest(group, embedding.embedder, last_key))

    # The lexical index of a group.

    def _publish_index(self, group: str, base: tuple[int, int] | None, merged: bool) -> tuple[int, int]:
        last_key: int = self.connection.execute(sql.LAST_KEY).fetchone()[0]
        if base is not None:
            try:
                return self._update_index(group, base, last_key, merged)
            except StoreCorrupt as error:  # it is derived: documents need not wait for a repair
                self.mended.append(f"The lexical index of group {group!r} was built again: {error}")
        self._freeze(group, None, last_key)
        return self.generation, last_key

    def _update_index(self, group: str, base: tuple[int, int], last_key: int, merged: bool) -> tuple[int, int]:
        generation, last_known = base
        folder = self.store.published_index(group, generation)
        merged = merged and folder is not None and is_scattered(folder)
        dead: int = self.connection.execute(sql.DEAD_COUNT, (group, generation, last_known)).fetchone()[0]
        added = self.connection.execute(sql.HAS_NEW_NODES, (group, last_known)).fetchone()
        is_lacking = folder is not None and lacks_columns(folder, self._fields)
        if not dead and added is None and not merged and not is_lacking:
            return base
        is_fresh = is_lacking or (folder is not None and (is_worn(folder, dead) or (merged and is_split(folder))))
        self._freeze(group, None if is_fresh else base, last_key, merged=merged and not is_fresh)
        return self.generation, last_key

    def _freeze(self, group: str, base: tuple[int, int] | None, last_key: int, *, merged: bool = False) -> None:
        if (target := self.store.published_index(group, self.generation)) is None:
            return

        generation, last_known = base or (0, 0)
        dead = (key for (key,) in self.connection.stream_rows(sql.DEAD_KEYS, (group, generation, last_known)))
        lexical.index_writer.freeze(
            target,
            self.store.published_index(group, generation) if base else None,
            dead if base else (),
            nodes_to_index(self.connection.stream_rows(sql.NEW_NODES, (group, last_known))),
            self.manifests[group].analyzer,
            moved_nodes=nodes_to_index(self.connection.stream_rows(sql.LAST_NODES, (group, last_key, _MAX_MOVED)))
            if merged
            else (),
            fields=self._fields,
        )

    # What nobody needs any more.

    def _forget_old_generations(self) -> list[object]:
        """Forget generations that nobody reads, and their rows; returns the leases to hold until the commit."""
        generations = [row[0] for row in self.connection.execute(sql.GENERATIONS)]
        leases: list[object] = []
        # The generation that is about to be published has no row yet, and counts as one of those to keep.
        for generation in generations[: 1 - KEPT_GENERATIONS]:
            if (lease := self.store.lease_exclusively(self.connection, generation)) is not None:
                leases.append(lease)
                self.connection.execute(sql.FORGET, (generation,))
        fail_point("publish.purge")
        # Also where no generation was forgotten: a reader's lease may have ended since the last time.
        for statement in sql.PURGE:
            self.connection.execute(statement)
        return leases
