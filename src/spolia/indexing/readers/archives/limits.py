"""What an archive may not do: leave its folder, or fill the memory or the disk."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from spolia.errors import DocumentError
from spolia.indexing.readers.reading import Blob
from spolia.types import Value

_PIECE = 1 << 20
_UNSUSPICIOUS = 50_000_000
IN_MEMORY = 16_000_000
"""Bytes of a member that are kept in memory; a larger one is in a file until the next one is asked for."""
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class Limits(Value):
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
        """Unpacked bytes of an archive of so many packed ones."""
        return min(self.size, max(_UNSUSPICIOUS, self.ratio * packed))


LIMITS = Limits()


def refuse_size(blob: Blob, unpacked: int, limits: Limits) -> None:
    """Refuse what is made to grow.

    Raises:
        DocumentError: the unpacked bytes are more than are allowed.
    """
    if unpacked > (allowed := limits.allowed(blob.size)):
        raise DocumentError(
            f"{blob.uri} would unpack from {blob.size} to {unpacked} bytes or more, and {allowed} are allowed for its "
            "size: it may be made to fill the disk. Unpack it yourself, if you trust it."
        )


def refuse_outside(blob: Blob, name: str) -> None:
    """Refuse a member whose name leads out of the archive.

    Raises:
        DocumentError: it begins at a root or a drive, or goes up.
    """
    if name.startswith("/") or _DRIVE.match(name) or ".." in name.split("/"):
        raise DocumentError(
            f"{blob.uri} holds a file named {name!r}, which would be outside of it: it is made to overwrite other "
            "files. Nothing of it is read from there on."
        )


class Unpacking:
    """Members on their way out of an archive: what comes out is counted, whatever the archive states.

    Args:
        blob: the archive.
    """

    def __init__(self, blob: Blob, limits: Limits, folder: Path) -> None:
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
def unpacking(blob: Blob, limits: Limits) -> Iterator[Unpacking]:
    """Unpack an archive; at the end nothing of it is on the disk."""
    with TemporaryDirectory(prefix="spolia-") as folder:
        yield Unpacking(blob, limits, Path(folder))
