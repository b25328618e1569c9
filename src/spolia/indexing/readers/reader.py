"""Protocols of readers, and their values: blobs, readings, signatures of formats, limits of archives."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeGuard, runtime_checkable

from spolia.types import NO_BOXES, Boxes, Document, Heading, Meta, Region, Value, lazy_property
from spolia.types.value import unchecked_constructor


class Signature(NamedTuple):
    """Signature of a format: the first bytes of its files, its name in messages, the suffix that files should have."""

    prefix: bytes
    description: str
    suffix: str


OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""An OLE compound file: old Office, Outlook, and new Office that is locked."""
ZIP = b"PK\x03\x04"
_SIGNATURES = (
    Signature(b"%PDF-", "a PDF", ".pdf"),
    Signature(ZIP, "a ZIP archive (DOCX, EPUB, XLSX ...)", ".zip"),
    Signature(OLD_OFFICE, "an old Office file", ".doc"),
    Signature(b"\x89PNG\r\n", "a PNG image", ".png"),
    Signature(b"\xff\xd8\xff", "a JPEG image", ".jpg"),
    Signature(b"GIF8", "a GIF image", ".gif"),
    Signature(b"\x1f\x8b", "a gzip archive", ".gz"),
    Signature(b"BZh", "a bzip2 archive", ".bz2"),
    Signature(b"\xfd7zXZ\0", "an xz archive", ".xz"),
    Signature(b"7z\xbc\xaf\x27\x1c", "a 7z archive", ".7z"),
    Signature(b"Rar!\x1a\x07", "a RAR archive", ".rar"),
    Signature(b"{\\rtf", "an RTF document", ".rtf"),
    Signature(b"\x7fELF", "a program", ""),
    Signature(b"SQLite format 3\0", "an SQLite database", ".sqlite"),
)
_PREFIXES = tuple(signature.prefix for signature in _SIGNATURES)
_HTML_START = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE)


def signature_of(head: bytes) -> Signature | None:
    """Return the signature of the format whose files begin like this; None for text and unknown formats.

    >>> signature_of(b"%PDF-1.7 ...").description
    'a PDF'
    """
    # One call rejects text, which most files are, without a loop in Python.
    if not head.startswith(_PREFIXES):
        return None
    return next(signature for signature in _SIGNATURES if head.startswith(signature.prefix))


def is_page(text: str) -> bool:
    """Return whether a whole text is an HTML page.

    >>> is_page("<!DOCTYPE html><p>One"), is_page("# One <b>two</b>")
    (True, False)
    """
    return _HTML_START.match(text, 0, 2000) is not None


# Large files are hashed piece by piece, so that they never fill the memory.
_PIECE = 1 << 20


@dataclass(frozen=True)
class Blob(Value):
    """Bytes of a file, a database row, an attachment, or anything else that a document is read from.

    Args:
        uri: its path relative to the indexed folder, or the caller's own name; of a part of another blob
            `mails/offer.eml/prices.pdf`.
        content: the bytes; for what is large, the path of a file that does not change while it is read.

    >>> Blob("a.txt", b"Stones.").data
    b'Stones.'
    """

    uri: str
    content: bytes | Path = field(repr=False)

    @lazy_property
    def data(self) -> bytes:
        """Return all bytes, in memory."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def open(self) -> BinaryIO:
        """Open the bytes as a stream, for content that may be large. The caller closes it."""
        return BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")

    @lazy_property
    def content_hash(self) -> str:
        """Return the BLAKE2b of the bytes, as 32 hexadecimal digits."""
        if isinstance(self.content, bytes):
            return blake2b(self.content, digest_size=16).hexdigest()
        digest = blake2b(digest_size=16)
        with self.open() as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest()

    def document(
        self,
        reader: "FileReader",
        text: str,
        *,
        title: str = "",
        pages: Iterable[int] = (),
        headings: Iterable[Heading] = (),
        regions: Iterable[Region] = (),
        boxes: Boxes = NO_BOXES,
        meta: Meta = (),
    ) -> Document:
        """Build the document that a reader makes of this blob. The same bytes, read the same way, get the same id."""
        return _document(
            f"{self.content_hash}.{reader.name}", text, self.uri, title, reader.media_type,
            tuple(pages), tuple(headings), meta, (), tuple(regions), boxes,
        )  # fmt: skip


_document = unchecked_constructor(Document)


@dataclass(frozen=True)
class Reading(Value):
    """Content that a reader extracts from a blob.

    Args:
        document: its text, with the starts of its pages and its headings.
        encoding: of its characters, where that had to be found out.
        empty_pages: numbers, from 1, of the pages without text.
        ocr_pages: numbers, from 1, of the pages whose text was recognised in their picture.
        dropped: what was seen and not read, and how many: `(("footnotes", 3), ("images", 2))`.
        images: the pictures that regions of the document name by their hash.
        warnings: what a person should know, each a sentence.
        lacks: what was missing here to read all of it; empty if nothing was.
        linked_images: which regions show a picture that may lie beside the document, by the region's number from 0, and
            what the document calls the picture: `((3, "img/wall.png"),)`. It is put in where the folder is known.
    """

    document: Document
    encoding: str = ""
    empty_pages: tuple[int, ...] = ()
    ocr_pages: tuple[int, ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    images: tuple[Blob, ...] = ()
    warnings: tuple[str, ...] = ()
    lacks: str = ""
    linked_images: tuple[tuple[int, str], ...] = ()


def nonzero_counts(dropped: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Sort counts of unread content by name, without zeros."""
    return tuple(sorted((name, count) for name, count in dropped.items() if count)) if dropped else ()


def title_of(headings: Sequence[Heading]) -> str:
    """Return the first heading if its level is 1, else an empty text."""
    return headings[0].text if headings and headings[0].level == 1 else ""


@runtime_checkable
class FileReader(Protocol):
    """Reader of one format.

    Attributes:
        name: of the format; part of the ids of documents.
        version: count it up when the same bytes give another text: the next `sync` reads its files again.
        suffixes: of file names, in lower case, with their dot.
        isolated: True if files are read in a process of their own: the code is complicated, foreign, or parses
            content that may do harm. A reader without this attribute runs in the caller's process, where it may
            call a model, hold a connection, or be defined in a script.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def media_type(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    def read(self, blob: Blob, /) -> Reading:
        """Read the document in a blob.

        Raises:
            DocumentError: it is not what its name says, damaged, too large or locked.
            MissingExtra: the package that reads this format is not installed.
        """


@runtime_checkable
class ProgramReader(Protocol):
    """Reader that reads more if a program is installed. Files that lacked it are read again once it is there."""

    def lacking(self) -> str:
        """Return what is missing on this machine, and how to get it; empty if nothing is."""


@runtime_checkable
class Container(Protocol):
    """Reader that splits a blob into parts of their own: the members of an archive, the attachments of a mail.

    A reader may be a container as well: a mail is a document, and has attachments. A blob of at most `undivided` bytes,
    if the reader says so, is not asked for parts.
    """

    @property
    def name(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the parts one by one, so that few are in memory. Each uri begins with the container's and a slash.

        Raises:
            DocumentError: it is not what its name says, or is made to fill the memory or to leave its folder.
        """


# A small file of repeated text exceeds the ratio too, and can fill neither memory nor disk.
_HARMLESS_SIZE = 50_000_000


@dataclass(frozen=True)
class ArchiveLimits(Value):
    """Limits on the content of an archive.

    Args:
        entries: files, folders and links.
        size: unpacked bytes of all its files.
        ratio: unpacked bytes for each packed one, where they are more than 50 MB.
        depth: archives within archives, mails within mails.
    """

    entries: int = 50_000
    size: int = 4_000_000_000
    ratio: int = 200
    depth: int = 4

    def unpacked_limit(self, packed_size: int) -> int:
        """Return the number of unpacked bytes allowed for an archive of this size."""
        return min(self.size, max(_HARMLESS_SIZE, self.ratio * packed_size))


LIMITS = ArchiveLimits()


def is_container(reader: object) -> TypeGuard[Container]:
    """Return whether a reader unpacks blobs. Called for every file, so `isinstance` with a protocol is too slow."""
    return hasattr(reader, "parts")


@cache
def is_pattern(key: str) -> bool:
    """Return whether a reader's key is a pattern of names, not a suffix."""
    # Cached: the keys are few, and each is tested again for every file.
    return not key.startswith(".") or any(mark in key for mark in "*?[/")


def reader_of(name: str, readers: Mapping[str, FileReader]) -> FileReader | None:
    """Return the reader for a file of this name; None if no reader knows it.

    A pattern with a slash is compared with the whole name, one without with what follows the last slash; case does not
    count. The longer of two suffixes counts: `.tar.gz` before `.gz`.

    >>> from spolia.indexing.readers.registry import by_suffix
    >>> reader_of("Thesis.DOCX", by_suffix()), reader_of("photo.xyz", by_suffix())
    (DocxReader(), None)
    """
    path = name.lower()
    file_name = path.rpartition("/")[2]
    for pattern, reader in readers.items():
        if not is_pattern(pattern):  # patterns come first
            break
        if fnmatchcase(path if "/" in pattern else file_name, pattern):
            return reader
    dot = file_name.rfind(".")
    if dot <= 0:
        return None
    inner_dot = file_name.rfind(".", 0, dot)
    return (readers.get(file_name[inner_dot:]) if inner_dot > 0 else None) or readers.get(file_name[dot:])


def is_isolated(reader: object) -> bool:
    """Return whether a reader or an embedder asks for a process of its own. `apart` is what `isolated` was called."""
    return bool(getattr(reader, "isolated", getattr(reader, "apart", False)))


def for_web(reader: FileReader) -> FileReader:
    """Return the variant of a reader for web pages; most readers have none and stand for themselves."""
    web_reader: Callable[[], FileReader] = getattr(reader, "for_web", lambda: reader)
    return web_reader()


def versioned_name(reader: FileReader) -> str:
    """Return a reader's name and version, as the rows of its sources store them.

    >>> from spolia.indexing.readers.markup.markdown import MarkdownReader
    >>> versioned_name(MarkdownReader())
    'markdown 4'
    """
    return f"{reader.name} {reader.version}"
