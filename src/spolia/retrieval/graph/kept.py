"""Links in a file of their own: derived, so that a file that is missing or damaged is only written again."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from spolia.retrieval.graph.links import Links
from spolia.stores.files import fsync_file

SUFFIX = ".npz"
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
_PARTS = ("keys", "starts", "targets", "weights")


def kept(path: Path, build: Callable[[], Links]) -> Links:
    """The links in a file; they are built and written where there is none that can be read.

    Where nothing can be written they are only built.
    """
    try:
        return _read(path)
    except _DAMAGED:
        found = build()
    with suppress(OSError):  # a store that may only be read, or a full disk: the next process builds them again
        _write(path, found)
    return found


def drop_others(folder: Path, is_kept: Callable[[int], bool]) -> None:
    """Remove the files of generations that are gone."""
    for path in folder.glob(f"g*{SUFFIX}"):
        generation = path.name[1:].partition("-")[0]
        if generation.isdecimal() and not is_kept(int(generation)):
            path.unlink(missing_ok=True)


def _read(path: Path) -> Links:
    """The links of a file; each part has a checksum, which is compared."""
    with np.load(path, allow_pickle=False) as found:
        links = Links(**{name: found[name] for name in _PARTS})
    if len(links.starts) != len(links.keys) + 1 or not len(links.targets) == len(links.weights) == links.starts[-1]:
        raise ValueError(f"The sizes in {path} do not fit.")
    return links


def _write(path: Path, links: Links) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **{name: getattr(links, name) for name in _PARTS})
        fsync_file(Path(temporary))
        os.rename(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
