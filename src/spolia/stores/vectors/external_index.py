"""What stands beside the vectors of a store in a folder: graphs over large segments, and vector databases.

Both are derived. Databases are brought in step before a generation is published, so that what they lack is never
published; what they hold beyond it is passed over when it is found. Graphs are built after it, since without them
search is right and only slower.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spolia.errors import StoreError, StoreUnavailable
from spolia.stores.defined import index_of
from spolia.stores.failpoints import fail_point
from spolia.stores.indexes import HNSW, Database, VectorIndex
from spolia.stores.layout import DATABASES, fsync_folder, segment_path
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.tables import sql
from spolia.stores.truth import Connection
from spolia.stores.vectors.dense import Vectors, open_segment
from spolia.stores.vectors.external_search import AdaptedSearch, disagreement, follow
from spolia.stores.vectors.graph_build import build_graphs, sweep_graphs
from spolia.stores.vectors.open_search import located, sparse_search, vector_search
from spolia.stores.vectors.sparse import SparseSearch

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.vectors.search import VectorSearch


def chosen_search(snapshot: Snapshot, group: str, embedder: str) -> VectorSearch | SparseSearch:
    """What searches a group's vectors at a generation, as its manifest says.

    Raises:
        StoreError: the group was not embedded with this embedder.
    """
    opened, manifest = snapshot.opened, snapshot.manifest(group)
    how = how_embedded(snapshot, group, embedder)
    settings = index_of(how)
    if how.is_sparse:
        return sparse_search(snapshot, group, embedder)
    if not isinstance(settings, Database):
        return vector_search(snapshot, group, embedder, how.metric, settings)
    placed, _ = located(snapshot, group, embedder)
    folder, name = opened.folder / DATABASES, collection(opened.uuid, manifest, how)
    index = opened.shared((folder, name), lambda: _Shared(settings.open(folder, name, how.dimension, how.metric)))
    return AdaptedSearch(index, placed, how.metric)


def how_embedded(snapshot: Snapshot, group: str, embedder: str) -> GroupEmbedding:
    """How a group was embedded with an embedder.

    Raises:
        StoreError: it was not.
    """
    manifest = snapshot.manifest(group)
    how = manifest.embedded(embedder)
    if how is None:
        raise StoreError(
            f"Group {group!r} of {snapshot.opened.store} has no vectors by {embedder!r}. It has: "
            f"{', '.join(repr(known.embedder) for known in manifest.embeddings) or 'none'}. Search with one of these."
        )
    return how


class _Shared:
    """An opened database to search, let go of when the last snapshot that uses it is gone."""

    def __init__(self, index: VectorIndex) -> None:
        self._index, self.search = index, index.search

    def __del__(self) -> None:
        self._index.close()


def collection(uuid: str, manifest: Manifest, how: GroupEmbedding) -> str:
    """The name of a group's vectors by an embedder in a database: no other group, embedder or store has it.

    >>> collection("ab12", Manifest("Old stones"), GroupEmbedding("MiniLM@53aa", 384))
    'spolia_old_stones_0f1334f168accd30'
    """
    said = "\0".join((uuid, manifest.group, how.embedder, how.metric, str(how.dimension)))
    plain = re.sub(r"[^a-z0-9]+", "_", manifest.group.lower()).strip("_")[:30]
    return f"spolia_{plain}_{hashlib.blake2b(said.encode(), digest_size=8).hexdigest()}"


# Databases.


def follow_databases(
    folder: Path,
    connection: Connection,
    uuid: str,
    manifests: Mapping[str, Manifest],
    known: Mapping[str, int],
    published: int,
) -> None:
    """Bring every database to what the generation that is published next holds.

    Until that is published a file says so; whoever finds it compares all keys, since a killed writer left others.

    Args:
        known: for each group, the last key that the databases have taken in; of a new group nothing.
        published: the generation that readers see now; what died before it goes.
    """
    for manifest, how, settings in _kept_in_databases(manifests):
        at = {"grp": manifest.group, "key": known.get(manifest.group, 0), "at": published}
        unsure = _unsure(folder, uuid, manifest, how)
        with _opened(folder, settings, uuid, manifest, how) as index:
            if unsure.exists():
                _compare(folder, connection, index, how.embedder, at)
                continue
            unsure.touch()
            fsync_folder(unsure.parent)
            fail_point("databases.follow")
            dead = [key for (key,) in connection.execute(sql.DEAD_BEFORE, at)]
            follow(index, _vectors(folder, connection, how.embedder, at), dead)


def recover_databases(
    folder: Path,
    connection: Connection,
    uuid: str,
    manifests: Mapping[str, Manifest],
    known: Mapping[str, int],
    published: int,
) -> None:
    """Make databases hold what is published that a killed writer has left unsure, before anything else is written.

    One that cannot be reached now is compared as soon as something is published.
    """
    for manifest, how, settings in _kept_in_databases(manifests):
        unsure = _unsure(folder, uuid, manifest, how)
        if unsure.exists() and manifest.group in known:
            at = {"grp": manifest.group, "key": known[manifest.group], "at": published}
            with suppress(StoreUnavailable), _opened(folder, settings, uuid, manifest, how) as index:
                _compare(folder, connection, index, how.embedder, at)
                fail_point("databases.recovered")
                unsure.unlink()


def databases_are_sure(folder: Path, uuid: str, manifests: Mapping[str, Manifest]) -> None:
    """What these databases hold is published."""
    for manifest, how, _ in _kept_in_databases(manifests):
        _unsure(folder, uuid, manifest, how).unlink(missing_ok=True)


def _unsure(folder: Path, uuid: str, manifest: Manifest, how: GroupEmbedding) -> Path:
    """The file that says that a database may hold what is not published."""
    (folder / DATABASES).mkdir(exist_ok=True)
    return folder / DATABASES / f"{collection(uuid, manifest, how)}.unsure"


def _compare(folder: Path, connection: Connection, index: VectorIndex, embedder: str, at: Mapping[str, Any]) -> None:
    """Make a database hold what it should, whatever it holds, and what readers see all the while."""
    needed = {key for (key,) in connection.execute(sql.NEEDED_KEYS, at)}
    held = set(index.keys())
    # What a killed writer had given to nodes that were never published may have gone to others since.
    vectors = _vectors(folder, connection, embedder, {**at, "key": 0})
    lacking = ((key, vector) for key, vector in vectors if key > at["key"] or key not in held)
    follow(index, lacking, sorted(held - needed))


def database_problems(
    folder: Path, connection: Connection, uuid: str, manifests: Mapping[str, Manifest]
) -> Iterator[str]:
    """Which databases do not hold what they should, in words.

    What a killed writer has left beyond that is no problem: searches pass it over, and the next writer removes it.
    """
    for manifest, how, settings in _kept_in_databases(manifests):
        is_unsure = _unsure(folder, uuid, manifest, how).exists()
        with _opened(folder, settings, uuid, manifest, how) as index:
            live = {key for (key,) in connection.execute(sql.ALIVE_KEYS, {"grp": manifest.group})}
            at = {"grp": manifest.group, "at": sql.ALIVE}
            passed_over = {key for (key,) in connection.execute(sql.DEAD_BEFORE, at)}
            held = set(index.keys())
            there = live | (held if is_unsure else passed_over & held)
            if said := disagreement(index, np.array(sorted(there), dtype=np.int64)):
                yield f"group {manifest.group!r}, {type(settings).__name__}: {said}"


def _kept_in_databases(manifests: Mapping[str, Manifest]) -> Iterator[tuple[Manifest, GroupEmbedding, Database]]:
    for manifest in manifests.values():
        for how in manifest.embeddings:
            if how.is_beside and isinstance(settings := index_of(how), Database):
                yield manifest, how, settings


@contextmanager
def _opened(
    folder: Path, settings: Database, uuid: str, manifest: Manifest, how: GroupEmbedding
) -> Iterator[VectorIndex]:
    index = settings.open(folder / DATABASES, collection(uuid, manifest, how), how.dimension, how.metric)
    try:
        yield index
    finally:
        index.close()


def _vectors(
    folder: Path, connection: Connection, embedder: str, at: Mapping[str, object]
) -> Iterator[tuple[int, Vectors]]:
    """Keys and vectors of the live nodes of a group after a key, from the segments."""
    segments: dict[int, Vectors] = {}
    for key, number, row in connection.each(sql.PLACED_AFTER, {**at, "embedder": embedder}):
        if number not in segments:
            segments[number] = open_segment(segment_path(folder, embedder, number)).vectors
        yield key, segments[number][row]


# Graphs.


def build_all_graphs(folder: Path, connection: Connection, manifests: Mapping[str, Manifest]) -> list[str]:
    """Build what graphs are missing, and remove those of segments that are gone; what was out of order, in words."""
    segments: dict[str, dict[int, int]] = {}
    for embedder, number, _, count, _ in connection.execute(sql.SEGMENTS):
        segments.setdefault(embedder, {})[number] = count
    said: list[str] = []
    for embedder, how in {(how.embedder, how) for manifest in manifests.values() for how in manifest.embeddings}:
        settings = index_of(how)
        if isinstance(settings, HNSW) and not how.is_sparse:
            said += build_graphs(folder, embedder, segments.get(embedder, {}), how.metric, settings)
    sweep_graphs(folder, [(embedder, number) for embedder, numbers in segments.items() for number in numbers])
    return said
