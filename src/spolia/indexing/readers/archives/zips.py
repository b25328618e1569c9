"""ZIP archives."""

from __future__ import annotations

import lzma
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spolia.errors import DocumentError, EncryptedDocument, SpoliaError
from spolia.indexing.readers.archives.limits import (
    LIMITS,
    ArchiveLimits,
    name_of,
    refuse_many,
    refuse_outside,
    refuse_size,
    unpacking,
)
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value

_IS_LOCKED = 0x1
_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, IndexError,
    OverflowError, RuntimeError,
)  # fmt: skip
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
        return Reading(blob.document(self, ""), dropped=tuple(sorted(dropped.items())))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The files, one after the other; a large one is in a file that is gone when the next one is asked for."""
        with _opened(blob, self.limits) as archive, unpacking(blob, self.limits) as out:
            for member in archive.infolist():
                name = name_of(member.filename)
                if not member.is_dir() and not _dropped(member) and not is_hidden(name):
                    with archive.open(member) as file:
                        found = out.member(name, file)
                    yield found


def is_hidden(name: str) -> bool:
    """Whether a file is none of the author's: hidden, or a resource fork of macOS."""
    return any(part.startswith((".", "~$")) or part == "__MACOSX" for part in name.split("/"))


@contextmanager
def _opened(blob: Blob, limits: ArchiveLimits) -> Iterator[zipfile.ZipFile]:
    try:
        with blob.open() as file:
            refuse_many(file, blob.uri, limits.entries)
            with zipfile.ZipFile(file) as archive:
                _refuse(blob, archive, limits)
                yield archive
    except SpoliaError:
        raise
    except _ERRORS as error:
        raise DocumentError(
            f"{blob.uri} is no ZIP archive that can be read: {type(error).__name__}: {error}. "
            "Fetch it again, or pack it again."
        ) from error


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
