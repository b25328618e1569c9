"""Archives: ZIP, TAR and single packed files. Their members are read as blobs of their own, within limits."""

import bz2
import gzip
import lzma
import posixpath
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, BinaryIO

from spolia.errors import DocumentError, EncryptedDocument, SpoliaError, UnsafeDocument
from spolia.indexing.readers.reader import LIMITS, ArchiveLimits, Blob, Reading, counted
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Value

_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = b"PK\x01\x02"
_LONGEST_COMMENT = 65_535 + 22 + 20
_LARGEST_DIRECTORY = 100_000_000


def refuse_many(file: BinaryIO, uri: str, most: int) -> None:
    """Refuse an archive of more entries than are allowed, by its directory, whatever number that states. Raises
    DocumentError where it has more."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _LONGEST_COMMENT))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        return  # not an archive: opening it raises the error
    (size,) = struct.unpack_from("<I", tail, at + 12)
    if (located := tail.rfind(_LOCATOR_64, 0, at)) >= 0 and len(tail) >= located + 16:
        file.seek(struct.unpack_from("<Q", tail, located + 8)[0] % (end + 1))
        record = file.read(56)
        if record.startswith(_END_64) and len(record) == 56:
            (size,) = struct.unpack_from("<Q", record, 40)
    directory_end = end - len(tail) + at
    file.seek(max(0, directory_end - size))
    directory = file.read(min(size, _LARGEST_DIRECTORY))
    if (count := directory.count(_ENTRY)) > most or size > _LARGEST_DIRECTORY:
        raise UnsafeDocument(
            f"{uri} has {max(count, size // 100)} entries or more; {most} are allowed. Unpack it, or split it."
        )


def name_of(said: str) -> str:
    """The name of a member with `/`, in characters that can be written; names that are no UTF-8 were read as CP437.

    >>> name_of("a\\\\b.txt"), name_of("Caf├⌐.txt")
    ('a/b.txt', 'Café.txt')
    """
    with suppress(UnicodeEncodeError, UnicodeDecodeError):
        said = said.encode("cp437").decode("utf-8")
    said = said.replace("\\", "/")
    try:
        return said.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return said.encode("utf-8", "backslashreplace").decode()


_PIECE = 1 << 20
IN_MEMORY = 16_000_000
"""Bytes of a member that are kept in memory; a larger one is in a file until the next one is asked for."""
_DRIVE = re.compile(r"[A-Za-z]:")


def refuse_size(blob: Blob, unpacked: int, limits: ArchiveLimits) -> None:
    """Guard against decompression bombs. Raises UnsafeDocument if the unpacked bytes exceed the limit."""
    if unpacked > (allowed := limits.allowed(blob.size)):
        raise UnsafeDocument(
            f"{blob.uri} would unpack from {blob.size} to {unpacked} bytes or more, and {allowed} are allowed for its "
            "size: it may be made to fill the disk. Unpack it yourself, if you trust it."
        )


def refuse_outside(blob: Blob, name: str) -> None:
    """Refuse a member whose name leads out of the archive. Raises UnsafeDocument where it begins at a root or a drive,
    or goes up."""
    if name.startswith("/") or _DRIVE.match(name) or ".." in name.split("/"):
        raise UnsafeDocument(
            f"{blob.uri} holds a file named {name!r}, which would be outside of it: it is made to overwrite other "
            "files. Nothing of it is read from there on."
        )


class Unpacking:
    """Members on their way out of an archive: what comes out is counted, whatever the archive states."""

    def __init__(self, blob: Blob, limits: ArchiveLimits, folder: Path) -> None:
        self.blob, self.limits, self._folder = blob, limits, folder
        self._size = 0

    def member(self, name: str, file: IO[bytes]) -> Blob:
        """A file of the archive. The one before it is gone, if it was a large one."""
        uri = f"{self.blob.uri}/{posixpath.normpath(name)}"
        pieces, held = list[bytes](), 0
        while held <= IN_MEMORY and (piece := file.read(_PIECE)):
            self._count(len(piece))
            pieces.append(piece)
            held += len(piece)
        if held <= IN_MEMORY:
            return Blob(uri, b"".join(pieces))
        path = self._folder / "member"
        path.unlink(missing_ok=True)
        with path.open("wb") as out:
            out.writelines(pieces)
            pieces.clear()
            while piece := file.read(_PIECE):
                self._count(len(piece))
                out.write(piece)
        return Blob(uri, path)

    def _count(self, size: int) -> None:
        self._size += size
        refuse_size(self.blob, self._size, self.limits)


@contextmanager
def unpacking(blob: Blob, limits: ArchiveLimits) -> Iterator[Unpacking]:
    """Unpack an archive; at the end nothing of it is on the disk."""
    with TemporaryDirectory(prefix="spolia-") as folder:
        yield Unpacking(blob, limits, Path(folder))


_IS_LOCKED = 0x1
MEMBER_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, IndexError,
    OverflowError, RuntimeError,
)  # fmt: skip
"""What the standard library raises for a member of a ZIP archive that is damaged."""
_KNOWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


@dataclass(frozen=True)
class ZipReader(Value):
    """Reads ZIP archives: each file is a part. Links and locked files are counted as dropped, hidden ones passed over.

    Refused are archives that hold a name outside of them, too many entries, or more bytes than are allowed, by what
    they state and by what comes out.
    """

    limits: ArchiveLimits = LIMITS

    name = "zip"
    version = 1
    media_type = "application/zip"
    suffixes = (".zip",)
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with _opened(blob, self.limits) as archive:
            dropped = Counter(reason for member in archive.infolist() if (reason := _dropped(member)))
        return Reading(blob.document(self, ""), dropped=counted(dropped))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The files, one after the other; a large one is in a file that is gone when the next one is asked for."""
        failures = UnitFailures()
        with _opened(blob, self.limits) as archive, unpacking(blob, self.limits) as out:
            for member in archive.infolist():
                name = name_of(member.filename)
                if not member.is_dir() and not _dropped(member) and not is_hidden(name):
                    found = failures.attempt("file", partial(_member, archive, member, out, name), None)
                    if found is not None:
                        yield found
        failures.raise_any(blob.uri)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, out: Unpacking, name: str) -> Blob:
    with archive.open(member) as file:
        return out.member(name, file)


def is_hidden(name: str) -> bool:
    """Whether a file is none of the author's: hidden, or a resource fork of macOS."""
    return any(part.startswith((".", "~$")) or part == "__MACOSX" for part in name.split("/"))


@contextmanager
def _opened(blob: Blob, limits: ArchiveLimits) -> Iterator[zipfile.ZipFile]:
    with _told(blob, "ZIP archive", MEMBER_ERRORS), blob.open() as file:
        refuse_many(file, blob.uri, limits.entries)
        with zipfile.ZipFile(file) as archive:
            _refuse(blob, archive, limits)
            yield archive


def _refuse(blob: Blob, archive: zipfile.ZipFile, limits: ArchiveLimits) -> None:
    members = [member for member in archive.infolist() if not member.is_dir()]
    for member in members:
        refuse_outside(blob, name_of(member.filename))
    refuse_size(blob, sum(member.file_size for member in members), limits)
    if members and all(member.flag_bits & _IS_LOCKED for member in members):
        raise EncryptedDocument(f"{blob.uri} is locked with a password. Unpack it, or pack it without one.")


def _dropped(member: zipfile.ZipInfo) -> str:
    """Why a member is not read; empty if it is."""
    if member.flag_bits & _IS_LOCKED:
        return "locked files"
    mode = member.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "links and special files"
    return "" if member.compress_type in _KNOWN else "files packed in a way that is not known"


_LARGEST_HEADER = 4_000_000
_PACKED: dict[bytes, Callable[[BinaryIO], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),  # type: ignore[dict-item,return-value]
    b"BZ": bz2.BZ2File,
    b"\xfd7": lzma.LZMAFile,
}
_TAR_ERRORS = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, OverflowError, IndexError)


@dataclass(frozen=True)
class TarReader(Value):
    """Reads TAR archives, also packed with gzip, bzip2 or xz: each file is a part, read in one pass.

    Links, devices and pipes are counted as dropped; the limits are those of ZIP archives.
    """

    limits: ArchiveLimits = LIMITS

    name = "tar"
    version = 1
    media_type = "application/x-tar"
    suffixes = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        dropped = Counter("links and special files" for _, file in self._members(blob) if file is None)
        return Reading(blob.document(self, ""), dropped=counted(dropped))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The files, one after the other; a large one is in a file that is gone when the next one is asked for."""
        failures = UnitFailures()
        with _told(blob), unpacking(blob, self.limits) as out:
            for name, file in self._members(blob):
                if file is not None and not is_hidden(name):
                    found = failures.attempt("file", partial(out.member, name, file), None)
                    if found is not None:
                        yield found
        failures.raise_any(blob.uri)

    def _members(self, blob: Blob) -> Iterator[tuple[str, IO[bytes] | None]]:
        """Names and files; None for what is none."""
        with _stream(blob, self.limits) as stream:
            given: Any = stream
            with tarfile.open(fileobj=given, mode="r|", errorlevel=2) as archive:
                for _ in range(self.limits.entries + 1):
                    stream.header_left = _LARGEST_HEADER
                    if (member := archive.next()) is None:
                        return
                    stream.header_left = None
                    archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                    yield from self._checked(blob, archive, member)
            raise UnsafeDocument(f"{blob.uri} has more than {self.limits.entries} entries. Unpack it, or split it.")

    def _checked(
        self, blob: Blob, archive: tarfile.TarFile, member: tarfile.TarInfo
    ) -> Iterator[tuple[str, IO[bytes] | None]]:
        name = name_of(member.name.removeprefix("./"))
        if member.isdir():
            return
        refuse_outside(blob, name)
        if not member.isfile():
            yield name, None
            return
        refuse_size(blob, member.size, self.limits)
        if (file := archive.extractfile(member)) is not None:
            yield name, file
            while file.read(_PIECE):  # what was not asked for is counted as well
                pass


class _Stream:
    """The unpacked bytes of a file, counted. Bytes before a member's content are no more than a header has."""

    def __init__(self, blob: Blob, file: IO[bytes], limits: ArchiveLimits) -> None:
        self._blob, self._file, self._limits = blob, file, limits
        self._size = 0
        self.header_left: int | None = _LARGEST_HEADER  # bytes; None within a member's content

    def read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._size += len(found)
        refuse_size(self._blob, self._size, self._limits)
        if self.header_left is not None:
            self.header_left -= len(found)
            if self.header_left < 0:
                raise UnsafeDocument(
                    f"{self._blob.uri} has a header of more than {_LARGEST_HEADER} bytes: it may fill the memory. "
                    "Unpack it yourself, if you trust it."
                )
        return found


@contextmanager
def _stream(blob: Blob, limits: ArchiveLimits) -> Iterator[_Stream]:
    with _told(blob), blob.open() as file:
        begin = file.read(2)
        file.seek(0)
        yield _Stream(blob, _PACKED[begin](file) if begin in _PACKED else file, limits)


@contextmanager
def _told(blob: Blob, what: str = "archive", damage: tuple[type[Exception], ...] = _TAR_ERRORS) -> Iterator[None]:
    """Tell damage as what it is."""
    try:
        yield
    except SpoliaError:
        raise
    except damage as error:
        raise DocumentError(
            f"{blob.uri} is not a readable {what}: {type(error).__name__}: {error}. Fetch it again, or pack it again."
        ) from error


@dataclass(frozen=True)
class PackedReader(Value):
    """Reads single files packed with gzip, bzip2 or xz: `notes.txt.gz` has the part `notes.txt.gz/notes.txt`."""

    limits: ArchiveLimits = LIMITS

    name = "packed"
    version = 1
    media_type = "application/gzip"
    suffixes = (".gz", ".bz2", ".xz")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with blob.open() as file:
            begin = file.read(2)
        if begin not in _PACKED:
            raise DocumentError(
                f"{blob.uri} is not a packed file: it begins with {begin!r}. Give it the suffix of its format."
            )
        return Reading(blob.document(self, ""))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The one file."""
        self.read(blob)
        with _stream(blob, self.limits) as stream, unpacking(blob, self.limits) as out:
            stream.header_left = None
            inner = blob.uri.rpartition("/")[2]
            yield out.member(inner[: inner.rfind(".")], stream)  # type: ignore[arg-type]
