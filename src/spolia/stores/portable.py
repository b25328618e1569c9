"""The portable form of a store: one ZIP file with what is true at one generation, and a checksum of all in it.

| member | holds |
|---|---|
| `contents.json` | version, declared fields, manifests; of every other member rows, bytes and BLAKE2b |
| `documents.jsonl` | documents in the order of their keys, with its reader list's number, groups it lacks, pictures |
| `sources.jsonl` | what the documents were read from, by uri |
| `cursors.jsonl` | how far the sources were read that were not read further since that generation |
| `nodes/G.jsonl` | the nodes of group number G in the order of their keys |
| `vectors/G-E.f32` | their vectors by the group's embedding number E: float32, little endian, one row for each node |
| `vectors/G-E.sparse` | sparse ones: for each node its entries n (uint32), n terms (int32), n weights (float32) |
| `readers.jsonl` | the reader lists from number 1 on; 0 is everybody |

The BLAKE2b of `contents.json` is the file's comment. Nothing in it is a path, nothing is executed, and what is derived
is left out: it is built again. Two exports of the same content are the same bytes.
"""

import errno
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from spolia.core.codec import decode, encode
from spolia.core.run_context import check_cancelled
from spolia.errors import (
    CodecError,
    ModelError,
    NotAStore,
    SpoliaError,
    StoreCorrupt,
    StoreError,
    StoreTooNew,
    pip_install,
)
from spolia.filters import Schema
from spolia.models.vectors import SparseRows
from spolia.stores.backends import sql
from spolia.stores.backends.rows import (
    EVERYBODY,
    SourceRow,
    document_of,
    dump_schema,
    in_batches,
    key_of,
    node_of,
    read_schema,
    reader_of_report,
    reader_versions,
    unpack_values,
)
from spolia.stores.corpus import Corpus
from spolia.stores.files import fsync
from spolia.stores.integrity import refuse_damaged
from spolia.stores.manifest import GroupEmbedding, Manifest, manifest_from_dict, sort_groups
from spolia.stores.vectors import sparse
from spolia.stores.vectors.dense import HASH_BYTES
from spolia.stores.writer import Writer
from spolia.types import Document, Node, Value

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


VERSION = 3  # 2 added the cursors; since 3 a source names its reader, which the manifests named before
KIND = "spolia export"
CONTENTS, DOCUMENTS, SOURCES, READERS = "contents.json", "documents.jsonl", "sources.jsonl", "readers.jsonl"
CURSORS = "cursors.jsonl"
"""Of sources; exports of version 1 have none."""
CHECKSUM_BYTES, COUNT_BYTES = 32, 4


def nodes_of(group: int) -> str:
    return f"nodes/{group}.jsonl"


def vectors_of(group: int, number: int, embedding: GroupEmbedding) -> str:
    return f"vectors/{group}-{number}.{'sparse' if embedding.is_sparse else 'f32'}"


def checksum(data: bytes = b"") -> blake2b:
    return blake2b(data, digest_size=CHECKSUM_BYTES)


@dataclass(frozen=True)
class Member(Value):
    """Description of a member: its lines or vectors, uncompressed bytes, and checksum in hexadecimal digits."""

    rows: int
    bytes: int
    blake2b: str


@dataclass(frozen=True)
class Contents(Value):
    """Contents of an exported file; the manifest of a group comes after those of the groups that it is made from."""

    schema: Schema = field(default_factory=Schema)
    manifests: tuple[Manifest, ...] = ()
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        return self.members[DOCUMENTS].rows

    @property
    def sources(self) -> int:
        return self.members[SOURCES].rows

    @property
    def nodes(self) -> dict[str, int]:
        return {m.group: self.members[nodes_of(number)].rows for number, m in enumerate(self.manifests)}

    @property
    def vectors(self) -> int:
        return sum(member.rows for name, member in self.members.items() if name.startswith("vectors/"))

    @property
    def expected(self) -> set[str]:
        """Return the names of the members that there must be."""
        names = {DOCUMENTS, SOURCES, READERS, CURSORS}
        for group, manifest in enumerate(self.manifests):
            names |= {nodes_of(group), *(vectors_of(group, *numbered) for numbered in enumerate(manifest.embeddings))}
        return names

    @property
    def json_bytes(self) -> bytes:
        values = {
            "kind": KIND,
            "version": VERSION,
            "fields": json.loads(dump_schema(self.schema) or "[]"),
            "manifests": [asdict(manifest) for manifest in self.manifests],
            "members": {name: asdict(member) for name, member in sorted(self.members.items())},
        }
        return json.dumps(values, ensure_ascii=False, indent=1, sort_keys=True).encode()


def parse_contents(path: Path, data: bytes) -> Contents:
    """Parse the text of `contents.json`."""
    try:
        values: dict[str, Any] = json.loads(data)
        if values["kind"] != KIND:
            raise ValueError(f"its kind is {values['kind']!r}")
        _refuse_newer(path, values["version"])
        members = {str(name): Member(**member) for name, member in values["members"].items()}
        contents = Contents(
            read_schema(json.dumps(values["fields"])), tuple(map(manifest_from_dict, values["manifests"])), members
        )
        _refuse_odd(contents)
    except StoreTooNew:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SpoliaError) as error:
        raise export_error(path, f"{CONTENTS} cannot be understood ({type(error).__name__}: {error})") from error
    return contents


def _refuse_newer(path: Path, version: object) -> None:
    if type(version) is not int:  # JSON's true would pass for version 1
        raise ValueError(f"its version is {version!r}")
    if version > VERSION:
        raise StoreTooNew(
            f"{path} is an export of version {version}, written by a newer version of Spolia; this one reads up to "
            f"{VERSION}. Write: {pip_install('', '-U')}"
        )


def _refuse_odd(contents: Contents) -> None:
    if odd := set(contents.members) ^ contents.expected - ({CURSORS} - set(contents.members)):
        raise ValueError(f"it names {', '.join(sorted(odd))} in one place only")
    for name, member in contents.members.items():
        numbers = (member.rows, member.bytes)
        # A bool is an int, too.
        if any(type(number) is not int or number < 0 for number in numbers) or not isinstance(member.blake2b, str):
            raise ValueError(f"what it says of {name} is {member!r}")
    if len({manifest.group for manifest in contents.manifests}) < len(contents.manifests):
        raise ValueError("it names a group twice")


def export_error(path: Path, cause: str) -> StoreCorrupt:
    """Build the error for a file that is not as it was written."""
    return StoreCorrupt(
        f"{path} is not an export as `spolia export` writes it: {cause}. Nothing was imported. Copy it again, or "
        "export the store again: spolia export STORE FILE"
    )


ProgressCallback = Callable[[str, int], None]
"""Gets the table that is being written or read, and the number of its rows."""

# Rows in one read, and between two checks for cancellation.
_BATCH_ROWS = 1_000
# The earliest time that ZIP has, in place of the real one: equal content gives equal bytes.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE_BY_ALL = 0o644 << 16


def export_store(corpus: Corpus, path: str | Path, tell: ProgressCallback = lambda member, rows: None) -> Contents:
    """Write the published generation of a store into a new file, which is there whole or not at all.

    What is written: documents, sources, nodes of all groups with their lineage, reader lists, declared fields,
    manifests and vectors. Memory does not grow with the number of nodes, but for a key of each.

    Raises:
        StoreCorrupt: a row of the store is not as it was written; every digest is compared before.
        StoreError: the store cannot be read, the file is there already, or holds metadata that JSON does not have.

    >>> import tempfile
    >>> from spolia.indexing.sync.sync import sync
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
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")  # two exports to one path do not write into one file
    try:
        with ZipFile(temporary, "x", allowZip64=True) as file:
            contents = _Export(corpus.snapshot(), file, tell).write()
        # Durable before it gets its name: the file is there whole or not at all.
        fsync(temporary)
        os.rename(temporary, path)
        fsync(path.absolute().parent)
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror or error}. Name a file elsewhere.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return contents


class _Export:
    def __init__(self, snapshot: "Snapshot", file: ZipFile, tell: ProgressCallback) -> None:
        self.snapshot, self.file, self.tell = snapshot, file, tell
        self.values = {"at": snapshot.generation}
        self.members: dict[str, Member] = {}
        self.numbers: dict[tuple[str, ...], int] = {(): EVERYBODY}
        self.unmade: dict[str, dict[str, str]] = {}
        for lack in snapshot.unmade():
            self.unmade.setdefault(lack.document, {})[lack.group] = lack.reason

    def write(self) -> Contents:
        refuse_damaged(self.snapshot)  # the file would vouch for damaged rows with valid checksums
        manifests = sort_groups(self.snapshot.manifests)
        self._write_lines(DOCUMENTS, map(self._document, self._documents()))
        self._write_lines(SOURCES, (encode(source, SourceRow) for source in self.snapshot.sources().values()))
        self._write_lines(CURSORS, map(list, self.snapshot.open_store.rows(sql.CURSORS_AT, self.values)))
        for number, manifest in enumerate(manifests):
            self._write_lines(nodes_of(number), map(self._node, self._nodes(manifest.group)))
            for place, embedding in enumerate(manifest.embeddings):
                rows = self._sparse if embedding.is_sparse else self._vectors
                name = vectors_of(number, place, embedding)
                # Stored as they are: compression hardly makes floats smaller.
                self._write_member(name, rows(manifest.group, embedding.embedder), ZIP_STORED)
        # Last of the lines: the documents and nodes above have given the lists their numbers.
        self._write_lines(READERS, (list(readers) for readers in self.numbers if readers))
        contents = Contents(self.snapshot.schema, tuple(manifests), self.members)
        self.file.writestr(_entry(CONTENTS, ZIP_DEFLATED), contents.json_bytes)
        self.file.comment = checksum(contents.json_bytes).hexdigest().encode()
        return contents

    def _documents(self) -> Iterator[Document]:
        for row in self.snapshot.open_store.stream_rows(sql.DOCUMENTS_BY_KEY, self.values):
            yield document_of(row, self.snapshot.readers.lists)

    def _document(self, document: Document) -> Any:
        unmade = self.unmade.get(document.id)
        has_images = any(region.image for region in document.regions)
        images = self.snapshot.open_store.rows(sql.IMAGES, {"id": document.id, **self.values}) if has_images else ()
        return {
            "document": encode(document.but(uri="", readers=()), Document),
            "readers": self._number(document.readers),
            **({"unmade": unmade} if unmade else {}),
            **({"images": {hash: encode(bytes(data), bytes) for hash, data in images}} if images else {}),
        }

    def _nodes(self, group: str) -> Iterator[tuple[Node, int]]:
        """Yield the nodes of a group, and how much of their metadata is the document's."""
        keys = [key for (key,) in self.snapshot.open_store.rows(sql.LIVE_KEYS, {"grp": group, **self.values})]
        for batch in in_batches(iter(keys), _BATCH_ROWS):
            rows = self.snapshot.open_store.rows(sql.NODES_OF_KEYS, {"keys": json.dumps(batch), **self.values})
            for row in sorted(rows, key=lambda row: int(row[0])):  # the statement gives them in any order
                yield node_of(row, self.snapshot.readers.lists), len(unpack_values(row[-2]))

    def _node(self, pair: tuple[Node, int]) -> Any:
        node, inherited = pair
        own_node = node.but(uri="", group="chunk", readers=(), meta=node.meta[inherited:])
        return {"node": encode(own_node, Node), "readers": self._number(node.readers)}

    def _number(self, readers: tuple[str, ...]) -> int:
        """Return the number of a reader list, in the order of first use: the same content gets the same numbers."""
        return self.numbers.setdefault(readers, len(self.numbers))

    def _vectors(self, group: str, embedder: str) -> Iterator[tuple[bytes, int]]:
        stored = self.snapshot.open_store.store.stored_vectors(self.snapshot, group, embedder)
        count = len(self.snapshot.open_store.rows(sql.LIVE_KEYS, {"grp": group, **self.values}))
        for start in range(0, count, _BATCH_ROWS):
            rows = stored.vectors_at(np.arange(start, min(start + _BATCH_ROWS, count)))
            yield np.ascontiguousarray(rows, dtype="<f4").tobytes(), len(rows)

    def _sparse(self, group: str, embedder: str) -> Iterator[tuple[bytes, int]]:
        search: Any = self.snapshot.open_store.store.vector_search(self.snapshot, group, embedder)
        for position in range(len(search.keys)):
            entries = sparse.pack_row(search.row(position))
            yield (len(entries) // sparse.ENTRY_BYTES).to_bytes(COUNT_BYTES, "little") + entries, 1

    def _write_lines(self, name: str, values: Iterable[Any]) -> None:
        self._write_member(name, ((_line(value), 1) for value in values), ZIP_DEFLATED)

    def _write_member(self, name: str, pieces: Iterable[tuple[bytes, int]], compression: int) -> None:
        rows, size, digest = 0, 0, checksum()
        # A member's size is unknown before it is written; without ZIP64 one of more than 2 GiB would raise at its end.
        with self.file.open(_entry(name, compression), "w", force_zip64=True) as member:
            for piece, count in pieces:
                member.write(piece)
                digest.update(piece)
                rows, size = rows + count, size + len(piece)
                if not rows % _BATCH_ROWS:
                    check_cancelled()
                    self.tell(name, rows)
        self.members[name] = Member(rows, size, digest.hexdigest())


def _entry(name: str, compression: int) -> ZipInfo:
    """Return a member without anything of this machine or time in it."""
    entry = ZipInfo(name, _ZIP_EPOCH)
    # 3 is Unix: ZipInfo names the system that it runs on, and the bytes would differ between systems.
    entry.compress_type, entry.create_system, entry.external_attr = compression, 3, _READABLE_BY_ALL
    return entry


def _line(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise StoreError(f"Metadata cannot be written as JSON: {error}. Index the document with others.") from error


# The contents are read into memory before anything in them is known to be right.
CONTENTS_BYTES = 64_000_000
LINE_BYTES = 2_000_000_000
"""Twice what the largest document has."""
# Members may be larger than memory, so they are checked piece by piece.
_READ_BYTES = 1 << 20
_DAMAGE_ERRORS = (
    BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    ValueError,
    OverflowError,
)


def export_damage(path: Path) -> str:
    """Return what is wrong with an export, in words; empty if nothing is. All of it is read."""
    with _open_export(path) as file:
        _verify_contents(path, file, lambda member, rows: None)
    return ""


def import_store(path: str | Path, corpus: Corpus, tell: ProgressCallback = lambda member, rows: None) -> Contents:
    """Make a store of an exported file. It is published whole, after every checksum in the file was compared.

    It has the same documents, sources, nodes, vectors and reader lists in the same order; what is derived is built. Who
    is interrupted repeats it: until the end there is an empty store.

    Raises:
        StoreCorrupt: the file is cut off, changed, or something else; nothing was imported.
        StoreTooNew: a newer version wrote it.
        StoreError: there is a store that holds something, or it cannot be written.
    """
    path = Path(path)
    with _open_export(path) as file:
        contents = _verify_contents(path, file, tell)
        _refuse_too_large(contents, corpus)
        corpus.create()
        with corpus.writer() as writer:
            if writer.generation or writer.manifests:
                raise StoreError(f"{corpus.path} is a store already, and not an empty one. Name another path.")
            _Import(path, file, contents, writer, tell).read()
    return contents


@contextmanager
def _open_export(path: Path) -> Iterator[ZipFile]:
    if path.exists() and not path.is_file():  # a device has no end
        raise StoreError(
            f"{path} is not a file, but a folder, a device or a pipe. Name one that `spolia export` has written."
        )
    try:
        file = ZipFile(path)
    except FileNotFoundError as error:
        raise StoreError(f"There is no file {path}. Write one that `spolia export` has written.") from error
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror or error}. Name another file.") from error
    except _DAMAGE_ERRORS as error:
        raise export_error(path, f"it is not a ZIP file, or is cut off ({error})") from error
    with file:
        try:
            yield file
        except StoreError:
            raise
        except _DAMAGE_ERRORS as error:
            raise export_error(path, f"{type(error).__name__}: {error}") from error
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise export_error(path, "it says that something precedes its beginning") from error


def _verify_contents(path: Path, file: ZipFile, tell: ProgressCallback) -> Contents:
    """Return the contents that the file names, after a check of names, sizes and checksums of all its members."""
    names = [entry.filename for entry in file.infolist()]
    if CONTENTS not in names or file.getinfo(CONTENTS).file_size > CONTENTS_BYTES:
        raise export_error(path, f"it has no {CONTENTS}, or one of more than {CONTENTS_BYTES:,} bytes")
    content = file.read(CONTENTS)
    contents = parse_contents(path, content)
    if file.comment != checksum(content).hexdigest().encode():
        raise export_error(path, f"the checksum of {CONTENTS} differs")
    if sorted(names) != sorted([CONTENTS, *contents.members]):
        odd = sorted({name for name in names if name not in contents.expected or names.count(name) > 1} - {CONTENTS})
        lacking = sorted(contents.expected - set(names))
        raise export_error(
            path, f"it holds {', '.join(odd) or 'nothing'} too much and lacks {', '.join(lacking) or 'none'}"
        )
    for name in contents.members:
        _verify_member(path, file, name, contents, tell)
    return contents


def _verify_member(path: Path, file: ZipFile, name: str, contents: Contents, tell: ProgressCallback) -> None:
    entry, expected = file.getinfo(name), contents.members[name]
    if entry.compress_type not in (ZIP_DEFLATED, ZIP_STORED) or entry.flag_bits & 1:
        raise export_error(path, f"{name} is compressed or encrypted in another way")
    if entry.file_size != expected.bytes:
        raise export_error(path, f"{name} has {entry.file_size} bytes, {expected.bytes} were written")
    digest, size = checksum(), 0
    with file.open(name) as member:
        while piece := member.read(_READ_BYTES):
            digest.update(piece)
            size += len(piece)
            check_cancelled()
    if (size, digest.hexdigest()) != (expected.bytes, expected.blake2b):
        raise export_error(path, f"the checksum of {name} differs")
    tell(name, expected.rows)


def _refuse_too_large(contents: Contents, corpus: Corpus) -> None:
    """Raise StoreError before anything is unpacked that would fill the disk."""
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
    def __init__(self, path: Path, file: ZipFile, contents: Contents, writer: Writer, tell: ProgressCallback) -> None:
        self.path, self.file, self.contents, self.writer, self.tell = path, file, contents, writer, tell
        # Documents and nodes name their lists by number, so the lists are read first.
        self.readers: list[tuple[str, ...]] = [
            (),
            *self._read_lines(READERS, lambda line: decode(line, tuple[str, ...])),
        ]
        self.versions: dict[str, str] = {}

    def read(self) -> None:
        self.writer.declare(self.contents.schema)
        for manifest in self.contents.manifests:  # before version 3 they named the readers of all files
            readers = reader_versions(manifest.reader) if manifest.definition else {}
            self.versions |= readers
            self.writer.define(manifest.group, manifest.but(reader="") if readers else manifest)
        self._read_documents()
        if CURSORS in self.contents.members:
            for source, item, cursor in self._read_lines(CURSORS, lambda line: decode(line, tuple[str, str, str])):
                self.writer.remember(source, {item: cursor})
        for number, manifest in enumerate(self.contents.manifests):
            hashes = self._read_nodes(number, manifest)
            for place in range(len(manifest.embeddings)):
                self._read_vectors(number, place, manifest, hashes)

    def _read_documents(self) -> None:
        by_document: dict[str, list[SourceRow]] = {}
        for source in self._read_lines(SOURCES, lambda line: decode(line, SourceRow)):
            reader = source.reader or self.versions.get(reader_of_report(source.report), "")
            by_document.setdefault(source.document, []).append(source.but(reader=reader))
        for source in by_document.pop("", ()):
            self.writer.fail(source)
        for document, unmade, images in self._read_lines(DOCUMENTS, self._document):
            for source in by_document.pop(document.id, ()):
                self.writer.put_document(document, (), source, images)
            if unmade:
                self.writer.note_unmade(document.id, unmade)
        if by_document:
            raise export_error(self.path, f"sources are of {next(iter(by_document))!r}, which is not a document in it")

    def _document(self, line: Any) -> tuple[Document, dict[str, str], dict[str, bytes]]:
        """Decode a document, why groups could not be made of it, and its pictures."""
        document: Document = decode(line["document"], Document)
        unmade = decode(line.get("unmade", {}), dict[str, str])
        images = decode(line.get("images", {}), dict[str, bytes])
        return document.but(readers=self.readers[line["readers"]]), unmade, images

    def _read_nodes(self, number: int, manifest: Manifest) -> bytearray:
        """Add the nodes of a group; return their content hashes, one after the other."""
        hashes = bytearray()

        def complete_node(node: Node) -> Node:
            full = node.but(group=manifest.group, meta=document.meta + node.meta)
            if manifest.embeddings:
                hashes.extend(key_of(full, document, by_picture=manifest.by_picture))
            return full

        decoded: Iterator[Node] = self._read_lines(nodes_of(number), self._node)
        for id, nodes in groupby(decoded, key=lambda node: node.document):
            document = self.writer.document(id)
            self.writer.add_nodes(document, map(complete_node, nodes))
        return hashes

    def _node(self, line: Any) -> Node:
        node: Node = decode(line["node"], Node)
        return node.but(readers=self.readers[line["readers"]])

    def _read_vectors(self, number: int, place: int, manifest: Manifest, hashes: bytearray) -> None:
        embedding = manifest.embeddings[place]
        name = vectors_of(number, place, embedding)
        expected = self.contents.members[name]
        width = expected.bytes // expected.rows if expected.rows else 0
        is_odd = not embedding.is_sparse and (expected.rows * width != expected.bytes or width % 4)
        if expected.rows * HASH_BYTES != len(hashes) or is_odd:
            raise export_error(self.path, f"{name} does not have one row for each node of {manifest.group!r}")
        with self.file.open(name) as member:
            for start in range(0, expected.rows, _BATCH_ROWS):
                end = min(start + _BATCH_ROWS, expected.rows)
                batch = [bytes(hashes[row * HASH_BYTES : (row + 1) * HASH_BYTES]) for row in range(start, end)]
                if embedding.is_sparse:
                    self.writer.add_sparse(
                        embedding.embedder, batch, self._read_sparse(name, member, end - start, expected.bytes)
                    )
                else:
                    rows = np.frombuffer(_read_exactly(member, (end - start) * width), dtype="<f4")
                    self.writer.add_vectors(embedding.embedder, batch, rows.reshape(end - start, -1))
                self._report_progress(name, end)
            if member.read(1):
                raise export_error(self.path, f"{name} has more than one row for each node of {manifest.group!r}")

    def _read_sparse(self, name: str, member: IO[bytes], count: int, size: int) -> SparseRows:
        rows = []
        for _ in range(count):
            prefix = _read_exactly(member, COUNT_BYTES)
            # A damaged number must not make one read of more than the member holds.
            entries = min(int.from_bytes(prefix, "little") * sparse.ENTRY_BYTES, size)
            content = _read_exactly(member, entries)
            if len(prefix) < COUNT_BYTES or len(content) < entries:
                raise export_error(self.path, f"{name} is cut off within a row")
            try:
                rows.append(sparse.unpack_row(content))
            except ModelError as error:
                raise export_error(self.path, f"{name} holds a damaged sparse vector ({error})") from error
        return SparseRows.concatenate(rows)

    def _read_lines(self, name: str, build: Callable[[Any], Any]) -> Iterator[Any]:
        rows = 0
        with self.file.open(name) as member:
            while line := member.readline(LINE_BYTES):
                rows += 1
                try:
                    yield build(json.loads(line))
                except (CodecError, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
                    raise export_error(self.path, f"line {rows} of {name} cannot be understood ({error})") from error
                self._report_progress(name, rows)
        if rows != self.contents.members[name].rows:
            raise export_error(self.path, f"{name} has {rows} lines, {self.contents.members[name].rows} were written")

    def _report_progress(self, name: str, rows: int) -> None:
        if not rows % _BATCH_ROWS:
            check_cancelled()
            self.tell(name, rows)


def _read_exactly(member: IO[bytes], size: int) -> bytes:
    content = b""
    # A member gives less than it is asked for.
    while len(content) < size and (piece := member.read(size - len(content))):
        content += piece
    return content
