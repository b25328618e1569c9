"""Mending a store: what is derived is built again, rows that are damaged are noted as to be made or read again."""

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
    guarded,
    hash_of,
    manifest_row,
    row_digest,
    source_row,
    store_digest,
    unmade_row,
)
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.stores.files import translated
from spolia.stores.groups.group_build import with_those_below
from spolia.stores.groups.materialise import remake
from spolia.stores.manifest import in_order, read
from spolia.stores.open_store import forget
from spolia.stores.writer import Writer, compact

DAMAGED = "Its data in the store was damaged; it must be read again."


@dataclass
class StoreRepair:
    """What was mended, and what is left to do, in words.

    Args:
        unread: sources that are to be read again, and who may read them; None where nothing says that any more.
        is_short: sources may be lost that nothing names any more.
        orphans: documents of such sources, by id, and who may read them.
    """

    said: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unread: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    is_short: bool = False
    orphans: dict[str, tuple[str, ...]] = field(default_factory=dict)


def mend(
    corpus: Corpus,
    given: Mapping[str, Definition],
    known: Sequence[Operator[Any, Any] | type] = (),
    wait_s: float | None = None,
) -> StoreRepair:
    """Mend all of a store that it can be mended from itself, and publish it; a document whose row is damaged goes.

    Args:
        given, known: definitions of groups by name, and operators in them, where the store does not say all of them.
        wait_s: how long to wait for another writer, seconds; None for what the corpus says.

    Raises:
        StoreBusy: another process writes, and did not finish in time.
        StoreError: it cannot be read at all, or not be written.
    """
    backend, found = corpus.backend, StoreRepair()
    wait_s = corpus.wait_s if wait_s is None else wait_s
    found.said, found.is_short = backend.salvage(wait_s)
    with closing(backend.writing(wait_s)) as session, translated(backend, "repaired"):
        _Rows(session.connection, found).mend()
    if found.said:
        forget(backend)
    with closing(Writer(backend, wait_s)) as writer:
        found.said += [said for said in writer.repair() if said not in found.said]
        writer.publish(embedded=False)
    compact(backend, writer.manifests, wait_s)
    made, left = remake(corpus, given, known, wait_s)
    found.said += made
    found.left += left
    return found


class _Rows:
    """Mends the rows of a store in one transaction, without a writer, which could not read some of them."""

    def __init__(self, connection: Connection, found: StoreRepair) -> None:
        self.connection, self.found = connection, found
        self.is_anew = bool(found.said)
        """In a database that was written again, an index's copy of a row may be damaged too."""

    def mend(self) -> None:
        rows: dict[str, list[Any]] = {}
        for table, row in damaged_rows(self.connection):
            rows.setdefault(table, []).append(row)
        if not rows and not self._gone() and not self.is_anew:
            return
        self.connection.execute(sql.BEGIN)
        for row in rows.get("manifests", ()):
            self._manifests(*row)
        self.groups = {made.group: made for (text,) in self._all(sql.MANIFESTS) if (made := _manifest(text))}
        for table in ("audiences", "images", "documents", "sources", "nodes", "unmade", "cursors", "embedded", "store"):
            for row in rows.get(table, ()):
                getattr(self, f"_{table}", lambda *row, table=table: self._drop(table, *row))(*row)
        gone = self._gone()
        self.found.is_short |= self.is_anew and bool(gone or rows.keys() & {"documents", "sources", "images"})
        for key in gone:
            for number, id in self._all(sql.LIST_OF_DOCUMENT, key):
                self.found.orphans[id] = StoredLists(self.connection)[number]
            self._documents(key)
        self._renew(rows.get("generations", []), rows.get("publications", []))
        self.connection.execute(sql.COMMIT)
        self.found.said += [
            f"{len(found)} rows of {table} were not as they were written." for table, found in rows.items()
        ]

    def _gone(self) -> list[int]:
        """Documents that sources name and that are not there, or that no source names."""
        return [key for asked in (sql.DANGLING, sql.ORPHAN_KEYS) for (key,) in self._all(asked)]

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self.connection.execute(statement, values).fetchall()

    def _drop(self, table: str, *row: Any) -> None:
        self.connection.execute(sql.DROP_ROW[table], row)

    def _manifests(self, group: str) -> None:
        """One of its two copies is as it was written, or both are the same, and the digest is not."""
        ((*copies, digest),) = self._all(sql.COPIES, group)
        self._drop("manifests", group)
        for text in copies:
            made = _manifest(text)
            if made and (copies[0] == copies[1] or digest == row_digest((made.group, text))):
                self.connection.execute(sql.DEFINE, manifest_row(made.group, text))
                return
        self.found.left.append(f"The definition of group {group!r} was damaged, and has to be restored from a backup.")

    def _audiences(self, id: int) -> None:
        """Nobody may read documents with this list until their readers are given again."""
        readers = json.dumps([f"damaged list {id}"])
        self.connection.execute(sql.SET_LIST, (readers, hash_of(readers), id))
        self.found.left.append(
            f"Reader list {id} was damaged: what had it is hidden. Say again who may read what, as with --readers FILE."
        )

    def _images(self, document: int, hash: str) -> None:
        self._documents(document)

    def _documents(self, key: int) -> None:
        lists = {number for (number,) in self._all(sql.LISTS_OF_NODES, key)}
        own = {number for number, _ in self._all(sql.LIST_OF_DOCUMENT, key)}
        is_open = not self._all(sql.IS_RESTRICTED)
        readers = () if is_open else StoredLists(self.connection)[lists.pop()] if lists == own and lists else None
        sources = self._all(sql.LIVE_SOURCES_OF_KEY, key)
        for statement in sql.WIPE_DOCUMENT:
            self.connection.execute(statement, (key,))
        for uri, report in sources:
            self._unread(uri, None, None if '"labels":' in report else readers)

    def _sources(self, uri: str, death: int) -> None:
        for key, number in self._all(sql.DOCUMENT_OF_SOURCE, uri, death):
            self._drop("sources", uri, death)
            if death == sql.ALIVE and self.is_anew:
                self._unread(uri, None, None if self._all(sql.IS_RESTRICTED) else ())
            elif death == sql.ALIVE:
                self._unread(uri, key, StoredLists(self.connection)[number])

    def _unread(self, uri: str, key: int | None, readers: tuple[str, ...] | None) -> None:
        """Have a source read again by the next run, whatever its size and time."""
        ((generation,),) = self._all(sql.LAST_PUBLISHED)
        source = SourceRow(uri, -1, status="indexed" if key else "failed", error="" if key else DAMAGED)
        self.connection.execute(sql.ADD_SOURCE, source_row(source, generation, key))
        self.found.unread[uri] = readers

    def _nodes(self, key: int) -> None:
        for document, group, death in self._all(sql.NODE_OF_KEY, key):
            self._drop("nodes", key)
            for made in with_those_below([group], in_order(self.groups)) if death == sql.ALIVE else ():
                self.connection.execute(sql.DROP_NODES_OF, (document, made.group))
                self._note(document, made.group)

    def _unmade(self, document: int, group: str) -> None:
        self._drop("unmade", document, group)
        if group in self.groups:
            self._note(document, group)

    def _note(self, document: int, group: str) -> None:
        self.connection.execute(sql.ADD_UNMADE, {"key": document, **unmade_row(group, NOT_YET)})

    def _store(self, uuid: str) -> None:
        self.connection.execute(sql.SET_UUID, (uuid, store_digest(self.connection, uuid)))

    def _renew(self, generations: list[Any], publications: list[Any]) -> None:
        """The last publication gets another id, so that nobody goes on from what was read of it, and no indexes."""
        ((before,),) = self._all(sql.LAST_PUBLISHED)
        for row in generations:
            self._drop("generations", *row)
        for row in publications:
            self._drop("publications", *row)
        ((last,),) = self._all(sql.LAST_PUBLISHED)
        last = before if last is None else last
        fields = next((said for (said,) in self._all(sql.LAST_FIELDS)), "")
        for table in ("generations", "publications"):
            self._drop(table, last)
        self.connection.execute(sql.PUBLISH, guarded(last, "{}", fields))
        self.connection.execute(sql.ADD_PUBLICATION, guarded(*StoreVersion.after(last - 1)))


def _manifest(text: str) -> Any:
    with suppress(SpoliaError):
        return read(text)
