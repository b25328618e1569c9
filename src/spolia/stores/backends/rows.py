"""Values as rows of the database, and back; reader lists, each kept once under a number."""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache, wraps
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from random import randrange
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from spolia.core.codec import decode, encode
from spolia.errors import SpoliaError, StoreCorrupt, StoreError
from spolia.filters import Field, Schema
from spolia.stores.backends import sql
from spolia.types import NO_BOXES, Boxes, Document, Heading, Meta, Node, Region, Span, Value, check_principals
from spolia.types.value import unchecked_constructor

if TYPE_CHECKING:
    from spolia.stores.backends.backend import Connection

T = TypeVar("T")
NO_FIELDS = Schema()
Row = Sequence[Any]
EARLIEST_NS = -(2**62)
"""The year 1823. An earlier time, and 0, stand for none: such a number distinguishes versions."""
_NODE_COLUMNS = sql.NODE_COLUMNS.replace("\n   ", "").split(", ")
DOCUMENT_OF_NODE, AUDIENCE_OF_NODE = _NODE_COLUMNS.index("d.id"), _NODE_COLUMNS.index("n.audience")
HASH_OF_NODE = _NODE_COLUMNS.index("n.hash")
AUDIENCE_OF_DOCUMENT = sql.DOCUMENT_COLUMNS.split(", ").index("d.audience")
"""Columns of the document's id and of the number of the reader list."""
Readers = Mapping[int, tuple[str, ...]]
"""Reader lists by the number of the audience."""
Stamp = tuple[int, int, str, str]
"""Size, time of the last change in nanoseconds, status and reader of a source: as in `SourceRow`."""


class StoreVersion(NamedTuple):
    """A publication of a store. Its number counts publications; its id is random, since a backup that is put back and
    published further comes to numbers that were there before.

    >>> str(StoreVersion(7, "5e0c9a1b22d4f6a8"))
    '7.5e0c9a1b22d4f6a8'
    """

    generation: int
    id: str

    def __str__(self) -> str:
        return f"{self.generation}.{self.id}"

    @classmethod
    def next_version(cls, generation: int) -> "StoreVersion":
        return cls(generation + 1, os.urandom(8).hex())


@dataclass(frozen=True)
class SourceRow(Value):
    """State in which a source was read, to tell whether it has changed; times in nanoseconds, early ones not known.

    Args:
        uri: its name: a path relative to the indexed folder, or the caller's own.
        document: id of the document that was read from it; empty where it could not be read.
        status: `indexed` or `failed`.
        report: what the reader noticed, as the caller wrote it.
        reader: the reader that it was given to, with its version, as `pdf 2`; empty where that is not known.
    """

    uri: str
    size: int = 0
    mtime_ns: int = 0
    content_hash: str = ""
    document: str = ""
    status: str = "indexed"
    error: str = ""
    report: str = ""
    created_ns: int = 0
    accessed_ns: int = 0
    reader: str = ""

    @property
    def is_stale(self) -> bool:
        """Return whether the source holds an earlier version of a file that cannot be read now."""
        return self.status == "failed" and bool(self.document)


NOT_YET = "It was not made yet."
"""Why a group lacks a document that is older than the group or its rebuild."""


@dataclass(frozen=True)
class Unmade(Value):
    """A node group that was not made of a document, and why. A group without this note is made, even without nodes."""

    document: str
    uri: str
    group: str
    reason: str

    @property
    def is_untried(self) -> bool:
        return self.reason == NOT_YET


def hash_of(text: str) -> bytes:
    """Return the 16 bytes by which a text's vector is found again (BLAKE2b)."""
    return blake2b(text.encode(), digest_size=16).digest()


def hash_of_picture(image: str) -> bytes:
    """Return the 16 bytes by which a picture's vector is found again, by its content hash; no text has the same.

    >>> hash_of_picture("f00d") == hash_of("f00d")
    False
    """
    return blake2b(image.encode(), digest_size=16, person=b"picture").digest()


def picture_of(node: Node, document: Document) -> str:
    """Return the hash of the picture that a node shows: one that its field `image` and its document name; empty for
    none.

    >>> document = Document("d", "A bridge.", regions=(Region("image", 0, 9, image="f00d"),))
    >>> [picture_of(Node("n", "A bridge.", meta=(("image", hash),)), document) for hash in ("f00d", "cover.png")]
    ['f00d', '']
    """
    hashes = {value for name, value in node.meta if name == "image"}
    return next((region.image for region in document.regions if region.image in hashes), "") if hashes else ""


def key_of(node: Node, document: Document, *, by_picture: bool) -> bytes:
    """Return the hash by which a node's vectors are found: of its text, or of its picture in a group of pictures."""
    image = picture_of(node, document) if by_picture else ""
    return hash_of_picture(image) if image else hash_of(node.indexed_text)


def row_digest(values: Row) -> bytes:
    """Return the 8 bytes by which damage to a row is found: BLAKE2b of its values as Python writes them, with NUL
    between."""
    return blake2b((_nul_template(len(values)) % tuple(values)).encode(), digest_size=8).digest()


@cache
def _nul_template(count: int) -> str:
    """Return a template that joins values with NUL: filling it takes half the time of `join`."""
    return "\0".join(["%s"] * count)


def with_digest(*values: Any) -> Row:
    """Return the values of a row, followed by their digest.

    >>> with_digest("chunk", 1)[2].hex()
    'dad829603112fe9e'
    """
    return (*values, row_digest(values))


def node_digest(values: Row) -> bytes:
    """Return the digest of a node's row (`sql.NODE_ROW`). Its last two values count as one, so that rows without a time
    keep the digests from before that column."""
    birth, seconds = values[-2:]
    return row_digest((*values[:-2], f"{birth}{seconds}"))


DamagedRow = tuple[str, Row]
"""A table, and the values of those columns that name a row in it (`sql.GUARDED`)."""


def damaged_rows(connection: "Connection", share: int = 0) -> Iterator[DamagedRow]:
    """Yield the rows that differ from what was written; a `share` limits how many documents and nodes are read."""
    if isinstance(connection, sqlite3.Connection):
        connection.text_factory = legible
    for table, statement in (sql.SOME_ROWS if share else sql.ROWS).items():
        width, stretch = sql.GUARDED[table][0].count(",") + 1, tuple[int, ...]()
        if share:
            last = connection.execute(sql.LAST_KEYS[table]).fetchone()[0]
            # The stretch may begin before the first row, so that the first rows are checked as often as others.
            stretch = (randrange(1 - share, last + 1) if last > share else 0, share)
        for row in connection.execute(statement, stretch) if share else connection.stream_rows(statement):
            if row_digest(row[width:-1]) != row[-1]:
                yield table, tuple(row[:width])
    if not share:
        yield from (
            ("audiences", (id,)) for id, digest, readers in connection.execute(sql.LISTS) if digest != hash_of(readers)
        )
        ((uuid, digest),) = connection.execute(sql.STORE).fetchall()
        if digest != store_digest(connection, uuid):
            yield "store", (uuid,)


def changed_nodes(rows: Iterable[Row]) -> list[str]:
    """Return the ids of nodes that differ from what was written; rows as `sql.ROWS_OF_NODES` gives them."""
    return [row[1] for row in rows if row_digest(row[1:-1]) != row[-1]]


def legible(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def store_digest(connection: "Connection", uuid: str) -> bytes:
    """Return the digest of a store's id and, where SQLite keeps them in the file, of the definitions of its tables."""
    tables = connection.execute(sql.TABLES).fetchall() if isinstance(connection, sqlite3.Connection) else ()
    return row_digest((uuid, *(table for (table,) in tables)))


def deep_problems(connection: "Connection", name: str, share: int = 0) -> Iterator[str]:
    rows_by_table: dict[str, list[str]] = {}
    for table, row in damaged_rows(connection, share):
        rows_by_table.setdefault(table, []).append(" ".join(map(str, row)))
    for table, rows in rows_by_table.items():
        yield f"{name}: {len(rows)} rows of {table} are not as they were written: {list_some(rows)}"


def list_some(items: list[str] | list[int]) -> str:
    """List the first three items, and say how many more there are."""
    text = ", ".join(map(str, items[:3]))
    return text if len(items) <= 3 else f"{text} and {len(items) - 3} more"


def manifest_row(group: str, text: str) -> dict[str, Any]:
    """Build the row of a manifest, which holds it twice: nothing else says what a group is made of."""
    return {"grp": group, "manifest": text, "digest": row_digest((group, text))}


def unmade_row(group: str, reason: str) -> dict[str, Any]:
    """Build the row that says why a group was not made, without the key of the document."""
    return {"grp": group, "error": reason, "digest": row_digest((group, reason))}


def indexed_text(context: str, text: str, search_text: str) -> str:
    """Return `Node.indexed_text` of a node that is still a row."""
    return search_text or (f"{context}\n{text}" if context else text)


def indexed_texts(rows: Iterable[Row]) -> Iterator[tuple[int, str]]:
    """Return key and indexed text of nodes, from rows of key, context, text and search text."""
    return ((key, indexed_text(*texts)) for key, *texts in rows)


def nodes_to_index(rows: Iterable[Row]) -> Iterator[tuple[int, str, str, str]]:
    """Yield key, indexed text, and packed metadata of the document and its own, of each node."""
    return ((key, indexed_text(*texts), inherited, own_meta) for key, *texts, inherited, own_meta in rows)


def dump_schema(schema: Schema) -> str:
    return json.dumps([asdict(field) for field in schema], ensure_ascii=False) if schema else ""


def read_schema(text: str) -> Schema:
    """Parse the declared fields of a store.

    >>> read_schema(dump_schema(Schema((Field("year", "int"),))))
    (Field(name='year', kind='int', default=None, max_length=None),)
    """
    try:
        return Schema(Field(**field) for field in json.loads(text)) if text else NO_FIELDS
    except (ValueError, TypeError, SpoliaError) as error:
        raise StoreCorrupt(f"The declared fields of the store cannot be understood: {text!r} ({error}).") from error


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def pack_values(values: Sequence[Any]) -> str:
    """Encode a tuple as JSON; an empty one, as most are, as an empty text."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) if values else ""


def unpack_values(text: str) -> tuple[Any, ...]:
    """Decode a packed tuple; pairs and triples within are tuples again."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in json.loads(text)) if text else ()


@lru_cache(4_096)
def meta_pairs(text: str) -> Meta:
    """Decode packed metadata. Nodes of a document share its text, and are asked for by the hundred."""
    return tuple(map(tuple, json.loads(text))) if text else ()


# Nodes of a document share their pages.
@lru_cache(256)
def _page_starts(text: str) -> tuple[int, ...]:
    return unpack_values(text)


def hash_of_document(document: Document, readers: bytes) -> bytes:
    # Without the uri: sources with the same content share a document.
    return document.digest_with(uri="", readers=(readers.hex(),))


P = ParamSpec("P")


def _check_rows(make: Callable[P, T]) -> Callable[P, T]:
    """Raise StoreCorrupt where a row does not hold what a value is made of."""

    @wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return make(*args, **kwargs)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise StoreCorrupt(
                f"A row of the store is damaged ({type(error).__name__}: {error}). To see what is damaged write: "
                "spolia doctor --deep --store STORE; to mend what can be mended: spolia repair --store STORE; the rest "
                "has to come from a backup."
            ) from error

    return checked


def _refuse_other_than_texts(*values: object) -> None:
    for value in values:
        if type(value) is not str:  # in a damaged row, SQLite gives bytes or numbers for a text
            raise TypeError(f"{value!r:.80} is not a text")


@_check_rows
def id_of(row: Row) -> tuple[int, str]:
    """Return the key and the id of a node."""
    key, id = row
    _refuse_other_than_texts(id)
    return key, id


def document_row(document: Document, audience: int, readers: bytes, birth: int) -> Row:
    return with_digest(
        document.id,
        hash_of_document(document, readers),
        document.text,
        document.title,
        document.media_type,
        pack_values(document.pages),
        pack_values([(heading.start, heading.level, heading.text) for heading in document.headings]),
        pack_values([encode(region, Region) for region in document.regions]),
        document.boxes.packed,
        pack_values(document.meta),
        audience,
        birth,
    )


@_check_rows
def document_of(row: Row, readers: Readers) -> Document:
    id, text, title, media_type, pages, headings, regions, boxes, meta, audience, uri = row
    _refuse_other_than_texts(id, text, title, media_type, uri or "")
    return Document(
        id=id,
        text=text,
        uri=uri or "",
        title=title,
        media_type=media_type,
        pages=unpack_values(pages),
        headings=tuple(Heading(*heading) for heading in unpack_values(headings)),
        meta=meta_pairs(meta),
        readers=readers[audience],
        regions=tuple(decode(region, Region) for region in json.loads(regions or "[]")),
        boxes=Boxes(boxes) if boxes else NO_BOXES,
    )


def refuse_odd_node(node: Node, document: Document) -> None:
    """Raise StoreError for a node that is of another document, or stands outside of it."""
    if node.document not in ("", document.id):
        raise StoreError(
            f"Node {node.id!r} says that it is of document {node.document!r}, but it was put with {document.id!r}. "
            "Write put(document, nodes, source) with the nodes of that document only."
        )
    if (span := node.span) is not None and not 0 <= span.start <= span.end <= len(document.text):
        raise StoreError(
            f"Node {node.id!r} spans {span.start} to {span.end} of document {document.id!r}, which has "
            f"{len(document.text)} characters. Give it its true span, or None if it was written, not cut."
        )


def node_row(node: Node, document: Document, key: int, audience: int, birth: int, *, by_picture: bool = False) -> Row:
    """Build the row of a node, with its own metadata only: those of the document are stored with the document."""
    refuse_odd_node(node, document)
    own_meta: Meta = (
        () if node.meta == document.meta else tuple(pair for pair in node.meta if pair not in document.meta)
    )
    row = (
        node.id,
        node.group,
        key,
        node.number,
        key_of(node, document, by_picture=by_picture),
        node.text,
        node.context,
        node.search_text,
        *_span_row(node.span),
        node.parent,
        pack_values(own_meta),
        audience,
        birth,
        pack_values((node.span and node.span.seconds) or ()),
    )
    return (*row, node_digest(row))


def _span_row(span: Span | None) -> Row:
    if span is None:
        return (None,) * 6
    return (span.start, span.end, *(span.pages or (None, None)), *(span.lines or (None, None)))


_node, _span = unchecked_constructor(Node), unchecked_constructor(Span)


@_check_rows
def node_of(row: Row, readers: Readers) -> Node:
    (_, id, text, group, start, stop, first_page, last_page, first_line, last_line, seconds,
     context, parent, meta, audience, document, number, search_text, _, inherited, pages, uri) = row  # fmt: skip
    _refuse_other_than_texts(id, text, group, context, parent, document, search_text, uri or "")
    span = None
    if start is not None:
        span = _span(
            start,
            stop,
            None if first_page is None else (first_page, last_page),
            None if first_line is None else (first_line, last_line),
            unpack_values(seconds) or None,
            _page_starts(pages)[first_page:last_page] if pages else (),
        )
    return _node(
        id, text, document, group, span, context, uri or "", parent,
        meta_pairs(inherited) + meta_pairs(meta), readers[audience], number, search_text,
    )  # fmt: skip


source_values: Callable[[SourceRow], Row] = attrgetter(
    "size", "mtime_ns", "content_hash", "status", "error", "report", "created_ns", "accessed_ns", "reader"
)
"""A source as a row, without its uri and document."""


def source_row(source: SourceRow, birth: int, key: int | None) -> Row:
    return with_digest(source.uri, *source_values(source), birth, key)


def reader_versions(text: str) -> dict[str, str]:
    """Return by name the readers, each with its version, that a manifest named before sources did.

    >>> reader_versions("markdown 4, text 1")
    {'markdown': 'markdown 4', 'text': 'text 1'}
    """
    return {reader.rpartition(" ")[0]: reader for reader in text.split(", ") if reader}


def reader_of_report(report: str) -> str:
    match = re.match(r'\{"reader":"([^"\\]+)"', report)
    return match[1] if match else ""


EVERYBODY = 0
"""The audience of what has no readers."""
_LISTS_KEPT = 1_024
ReaderNames = tuple[str, ...]


class Audiences:
    """Numbers for reader lists. A number holds for one change: when that is undone, another list may get it."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self._encoded: dict[ReaderNames, tuple[bytes, str]] = {}
        self.begin()

    def begin(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._last: tuple[Sequence[str], int] = ((), EVERYBODY)

    def number(self, readers: Sequence[str]) -> int:
        if type(readers) is tuple and not readers:
            return EVERYBODY
        if readers is not self._last[0]:  # nodes of a document have one list, and to look a long one up takes time
            listed = _as_tuple(readers)
            self._last = (readers, self._find_or_add(*self._encode(listed)) if listed else EVERYBODY)
        return self._last[1]

    def digest(self, readers: Sequence[str]) -> bytes:
        return self._encode(_as_tuple(readers))[0]

    def _find_or_add(self, digest: bytes, text: str) -> int:
        number = self._numbers.get(digest)
        if number is None:
            row = self.connection.execute(sql.AUDIENCE, (digest,)).fetchone()
            if row is None:
                self.connection.execute(sql.ADD_AUDIENCE, (digest, text))
                row = self.connection.execute(sql.AUDIENCE, (digest,)).fetchone()
            number = self._numbers[digest] = int(row[0])
        return number

    def _encode(self, readers: ReaderNames) -> tuple[bytes, str]:
        encoded = self._encoded.get(readers)
        if encoded is None:
            # Every document may have a list of its own, so the cache is bounded.
            if len(self._encoded) >= _LISTS_KEPT:
                self._encoded = {}
            text = json.dumps(sorted(set(_check_readers(readers))), ensure_ascii=False)
            encoded = self._encoded[readers] = (hash_of(text), text)
        return encoded


def _as_tuple(readers: Sequence[str]) -> ReaderNames:
    return readers if type(readers) is tuple else _check_readers(readers)


def _check_readers(readers: Sequence[str]) -> ReaderNames:
    return check_principals(readers, "A reader list is")


class StoredLists(dict[int, ReaderNames]):
    def __init__(self, connection: "Connection") -> None:
        super().__init__({EVERYBODY: ()})
        self._connection = connection

    def __missing__(self, number: int) -> ReaderNames:
        (text,) = self._connection.execute(sql.READERS, (number,)).fetchone()
        readers = self[number] = tuple(json.loads(text))
        return readers
