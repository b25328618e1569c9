"""Compaction of small segments of vectors that many commits leave, and building of graphs, while others read and write.

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
    build_graph,
    build_graphs,
    graph_path,
    has_usearch,
    missing_graphs,
    sweep_graphs,
    unneeded_graphs,
)
from spolia.stores.vectors.segments import (
    current_rows,
    dimension_of,
    next_number,
    plan_joins,
    write_any,
)

_BATCH_ROWS = 20_000  # other writers wait for one batch at most
_UNNUMBERED = 0
"""Stands for the number of a segment that has none yet."""

Graphs = Sequence[tuple[Metric, HNSW]]


@dataclass(frozen=True)
class Compaction:
    """Compaction of the vectors of a store. Until a sync has ended, it joins only what fills a segment for good."""

    store: Path
    connection: Connection
    manifests: Mapping[str, Manifest]
    has_ended: bool
    begin_writing: Callable[[], WriteSession]

    def is_needed(self) -> bool:
        missing = (
            missing_graphs(self.store, embedder, self._rows(embedder), *graph)
            for embedder, graphs in self._graphs.items()
            for graph in (graphs if self.has_ended else ())
        )
        return any(map(self._plan, self._graphs)) or any(missing) or bool(unneeded_graphs(self.store, self._segments()))

    def run(self) -> bool:
        """Join segments and build missing graphs, with `graphs.lock` held; returns whether vectors have moved."""
        has_moved = False
        for embedder, graphs in self._graphs.items():
            for numbers in self._plan(embedder):
                has_moved |= self._join(embedder, numbers, graphs)
            for metric, settings in graphs if self.has_ended else ():
                build_graphs(self.store, embedder, self._rows(embedder), metric, settings)
        sweep_graphs(self.store, self._segments())
        return has_moved

    @cached_property
    def _graphs(self) -> dict[str, list[tuple[Metric, HNSW]]]:
        graphs_by_embedder: dict[str, list[tuple[Metric, HNSW]]] = {}
        for embedding in (embedding for manifest in self.manifests.values() for embedding in manifest.embeddings):
            settings, graphs = index_of(embedding), graphs_by_embedder.setdefault(embedding.embedder, [])
            if isinstance(settings, HNSW) and not embedding.is_sparse and (embedding.metric, settings) not in graphs:
                graphs.append((embedding.metric, settings))
        return graphs_by_embedder

    def _plan(self, embedder: str) -> list[list[int]]:
        if not self.has_ended:
            return plan_joins(self._rows(embedder), None, 0, 1)
        limits = [settings.above for _, settings in self._graphs[embedder]]
        graph_rows = min(limits) if limits and has_usearch() else None
        return plan_joins(self._rows(embedder), graph_rows, segments.SEGMENT_ROWS, segments.SMALL_SEGMENTS)

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
        hashes = [hash for old_hashes, _ in current.values() for hash in old_hashes]
        folder, parts = graph_folder(self.store, embedder), [rows for _, rows in current.values()]
        temporary = folder / segment_path(self.store, embedder, _UNNUMBERED).name
        size = write_any(temporary, embedder, hashes, parts)
        built = [(metric, settings) for metric, settings in graphs if len(hashes) >= settings.above]
        for metric, settings in built:
            build_graph(graph_path(folder, _UNNUMBERED, metric, settings), temporary, metric, settings)
        with closing(self.begin_writing()) as session:
            number = next_number(self.store, embedder)  # under the lock: a commit may have taken the next number
            path = segment_path(self.store, embedder, number)
            for metric, settings in built:
                old_path, new_path = (graph_path(folder, name, metric, settings) for name in (_UNNUMBERED, number))
                # The graphs first: a segment is searched along its graph from the moment that it has its name.
                os.rename(old_path, new_path)
            os.rename(temporary, path)
            fail_point("vectors.joined")
            fsync(folder)  # the files are durable before the database names them
            fsync(path.parent)
            session.connection.execute(sql.BEGIN)
            session.connection.execute(sql.ADD_SEGMENT, (embedder, number, dimension_of(parts[0]), len(hashes), size))
            session.connection.execute(sql.COMMIT)
        start = 0
        for old, (old_hashes, _) in current.items():
            self._move(embedder, old, number, start, old_hashes)
            start += len(old_hashes)
        return True

    def _move(self, embedder: str, old: int, number: int, start: int, hashes: Sequence[bytes]) -> None:
        for begin in range(0, len(hashes), _BATCH_ROWS):
            batch = hashes[begin : begin + _BATCH_ROWS]
            # A row moves only from `old`: one that was replaced meanwhile has another segment.
            values = ((number, start + begin + offset, embedder, hash, old) for offset, hash in enumerate(batch))
            # One short transaction for each batch, so that other writers can go on in between.
            with closing(self.begin_writing()) as session:
                session.connection.execute(sql.BEGIN)
                session.connection.executemany(sql.MOVE_VECTOR, values)
                fail_point("vectors.move")
                session.connection.execute(sql.DROP_EMPTY_SEGMENT, (embedder, old))
                session.connection.execute(sql.COMMIT)
