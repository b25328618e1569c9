"""Files of arrays that can be made again: written in one step, so that a reader sees a whole file or none."""

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from spolia.private_files import make_folder, protect
from spolia.stores.files import fsync

SUFFIX = ".npz"
DAMAGED = (
    *(OSError, ValueError, LookupError, EOFError, TypeError, zipfile.BadZipFile, zlib.error),
    *(MemoryError, RecursionError, SyntaxError, TokenError, NotImplementedError),  # of headers that say too much
)
"""What numpy raises for a file that is not as it was written."""


@contextmanager
def read_arrays(path: Path) -> Iterator[Mapping[str, Any]]:
    """Open a file that `write_arrays` made. It takes no more memory than the file, as nothing in it is compressed."""
    with zipfile.ZipFile(path) as members:
        members_info = members.infolist()
    # A small file that unpacks to more than its size could fill the memory: refuse it before numpy reads it.
    if (
        any(member.compress_type for member in members_info)
        or sum(member.file_size for member in members_info) > path.stat().st_size
    ):
        raise ValueError(f"{path} would become larger than it is.")
    with np.load(path, allow_pickle=False) as arrays:
        yield arrays


def array_damage(path: Path) -> str:
    """Read all of a file of arrays and return what is wrong with it, in words; empty if nothing is."""
    try:
        with read_arrays(path) as parts:
            for name in parts:
                # numpy reads an array, and compares its checksum, only when it is asked for.
                parts[name]
    except DAMAGED as error:
        return f"{path} is damaged: {error}"
    return ""


def write_arrays(path: Path, parts: Mapping[str, Any]) -> None:
    """Make arrays durable in one file, each with a checksum, which is compared when it is read."""
    make_folder(path.parent)
    # Written beside its place and renamed after fsync: a crash leaves the old file or the new one.
    descriptor, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **parts)
        protect(temporary)
        fsync(Path(temporary))
        os.rename(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
