"""Files and folders that survive a power cut once these functions have returned."""

from __future__ import annotations

import os
from pathlib import Path


def fsync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    _fsync(path, os.O_RDONLY)


def fsync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; a file with two names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(root, name))
            seen[found.st_dev, found.st_ino] = found.st_size
    return sum(seen.values())
