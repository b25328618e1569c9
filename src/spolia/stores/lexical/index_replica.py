"""Lexical indexes of a store in a database: each machine makes them in a folder when it first reads a generation.

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
    fail_point,
    index_damage,
    is_worn,
    lacks_columns,
    lexical_folder,
    quick_index_damage,
    store_errors,
)
from spolia.stores.manifest import Manifest

if TYPE_CHECKING:
    from spolia.stores.backends.backend import OpenedStore, PinnedSnapshot
    from spolia.stores.lexical.index_writer import IndexedNode

_AT_ONCE = 2_000


def ensure_index(snapshot: PinnedSnapshot, group: str) -> Path:
    """Return the lexical index of a group at a generation, made if this machine does not have it."""
    store, manifest = snapshot.open_store.folder, snapshot.manifest(group)
    target = index_folder(store, manifest, _publication_of(snapshot, snapshot.indexes[group][0]))
    if quick_index_damage(target) or not _matches_database(target, manifest, snapshot.open_store):
        # Checked again under the lock: another process may have made the index meanwhile.
        with store_errors(snapshot.open_store.store, "indexed"), _lock_machine(store):
            if quick_index_damage(target) or not _matches_database(target, manifest, snapshot.open_store):
                if target.exists():
                    set_aside(target, store)
                _make(snapshot, manifest, target)
                _sweep(snapshot)
                _compared.add(target)
    return target


_compared: set[Path] = set()
"""Indexes that this process has made, or compared with the texts of the database."""
_COMPARED = 256
"""Nodes of an index that are compared, spread over all of it."""


def _matches_database(folder: Path, manifest: Manifest, open_store: OpenedStore) -> bool:
    """Return whether an index was made of the texts that the database has now; a restored backup may have others."""
    if folder in _compared:
        return True
    try:
        lexical = lexical_package.index.Lexical(folder, manifest.analyzer)
        keys = lexical.keys()
        sample = keys[:: max(1, len(keys) // _COMPARED)]
        rows = open_store.rows(sql.NODES_TO_INDEX, {"keys": json.dumps(sample)})
        if lexical.find_differing(nodes_to_index(rows)):
            return False
    except StoreCorrupt:
        return True  # who searches it says so
    _compared.add(folder)
    return True


def index_folder(store: Path, manifest: Manifest, version: StoreVersion) -> Path:
    """Return a folder of its own for each analyser and publication, since a restored backup gives a number again."""
    return lexical_folder(store, f"{manifest.group} {manifest.analyzer.digest.hex()}", version)


def _publication_of(snapshot: PinnedSnapshot, generation: int) -> StoreVersion:
    """Return the version under which a generation was published; its id is empty if that is too long ago."""
    row = snapshot.open_store.row(sql.PUBLICATION_ID, (generation,))
    return StoreVersion(generation, row[0] if row else "")


def forget_damaged(store: Path) -> list[str]:
    """Remove the indexes that are not as they were written, so that they are made again; return that in words."""
    repairs = []
    with _lock_machine(store):
        for folder in sorted((store / LEXICAL).glob("*/*")):
            if problem := index_damage(folder):
                set_aside(folder, store)
                repairs.append(f"{problem}. It is made again by the next search.")
    return repairs


@contextmanager
def _lock_machine(store: Path) -> Iterator[None]:
    """Lock out other processes of this machine; the lock ends with the process, however it ends."""
    make_folder(store)
    descriptor = private(store / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(snapshot: PinnedSnapshot, manifest: Manifest, target: Path) -> None:
    values = {"grp": manifest.group, "at": snapshot.generation}
    live = {key for (key,) in snapshot.open_store.stream_rows(sql.LIVE_KEYS, values)}
    base, indexed = _newest(target.parent, manifest, snapshot.open_store)
    fields = [field.name for field in snapshot.schema]
    if base is not None and (is_worn(base, len(indexed - live)) or lacks_columns(base, fields)):
        base, indexed = None, set()
    fail_point("follow.build")
    added = _texts(snapshot, sorted(live - indexed))
    lexical_package.index_writer.freeze(
        target, base, sorted(indexed - live), added, manifest.analyzer, doing="made", fields=fields
    )


def _newest(folder: Path, manifest: Manifest, open_store: OpenedStore) -> tuple[Path | None, set[int]]:
    """Return the newest index that is whole and of a publication of this store, and the keys in it."""
    names = {path: path.name[1:].partition(".") for path in folder.glob("g*") if path.suffix != ".tmp"}
    versions = {path: StoreVersion(int(number), id) for path, (number, _, id) in names.items()}
    # The newest first: the fewest nodes differ from it.
    for base, version in sorted(versions.items(), key=lambda pair: pair[1], reverse=True):
        try:
            if (
                open_store.was_published(version)
                and not index_damage(base)
                and _matches_database(base, manifest, open_store)
            ):
                return base, set(lexical_package.index.Lexical(base, manifest.analyzer).keys())
        except StoreCorrupt:
            continue
    return None, set()


def _texts(snapshot: PinnedSnapshot, keys: Sequence[int]) -> Iterator[IndexedNode]:
    for start in range(0, len(keys), _AT_ONCE):
        values = {"keys": json.dumps(keys[start : start + _AT_ONCE])}
        yield from nodes_to_index(snapshot.open_store.rows(sql.NODES_TO_INDEX, values))


def _sweep(snapshot: PinnedSnapshot) -> None:
    published = [json.loads(indexes) for _, indexes in snapshot.open_store.rows(sql.GENERATIONS)]
    generations = {generation for indexes in [*published, snapshot.indexes] for generation, _ in indexes.values()}
    needed = {f"g{_publication_of(snapshot, generation)}" for generation in generations}
    for folder in sorted((snapshot.open_store.folder / LEXICAL).glob("*/*")):
        if folder.name not in needed:
            fail_point("follow.sweep")
            shutil.rmtree(folder)
