"""Reading a portable file into a new store; see `spolia.stores.portable.store_export`."""

import errno
import json
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from spolia.core.codec import decode
from spolia.core.run_context import check_cancelled
from spolia.errors import CodecError, ModelError, NotAStore, StoreError
from spolia.models.vectors import SparseRows
from spolia.stores.backends.rows import SourceRow, key_of, reader_of_report, reader_versions
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import Manifest
from spolia.stores.portable.store_export import (
    CONTENTS,
    COUNT_BYTES,
    CURSORS,
    DOCUMENTS,
    READERS,
    SOURCES,
    Contents,
    Tell,
    checksum,
    contents_of,
    damaged,
    nodes_of,
    vectors_of,
)
from spolia.stores.vectors.dense import HASH_BYTES
from spolia.stores.vectors.sparse import ENTRY_BYTES, unpacked
from spolia.stores.writer import Writer
from spolia.types import Document, Node

CONTENTS_BYTES = 64_000_000
LINE_BYTES = 2_000_000_000
"""Twice what the largest document has."""
_READ_BYTES = 1 << 20
_AT_ONCE = 1_000
_ODD = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError, OverflowError)


def import_store(path: str | Path, corpus: Corpus, tell: Tell = lambda member, rows: None) -> Contents:
    """Make a store of an exported file. It is published whole, after every checksum in the file was compared.

    It has the same documents, sources, nodes, vectors and reader lists in the same order; what is derived is built. Who
    is interrupted repeats it: until the end there is an empty store.

    Raises:
        StoreCorrupt: the file is cut off, changed, or something else; nothing was imported.
        StoreTooNew: a newer version wrote it.
        StoreError: there is a store that holds something, or it cannot be written.
    """
    path = Path(path)
    with _opened(path) as file:
        contents = _verified(path, file, tell)
        _refuse_too_large(contents, corpus)
        corpus.create()
        with corpus.writer() as writer:
            if writer.generation or writer.manifests:
                raise StoreError(f"{corpus.path} is a store already, and not an empty one. Name another path.")
            _Import(path, file, contents, writer, tell).read()
    return contents


@contextmanager
def _opened(path: Path) -> Iterator[ZipFile]:
    try:
        file = ZipFile(path)
    except FileNotFoundError as error:
        raise StoreError(f"There is no file {path}. Write one that `spolia export` has written.") from error
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror or error}. Name another file.") from error
    except _ODD as error:
        raise damaged(path, f"it is no ZIP file, or is cut off ({error})") from error
    with file:
        try:
            yield file
        except StoreError:
            raise
        except _ODD as error:
            raise damaged(path, f"{type(error).__name__}: {error}") from error
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise damaged(path, "it says that something stands before its beginning") from error


def _verified(path: Path, file: ZipFile, tell: Tell) -> Contents:
    """What the file says that it holds, when it does: names, sizes and checksums of all its members."""
    names = [entry.filename for entry in file.infolist()]
    if CONTENTS not in names or file.getinfo(CONTENTS).file_size > CONTENTS_BYTES:
        raise damaged(path, f"it has no {CONTENTS}, or one of more than {CONTENTS_BYTES:,} bytes")
    written = file.read(CONTENTS)
    contents = contents_of(path, written)
    if file.comment != checksum(written).hexdigest().encode():
        raise damaged(path, f"the checksum of {CONTENTS} differs")
    if sorted(names) != sorted([CONTENTS, *contents.members]):
        odd = sorted({name for name in names if name not in contents.expected or names.count(name) > 1} - {CONTENTS})
        lacking = sorted(contents.expected - set(names))
        raise damaged(path, f"it holds {', '.join(odd) or 'nothing'} too much and lacks {', '.join(lacking) or 'none'}")
    for name in contents.members:
        _verify(path, file, name, contents, tell)
    return contents


def _verify(path: Path, file: ZipFile, name: str, contents: Contents, tell: Tell) -> None:
    entry, said = file.getinfo(name), contents.members[name]
    if entry.compress_type not in (ZIP_DEFLATED, ZIP_STORED) or entry.flag_bits & 1:
        raise damaged(path, f"{name} is compressed or encrypted in another way")
    if entry.file_size != said.bytes:
        raise damaged(path, f"{name} has {entry.file_size} bytes, {said.bytes} were written")
    digest, size = checksum(), 0
    with file.open(name) as member:
        while piece := member.read(_READ_BYTES):
            digest.update(piece)
            size += len(piece)
            check_cancelled()
    if (size, digest.hexdigest()) != (said.bytes, said.blake2b):
        raise damaged(path, f"the checksum of {name} differs")
    tell(name, said.rows)


def _refuse_too_large(contents: Contents, corpus: Corpus) -> None:
    """Before anything is unpacked that would fill the disk."""
    try:
        folder = corpus.backend.folder
    except NotAStore:  # a database says where what is derived goes only when it is there, and its disk is not ours
        return
    while not folder.exists():
        folder = folder.parent
    needed, free = sum(member.bytes for member in contents.members.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(
            f"The export holds {needed / 1e6:,.0f} MB, and {folder} has {free / 1e6:,.0f} MB free. Free some space, or "
            "name a path on another disk."
        )


class _Import:
    def __init__(self, path: Path, file: ZipFile, contents: Contents, writer: Writer, tell: Tell) -> None:
        self.path, self.file, self.contents, self.writer, self.tell = path, file, contents, writer, tell
        self.readers: list[tuple[str, ...]] = [(), *self._lines(READERS, lambda line: decode(line, tuple[str, ...]))]
        self.versions: dict[str, str] = {}

    def read(self) -> None:
        self.writer.declare(self.contents.schema)
        for manifest in self.contents.manifests:  # before version 3 they named the readers of all files
            named = reader_versions(manifest.reader) if manifest.definition else {}
            self.versions |= named
            self.writer.define(manifest.group, manifest.but(reader="") if named else manifest)
        self._read_documents()
        if CURSORS in self.contents.members:
            for source, item, cursor in self._lines(CURSORS, lambda line: decode(line, tuple[str, str, str])):
                self.writer.remember(source, {item: cursor})
        for number, manifest in enumerate(self.contents.manifests):
            hashes = self._read_nodes(number, manifest)
            for place in range(len(manifest.embeddings)):
                self._read_vectors(number, place, manifest, hashes)

    def _read_documents(self) -> None:
        by_document: dict[str, list[SourceRow]] = {}
        for source in self._lines(SOURCES, lambda line: decode(line, SourceRow)):
            reader = source.reader or self.versions.get(reader_of_report(source.report), "")
            by_document.setdefault(source.document, []).append(source.but(reader=reader))
        for source in by_document.pop("", ()):
            self.writer.fail(source)
        for document, unmade, images in self._lines(DOCUMENTS, self._document):
            for source in by_document.pop(document.id, ()):
                self.writer.put(document, (), source, images)
            if unmade:
                self.writer.note_unmade(document.id, unmade)
        if by_document:
            raise damaged(self.path, f"sources are of {next(iter(by_document))!r}, which is no document in it")

    def _document(self, line: Any) -> tuple[Document, dict[str, str], dict[str, bytes]]:
        """A document, why groups could not be made of it, and its pictures."""
        found: Document = decode(line["document"], Document)
        unmade = decode(line.get("unmade", {}), dict[str, str])
        images = decode(line.get("images", {}), dict[str, bytes])
        return found.but(readers=self.readers[line["readers"]]), unmade, images

    def _read_nodes(self, number: int, manifest: Manifest) -> bytearray:
        """Add the nodes of a group; their content hashes, one after the other."""
        hashes = bytearray()

        def whole(node: Node) -> Node:
            full = node.but(group=manifest.group, meta=document.meta + node.meta)
            if manifest.embeddings:
                hashes.extend(key_of(full, document, by_picture=manifest.by_picture))
            return full

        found: Iterator[Node] = self._lines(nodes_of(number), self._node)
        for id, nodes in groupby(found, key=lambda node: node.document):
            document = self.writer.document(id)
            self.writer.add_nodes(document, map(whole, nodes))
        return hashes

    def _node(self, line: Any) -> Node:
        found: Node = decode(line["node"], Node)
        return found.but(readers=self.readers[line["readers"]])

    def _read_vectors(self, number: int, place: int, manifest: Manifest, hashes: bytearray) -> None:
        how = manifest.embeddings[place]
        name = vectors_of(number, place, how)
        said = self.contents.members[name]
        width = said.bytes // said.rows if said.rows else 0
        is_odd = not how.is_sparse and (said.rows * width != said.bytes or width % 4)
        if said.rows * HASH_BYTES != len(hashes) or is_odd:
            raise damaged(self.path, f"{name} does not have one row for each node of {manifest.group!r}")
        with self.file.open(name) as member:
            for start in range(0, said.rows, _AT_ONCE):
                end = min(start + _AT_ONCE, said.rows)
                some = [bytes(hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES]) for at in range(start, end)]
                if how.is_sparse:
                    self.writer.add_sparse(how.embedder, some, self._sparse(name, member, end - start, said.bytes))
                else:
                    rows = np.frombuffer(_exactly(member, (end - start) * width), dtype="<f4")
                    self.writer.add_vectors(how.embedder, some, rows.reshape(end - start, -1))
                self._told(name, end)
            if member.read(1):
                raise damaged(self.path, f"{name} has more than one row for each node of {manifest.group!r}")

    def _sparse(self, name: str, member: IO[bytes], count: int, size: int) -> SparseRows:
        rows = []
        for _ in range(count):
            written = _exactly(member, COUNT_BYTES)
            entries = min(int.from_bytes(written, "little") * ENTRY_BYTES, size)
            found = _exactly(member, entries)
            if len(written) < COUNT_BYTES or len(found) < entries:
                raise damaged(self.path, f"{name} is cut off within a row")
            try:
                rows.append(unpacked(found))
            except ModelError as error:
                raise damaged(self.path, f"{name} holds what is no sparse vector ({error})") from error
        return SparseRows.together(rows)

    def _lines(self, name: str, made: Callable[[Any], Any]) -> Iterator[Any]:
        rows = 0
        with self.file.open(name) as member:
            while line := member.readline(LINE_BYTES):
                rows += 1
                try:
                    yield made(json.loads(line))
                except (CodecError, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
                    raise damaged(self.path, f"line {rows} of {name} cannot be understood ({error})") from error
                self._told(name, rows)
        if rows != self.contents.members[name].rows:
            raise damaged(self.path, f"{name} has {rows} lines, {self.contents.members[name].rows} were written")

    def _told(self, name: str, rows: int) -> None:
        if not rows % _AT_ONCE:
            check_cancelled()
            self.tell(name, rows)


def _exactly(member: IO[bytes], size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := member.read(size - len(found))):
        found += piece
    return found
