"""Lexical indexes of a backend elsewhere: each machine makes them in a folder when it first reads a generation.

A new index starts from the newest one, with the difference of its keys and the live ones. One process makes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spolia.errors import StoreCorrupt
from spolia.private_files import make_folder, private, set_aside
from spolia.stores import lexical as lexical_package
from spolia.stores.backends import sql
from spolia.stores.backends.rows import StoreVersion, nodes_to_index
from spolia.stores.files import (
    LEXICAL,
    LOCK,
    damaged,
    fail_point,
    is_worn,
    lacks_columns,
    lexical_folder,
    shortened,
    translated,
)
from spolia.stores.manifest import Manifest

if TYPE_CHECKING:
    from spolia.stores.lexical.index_writer import Added
    from spolia.stores.open_store import OpenStore
    from spolia.stores.snapshot.snapshot import Snapshot

_AT_ONCE = 2_000


def followed(snapshot: Snapshot, group: str) -> Path:
    """The lexical index of a group at a generation, made if this machine does not have it."""
    store, manifest = snapshot.opened.folder, snapshot.manifest(group)
    target = index_folder(store, manifest, _published(snapshot, snapshot.indexes[group][0]))
    if shortened(target) or not _is_of_these_texts(target, manifest, snapshot.opened):
        with translated(snapshot.opened.store, "indexed"), _alone(store):
            if shortened(target) or not _is_of_these_texts(target, manifest, snapshot.opened):
                if target.exists():
                    set_aside(target, store)
                _make(snapshot, manifest, target)
                _sweep(snapshot)
                _looked_at.add(target)
    return target


_looked_at: set[Path] = set()
"""Indexes that this process has made, or compared with the texts of the database."""
_COMPARED = 256
"""Nodes of an index that are compared, spread over all of it."""


def _is_of_these_texts(folder: Path, manifest: Manifest, opened: OpenStore) -> bool:
    """Whether an index was made of the texts that the database has now; a restored backup may have others."""
    if folder in _looked_at:
        return True
    try:
        lexical = lexical_package.index.Lexical(folder, manifest.analyzer)
        keys = lexical.keys()
        some = keys[:: max(1, len(keys) // _COMPARED)]
        rows = opened.rows(sql.NODES_TO_INDEX, {"keys": json.dumps(some)})
        if lexical.unlike(nodes_to_index(rows)):
            return False
    except StoreCorrupt:
        return True  # who searches it says so
    _looked_at.add(folder)
    return True


def index_folder(store: Path, manifest: Manifest, version: StoreVersion) -> Path:
    """Its own for each analyser and publication, since a restored backup gives a number again."""
    return lexical_folder(store, f"{manifest.group} {manifest.analyzer.digest.hex()}", version)


def _published(snapshot: Snapshot, generation: int) -> StoreVersion:
    """With the id by which it was published; one that is too long ago has none."""
    found = snapshot.opened.row(sql.PUBLICATION_ID, (generation,))
    return StoreVersion(generation, found[0] if found else "")


def forget_damaged(store: Path) -> list[str]:
    """Remove the indexes that are not as they were written, so that they are made again; in words."""
    said = []
    with _alone(store):
        for folder in sorted((store / LEXICAL).glob("*/*")):
            if problem := damaged(folder):
                set_aside(folder, store)
                said.append(f"{problem}. It is made again by the next search.")
    return said


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """One at a time on this machine; the lock ends with the process, however it ends."""
    make_folder(store)
    descriptor = private(store / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(snapshot: Snapshot, manifest: Manifest, target: Path) -> None:
    values = {"grp": manifest.group, "at": snapshot.generation}
    live = {key for (key,) in snapshot.opened.each(sql.LIVE_KEYS, values)}
    base, indexed = _newest(target.parent, manifest, snapshot.opened)
    fields = [field.name for field in snapshot.schema]
    if base is not None and (is_worn(base, len(indexed - live)) or lacks_columns(base, fields)):
        base, indexed = None, set()
    fail_point("follow.build")
    added = _texts(snapshot, sorted(live - indexed))
    lexical_package.index_writer.freeze(
        target, base, sorted(indexed - live), added, manifest.analyzer, doing="made", fields=fields
    )


def _newest(folder: Path, manifest: Manifest, opened: OpenStore) -> tuple[Path | None, set[int]]:
    """The newest index that is whole and of a publication of this store, and the keys in it."""
    names = {path: path.name[1:].partition(".") for path in folder.glob("g*") if path.suffix != ".tmp"}
    there = {path: StoreVersion(int(number), id) for path, (number, _, id) in names.items()}
    for base, version in sorted(there.items(), key=lambda pair: pair[1], reverse=True):
        try:
            if opened.was_published(version) and not damaged(base) and _is_of_these_texts(base, manifest, opened):
                return base, set(lexical_package.index.Lexical(base, manifest.analyzer).keys())
        except StoreCorrupt:
            continue
    return None, set()


def _texts(snapshot: Snapshot, keys: Sequence[int]) -> Iterator[Added]:
    for start in range(0, len(keys), _AT_ONCE):
        values = {"keys": json.dumps(keys[start : start + _AT_ONCE])}
        yield from nodes_to_index(snapshot.opened.rows(sql.NODES_TO_INDEX, values))


def _sweep(snapshot: Snapshot) -> None:
    published = [json.loads(indexes) for _, indexes in snapshot.opened.rows(sql.GENERATIONS)]
    generations = {at for indexes in [*published, snapshot.indexes] for at, _ in indexes.values()}
    needed = {f"g{_published(snapshot, at)}" for at in generations}
    for folder in sorted((snapshot.opened.folder / LEXICAL).glob("*/*")):
        if folder.name not in needed:
            fail_point("follow.sweep")
            shutil.rmtree(folder)
