"""Search of a store in the index of a vector database.

A database knows keys and vectors only. So more is asked for than is wanted, what is not allowed is passed over, and
scores are computed from the store's own vectors. Where too little is allowed or found, exact search answers.
"""

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from spolia.core.run_context import note
from spolia.errors import StoreError, StoreUnavailable
from spolia.private_files import make_folder, touch, write_text
from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection, PinnedSnapshot
from spolia.stores.backends.rows import in_batches
from spolia.stores.backends.searches import DenseSearch, Rankings
from spolia.stores.definition import Metric
from spolia.stores.files import DATABASES, fail_point, fsync, segment_path
from spolia.stores.indexes import Database, VectorIndex
from spolia.stores.manifest import GroupEmbedding, Manifest, index_of, refuse_stored
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import Vectors, open_segment
from spolia.stores.vectors.placement import PlacedVectors, Rows
from spolia.stores.vectors.search import check_queries
from spolia.stores.vectors.segment_search import ExactSearch, locate_vectors, sparse_search, vector_search
from spolia.stores.vectors.sparse import SparseSearch

_COMPARED = 5_000
"""Allowed nodes up to which they are compared: that takes as long as asking a database."""
_MAX_FETCH = 4_096
"""What is fetched at most; some servers give no more than 10,000."""
_GROWTH = 4  # a database answers a larger request from the beginning again
_BATCH = 1_000
_SHOWN = 3


class SearchableIndex(Protocol):
    """Part of a `VectorIndex` that searching needs."""

    def search(self, queries: Vectors, top_k: int) -> list[list[tuple[int, float]]]: ...


class AdaptedSearch:
    """Search of a group's vectors in a database, and exact search where that does not do."""

    def __init__(self, index: SearchableIndex, placed: PlacedVectors, metric: Metric) -> None:
        self.index, self.placed, self.metric = index, placed, metric
        self._exact = ExactSearch(placed, metric)

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Rankings:
        """Search as `Search` does. When the database cannot be reached, exact search answers, with a note."""
        self.placed.positions(allowed)
        limit, count = min(top_k, allowed.count), allowed.count
        # As in `GraphSearch`: twice the wanted ones are in the first half, if those that are allowed are spread evenly.
        fetch = -(-4 * limit * len(allowed.keys) // max(count, 1))
        if limit <= 0 or count <= _COMPARED or fetch > _MAX_FETCH:
            return self._exact.search(queries, top_k, allowed, ids)
        checked = check_queries(self.metric, queries, self.placed.dimension)
        positions = self._fetch(checked, allowed, limit, fetch)
        return [
            self._exact.search(checked[row][None], top_k, allowed, ids)[0]
            if row not in positions
            else self.placed.rank_nodes(self.metric, checked[row], positions[row], limit, ids)
            for row in range(len(checked))
        ]

    def _fetch(self, queries: Vectors, allowed: Allowed, limit: int, fetch: int) -> dict[int, Rows]:
        """Return the positions of allowed nodes that the database found, for each query that it answers well enough."""
        positions: dict[int, Rows] = {}
        while fetch <= _MAX_FETCH and (pending := [row for row in range(len(queries)) if row not in positions]):
            try:
                results = self.index.search(queries[pending], fetch)
            except StoreUnavailable as error:
                note(f"{error} Vectors were compared one by one instead, which is slower.")
                break
            for row, hits in zip(pending, results, strict=True):
                keys = np.fromiter((key for key, _ in hits), dtype=np.int64)
                is_allowed = allowed.holds(keys)
                # Enough in the first half: an approximate search misses more towards its end.
                if np.count_nonzero(is_allowed[: -(-len(is_allowed) // 2)]) >= limit:
                    positions[row] = np.searchsorted(self.placed.keys, np.unique(keys[is_allowed]))
            fetch *= _GROWTH
        return positions


def follow(index: VectorIndex, added: Iterable[tuple[int, Vectors]], dead: Iterable[int]) -> None:
    """Put `added` keys with vectors float32[d] into a database and delete `dead` ones; safe to repeat after a kill."""
    for batch in in_batches(added, _BATCH):
        index.add([key for key, _ in batch], np.stack([vector for _, vector in batch]))
    for keys in in_batches(dead, _BATCH):
        index.remove(keys)


def key_differences(index: VectorIndex, keys: Keys) -> str:
    """Return in words how the keys in a database differ from the expected ones; empty if they do not."""
    stored = np.fromiter(index.keys(), dtype=np.int64)
    differing = {"are missing": np.setdiff1d(keys, stored), "should not be there": np.setdiff1d(stored, keys)}
    problems = [
        f"{len(differing_keys)} {problem} ({_list_keys(differing_keys.tolist())})"
        for problem, differing_keys in differing.items()
        if len(differing_keys)
    ]
    if len(stored) != len(np.unique(stored)):
        problems.append(f"{len(stored) - len(np.unique(stored))} are there more than once")
    return f"Keys in the database: {' and '.join(problems)}." if problems else ""


def _list_keys(keys: Sequence[int]) -> str:
    return ", ".join(map(str, keys[:_SHOWN])) + (" …" if len(keys) > _SHOWN else "")


def open_vector_search(snapshot: PinnedSnapshot, group: str, embedder: str) -> DenseSearch | SparseSearch:
    open_store, manifest = snapshot.open_store, snapshot.manifest(group)
    embedding = require_embedding(snapshot, group, embedder)
    settings = index_of(embedding)
    if embedding.is_sparse:
        return sparse_search(snapshot, group, embedder)
    if not isinstance(settings, Database):
        return vector_search(snapshot, group, embedder, embedding.metric, settings)
    refuse_stored(settings, group)
    placed, _ = locate_vectors(snapshot, group, embedder)
    folder, name = open_store.folder / DATABASES, collection_name(open_store.uuid, manifest, embedding)
    index = open_store.share(
        (folder, name), lambda: _SharedIndex(settings.open(folder, name, embedding.dimension, embedding.metric))
    )
    return AdaptedSearch(index, placed, embedding.metric)


def require_embedding(snapshot: PinnedSnapshot, group: str, embedder: str) -> GroupEmbedding:
    manifest = snapshot.manifest(group)
    embedding = manifest.find_embedding(embedder)
    if embedding is None:
        raise StoreError(
            f"Group {group!r} of {snapshot.open_store.store} has no vectors by {embedder!r}. It has: "
            f"{', '.join(repr(stored.embedder) for stored in manifest.embeddings) or 'none'}. Search with one of these."
        )
    return embedding


class _SharedIndex:
    """Opened database to search, closed when the last snapshot that uses it is gone."""

    def __init__(self, index: VectorIndex) -> None:
        self._index, self.search = index, index.search

    def __del__(self) -> None:
        self._index.close()


def collection_name(uuid: str, manifest: Manifest, embedding: GroupEmbedding) -> str:
    """Return the name of a group's vectors by an embedder in a database: no other group, embedder or store has it.

    >>> collection_name("ab12", Manifest("Old stones"), GroupEmbedding("MiniLM@53aa", 384))
    'spolia_old_stones_0f1334f168accd30'
    """
    identity = "\0".join((uuid, manifest.group, embedding.embedder, embedding.metric, str(embedding.dimension)))
    plain = re.sub(r"[^a-z0-9]+", "_", manifest.group.lower()).strip("_")[:30]
    return f"spolia_{plain}_{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}"


REPLACES = "vectors"
"""What a file that marks a database as unsure holds while vectors of nodes that it knows are replaced."""


class ExternalIndexes:
    """Vector databases beside a store. A process that finds the file that marks one as unsure compares all of its keys,
    and gives it all vectors where some were being replaced."""

    def __init__(self, folder: Path, connection: Connection, manifests: Mapping[str, Manifest]) -> None:
        self.folder, self.connection = folder, connection
        self.uuid: str = connection.execute(sql.UUID).fetchone()[0]
        self.indexed: list[tuple[Manifest, GroupEmbedding, Database]] = [
            (manifest, embedding, settings)
            for manifest in manifests.values()
            for embedding in manifest.embeddings
            if embedding.is_external and isinstance(settings := index_of(embedding), Database)
        ]

    def follow(self, last_keys: Mapping[str, int], published: int) -> None:
        """Bring every database from the published generation to the next; `last_keys` are the last keys it took in."""
        for manifest, embedding, settings in self.indexed:
            values = {"grp": manifest.group, "key": last_keys.get(manifest.group, 0), "at": published}
            unsure_file = self._unsure_file(manifest, embedding)
            with self._open_index(manifest, embedding, settings) as index:
                was_unsure = unsure_file.exists()
                if replaces := self._first_replacing(embedding.embedder, values) < sys.maxsize:
                    write_text(unsure_file, REPLACES)
                    fsync(unsure_file)
                # The mark is durable before the database changes: the next writer sees if this one is killed.
                touch(unsure_file)
                fsync(unsure_file.parent)
                # What a killed writer did to the database is unknown, so all keys are compared.
                if was_unsure:
                    self._compare(
                        index, embedding.embedder, values, all=replaces or unsure_file.read_text() == REPLACES
                    )
                    continue
                fail_point("databases.follow")
                dead = [key for (key,) in self.connection.execute(sql.DEAD_BEFORE, values)]
                follow(index, self._new_vectors(embedding.embedder, values), dead)

    def recover(self, last_keys: Mapping[str, int], published: int) -> None:
        """Restore what a killed writer left unsure; a database that cannot be reached now, with the publication."""
        for manifest, embedding, settings in self.indexed:
            unsure_file = self._unsure_file(manifest, embedding)
            if unsure_file.exists() and manifest.group in last_keys:
                values = {"grp": manifest.group, "key": last_keys[manifest.group], "at": published}
                with suppress(StoreUnavailable), self._open_index(manifest, embedding, settings) as index:
                    self._compare(index, embedding.embedder, values, all=unsure_file.read_text() == REPLACES)
                    fail_point("databases.recovered")
                    unsure_file.unlink()

    def confirm(self) -> None:
        for manifest, embedding, _ in self.indexed:
            self._unsure_file(manifest, embedding).unlink(missing_ok=True)

    def problems(self) -> Iterator[str]:
        """Yield in words which databases do not hold what they should. Keys that searches pass over are no problem."""
        for manifest, embedding, settings in self.indexed:
            is_unsure = self._unsure_file(manifest, embedding).exists()
            with self._open_index(manifest, embedding, settings) as index:
                live = {key for (key,) in self.connection.execute(sql.ALIVE_KEYS, {"grp": manifest.group})}
                values = {"grp": manifest.group, "at": sql.ALIVE}
                passed_over = {key for (key,) in self.connection.execute(sql.DEAD_BEFORE, values)}
                stored = set(index.keys())
                expected = live | (stored if is_unsure else passed_over & stored)
                if problem := key_differences(index, np.array(sorted(expected), dtype=np.int64)):
                    yield f"group {manifest.group!r}, {type(settings).__name__}: {problem}"

    def mark_damaged(self) -> list[str]:
        """Mark all databases if one does not hold what it should, so that the next writer compares all keys; return the
        problems."""
        problems = list(self.problems())
        for manifest, embedding, _ in self.indexed if problems else ():
            touch(self._unsure_file(manifest, embedding))
        return problems

    def _unsure_file(self, manifest: Manifest, embedding: GroupEmbedding) -> Path:
        """Return the file that says that a database may hold what is not published."""
        make_folder(self.folder / DATABASES)
        return self.folder / DATABASES / f"{collection_name(self.uuid, manifest, embedding)}.unsure"

    def _compare(self, index: VectorIndex, embedder: str, values: Mapping[str, Any], *, all: bool) -> None:
        """Make a database hold what it should, whatever it holds, and what readers see all the while; `all` where a
        killed writer may have put vectors in the place of others."""
        needed = {key for (key,) in self.connection.execute(sql.NEEDED_KEYS, values)}
        stored = set(index.keys())
        # What a killed writer had given to nodes that were never published may have gone to others since.
        follow(index, self._new_vectors(embedder, values, set() if all else stored), sorted(stored - needed))

    @contextmanager
    def _open_index(self, manifest: Manifest, embedding: GroupEmbedding, settings: Database) -> Iterator[VectorIndex]:
        name = collection_name(self.uuid, manifest, embedding)
        refuse_stored(settings, manifest.group)
        index = settings.open(self.folder / DATABASES, name, embedding.dimension, embedding.metric)
        try:
            yield index
        finally:
            index.close()

    def _new_vectors(
        self, embedder: str, values: Mapping[str, Any], stored: Set[int] | None = None
    ) -> Iterator[tuple[int, Vectors]]:
        """Yield vectors of nodes that are new, or have other vectors now, or, where that is given, are not `stored`."""
        replaced = self._first_replacing(embedder, values)
        last_key = values["key"] if stored is None and replaced == sys.maxsize else 0
        segments: dict[int, Vectors] = {}
        for key, number, row in self.connection.stream_rows(
            sql.PLACED_AFTER, {**values, "embedder": embedder, "key": last_key}
        ):
            if key <= values["key"] and number < replaced and (stored is None or key in stored):
                continue
            if number not in segments:
                segments[number] = open_segment(segment_path(self.folder, embedder, number)).vectors
            yield key, segments[number][row]

    def _first_replacing(self, embedder: str, values: Mapping[str, Any]) -> int:
        """Return the first segment with vectors that take the place of others since a generation."""
        cursor = self.connection.execute(sql.CURSOR, (sql.REPLACED, embedder)).fetchone()
        return int(cursor[0]) if cursor is not None and cursor[1] > values["at"] else sys.maxsize
