"""Archives: ZIP, TAR and single packed files. Each member is read as a blob of its own, within limits."""

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
from spolia.indexing.readers.reader import LIMITS, ArchiveLimits, Blob, Reading, nonzero_counts
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Value

_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = b"PK\x01\x02"
# The end record (22 bytes) and its locator (20) stand before a comment of at most 65,535 bytes.
_LONGEST_COMMENT = 65_535 + 22 + 20
_LARGEST_DIRECTORY = 100_000_000


def refuse_many(file: BinaryIO, uri: str, limit: int) -> None:
    """Refuse an archive of more entries than are allowed, by its directory, whatever number that states. Raises
    DocumentError where it has more."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _LONGEST_COMMENT))
    tail = file.read()
    end_record = tail.rfind(_END)
    if end_record < 0 or len(tail) < end_record + 22:
        return  # not an archive: opening it raises the error
    (size,) = struct.unpack_from("<I", tail, end_record + 12)
    if (locator := tail.rfind(_LOCATOR_64, 0, end_record)) >= 0 and len(tail) >= locator + 16:
        # The offset may be any number, and a file cannot be read there: the remainder keeps it within.
        file.seek(struct.unpack_from("<Q", tail, locator + 8)[0] % (end + 1))
        record = file.read(56)
        if record.startswith(_END_64) and len(record) == 56:
            (size,) = struct.unpack_from("<Q", record, 40)
    directory_end = end - len(tail) + end_record
    file.seek(max(0, directory_end - size))
    # zipfile makes an object of each entry, so count the entries before it opens the file.
    directory = file.read(min(size, _LARGEST_DIRECTORY))
    if (count := directory.count(_ENTRY)) > limit or size > _LARGEST_DIRECTORY:
        raise UnsafeDocument(
            f"{uri} has {max(count, size // 100)} entries or more; {limit} are allowed. Unpack it, or split it."
        )


def member_name(stored_name: str) -> str:
    """Return a member's name with `/`, in characters that can be written. `zipfile` reads names that are not marked as
    UTF-8 as CP437.

    >>> member_name("a\\\\b.txt"), member_name("Caf├⌐.txt")
    ('a/b.txt', 'Café.txt')
    """
    with suppress(UnicodeEncodeError, UnicodeDecodeError):
        stored_name = stored_name.encode("cp437").decode("utf-8")
    stored_name = stored_name.replace("\\", "/")
    try:
        return stored_name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return stored_name.encode("utf-8", "backslashreplace").decode()


_PIECE = 1 << 20
IN_MEMORY = 16_000_000
"""Bytes of a member that are kept in memory; a larger one is in a file until the next one is asked for."""
_DRIVE = re.compile(r"[A-Za-z]:")


def refuse_size(blob: Blob, unpacked_size: int, limits: ArchiveLimits) -> None:
    """Guard against decompression bombs. Raises UnsafeDocument if the unpacked bytes exceed the limit."""
    if unpacked_size > (limit := limits.unpacked_limit(blob.size)):
        raise UnsafeDocument(
            f"{blob.uri} would unpack from {blob.size} to {unpacked_size} bytes or more, and {limit} are allowed for "
            "its size: it may be made to fill the disk. Unpack it yourself, if you trust it."
        )


def refuse_outside(blob: Blob, name: str) -> None:
    """Refuse a member whose name leads out of the archive. Raises UnsafeDocument where it begins at a root or a drive,
    or goes up."""
    if name.startswith("/") or _DRIVE.match(name) or ".." in name.split("/"):
        raise UnsafeDocument(
            f"{blob.uri} holds a file named {name!r}, which would be outside of it: it is made to overwrite other "
            "files. Nothing of it is read from there on."
        )


class Unpacker:
    """Unpacker of an archive's members. It counts the bytes that come out, whatever the archive states."""

    def __init__(self, blob: Blob, limits: ArchiveLimits, folder: Path) -> None:
        self.blob, self.limits, self._folder = blob, limits, folder
        self._size = 0

    def unpack_member(self, name: str, file: IO[bytes]) -> Blob:
        """Unpack one file. The previous one is deleted if it was in a temporary file."""
        uri = f"{self.blob.uri}/{posixpath.normpath(name)}"
        pieces, size = list[bytes](), 0
        while size <= IN_MEMORY and (piece := file.read(_PIECE)):
            self._count(len(piece))  # counted as it comes out: what an archive states is not believed
            pieces.append(piece)
            size += len(piece)
        if size <= IN_MEMORY:
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
def open_unpacker(blob: Blob, limits: ArchiveLimits) -> Iterator[Unpacker]:
    """Open an unpacker. At the end it deletes its files."""
    with TemporaryDirectory(prefix="spolia-") as folder:
        yield Unpacker(blob, limits, Path(folder))


_IS_LOCKED = 0x1
MEMBER_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, IndexError,
    OverflowError, RuntimeError,
)  # fmt: skip
"""What the standard library raises for a member of a ZIP archive that is damaged."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


@dataclass(frozen=True)
class ZipReader(Value):
    """Reader of ZIP archives. Each file is a part. Links and locked files count as dropped; hidden ones are ignored.

    Refused are archives that hold a name outside of them, too many entries, or more bytes than are allowed, by what
    they state and by what comes out.
    """

    limits: ArchiveLimits = LIMITS

    name = "zip"
    version = 1
    media_type = "application/zip"
    suffixes = (".zip",)
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        with _open_zip(blob, self.limits) as archive:
            dropped = Counter(reason for member in archive.infolist() if (reason := _drop_reason(member)))
        return Reading(blob.document(self, ""), dropped=nonzero_counts(dropped))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the files one by one. A large one is in a temporary file until the next one is requested."""
        failures = UnitFailures()
        with _open_zip(blob, self.limits) as archive, open_unpacker(blob, self.limits) as out:
            for member in archive.infolist():
                name = member_name(member.filename)
                if not member.is_dir() and not _drop_reason(member) and not is_hidden(name):
                    part = failures.attempt("file", partial(_unpack_zip_member, archive, member, out, name), None)
                    if part is not None:
                        yield part
        failures.raise_any(blob.uri)


def _unpack_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, out: Unpacker, name: str) -> Blob:
    with archive.open(member) as file:
        return out.unpack_member(name, file)


def is_hidden(name: str) -> bool:
    """Return whether a file is not the author's: hidden, or a resource fork of macOS."""
    return any(part.startswith((".", "~$")) or part == "__MACOSX" for part in name.split("/"))


@contextmanager
def _open_zip(blob: Blob, limits: ArchiveLimits) -> Iterator[zipfile.ZipFile]:
    with _report_damage(blob, "ZIP archive", MEMBER_ERRORS), blob.open() as file:
        refuse_many(file, blob.uri, limits.entries)
        with zipfile.ZipFile(file) as archive:
            _refuse_unsafe(blob, archive, limits)
            yield archive


def _refuse_unsafe(blob: Blob, archive: zipfile.ZipFile, limits: ArchiveLimits) -> None:
    members = [member for member in archive.infolist() if not member.is_dir()]
    for member in members:
        refuse_outside(blob, member_name(member.filename))
    refuse_size(blob, sum(member.file_size for member in members), limits)
    if members and all(member.flag_bits & _IS_LOCKED for member in members):
        raise EncryptedDocument(f"{blob.uri} is locked with a password. Unpack it, or pack it without one.")


def _drop_reason(member: zipfile.ZipInfo) -> str:
    """Return why a member is not read; empty if it is."""
    if member.flag_bits & _IS_LOCKED:
        return "locked files"
    mode = member.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "links and special files"
    return "" if member.compress_type in _COMPRESSIONS else "files packed in a way that is not known"


_LARGEST_HEADER = 4_000_000
_PACKED: dict[bytes, Callable[[BinaryIO], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),  # type: ignore[dict-item,return-value]
    b"BZ": bz2.BZ2File,
    b"\xfd7": lzma.LZMAFile,
}
_TAR_ERRORS = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, OverflowError, IndexError)


@dataclass(frozen=True)
class TarReader(Value):
    """Reader of TAR archives, also packed with gzip, bzip2 or xz. Each file is a part, read in one pass.

    Links, devices and pipes are counted as dropped; the limits are those of ZIP archives.
    """

    limits: ArchiveLimits = LIMITS

    name = "tar"
    version = 1
    media_type = "application/x-tar"
    suffixes = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        dropped = Counter("links and special files" for _, file in self._members(blob) if file is None)
        return Reading(blob.document(self, ""), dropped=nonzero_counts(dropped))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the files one by one. A large one is in a temporary file until the next one is requested."""
        failures = UnitFailures()
        with _report_damage(blob), open_unpacker(blob, self.limits) as out:
            for name, file in self._members(blob):
                if file is not None and not is_hidden(name):
                    part = failures.attempt("file", partial(out.unpack_member, name, file), None)
                    if part is not None:
                        yield part
        failures.raise_any(blob.uri)

    def _members(self, blob: Blob) -> Iterator[tuple[str, IO[bytes] | None]]:
        """Yield names and files; None in place of a link or device."""
        with _open_stream(blob, self.limits) as stream:
            fileobj: Any = stream
            with tarfile.open(fileobj=fileobj, mode="r|", errorlevel=2) as archive:
                for _ in range(self.limits.entries + 1):
                    # tarfile reads long names and extended headers into memory.
                    stream.header_left = _LARGEST_HEADER
                    if (member := archive.next()) is None:
                        return
                    stream.header_left = None
                    archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                    yield from self._check_member(blob, archive, member)
            raise UnsafeDocument(f"{blob.uri} has more than {self.limits.entries} entries. Unpack it, or split it.")

    def _check_member(
        self, blob: Blob, archive: tarfile.TarFile, member: tarfile.TarInfo
    ) -> Iterator[tuple[str, IO[bytes] | None]]:
        name = member_name(member.name.removeprefix("./"))
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


class _CountedStream:
    """Stream that counts the unpacked bytes of a file. Before a member's content it allows no more bytes than a header
    has."""

    def __init__(self, blob: Blob, file: IO[bytes], limits: ArchiveLimits) -> None:
        self._blob, self._file, self._limits = blob, file, limits
        self._size = 0
        self.header_left: int | None = _LARGEST_HEADER  # bytes; None within a member's content

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._size += len(data)
        refuse_size(self._blob, self._size, self._limits)
        if self.header_left is not None:
            self.header_left -= len(data)
            if self.header_left < 0:
                raise UnsafeDocument(
                    f"{self._blob.uri} has a header of more than {_LARGEST_HEADER} bytes: it may fill the memory. "
                    "Unpack it yourself, if you trust it."
                )
        return data


@contextmanager
def _open_stream(blob: Blob, limits: ArchiveLimits) -> Iterator[_CountedStream]:
    with _report_damage(blob), blob.open() as file:
        magic = file.read(2)  # by its content: a .tar is often packed, and a .tgz not always
        file.seek(0)
        yield _CountedStream(blob, _PACKED[magic](file) if magic in _PACKED else file, limits)


@contextmanager
def _report_damage(
    blob: Blob, kind: str = "archive", damage: tuple[type[Exception], ...] = _TAR_ERRORS
) -> Iterator[None]:
    """Raise a DocumentError for what a library raises on a damaged archive."""
    try:
        yield
    except SpoliaError:
        raise
    except damage as error:
        raise DocumentError(
            f"{blob.uri} is not a readable {kind}: {type(error).__name__}: {error}. Fetch it again, or pack it again."
        ) from error


@dataclass(frozen=True)
class PackedReader(Value):
    """Reader of single files packed with gzip, bzip2 or xz: `notes.txt.gz` has the part `notes.txt.gz/notes.txt`."""

    limits: ArchiveLimits = LIMITS

    name = "packed"
    version = 1
    media_type = "application/gzip"
    suffixes = (".gz", ".bz2", ".xz")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        with blob.open() as file:
            magic = file.read(2)
        if magic not in _PACKED:
            raise DocumentError(
                f"{blob.uri} is not a packed file: it begins with {magic!r}. Give it the suffix of its format."
            )
        return Reading(blob.document(self, ""))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the single file."""
        self.read(blob)
        with _open_stream(blob, self.limits) as stream, open_unpacker(blob, self.limits) as out:
            stream.header_left = None  # a packed file has no headers within
            file_name = blob.uri.rpartition("/")[2]
            yield out.unpack_member(file_name[: file_name.rfind(".")], stream)  # type: ignore[arg-type]
