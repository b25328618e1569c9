"""TAR archives, packed or not, and single packed files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

from spolia.errors import DocumentError, SpoliaError
from spolia.indexing.readers.archives.zips import (
    LIMITS,
    ArchiveLimits,
    is_hidden,
    name_of,
    refuse_outside,
    refuse_size,
    unpacking,
)
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value

_LARGEST_HEADER = 4_000_000
_PIECE = 1 << 20
_PACKED: dict[bytes, Callable[[BinaryIO], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),  # type: ignore[dict-item,return-value]
    b"BZ": bz2.BZ2File,
    b"\xfd7": lzma.LZMAFile,
}
_ERRORS = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, OverflowError, IndexError)


@dataclass(frozen=True)
class TarReader(Value):
    """Reads TAR archives, also packed with gzip, bzip2 or xz: each file is a part, read in one pass.

    Links, devices and pipes are counted as dropped; the same is refused as of ZIP archives.
    """

    limits: ArchiveLimits = LIMITS

    name = "tar"
    version = 1
    media_type = "application/x-tar"
    suffixes = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        dropped = Counter("links and special files" for _, file in self._members(blob) if file is None)
        return Reading(blob.document(self, ""), dropped=tuple(sorted(dropped.items())))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The files, one after the other; a large one is in a file that is gone when the next one is asked for."""
        with _told(blob), unpacking(blob, self.limits) as out:
            for name, file in self._members(blob):
                if file is not None and not is_hidden(name):
                    yield out.member(name, file)

    def _members(self, blob: Blob) -> Iterator[tuple[str, IO[bytes] | None]]:
        """Names and files; None for what is none."""
        with _stream(blob, self.limits) as stream:
            given: Any = stream
            with tarfile.open(fileobj=given, mode="r|", errorlevel=2) as archive:
                for _ in range(self.limits.entries + 1):
                    stream.wait_for_header()
                    if (member := archive.next()) is None:
                        return
                    stream.wait_for_content()
                    archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                    yield from self._checked(blob, archive, member)
            raise DocumentError(f"{blob.uri} has more than {self.limits.entries} entries. Unpack it, or split it.")

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
    """The unpacked bytes of a file, counted. What stands before a member's content is no larger than a header is."""

    def __init__(self, blob: Blob, file: IO[bytes], limits: ArchiveLimits) -> None:
        self._blob, self._file, self._limits = blob, file, limits
        self._size = self._since = 0
        self._in_header = True

    def wait_for_header(self) -> None:
        self._in_header, self._since = True, 0

    def wait_for_content(self) -> None:
        self._in_header = False

    def read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._size += len(found)
        self._since += len(found)
        refuse_size(self._blob, self._size, self._limits)
        if self._in_header and self._since > _LARGEST_HEADER:
            raise DocumentError(
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
def _told(blob: Blob) -> Iterator[None]:
    """Tell damage as what it is."""
    try:
        yield
    except SpoliaError:
        raise
    except _ERRORS as error:
        raise DocumentError(
            f"{blob.uri} is no archive that can be read: {type(error).__name__}: {error}. "
            "Fetch it again, or pack it again."
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
                f"{blob.uri} is no packed file: it begins with {begin!r}. Give it the suffix of its format."
            )
        return Reading(blob.document(self, ""))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The one file."""
        self.read(blob)
        with _stream(blob, self.limits) as stream, unpacking(blob, self.limits) as out:
            stream.wait_for_content()
            inner = blob.uri.rpartition("/")[2]
            yield out.member(inner[: inner.rfind(".")], stream)  # type: ignore[arg-type]
