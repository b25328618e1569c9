"""The index of a vector database as a search of a store.

A database knows keys and vectors only. So more is asked for than is wanted, what is not allowed is passed over, and
scores are computed from the store's own vectors. Where too little is allowed or found, exact search answers.
"""

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from spolia.core.run_context import note
from spolia.errors import StoreError, StoreUnavailable
from spolia.private_files import make_folder, touch, write_text
from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection
from spolia.stores.backends.rows import in_batches
from spolia.stores.definition import Metric
from spolia.stores.files import DATABASES, fail_point, fsync, segment_path
from spolia.stores.indexes import Database, VectorIndex
from spolia.stores.manifest import GroupEmbedding, Manifest, index_of, refuse_stored
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import Vectors, open_segment
from spolia.stores.vectors.placement import PlacedVectors, Rows
from spolia.stores.vectors.search import Found, questions
from spolia.stores.vectors.segment_search import ExactSearch, located, sparse_search, vector_search
from spolia.stores.vectors.sparse import SparseSearch

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.vectors.search import DenseSearch

_COMPARED = 5_000
"""Allowed nodes up to which they are compared: that takes as long as asking a database."""
_MOST = 4_096
"""What is fetched at most; some servers give no more than 10,000."""
_GROWTH = 4
_BATCH = 1_000
_SHOWN = 3


class SearchableIndex(Protocol):
    """As much of a `VectorIndex` as searching needs."""

    def search(self, queries: Vectors, top_k: int) -> list[list[tuple[int, float]]]: ...


class AdaptedSearch:
    """Searches a group's vectors in a database, and exactly where that does not do."""

    def __init__(self, index: SearchableIndex, placed: PlacedVectors, metric: Metric) -> None:
        self.index, self.placed, self.metric = index, placed, metric
        self._exact = ExactSearch(placed, metric)

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Found:
        """See `Search`. When the database cannot be reached, exact search answers, with a note."""
        self.placed.positions(allowed)
        wanted, count = min(top_k, allowed.count), allowed.count
        fetch = -(-4 * wanted * len(allowed.keys) // max(count, 1))
        if wanted <= 0 or count <= _COMPARED or fetch > _MOST:
            return self._exact.search(queries, top_k, allowed, ids)
        asked = questions(self.metric, queries, self.placed.dimension)
        near = self._fetched(asked, allowed, wanted, fetch)
        return [
            self._exact.search(asked[row][None], top_k, allowed, ids)[0]
            if row not in near
            else self.placed.best(self.metric, asked[row], near[row], wanted, ids)
            for row in range(len(asked))
        ]

    def _fetched(self, queries: Vectors, allowed: Allowed, wanted: int, fetch: int) -> dict[int, Rows]:
        """For each query that the database answers well enough, positions of the allowed nodes that it found."""
        near: dict[int, Rows] = {}
        while fetch <= _MOST and (open_ := [row for row in range(len(queries)) if row not in near]):
            try:
                found = self.index.search(queries[open_], fetch)
            except StoreUnavailable as error:
                note(f"{error} Vectors were compared one by one instead, which is slower.")
                break
            for row, hits in zip(open_, found, strict=True):
                keys = np.fromiter((key for key, _ in hits), dtype=np.int64)
                held = allowed.holds(keys)
                if np.count_nonzero(held[: -(-len(held) // 2)]) >= wanted:
                    near[row] = np.searchsorted(self.placed.keys, np.unique(keys[held]))
            fetch *= _GROWTH
        return near


def follow(index: VectorIndex, added: Iterable[tuple[int, Vectors]], dead: Iterable[int]) -> None:
    """Put `added` keys with vectors float32[d] into a database and delete `dead` ones; safe to repeat after a kill."""
    for batch in in_batches(added, _BATCH):
        index.add([key for key, _ in batch], np.stack([vector for _, vector in batch]))
    for keys in in_batches(dead, _BATCH):
        index.remove(keys)


def disagreement(index: VectorIndex, keys: Keys) -> str:
    """How the keys in a database differ from the expected ones, in words; empty if they do not."""
    held = np.fromiter(index.keys(), dtype=np.int64)
    differing = {"are missing": np.setdiff1d(keys, held), "should not be there": np.setdiff1d(held, keys)}
    said = [f"{len(found)} {what} ({_some(found.tolist())})" for what, found in differing.items() if len(found)]
    if len(held) != len(np.unique(held)):
        said.append(f"{len(held) - len(np.unique(held))} are there more than once")
    return f"Keys in the database: {' and '.join(said)}." if said else ""


def _some(keys: Sequence[int]) -> str:
    return ", ".join(map(str, keys[:_SHOWN])) + (" …" if len(keys) > _SHOWN else "")


def chosen_search(snapshot: "Snapshot", group: str, embedder: str) -> "DenseSearch | SparseSearch":
    opened, manifest = snapshot.opened, snapshot.manifest(group)
    how = how_embedded(snapshot, group, embedder)
    settings = index_of(how)
    if how.is_sparse:
        return sparse_search(snapshot, group, embedder)
    if not isinstance(settings, Database):
        return vector_search(snapshot, group, embedder, how.metric, settings)
    refuse_stored(settings, group)
    placed, _ = located(snapshot, group, embedder)
    folder, name = opened.folder / DATABASES, collection(opened.uuid, manifest, how)
    index = opened.shared((folder, name), lambda: _Shared(settings.open(folder, name, how.dimension, how.metric)))
    return AdaptedSearch(index, placed, how.metric)


def how_embedded(snapshot: "Snapshot", group: str, embedder: str) -> GroupEmbedding:
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


REPLACES = "vectors"
"""What a file that marks a database as unsure holds while vectors of nodes that it knows are replaced."""


class ExternalIndexes:
    """The vector databases beside a store. A process that finds the file that marks one as unsure compares all of its
    keys, and gives it all vectors where some were being replaced."""

    def __init__(self, folder: Path, connection: Connection, manifests: Mapping[str, Manifest]) -> None:
        self.folder, self.connection = folder, connection
        self.uuid: str = connection.execute(sql.UUID).fetchone()[0]
        self.kept: list[tuple[Manifest, GroupEmbedding, Database]] = [
            (manifest, how, settings)
            for manifest in manifests.values()
            for how in manifest.embeddings
            if how.is_beside and isinstance(settings := index_of(how), Database)
        ]

    def follow(self, known: Mapping[str, int], published: int) -> None:
        """Bring every database from the published generation to the next one; `known` are the last keys it took in."""
        for manifest, how, settings in self.kept:
            at = {"grp": manifest.group, "key": known.get(manifest.group, 0), "at": published}
            unsure = self._unsure(manifest, how)
            with self._opened(manifest, how, settings) as index:
                was_unsure = unsure.exists()
                if replaces := self._replaced_from(how.embedder, at) < sys.maxsize:
                    write_text(unsure, REPLACES)
                    fsync(unsure)
                touch(unsure)
                fsync(unsure.parent)
                if was_unsure:
                    self._compare(index, how.embedder, at, all=replaces or unsure.read_text() == REPLACES)
                    continue
                fail_point("databases.follow")
                dead = [key for (key,) in self.connection.execute(sql.DEAD_BEFORE, at)]
                follow(index, self._vectors(how.embedder, at), dead)

    def recover(self, known: Mapping[str, int], published: int) -> None:
        """Restore what a killed writer left unsure; a database that cannot be reached now, with the publication."""
        for manifest, how, settings in self.kept:
            unsure = self._unsure(manifest, how)
            if unsure.exists() and manifest.group in known:
                at = {"grp": manifest.group, "key": known[manifest.group], "at": published}
                with suppress(StoreUnavailable), self._opened(manifest, how, settings) as index:
                    self._compare(index, how.embedder, at, all=unsure.read_text() == REPLACES)
                    fail_point("databases.recovered")
                    unsure.unlink()

    def confirm(self) -> None:
        for manifest, how, _ in self.kept:
            self._unsure(manifest, how).unlink(missing_ok=True)

    def problems(self) -> Iterator[str]:
        """Which databases do not hold what they should, in words. Keys that searches pass over are no problem."""
        for manifest, how, settings in self.kept:
            is_unsure = self._unsure(manifest, how).exists()
            with self._opened(manifest, how, settings) as index:
                live = {key for (key,) in self.connection.execute(sql.ALIVE_KEYS, {"grp": manifest.group})}
                at = {"grp": manifest.group, "at": sql.ALIVE}
                passed_over = {key for (key,) in self.connection.execute(sql.DEAD_BEFORE, at)}
                held = set(index.keys())
                there = live | (held if is_unsure else passed_over & held)
                if said := disagreement(index, np.array(sorted(there), dtype=np.int64)):
                    yield f"group {manifest.group!r}, {type(settings).__name__}: {said}"

    def distrusted(self) -> list[str]:
        """Have the next writer compare all keys where a database does not hold what it should; in words."""
        said = list(self.problems())
        for manifest, how, _ in self.kept if said else ():
            touch(self._unsure(manifest, how))
        return said

    def _unsure(self, manifest: Manifest, how: GroupEmbedding) -> Path:
        """The file that says that a database may hold what is not published."""
        make_folder(self.folder / DATABASES)
        return self.folder / DATABASES / f"{collection(self.uuid, manifest, how)}.unsure"

    def _compare(self, index: VectorIndex, embedder: str, at: Mapping[str, Any], *, all: bool) -> None:
        """Make a database hold what it should, whatever it holds, and what readers see all the while; `all` where a
        killed writer may have put vectors in the place of others."""
        needed = {key for (key,) in self.connection.execute(sql.NEEDED_KEYS, at)}
        held = set(index.keys())
        # What a killed writer had given to nodes that were never published may have gone to others since.
        follow(index, self._vectors(embedder, at, set() if all else held), sorted(held - needed))

    @contextmanager
    def _opened(self, manifest: Manifest, how: GroupEmbedding, settings: Database) -> Iterator[VectorIndex]:
        name = collection(self.uuid, manifest, how)
        refuse_stored(settings, manifest.group)
        index = settings.open(self.folder / DATABASES, name, how.dimension, how.metric)
        try:
            yield index
        finally:
            index.close()

    def _vectors(
        self, embedder: str, at: Mapping[str, Any], held: Set[int] | None = None
    ) -> Iterator[tuple[int, Vectors]]:
        """Vectors of nodes that are new, or have other vectors now, or, where that is given, are not `held`."""
        replaced = self._replaced_from(embedder, at)
        known = at["key"] if held is None and replaced == sys.maxsize else 0
        segments: dict[int, Vectors] = {}
        for key, number, row in self.connection.each(sql.PLACED_AFTER, {**at, "embedder": embedder, "key": known}):
            if key <= at["key"] and number < replaced and (held is None or key in held):
                continue
            if number not in segments:
                segments[number] = open_segment(segment_path(self.folder, embedder, number)).vectors
            yield key, segments[number][row]

    def _replaced_from(self, embedder: str, at: Mapping[str, Any]) -> int:
        """The first segment with vectors that take the place of others since a generation."""
        noted = self.connection.execute(sql.CURSOR, (sql.REPLACED, embedder)).fetchone()
        return int(noted[0]) if noted is not None and noted[1] > at["at"] else sys.maxsize
