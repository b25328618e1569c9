"""The bytes of a file as they were at one moment."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkstemp

from spolia.errors import DocumentError
from spolia.types import Value

ATTEMPTS = 3
SETTLED_NS = 20_000_000
"""A file that was changed later than this before now could change again without its time telling: the clocks of file
systems tick every few milliseconds. It is waited for."""
IN_MEMORY = 16_000_000
"""Bytes of a file that are kept in memory; a larger one is copied."""
LARGEST_BYTES = 20_000_000_000
_PIECE = 1 << 20
LATEST_NS = 2**63 - 1
"""The year 2262; a later time of change, which some file systems have, counts as this."""


@dataclass(frozen=True)
class Loaded(Value):
    """All bytes of a file, and its size and times when they were read.

    Args:
        content: the bytes; of a large file, the path of a copy, which nobody changes.
        created_ns: where the file system does not tell, the earlier one of the times of change of content and of name.
        accessed_ns: before this reading.
    """

    content: bytes | Path = field(repr=False)
    size: int
    mtime_ns: int
    created_ns: int = 0
    accessed_ns: int = 0


def load(path: str, *, follow: bool = False, spool: Path | None = None) -> Loaded:
    """Read a file that does not change meanwhile.

    Args:
        path: of a file; nothing else is opened, so that no pipe can block.
        follow: read what a link leads to.
        spool: folder for copies of large files; None where all are read into memory.

    Raises:
        OSError: it cannot be read, or is gone.
        DocumentError: it is too large, no file, or changes all the time.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(attempt * SETTLED_NS / 1e9)
        if (loaded := _attempt(path, follow, spool)) is not None:
            return loaded
    raise DocumentError(
        f"It changed while it was read, {ATTEMPTS} times. Index again when whoever writes it has finished."
    )


def _attempt(path: str, follow: bool, spool: Path | None) -> Loaded | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        before = os.fstat(descriptor)
        _refuse(before)
        if 0 <= time.time_ns() - before.st_mtime_ns < SETTLED_NS:
            time.sleep(SETTLED_NS / 1e9)
        is_large = spool is not None and before.st_size > IN_MEMORY
        content = _copy(descriptor, spool) if spool and is_large else _bytes(descriptor, before.st_size)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    read = len(content) if isinstance(content, bytes) else content.stat().st_size
    if (before.st_size, before.st_mtime_ns, read) != (after.st_size, after.st_mtime_ns, after.st_size):
        if isinstance(content, Path):
            content.unlink()
        return None
    made = getattr(before, "st_birthtime_ns", min(before.st_mtime_ns, before.st_ctime_ns))
    times = (min(time_ns, LATEST_NS) for time_ns in (after.st_mtime_ns, made, before.st_atime_ns))
    return Loaded(content, after.st_size, *times)


def _refuse(there: os.stat_result) -> None:
    if not stat.S_ISREG(there.st_mode):
        raise DocumentError("It is no file any more. Index again.")
    if there.st_size > LARGEST_BYTES:
        raise DocumentError(
            f"It has {there.st_size} bytes; a document has at most {LARGEST_BYTES}. Split it, for example: "
            "split --line-bytes=100M FILE"
        )


def _bytes(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    pieces = [data]
    while pieces[-1]:
        pieces.append(os.read(descriptor, size))
    return b"".join(pieces)


def _copy(descriptor: int, spool: Path) -> Path:
    copy, name = mkstemp(dir=spool)
    with open(copy, "wb") as out:
        while piece := os.read(descriptor, _PIECE):
            out.write(piece)
    return Path(name)
