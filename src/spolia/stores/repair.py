"""Repair of a store: derived data is built again, damaged rows are noted as to be made or read again."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from spolia.core.operator import Operator
from spolia.errors import SpoliaError
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection
from spolia.stores.backends.rows import (
    NOT_YET,
    SourceRow,
    StoredLists,
    StoreVersion,
    damaged_rows,
    hash_of,
    manifest_row,
    row_digest,
    source_row,
    store_digest,
    unmade_row,
    with_digest,
)
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.stores.files import store_errors
from spolia.stores.groups.group_build import with_descendants
from spolia.stores.groups.materialise import remake
from spolia.stores.manifest import read, sort_groups
from spolia.stores.open_store import forget
from spolia.stores.writer import Writer, compact

DAMAGED = "Its data in the store was damaged; it must be read again."


@dataclass
class StoreRepair:
    """Result of a repair: what was mended, and what is left to do, in words.

    Args:
        unread: sources that are to be read again, and who may read them; None where nothing says that any more.
        is_short: sources may be lost that nothing names any more.
        orphans: documents of such sources, by id, and who may read them.
    """

    repairs: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    unread: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    is_short: bool = False
    orphans: dict[str, tuple[str, ...]] = field(default_factory=dict)


def mend(
    corpus: Corpus,
    definitions: Mapping[str, Definition],
    known_operators: Sequence[Operator[Any, Any] | type] = (),
    wait_s: float | None = None,
) -> StoreRepair:
    """Mend all of a store that it can be mended from itself, and publish it; a document whose row is damaged goes.

    Args:
        definitions, known_operators: of groups by name, and operators in them, where the store lacks some of them.
        wait_s: how long to wait for another writer, seconds; None for what the corpus says.

    Raises:
        StoreBusy: another process writes, and did not finish in time.
        StoreError: it cannot be read at all, or not be written.
    """
    backend, result = corpus.backend, StoreRepair()
    wait_s = corpus.wait_s if wait_s is None else wait_s
    # First the database itself: an unreadable file has no rows to mend.
    result.repairs, result.is_short = backend.salvage(wait_s)
    with closing(backend.begin_writing(wait_s)) as session, store_errors(backend, "repaired"):
        _Rows(session.connection, result).mend()
    if result.repairs:
        # What this process has open may be of the damaged file.
        forget(backend)
    with closing(Writer(backend, wait_s)) as writer:
        result.repairs += [message for message in writer.repair() if message not in result.repairs]
        writer.publish(embedded=False)  # `remake` embeds the texts of lost vectors, below
    compact(backend, writer.manifests, wait_s)
    messages, remaining = remake(corpus, definitions, known_operators, wait_s)
    result.repairs += messages
    result.remaining += remaining
    return result


class _Rows:
    """Repair of a store's rows in one transaction, without a writer, which could not read some of them."""

    def __init__(self, connection: Connection, result: StoreRepair) -> None:
        self.connection, self.result = connection, result
        self.is_rewritten = bool(result.repairs)
        """In a database that was written again, an index's copy of a row may be damaged too."""

    def mend(self) -> None:
        rows: dict[str, list[Any]] = {}
        for table, row in damaged_rows(self.connection):
            rows.setdefault(table, []).append(row)
        if not rows and not self._lost_documents() and not self.is_rewritten:
            return
        self.connection.execute(sql.BEGIN)  # after the early return: a sound store is not written to
        for row in rows.get("manifests", ()):
            self._manifests(*row)
        self.groups = {
            manifest.group: manifest for (text,) in self._all(sql.MANIFESTS) if (manifest := _manifest(text))
        }
        # Reader lists first: the repairs of documents and sources read them.
        for table in ("audiences", "images", "documents", "sources", "nodes", "unmade", "cursors", "embedded", "store"):
            for row in rows.get(table, ()):
                getattr(self, f"_{table}", lambda *row, table=table: self._drop(table, *row))(*row)
        lost = self._lost_documents()
        self.result.is_short |= self.is_rewritten and bool(lost or rows.keys() & {"documents", "sources", "images"})
        for key in lost:
            for number, id in self._all(sql.LIST_OF_DOCUMENT, key):
                self.result.orphans[id] = StoredLists(self.connection)[number]
            self._documents(key)
        # Last, as `_unread` numbers its sources by the publication that is there.
        self._renew(rows.get("generations", []), rows.get("publications", []))
        self.connection.execute(sql.COMMIT)
        self.result.repairs += [
            f"{len(damaged)} rows of {table} were not as they were written." for table, damaged in rows.items()
        ]

    def _lost_documents(self) -> list[int]:
        """List the documents that sources name and that are not there, or that no source names."""
        return [key for statement in (sql.DANGLING, sql.ORPHAN_KEYS) for (key,) in self._all(statement)]

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self.connection.execute(statement, values).fetchall()

    def _drop(self, table: str, *row: Any) -> None:
        self.connection.execute(sql.DROP_ROW[table], row)

    def _manifests(self, group: str) -> None:
        """Restore a manifest from its two copies: one matches the digest, or both are the same and the digest is
        damaged."""
        ((*copies, digest),) = self._all(sql.COPIES, group)
        self._drop("manifests", group)
        for text in copies:
            manifest = _manifest(text)
            if manifest and (copies[0] == copies[1] or digest == row_digest((manifest.group, text))):
                self.connection.execute(sql.DEFINE, manifest_row(manifest.group, text))
                return
        self.result.remaining.append(
            f"The definition of group {group!r} was damaged, and has to be restored from a backup."
        )

    def _audiences(self, id: int) -> None:
        """Hide documents with this list from everybody until their readers are given again."""
        readers = json.dumps([f"damaged list {id}"])
        self.connection.execute(sql.SET_LIST, (readers, hash_of(readers), id))
        self.result.remaining.append(
            f"Reader list {id} was damaged: what had it is hidden. Say again who may read what, as with --readers FILE."
        )

    def _images(self, document: int, hash: str) -> None:
        self._documents(document)  # a picture cannot be made again without its document

    def _documents(self, key: int) -> None:
        lists = {number for (number,) in self._all(sql.LISTS_OF_NODES, key)}
        document_lists = {number for number, _ in self._all(sql.LIST_OF_DOCUMENT, key)}
        is_open = not self._all(sql.IS_RESTRICTED)
        readers = (
            () if is_open else StoredLists(self.connection)[lists.pop()] if lists == document_lists and lists else None
        )
        sources = self._all(sql.LIVE_SOURCES_OF_KEY, key)
        for statement in sql.WIPE_DOCUMENT:
            self.connection.execute(statement, (key,))
        for uri, report in sources:
            self._unread(uri, None, None if '"labels":' in report else readers)

    def _sources(self, uri: str, death: int) -> None:
        for key, number in self._all(sql.DOCUMENT_OF_SOURCE, uri, death):
            self._drop("sources", uri, death)
            if death == sql.ALIVE and self.is_rewritten:
                self._unread(uri, None, None if self._all(sql.IS_RESTRICTED) else ())
            elif death == sql.ALIVE:
                self._unread(uri, key, StoredLists(self.connection)[number])

    def _unread(self, uri: str, key: int | None, readers: tuple[str, ...] | None) -> None:
        """Note a source so that the next run reads it again, whatever its size and time."""
        ((generation,),) = self._all(sql.LAST_PUBLISHED)
        # No file has this size.
        source = SourceRow(uri, -1, status="indexed" if key else "failed", error="" if key else DAMAGED)
        self.connection.execute(sql.ADD_SOURCE, source_row(source, generation, key))
        self.result.unread[uri] = readers

    def _nodes(self, key: int) -> None:
        for document, group, death in self._all(sql.NODE_OF_KEY, key):
            self._drop("nodes", key)
            for manifest in with_descendants([group], sort_groups(self.groups)) if death == sql.ALIVE else ():
                self.connection.execute(sql.DROP_NODES_OF, (document, manifest.group))
                self._note(document, manifest.group)

    def _unmade(self, document: int, group: str) -> None:
        self._drop("unmade", document, group)
        if group in self.groups:
            self._note(document, group)

    def _note(self, document: int, group: str) -> None:
        self.connection.execute(sql.ADD_UNMADE, {"key": document, **unmade_row(group, NOT_YET)})

    def _store(self, uuid: str) -> None:
        self.connection.execute(sql.SET_UUID, (uuid, store_digest(self.connection, uuid)))

    def _renew(self, generations: list[Any], publications: list[Any]) -> None:
        """Give the last publication another id and no indexes, so that nobody goes on from what was read of it."""
        ((previous,),) = self._all(sql.LAST_PUBLISHED)
        for row in generations:
            self._drop("generations", *row)
        for row in publications:
            self._drop("publications", *row)
        ((last,),) = self._all(sql.LAST_PUBLISHED)
        last = previous if last is None else last
        fields = next((text for (text,) in self._all(sql.LAST_FIELDS)), "")
        for table in ("generations", "publications"):
            self._drop(table, last)
        self.connection.execute(sql.PUBLISH, with_digest(last, "{}", fields))
        self.connection.execute(sql.ADD_PUBLICATION, with_digest(*StoreVersion.next_version(last - 1)))


def _manifest(text: str) -> Any:
    with suppress(SpoliaError):
        return read(text)
