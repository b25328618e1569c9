"""A store as it is going to be: what is published, with what was changed since."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from spolia.errors import StoreError
from spolia.filters import Schema
from spolia.stores.access.reader_lists import StoredLists
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend, Connection, translated
from spolia.stores.backends.changes import Changes
from spolia.stores.backends.publication import read_schema
from spolia.stores.backends.rows import (
    SourceRow,
    Stamp,
    Unmade,
    document_of,
    hash_of,
    hash_of_picture,
    indexed_text,
    node_of,
    source_of,
    unpacked,
)
from spolia.stores.manifest import Manifest, read
from spolia.types import Document, Meta, Node

_PAGE = 1_000
_NOW = sql.ALIVE - 1
"""Later than any generation: what lives then was published, or will be next."""


@dataclass(frozen=True)
class Lacking:
    """A node that has no vector yet.

    Args:
        hash: by which its vector is found.
        node: its id.
        document: id of its document.
        text: that is indexed.
    """

    hash: bytes
    node: str
    document: str
    text: str

    @property
    def is_picture(self) -> bool:
        """Whether its vector is that of its picture."""
        return self.hash != hash_of(self.text)


class Draft:
    """Reads the live rows of a store: base of what changes them at once (`Writer`) and of what collects changes
    (`Staging`).

    Attributes:
        generation: the published generation.
        manifests: of all groups, by name.
        schema: the declared fields of the published generation.
        indexes: for each group, the generation of its lexical index and the last node key that was known then.
    """

    store: Backend
    generation: int
    manifests: dict[str, Manifest]
    schema: Schema
    indexes: dict[str, tuple[int, int]]
    _connection: Connection
    _changes: Changes
    _embedded_to: dict[tuple[str, str], int]

    def _read_what_is_published(self) -> None:
        generation, indexes = self._connection.execute(sql.GENERATIONS).fetchall()[-1]
        self.generation = int(generation)
        self.indexes = {name: (at, key) for name, (at, key) in json.loads(indexes).items()}
        manifests = [read(row[0]) for row in self._connection.execute(sql.MANIFESTS)]
        self.manifests = {manifest.group: manifest for manifest in manifests}
        self._changes = Changes(self._connection, self.generation + 1, self.manifests)
        self.schema = read_schema(self._connection.execute(sql.FIELDS, (self.generation,)).fetchone()[0])
        self._changes.schema = self.schema

    @property
    def weight(self) -> int:
        """How much waits in memory for the next publication, in characters and bytes of pictures."""
        return 0

    def _reading(self) -> AbstractContextManager[None]:
        return translated(self.store, "read")

    def stamps(self, uris: Iterable[str] | None = None) -> dict[str, Stamp]:
        """By what it is told whether a source has changed, by uri; with what was changed.

        Args:
            uris: of those that are wanted, and of what is in them, as `mails/offer.eml/prices.pdf`; None for all.
        """
        with self._reading():
            if uris is None:
                rows = self._connection.execute(sql.STAMPS)
            else:
                rows = self._connection.execute(sql.STAMPS_OF_URIS, {"uris": json.dumps(list(uris))})
            return {uri: (size, mtime_ns, status, reader) for uri, size, mtime_ns, status, reader in rows}

    def sources(self, uris: Iterable[str] | None = None) -> dict[str, SourceRow]:
        """What is known of sources, by uri; with what was changed.

        Args:
            uris: of those that are wanted; None for all.
        """
        with self._reading():
            if uris is None:
                rows = self._connection.execute(sql.SOURCES, {"at": _NOW})
            else:
                rows = self._connection.execute(sql.SOURCES_OF_URIS, {"uris": json.dumps(list(uris)), "at": _NOW})
            return {row[0]: source_of(row) for row in rows}

    def cursors(self) -> dict[str, dict[str, str]]:
        """How far each source was read, by its name; of each, by what that is said of."""
        found: dict[str, dict[str, str]] = {}
        with self._reading():
            for source, item, cursor in self._connection.execute(sql.ALL_CURSORS):
                found.setdefault(source, {})[item] = cursor
        return found

    def cursor(self, source: str, item: str) -> str:
        """How far a source was read, by what that is said of; empty where it was not."""
        with self._reading():
            rows = list(self._connection.execute(sql.CURSOR, (source, item)))
        return str(rows[0][0]) if rows else ""

    @property
    def declared(self) -> Schema:
        """The declared fields, with what was changed."""
        return self._changes.schema

    def metadata(self) -> Iterator[tuple[str, Meta]]:
        """Of all documents and nodes that have some, with what was changed; each by a name for people."""
        with self._reading():
            for whose, meta in self._connection.each(sql.LIVE_METADATA):
                yield whose, unpacked(meta)

    def documents(self) -> Iterator[Document]:
        """All documents, with what was changed, by id."""
        readers = StoredLists(self._connection)
        with self._reading():
            for row in self._connection.each(sql.DOCUMENTS, {"at": _NOW}):
                yield document_of(row, readers)

    def nodes(self, document: str, group: str) -> list[Node]:
        """The nodes of a document in a group, with what was changed, in order."""
        at = {"document": document, "grp": group, "first": 0, "last": sql.ALIVE, "at": _NOW}
        readers = StoredLists(self._connection)
        with self._reading():
            return [node_of(row, readers) for row in self._connection.execute(sql.NUMBERED, at).fetchall()]

    def holders(self, document: str) -> list[SourceRow]:
        """The sources that hold a document, by its id; with what was changed."""
        with self._reading():
            key = self._changes.document_key(document)
            rows = self._connection.execute(sql.LIVE_SOURCES_OF, (key,)).fetchall() if key is not None else []
            return [source_of(row) for row in rows]

    def holds(self, document: Document) -> bool:
        """Whether a document is there as it is, so that putting it needs no nodes."""
        with self._reading():
            return self._changes.holds(document)

    def meta_of(self, document: str) -> Meta | None:
        """The metadata of a document, by its id; None where there is none of this id. With what was changed."""
        with self._reading():
            return self._changes.meta_of(document)

    def lacking(self, uris: Iterable[str] | None = None) -> list[str]:
        """The uris of sources whose report says that something was missing to read all of them.

        Args:
            uris: of those among which they are looked for; None for all.
        """
        with self._reading():
            if uris is None:
                rows = self._connection.execute(sql.SOURCES_LACKING)
            else:
                rows = self._connection.execute(sql.SOURCES_LACKING_OF_URIS, {"uris": json.dumps(list(uris))})
            return [uri for (uri,) in rows]

    def showing(self, uris: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """The uris and reports of sources whose report says that they name pictures beside them.

        Args:
            uris: of those among which they are looked for; None for all.
        """
        with self._reading():
            if uris is None:
                return list(self._connection.execute(sql.SOURCES_SHOWING))
            return list(self._connection.execute(sql.SOURCES_SHOWING_OF_URIS, {"uris": json.dumps(list(uris))}))

    def readers(self, uris: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Who may read what each source holds, by its uri; with what was changed.

        Args:
            uris: of those that are wanted, with what is in them; None for all.
        """
        with self._reading():
            if uris is None:
                rows = self._connection.execute(sql.READERS_OF_SOURCES).fetchall()
            else:
                rows = self._connection.execute(sql.READERS_OF_URIS, {"uris": json.dumps(list(uris))}).fetchall()
            lists = StoredLists(self._connection)
            return {uri: lists[audience] for uri, audience in rows}

    def held(self, uris: Iterable[str] | None = None) -> dict[str, tuple[tuple[str, ...], int]]:
        """Who may read each document that sources hold, and whether one holds it or more than one: 1 or 2; by its id.

        Args:
            uris: of the sources, with what is in them; None for all.
        """
        with self._reading():
            if uris is None:
                rows = self._connection.execute(sql.HELD).fetchall()
            else:
                rows = self._connection.execute(sql.HELD_OF_URIS, {"uris": json.dumps(list(uris))}).fetchall()
            lists = StoredLists(self._connection)
            return {document: (lists[audience], holders) for document, audience, holders in rows}

    def held_as(self, document: str) -> tuple[tuple[str, ...], int] | None:
        """The same of one document, by its id; None where no source holds it."""
        with self._reading():
            row = self._connection.execute(sql.HELD_OF_ID, (document,)).fetchone()
            return (StoredLists(self._connection)[row[1]], row[2]) if row else None

    def is_restricted(self) -> bool:
        """Whether anything was ever stored that not everybody may read."""
        with self._reading():
            return self._connection.execute(sql.IS_RESTRICTED).fetchone() is not None

    def is_restricted_now(self) -> bool:
        """Whether something is there that not everybody may read; with what was changed."""
        with self._reading():
            return self._connection.execute(sql.IS_RESTRICTED_NOW).fetchone() is not None

    def document(self, id: str) -> Document:
        """A document, with what was changed."""
        with self._reading():
            row = self._connection.execute(sql.DOCUMENT, {"id": id, "at": _NOW}).fetchone()
            if row is None:
                raise StoreError(f"There is no document {id!r} in {self.store}. Write the id of one of documents().")
            return document_of(row, StoredLists(self._connection))

    def unmade(self) -> tuple[Unmade, ...]:
        """Which groups could not be made of which documents, with what was changed; by uri."""
        with self._reading():
            return tuple(Unmade(*row) for row in self._connection.execute(sql.UNMADE, {"at": _NOW}))

    # Vectors.

    def unembedded(self, group: str, embedder: str) -> Iterator[tuple[bytes, str]]:
        """Content hash and text of what the group will hold and has no vector by this embedder; each text once.

        Nodes that are embedded by their picture are not among them, but among the `unembedded_pictures`.
        """
        return ((one.hash, one.text) for one in self._lacking(group, embedder) if not one.is_picture)

    def unembedded_pictures(self, group: str, embedder: str) -> Iterator[tuple[Lacking, bytes]]:
        """The nodes whose pictures have no vector by this embedder yet, with these; each picture once.

        Raises:
            StoreError: a document names a picture, and was put without it.
        """
        pictures = self.manifests[group].by_picture
        for one in self._lacking(group, embedder) if pictures else ():
            if one.is_picture:
                yield one, self._picture(one)

    def _picture(self, one: Lacking) -> bytes:
        with self._reading():
            for key, image in self._connection.execute(sql.LIVE_IMAGES, (one.document,)).fetchall():
                if hash_of_picture(image) == one.hash:
                    return bytes(self._connection.execute(sql.LIVE_IMAGE, (key, image)).fetchone()[0])
        raise StoreError(
            f"Node {one.node!r} shows a picture that its document was put without. Write put(document, nodes, source, "
            "images) with all pictures that its regions name."
        )

    def _lacking(self, group: str, embedder: str) -> Iterator[Lacking]:
        seen: set[bytes] = set()
        key = self._embedded_to.get((group, embedder), 0)
        embedded_to: int | None = None
        while True:
            with self._reading():
                last_key = self._connection.execute(sql.LAST_KEY).fetchone()[0]
                values = {"grp": group, "key": key, "embedder": embedder, "limit": _PAGE}
                rows = self._connection.execute(sql.UNEMBEDDED, values).fetchall()
            if embedded_to is None:
                embedded_to = rows[0][0] - 1 if rows else last_key
            for _, found, id, document, *texts in rows:
                if found not in seen and not self._is_pending(embedder, found):
                    seen.add(found)
                    yield Lacking(found, id, document, indexed_text(*texts))
            if len(rows) < _PAGE:
                self._embedded_to[group, embedder] = embedded_to  # need not be looked at again before publishing
                return
            key = rows[-1][0]

    def _is_pending(self, embedder: str, hash: bytes) -> bool:
        """Whether a vector was added and is not written yet."""
        raise NotImplementedError
