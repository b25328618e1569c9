"""Search of segments of vectors, exactly or along graphs, and opening of such searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spolia.core.run_context import note
from spolia.errors import MissingExtra, StoreCorrupt, StoreError
from spolia.stores.access.allowed_nodes import Allowed, Keys, Mask
from spolia.stores.backends.searches import DenseSearch, Rankings
from spolia.stores.definition import Metric
from spolia.stores.files import corrupt_error, graph_folder
from spolia.stores.indexes import HNSW, IndexSettings
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import EMBED_AGAIN, Vectors, VectorSegment
from spolia.stores.vectors.graphs import VectorGraph, graph_path
from spolia.stores.vectors.placement import LACKING, PlacedVectors, Rows, SegmentLayout, VectorPlaces, concatenate_rows
from spolia.stores.vectors.search import check_queries, rough_scores, slack
from spolia.stores.vectors.segments import AnySegment, open_any
from spolia.stores.vectors.sparse import SparseSearch, SparseSegment

if TYPE_CHECKING:
    from spolia.stores.backends.backend import PinnedSnapshot

_SCORED_AT_ONCE = 4_000_000  # 16 MB of float32
_BLOCK_ROWS = 512
"""Gathered at a time: at 384 numbers they stay in a core's second cache from the gathering to the product."""
_DENSITY = 2
"""A block that spans at most this many times its rows is multiplied in place, and the other rows left out."""


class ExactSearch:
    """Exact search of the vectors of a group's nodes, in bounded memory.

    Time grows with what is allowed: few rows are gathered from the segments, many are multiplied where they stand.

    >>> vectors = np.eye(3, dtype=np.float32)
    >>> placed = PlacedVectors(np.array([10, 20, 30]), [vectors], np.arange(3))
    >>> ExactSearch(placed).search(vectors[1:2], 2, Allowed(placed.keys))
    [[(20, 1.0), (10, 0.0)]]
    >>> ExactSearch(placed).search(vectors[1:2], 2, Allowed(placed.keys, np.array([False, False, True])))
    [[(30, 0.0)]]
    """

    is_exact = True

    def __init__(self, placed: PlacedVectors, metric: Metric = "cosine") -> None:
        self.placed, self.metric = placed, metric

    def search(self, queries: Vectors, top_k: int, allowed: Allowed, ids: Ids | None = None) -> Rankings:
        positions = self.placed.positions(allowed)
        limit = min(top_k, allowed.count)
        if limit <= 0:
            return [[] for _ in queries]
        queries = check_queries(self.metric, queries, self.placed.dimension)
        candidates = self._find_candidates(queries, positions, limit, allowed)
        return [
            self.placed.rank_nodes(self.metric, *pair, limit, ids) for pair in zip(queries, candidates, strict=True)
        ]

    def _find_candidates(
        self, queries: Vectors, positions: Rows | None, limit: int, allowed: Allowed
    ) -> Iterable[Rows]:
        return self.compare_all(queries, positions, limit)

    def compare_all(self, queries: Vectors, positions: Rows | None, limit: int) -> Iterator[Rows]:
        """Yield for each query the positions that may be among the best; some more than are wanted."""
        rows, order = self.placed.rows(positions)
        at_once = max(1, _SCORED_AT_ONCE // len(rows))
        for start in range(0, len(queries), at_once):
            batch = queries[start : start + at_once]
            for query, scores in zip(batch, self._rough_scores(batch, rows), strict=True):
                nearest = self._within_slack(query, scores[order], limit)
                yield nearest if positions is None else positions[nearest]

    def _within_slack(self, query: Vectors, scores: Vectors, limit: int) -> Rows:
        if limit >= len(scores):
            return np.arange(len(scores))
        lowest = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        return np.flatnonzero(scores >= lowest - slack(self.metric, query, self._radius))

    def _rough_scores(self, queries: Vectors, rows: Rows) -> Vectors:
        scores = np.empty((len(queries), len(rows)), dtype=np.float32)
        ends = np.searchsorted(rows, self.placed.starts)
        for segment, vectors in enumerate(self.placed.segments):
            first = self.placed.starts[segment]
            for start in range(ends[segment], ends[segment + 1], _BLOCK_ROWS):
                end = min(start + _BLOCK_ROWS, ends[segment + 1])
                scores[:, start:end] = _products(queries, vectors, rows[start:end] - first)
        return rough_scores(self.metric, scores, self._squares[rows]) if self.metric == "euclidean" else scores

    @cached_property
    def _squares(self) -> Vectors:
        # In blocks: squares of all vectors in float64 would take twice their memory.
        blocks = [
            segment[start : start + _BLOCK_ROWS]
            for segment in self.placed.segments
            for start in range(0, len(segment), _BLOCK_ROWS)
        ]
        return np.concatenate([(block.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) for block in blocks])

    @cached_property
    def _radius(self) -> float:
        return 1.0 if self.metric == "cosine" else float(np.sqrt(self._squares.max()))


def _products(queries: Vectors, vectors: Vectors, rows: Rows) -> Vectors:
    """Return the products float32[m, n] of queries with some rows, which ascend."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    if last - first > _DENSITY * len(rows):
        return queries @ vectors.take(rows, axis=0, mode="clip").T
    products: Vectors = queries @ vectors[first:last].T
    return products if last - first == len(rows) else products[:, rows - first]


_CANDIDATE_COST = 32
"""Vectors that exact search compares in the time in which a graph finds one candidate: measured from 18 to 50."""
_GROWTH = 4  # a larger fetch walks the graph from its entry again

Opener = Callable[[], VectorGraph | None]


@dataclass(frozen=True, eq=False)
class _Walk:
    """Segment that is searched along its graph, and how many of its nodes may be found."""

    segment: int
    graph: VectorGraph
    count: int


class GraphSearch(ExactSearch):
    """Search that finds nearly all of the nearest nodes, along the graph of each segment that has one."""

    is_exact = False

    def __init__(self, placed: PlacedVectors, metric: Metric, graphs: Sequence[Opener], expansion: int) -> None:
        super().__init__(placed, metric)
        self.graphs, self.expansion = graphs, expansion

    def _find_candidates(
        self, queries: Vectors, positions: Rows | None, limit: int, allowed: Allowed
    ) -> Iterable[Rows]:
        walks, rest = self._plan(positions, limit)
        nearest_by_query = (
            self.compare_all(queries, rest, limit) if rest is None or len(rest) else (rest for _ in queries)
        )
        for query, compared in zip(queries, nearest_by_query, strict=True):
            walked = (self._nearest(query, walk, allowed.mask, limit) for walk in walks)
            yield concatenate_rows([compared, *walked])

    def _plan(self, positions: Rows | None, limit: int) -> tuple[list[_Walk], Rows | None]:
        counts = self.placed.counts
        if positions is not None:
            segment_numbers = self.placed.segment_of[positions]
            counts = np.bincount(segment_numbers, minlength=len(self.graphs))
        walks, compared = [], []
        for segment, count in enumerate(map(int, counts)):
            fetch = self._first_fetch(segment, count, limit)
            graph = self.graphs[segment]() if self._pays(fetch, count) else None
            if graph is None:
                compared.append(segment)
            else:
                walks.append(_Walk(segment, graph, count))
        if not walks:
            return [], positions
        if positions is None:
            return walks, np.sort(concatenate_rows([self.placed.members(segment) for segment in compared]))
        return walks, positions[np.isin(segment_numbers, compared)]

    def _first_fetch(self, segment: int, count: int, limit: int) -> int:
        """Return how many to fetch: twice the wanted ones are in the first half, if the allowed ones are spread evenly.

        1.5 times where all are allowed: of 100,000 sentences the 100 nearest are found with a recall of 0.990 then, and
        0.994 with twice as many, in a fifth more time. The 10 nearest are found alike.
        """
        times = 4 if count < self.placed.counts[segment] else 3
        return -(-times * limit * len(self.placed.segments[segment]) // max(count, 1))

    def _pays(self, fetch: int, count: int) -> bool:
        return max(fetch, self.expansion) * _CANDIDATE_COST < count

    def _nearest(self, query: Vectors, walk: _Walk, mask: Mask | None, limit: int) -> Rows:
        """Return positions of the allowed nodes of a segment that may be the nearest, with those of equal vectors."""
        fetch = self._first_fetch(walk.segment, walk.count, limit)
        while self._pays(fetch, walk.count):
            rows = walk.graph.nearest(query, fetch, self.expansion) + self.placed.starts[walk.segment]
            positions, numbers = self.placed.owners(rows)
            if mask is not None:
                positions, numbers = positions[mask[positions]], numbers[mask[positions]]
            in_first_half = int(np.searchsorted(numbers, -(-len(rows) // 2)))  # in the first half
            if in_first_half >= limit:
                return positions
            fetch = max(_GROWTH * fetch, 2 * fetch * limit // max(in_first_half, 1))
        # So few of the nearest are allowed that comparing takes less time than walking on.
        members = self.placed.members(walk.segment)
        return next(self.compare_all(query[None], members if mask is None else members[mask[members]], limit))


# Others may join segments between reading the places and opening the files.
_ATTEMPTS = 5


class OpenGraphs:
    """Graphs over the segments of an embedder, opened when they are searched and shared by all snapshots."""

    def __init__(self, places: VectorPlaces, metric: Metric, settings: HNSW) -> None:
        self.places, self.metric, self.settings = places, metric, settings
        self._open: dict[int, VectorGraph] = {}
        self._problems: dict[int, str] = {}

    def graph(self, segment: int) -> VectorGraph | None:
        """Return the graph of a segment; None, with a note, while it has no usable one."""
        if (graph := self._open.get(segment)) is not None:
            return graph
        if (problem := self._problems.get(segment)) is None:
            folder = graph_folder(self.places.open_store.folder, self.places.embedder)
            problem = self._open_graph(segment, graph_path(folder, segment, self.metric, self.settings))
        if problem:
            note(problem)
        return self._open.get(segment)

    def _open_graph(self, segment: int, path: Path) -> str:
        """Open a graph; return what is wrong with it, in words. One that is not built yet is looked for again."""
        segment_file = Path(self.places.path(segment))
        try:
            self._open[segment] = self.places.file(str(path), segment, lambda path: VectorGraph(path, segment_file))
        except FileNotFoundError:
            return f"The graph {path.name} is not built yet: vectors were compared one by one, which is slower."
        except MissingExtra as error:
            self._problems[segment] = f"Vectors are searched without a graph, with the same results, slower. {error}"
        except StoreCorrupt as error:
            self._problems[segment] = str(error)
        return self._problems.get(segment, "")


def vector_search(
    snapshot: PinnedSnapshot, group: str, embedder: str, metric: Metric, index: IndexSettings
) -> DenseSearch:
    """Return the search over a group's vectors at a generation: exact, or along graphs (`HNSW`) if they are large."""
    placed, numbers = locate_vectors(snapshot, group, embedder)
    if not isinstance(index, HNSW) or len(placed.keys) < index.above:
        return ExactSearch(placed, metric)
    graphs = OpenGraphs(snapshot.open.places[group, embedder], metric, index)
    openers = [
        (lambda number=number: graphs.graph(number)) if len(segment) >= index.above else (lambda: None)
        for number, segment in zip(numbers, placed.segments, strict=True)
    ]
    return GraphSearch(placed, metric, openers, index.expansion_search)


def locate_vectors(snapshot: PinnedSnapshot, group: str, embedder: str) -> tuple[PlacedVectors, list[int]]:
    """Return the rows of the vectors of a group's nodes, and the numbers of their segments."""
    keys, places, segments = _locate(snapshot, group, embedder)
    vectors = {number: segment.vectors for number, segment in segments.items() if isinstance(segment, VectorSegment)}
    return PlacedVectors(keys, list(vectors.values()), places), list(vectors)


def sparse_search(snapshot: PinnedSnapshot, group: str, embedder: str) -> SparseSearch:
    keys, places, segments = _locate(snapshot, group, embedder)
    return SparseSearch(keys, [segment for segment in segments.values() if isinstance(segment, SparseSegment)], places)


def _locate(snapshot: PinnedSnapshot, group: str, embedder: str) -> tuple[Keys, Rows, dict[int, AnySegment]]:
    """Return node keys, the rows of their vectors in all segments one below the other, and the segments by number."""
    key = (group, embedder)
    for _ in range(_ATTEMPTS):
        if (places := snapshot.open.places.get(key)) is None:
            places = VectorPlaces(snapshot.open_store, group, embedder).for_generation(snapshot.generation)
        try:
            location = _open_segments(snapshot, places)
        except FileNotFoundError as error:  # joined into another segment since the places were read
            missing = error
            snapshot.open.places.pop(key, None)
        else:
            snapshot.open.places[key] = places
            return location
    path = Path(missing.filename)
    raise corrupt_error(path, f"The vector segment {path} is not there", EMBED_AGAIN) from missing


def _open_segments(snapshot: PinnedSnapshot, places: VectorPlaces) -> tuple[Keys, Rows, dict[int, AnySegment]]:
    known_layout, number_of = places.layout, places.numbers.values
    if places.is_lacking:
        raise StoreError(
            f"{np.count_nonzero(number_of == LACKING)} nodes of group {places.group!r} in {snapshot.open_store.store} "
            f"have no vector from {places.embedder!r}. Search with the embedder of the group's manifest, or index with "
            "this one into another store."
        )
    number_of = number_of[len(known_layout.rows.values) :]
    fresh = np.flatnonzero(np.bincount(number_of)) if len(number_of) else number_of  # a unique() would sort them
    numbers = sorted({*known_layout.numbers, *fresh.tolist()})
    if numbers[: len(known_layout.numbers)] != known_layout.numbers:  # then the rows of the known nodes are others
        places.layout = SegmentLayout()
        return _open_segments(snapshot, places)
    segments = {number: places.file(places.path(number), number, open_any) for number in numbers}
    starts = np.zeros(max(numbers, default=0) + 1, dtype=np.int64)
    starts[numbers] = np.cumsum([0, *(len(segment.hashes) for segment in segments.values())])[:-1]
    rows = places.rows.values[len(known_layout.rows.values) :]
    layout = places.layout = SegmentLayout(numbers, known_layout.rows.appended(starts[number_of] + rows))
    return places.keys.values, layout.rows.values, segments
