"""Arrays in files that can be made again: each file is there whole, or not at all."""

import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from spolia.stores.files import fsync

SUFFIX = ".npz"
DAMAGED = (
    *(OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error),
    *(MemoryError, RecursionError, SyntaxError, TokenError, NotImplementedError),  # of headers that say too much
)
"""What numpy raises for a file that is not as it was written."""


def write_arrays(path: Path, parts: Mapping[str, Any]) -> None:
    """Make arrays durable in one file, each with a checksum, which is compared when it is read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **parts)
        fsync(Path(temporary))
        os.rename(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
