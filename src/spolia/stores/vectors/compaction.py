"""Joining the small segments of vectors that many commits leave, and building graphs, while others read and write.

The joined segment and its graph are written without the lock; then rows move there, some thousand in a transaction.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spolia.errors import StoreCorrupt
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection, WriteSession
from spolia.stores.definition import Metric
from spolia.stores.files import fail_point, fsync, graph_folder, segment_path
from spolia.stores.indexes import HNSW
from spolia.stores.manifest import Manifest, index_of
from spolia.stores.vectors import segments
from spolia.stores.vectors.graphs import (
    available,
    build_graph,
    build_graphs,
    graph_path,
    missing_graphs,
    sweep_graphs,
    unneeded,
)
from spolia.stores.vectors.segments import (
    current_rows,
    dimension_of,
    joined,
    next_number,
    write_any,
)

_MOVED_AT_ONCE = 20_000
_UNDER_WAY = 0
"""Stands for the number of a segment that has none yet."""

Graphs = Sequence[tuple[Metric, HNSW]]


@dataclass(frozen=True)
class Compaction:
    """Puts the vectors of a store in order. Until a sync has `ended`, it joins only what fills a segment for good."""

    store: Path
    connection: Connection
    manifests: Mapping[str, Manifest]
    ended: bool
    writing: Callable[[], WriteSession]

    def is_needed(self) -> bool:
        missing = (
            missing_graphs(self.store, embedder, self._rows(embedder), *graph)
            for embedder, graphs in self._graphs.items()
            for graph in (graphs if self.ended else ())
        )
        return any(map(self._groups, self._graphs)) or any(missing) or bool(unneeded(self.store, self._segments()))

    def run(self) -> bool:
        """Join segments and build missing graphs, with `graphs.lock` held; returns whether vectors have moved."""
        has_moved = False
        for embedder, graphs in self._graphs.items():
            for numbers in self._groups(embedder):
                has_moved |= self._join(embedder, numbers, graphs)
            for metric, settings in graphs if self.ended else ():
                build_graphs(self.store, embedder, self._rows(embedder), metric, settings)
        sweep_graphs(self.store, self._segments())
        return has_moved

    @cached_property
    def _graphs(self) -> dict[str, list[tuple[Metric, HNSW]]]:
        found: dict[str, list[tuple[Metric, HNSW]]] = {}
        for how in (how for manifest in self.manifests.values() for how in manifest.embeddings):
            settings, graphs = index_of(how), found.setdefault(how.embedder, [])
            if isinstance(settings, HNSW) and not how.is_sparse and (how.metric, settings) not in graphs:
                graphs.append((how.metric, settings))
        return found

    def _groups(self, embedder: str) -> list[list[int]]:
        if not self.ended:
            return joined(self._rows(embedder), None, 0, 1)
        limits = [settings.above for _, settings in self._graphs[embedder]]
        above = min(limits) if limits and available() else None
        return joined(self._rows(embedder), above, segments.SEGMENT_ROWS, segments.SMALL_SEGMENTS)

    def _rows(self, embedder: str) -> dict[int, int]:
        return {number: count for number, _, count, _ in self.connection.execute(sql.SEGMENTS_OF, (embedder,))}

    def _segments(self) -> list[tuple[str, int]]:
        return [(embedder, number) for embedder, number, *_ in self.connection.execute(sql.SEGMENTS)]

    def _join(self, embedder: str, numbers: Sequence[int], graphs: Graphs) -> bool:
        fail_point("vectors.join")
        try:
            current = {number: current_rows(self.store, self.connection, embedder, number) for number in numbers}
        except (FileNotFoundError, StoreCorrupt):  # a commit has joined it meanwhile, or it is damaged, as searches say
            return False
        hashes = [hash for found, _ in current.values() for hash in found]
        folder, parts = graph_folder(self.store, embedder), [rows for _, rows in current.values()]
        written = folder / segment_path(self.store, embedder, _UNDER_WAY).name
        size = write_any(written, embedder, hashes, parts)
        built = [(metric, settings) for metric, settings in graphs if len(hashes) >= settings.above]
        for metric, settings in built:
            build_graph(graph_path(folder, _UNDER_WAY, metric, settings), written, metric, settings)
        with closing(self.writing()) as session:
            number = next_number(self.store, embedder)
            path = segment_path(self.store, embedder, number)
            for metric, settings in built:
                before, now = (graph_path(folder, one, metric, settings) for one in (_UNDER_WAY, number))
                os.rename(before, now)
            os.rename(written, path)
            fail_point("vectors.joined")
            fsync(folder)
            fsync(path.parent)
            session.connection.execute(sql.BEGIN)
            session.connection.execute(sql.ADD_SEGMENT, (embedder, number, dimension_of(parts[0]), len(hashes), size))
            session.connection.execute(sql.COMMIT)
        start = 0
        for old, (found, _) in current.items():
            self._move(embedder, old, number, start, found)
            start += len(found)
        return True

    def _move(self, embedder: str, old: int, number: int, start: int, hashes: Sequence[bytes]) -> None:
        for begin in range(0, len(hashes), _MOVED_AT_ONCE):
            some = hashes[begin : begin + _MOVED_AT_ONCE]
            moved = ((number, start + begin + at, embedder, hash, old) for at, hash in enumerate(some))
            with closing(self.writing()) as session:
                session.connection.execute(sql.BEGIN)
                session.connection.executemany(sql.MOVE_VECTOR, moved)
                fail_point("vectors.move")
                session.connection.execute(sql.DROP_EMPTY_SEGMENT, (embedder, old))
                session.connection.execute(sql.COMMIT)
