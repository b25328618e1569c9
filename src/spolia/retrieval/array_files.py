"""Arrays in files that can be made again: each file is there whole, or not at all."""

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
    """The arrays of a file as `write_arrays` makes them. They take no more memory than the file: none is compressed."""
    with zipfile.ZipFile(path) as members:
        held = members.infolist()
    if any(one.compress_type for one in held) or sum(one.file_size for one in held) > path.stat().st_size:
        raise ValueError(f"{path} would become larger than it is.")
    with np.load(path, allow_pickle=False) as found:
        yield found


def array_damage(path: Path) -> str:
    """What is wrong with a file of arrays, in words; empty if nothing is. All of it is read."""
    try:
        with read_arrays(path) as parts:
            for name in parts:
                parts[name]
    except DAMAGED as error:
        return f"{path} is damaged: {error}"
    return ""


def write_arrays(path: Path, parts: Mapping[str, Any]) -> None:
    """Make arrays durable in one file, each with a checksum, which is compared when it is read."""
    make_folder(path.parent)
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
