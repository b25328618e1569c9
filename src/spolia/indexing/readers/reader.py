"""What readers take and give: blobs and what their first bytes are, readings, containers, the reader of a name."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeGuard, runtime_checkable

from spolia.types import NO_BOXES, Boxes, Document, Heading, Meta, Region, Value, kept
from spolia.types.value import maker


class Signature(NamedTuple):
    """How files of a format begin, what they are called, and the suffix that they should have."""

    begins: bytes
    what: str
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
_BEGINNINGS = tuple(signature.begins for signature in _SIGNATURES)
_PAGE = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE)


def signature_of(head: bytes) -> Signature | None:
    """The format whose files begin like this; None for text and for what is not known.

    >>> signature_of(b"%PDF-1.7 ...").what
    'a PDF'
    """
    if not head.startswith(_BEGINNINGS):
        return None
    return next(found for found in _SIGNATURES if head.startswith(found.begins))


def is_page(text: str) -> bool:
    """Whether a text is an HTML page as a whole.

    >>> is_page("<!DOCTYPE html><p>One"), is_page("# One <b>two</b>")
    (True, False)
    """
    return _PAGE.match(text, 0, 2000) is not None


_PIECE = 1 << 20


@dataclass(frozen=True)
class Blob(Value):
    """The bytes of a file, of a row of a database, of an attachment: of whatever a document is read from.

    Args:
        uri: its path relative to the indexed folder, or the caller's own name; of a part of another blob
            `mails/offer.eml/prices.pdf`.
        content: the bytes; for what is large, the path of a file that does not change while it is read.

    >>> Blob("a.txt", b"Stones.").data
    b'Stones.'
    """

    uri: str
    content: bytes | Path = field(repr=False)

    @kept
    def data(self) -> bytes:
        """All of it, in memory."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def open(self) -> BinaryIO:
        """To read it piece by piece, which is how to read what may be large; to be closed by who opens it."""
        return BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")

    @kept
    def content_hash(self) -> str:
        """32 hexadecimal digits of the bytes' BLAKE2b."""
        if isinstance(self.content, bytes):
            return blake2b(self.content, digest_size=16).hexdigest()
        found = blake2b(digest_size=16)
        with self.open() as file:
            while piece := file.read(_PIECE):
                found.update(piece)
        return found.hexdigest()

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
        """The document that a reader makes of it: the same bytes read in the same way have the same id."""
        return _document(
            f"{self.content_hash}.{reader.name}", text, self.uri, title, reader.media_type,
            tuple(pages), tuple(headings), meta, (), tuple(regions), boxes,
        )  # fmt: skip


_document = maker(Document)


@dataclass(frozen=True)
class Reading(Value):
    """What was got out of a blob.

    Args:
        document: its text, with the starts of its pages and its headings.
        encoding: of its characters, where that had to be found out.
        empty_pages: numbers, from 1, of the pages without text.
        ocr_pages: numbers, from 1, of the pages whose text was recognised in their picture.
        dropped: what was seen and not read, and how many: `(("footnotes", 3), ("images", 2))`.
        images: the pictures that regions of the document name by their hash.
        warnings: what a person should know, each a sentence.
        lacks: what was missing here to read all of it; empty if nothing was.
        beside: which regions show a picture that may stand beside the document, by the region's number, from 0, and
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
    beside: tuple[tuple[int, str], ...] = ()


def counted(dropped: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Counts of what was seen and not read, by name, without zeros."""
    return tuple(sorted((what, count) for what, count in dropped.items() if count)) if dropped else ()


def title_of(headings: Sequence[Heading]) -> str:
    """The first heading, if it is one of level 1."""
    return headings[0].text if headings and headings[0].level == 1 else ""


@runtime_checkable
class FileReader(Protocol):
    """Reads one format.

    Attributes:
        name: of the format; part of the ids of documents.
        version: count it up when the same bytes give another text: the next `sync` reads its files again.
        suffixes: of file names, in lower case, with their dot.
        apart: True where files are read in a process of its own: what is complicated, foreign code, or made to do harm.
            A reader that does not say so works in the process of its caller, so that it may ask a model, hold a
            connection, or be defined in a script.
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
        """The document in a blob.

        Raises:
            DocumentError: it is not what its name says, damaged, too large or locked.
            MissingExtra: the package that reads this format is not installed.
        """


@runtime_checkable
class Equipped(Protocol):
    """A reader that reads more where a program is installed: what lacked that is read again when it is there."""

    def lacking(self) -> str:
        """What is missing here, and how to get it; empty if nothing is."""


@runtime_checkable
class Container(Protocol):
    """Gives the parts of a blob as blobs of their own: the members of an archive, the attachments of a mail.

    A reader may be a container as well: a mail is a document, and has attachments. A blob of at most `undivided` bytes,
    if the reader says so, is not asked for parts.
    """

    @property
    def name(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """One after the other, so that not all are in memory; the uri of each begins with the container's and a slash.

        Raises:
            DocumentError: it is not what its name says, or is made to fill the memory or to leave its folder.
        """


_UNSUSPICIOUS = 50_000_000


@dataclass(frozen=True)
class ArchiveLimits(Value):
    """How much may be in an archive.

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

    def allowed(self, packed: int) -> int:
        """The unpacked bytes allowed for an archive of this size."""
        return min(self.size, max(_UNSUSPICIOUS, self.ratio * packed))


LIMITS = ArchiveLimits()


def is_container(reader: object) -> TypeGuard[Container]:
    """Whether a reader unpacks blobs; asked for every file, so `isinstance` of a protocol is too slow."""
    return hasattr(reader, "parts")


@cache
def is_pattern(known: str) -> bool:
    """Whether a reader is named for a pattern of names, not for a suffix."""
    return not known.startswith(".") or any(mark in known for mark in "*?[/")


def reader_of(name: str, readers: Mapping[str, FileReader]) -> FileReader | None:
    """The reader for a file of this name; None where no reader knows it.

    A pattern with a slash is compared with the whole name, one without with what follows the last slash; case does not
    count. The longer of two suffixes counts: `.tar.gz` before `.gz`.

    >>> from spolia.indexing.readers.registry import by_suffix
    >>> reader_of("Thesis.DOCX", by_suffix()), reader_of("photo.xyz", by_suffix())
    (DocxReader(), None)
    """
    whole = name.lower()
    last = whole.rpartition("/")[2]
    for pattern, reader in readers.items():
        if not is_pattern(pattern):  # patterns come first
            break
        if fnmatchcase(whole if "/" in pattern else last, pattern):
            return reader
    dot = last.rfind(".")
    if dot <= 0:
        return None
    before = last.rfind(".", 0, dot)
    return (readers.get(last[before:]) if before > 0 else None) or readers.get(last[dot:])


def for_web(reader: FileReader) -> FileReader:
    """The reader that reads the same format where it comes from the web; most have no other."""
    other: Callable[[], FileReader] = getattr(reader, "for_web", lambda: reader)
    return other()


def versioned(reader: FileReader) -> str:
    """A reader as the rows of its sources name it.

    >>> from spolia.indexing.readers.markup.markdown import MarkdownReader
    >>> versioned(MarkdownReader())
    'markdown 4'
    """
    return f"{reader.name} {reader.version}"
