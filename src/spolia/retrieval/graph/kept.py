"""Links in a file of their own: derived, so that a file that is missing or damaged is only written again."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from spolia.retrieval.graph.edges import Edges, Similar
from spolia.retrieval.graph.links import Links
from spolia.retrieval.graph.similarity import Neighbours
from spolia.stores.files import fsync_file
from spolia.stores.tables.rows import StoreVersion

Nearest = dict[Edges, Neighbours]

SUFFIX = ".npz"
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
_PARTS = ("keys", "starts", "targets", "weights")


def kept(path: Path, build: Callable[[], tuple[Links, Nearest]], edges: Sequence[Edges]) -> Links:
    """The links in a file; they are built and written where there is none that can be read.

    Where nothing can be written they are only built.

    Args:
        build: makes the links, and the nearest neighbours that some of them were made of.
        edges: the kinds of links, by whose places the neighbours are kept.
    """
    try:
        return _read(path)
    except _DAMAGED:
        found, nearest = build()
    parts = {name: getattr(found, name) for name in _PARTS}
    for place, kind in enumerate(edges):
        if kind in nearest:
            parts |= {f"near{place}": nearest[kind].near, f"cosines{place}": nearest[kind].cosines}
    with suppress(OSError):  # a store that may only be read, or a full disk: the next process builds them again
        _write(path, parts)
    return found


def earlier(path: Path, edges: Sequence[Edges]) -> Nearest:
    """The nearest neighbours in a file like this of the latest other generation that can be read; else none."""
    there = [other for other in path.parent.glob(f"g*-{path.name.partition('-')[2]}") if other != path]
    for other in sorted(there, key=_version, reverse=True):
        with suppress(*_DAMAGED), np.load(other, allow_pickle=False) as parts:
            keys, found = parts["keys"], Nearest()
            for place, kind in enumerate(edges):
                if isinstance(kind, Similar):
                    near, cosines = parts[f"near{place}"], parts[f"cosines{place}"]
                    if not near.shape == cosines.shape == (len(keys), kind.neighbours):
                        raise ValueError(f"The sizes in {other} do not fit.")
                    found[kind] = Neighbours(keys, near, cosines)
            return found
    return {}


def drop_others(folder: Path, is_kept: Callable[[StoreVersion], bool]) -> None:
    """Remove the files of versions that are gone."""
    for path in folder.glob(f"g*{SUFFIX}"):
        if (version := _version(path)).generation >= 0 and not is_kept(version):
            path.unlink(missing_ok=True)


def _version(path: Path) -> StoreVersion:
    """That a file is of; -1 for none."""
    number, _, id = path.name[1:].partition("-")[0].partition(".")
    return StoreVersion(int(number), id) if number.isdecimal() else StoreVersion(-1, "")


def _read(path: Path) -> Links:
    """The links of a file; each part has a checksum, which is compared."""
    with np.load(path, allow_pickle=False) as found:
        links = Links(**{name: found[name] for name in _PARTS})
    if len(links.starts) != len(links.keys) + 1 or not len(links.targets) == len(links.weights) == links.starts[-1]:
        raise ValueError(f"The sizes in {path} do not fit.")
    return links


def _write(path: Path, parts: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **parts)
        fsync_file(Path(temporary))
        os.rename(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
