"""Writing a store into one portable file; see `spolia.stores.portable.form`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from spolia.core.codec import encode
from spolia.core.run_context import check_cancelled
from spolia.errors import StoreError
from spolia.stores.access.reader_lists import EVERYBODY
from spolia.stores.corpus import Corpus
from spolia.stores.defined import in_order
from spolia.stores.groups.group_build import in_batches
from spolia.stores.layout import fsync_file, fsync_folder
from spolia.stores.portable.form import (
    CONTENTS,
    COUNT_BYTES,
    CURSORS,
    DOCUMENTS,
    READERS,
    SOURCES,
    Contents,
    Member,
    checksum,
    nodes_of,
    vectors_of,
)
from spolia.stores.tables import sql
from spolia.stores.tables.rows import SourceRow, document_of, node_of, unpacked
from spolia.stores.vectors.sparse import ENTRY_BYTES, packed
from spolia.types import Document, Node

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

Tell = Callable[[str, int], None]
"""Is told what is being written or read, and how many rows of it."""

_AT_ONCE = 1_000
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_READABLE_BY_ALL = 0o644 << 16


def export_store(corpus: Corpus, path: str | Path, tell: Tell = lambda member, rows: None) -> Contents:
    """Write the published generation of a store into a new file, which is there whole or not at all.

    What is written: documents, sources, nodes of all groups with their lineage, reader lists, declared fields,
    manifests and vectors. Memory does not grow with the number of nodes, but for a key of each.

    Args:
        path: of the file.
        tell: is told how far it is.

    Raises:
        StoreError: the store cannot be read, the file is there already, or holds metadata that JSON does not have.

    >>> import tempfile
    >>> from spolia.indexing.ingest.sync import sync
    >>> from spolia.stores.portable.importing import import_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "stones.txt").write_text("Spolia are stones that builders take from older buildings.")
    ...     store = Corpus(f"{folder}/notes.spolia")
    ...     _ = sync(folder, store)
    ...     there = export_store(store, f"{folder}/notes.zip")
    ...     here = import_store(f"{folder}/notes.zip", Corpus(f"{folder}/other.spolia"))
    >>> there.documents, here == there
    (1, True)
    """
    path = Path(path)
    if path.exists():
        raise StoreError(f"{path} is there already. Name another file, or remove it before.")
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        with ZipFile(temporary, "x", allowZip64=True) as file:
            contents = _Export(corpus.snapshot(), file, tell).write()
        fsync_file(temporary)
        os.rename(temporary, path)
        fsync_folder(path.absolute().parent)
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror or error}. Name a file elsewhere.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return contents


class _Export:
    def __init__(self, snapshot: Snapshot, file: ZipFile, tell: Tell) -> None:
        self.snapshot, self.file, self.tell = snapshot, file, tell
        self.at = {"at": snapshot.generation}
        self.members: dict[str, Member] = {}
        self.numbers: dict[tuple[str, ...], int] = {(): EVERYBODY}
        self.unmade: dict[str, dict[str, str]] = {}
        for lack in snapshot.unmade():
            self.unmade.setdefault(lack.document, {})[lack.group] = lack.reason

    def write(self) -> Contents:
        manifests = in_order(self.snapshot.manifests)
        self._lines(DOCUMENTS, map(self._document, self._documents()))
        self._lines(SOURCES, (encode(source, SourceRow) for source in self.snapshot.sources().values()))
        self._lines(CURSORS, map(list, self.snapshot.opened.rows(sql.CURSORS_AT, self.at)))
        for number, manifest in enumerate(manifests):
            self._lines(nodes_of(number), map(self._node, self._nodes(manifest.group)))
            for place, embedding in enumerate(manifest.embeddings):
                rows = self._sparse if embedding.is_sparse else self._vectors
                name = vectors_of(number, place, embedding)
                self._member(name, rows(manifest.group, embedding.embedder), ZIP_STORED)
        self._lines(READERS, (list(readers) for readers in self.numbers if readers))
        contents = Contents(self.snapshot.schema, tuple(manifests), self.members)
        self.file.writestr(_entry(CONTENTS, ZIP_DEFLATED), contents.written)
        self.file.comment = checksum(contents.written).hexdigest().encode()
        return contents

    def _documents(self) -> Iterator[Document]:
        for row in self.snapshot.opened.each(sql.DOCUMENTS_BY_KEY, self.at):
            yield document_of(row, self.snapshot.readers.lists)

    def _document(self, document: Document) -> Any:
        unmade = self.unmade.get(document.id)
        named = any(region.image for region in document.regions)
        images = self.snapshot.opened.rows(sql.IMAGES, {"id": document.id, **self.at}) if named else ()
        return {
            "document": encode(document.but(uri="", readers=()), Document),
            "readers": self._number(document.readers),
            **({"unmade": unmade} if unmade else {}),
            **({"images": {hash: encode(bytes(data), bytes) for hash, data in images}} if images else {}),
        }

    def _nodes(self, group: str) -> Iterator[tuple[Node, int]]:
        """The nodes of a group, and how much of their metadata is the document's."""
        keys = [key for (key,) in self.snapshot.opened.rows(sql.LIVE_KEYS, {"grp": group, **self.at})]
        for some in in_batches(iter(keys), _AT_ONCE):
            rows = self.snapshot.opened.rows(sql.NODES_OF_KEYS, {"keys": json.dumps(some), **self.at})
            for row in sorted(rows, key=lambda row: int(row[0])):
                yield node_of(row, self.snapshot.readers.lists), len(unpacked(row[-2]))

    def _node(self, found: tuple[Node, int]) -> Any:
        node, inherited = found
        own = node.but(uri="", group="chunk", readers=(), meta=node.meta[inherited:])
        return {"node": encode(own, Node), "readers": self._number(node.readers)}

    def _number(self, readers: tuple[str, ...]) -> int:
        """The number of a reader list: in the order of their first use, so that it is the same for the same content."""
        return self.numbers.setdefault(readers, len(self.numbers))

    def _vectors(self, group: str, embedder: str) -> Iterator[tuple[bytes, int]]:
        stored = self.snapshot.opened.store.stored(self.snapshot, group, embedder)
        count = len(self.snapshot.opened.rows(sql.LIVE_KEYS, {"grp": group, **self.at}))
        for start in range(0, count, _AT_ONCE):
            rows = stored.at(np.arange(start, min(start + _AT_ONCE, count)))
            yield np.ascontiguousarray(rows, dtype="<f4").tobytes(), len(rows)

    def _sparse(self, group: str, embedder: str) -> Iterator[tuple[bytes, int]]:
        search: Any = self.snapshot.opened.store.vector_search(self.snapshot, group, embedder)
        for position in range(len(search.keys)):
            entries = packed(search.row(position))
            yield (len(entries) // ENTRY_BYTES).to_bytes(COUNT_BYTES, "little") + entries, 1

    def _lines(self, name: str, values: Iterable[Any]) -> None:
        self._member(name, ((_line(value), 1) for value in values), ZIP_DEFLATED)

    def _member(self, name: str, pieces: Iterable[tuple[bytes, int]], how: int) -> None:
        rows, size, digest = 0, 0, checksum()
        with self.file.open(_entry(name, how), "w", force_zip64=True) as member:
            for piece, count in pieces:
                member.write(piece)
                digest.update(piece)
                rows, size = rows + count, size + len(piece)
                if not rows % _AT_ONCE:
                    check_cancelled()
                    self.tell(name, rows)
        self.members[name] = Member(rows, size, digest.hexdigest())


def _entry(name: str, how: int) -> ZipInfo:
    """A member without anything of this machine or time in it."""
    entry = ZipInfo(name, _LONG_AGO)
    entry.compress_type, entry.create_system, entry.external_attr = how, 3, _READABLE_BY_ALL
    return entry


def _line(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise StoreError(f"Metadata cannot be written as JSON: {error}. Index the document with others.") from error
