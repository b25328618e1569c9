"""Finding the vectors of a group in a store, and opening what searches them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spolia.core.run_context import note
from spolia.errors import MissingExtra, StoreCorrupt, StoreError
from spolia.stores.access.allowed_nodes import Keys
from spolia.stores.definition import Metric
from spolia.stores.files import graph_folder, segment_path
from spolia.stores.indexes import HNSW, IndexSettings
from spolia.stores.open_store import OpenStore
from spolia.stores.vectors.dense import VectorSegment, checksum_of
from spolia.stores.vectors.graphs import NOT_AVAILABLE, VectorGraph, graph_path
from spolia.stores.vectors.placement import LACKING, PlacedVectors, Rows, VectorPlaces, nowhere
from spolia.stores.vectors.search import VectorSearch
from spolia.stores.vectors.segment_search import ExactSearch, GraphSearch
from spolia.stores.vectors.segments import AnySegment, open_any
from spolia.stores.vectors.sparse import SparseSearch, SparseSegment

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

_ATTEMPTS = 5


class OpenGraphs:
    """The graphs over the segments of an embedder, opened when they are searched and shared by all snapshots."""

    def __init__(self, opened: OpenStore, embedder: str, metric: Metric, settings: HNSW) -> None:
        self.opened, self.embedder, self.metric, self.settings = opened, embedder, metric, settings
        self._open: dict[int, VectorGraph] = {}
        self._wrong: dict[int, str] = {}

    def graph(self, segment: int) -> VectorGraph | None:
        """The graph of a segment; None, with a note, while there is none that can be used."""
        if (found := self._open.get(segment)) is not None:
            return found
        if (wrong := self._wrong.get(segment)) is None:
            path = graph_path(graph_folder(self.opened.folder, self.embedder), segment, self.metric, self.settings)
            wrong = self._opened(segment, path)
        if wrong:
            note(wrong)
        return self._open.get(segment)

    def _opened(self, segment: int, path: Path) -> str:
        """Open a graph; what is wrong with it, in words. One that is not built yet is looked for again."""
        below = segment_path(self.opened.folder, self.embedder, segment)
        try:
            key = path, checksum_of(below)
            self._open[segment] = self.opened.shared(key, lambda: VectorGraph(path, below))
        except FileNotFoundError:
            return f"The graph {path.name} is not built yet: vectors were compared one by one, which is slower."
        except MissingExtra:
            self._wrong[segment] = NOT_AVAILABLE
        except StoreCorrupt as error:
            self._wrong[segment] = str(error)
        return self._wrong.get(segment, "")


def vector_search(snapshot: Snapshot, group: str, embedder: str, metric: Metric, index: IndexSettings) -> VectorSearch:
    """What searches a group's vectors at a generation within the store: exactly, or along graphs where they are large.

    Args:
        index: `HNSW` for graphs; any other settings for exact search.
    """
    placed, numbers = located(snapshot, group, embedder)
    if not isinstance(index, HNSW) or len(placed.keys) < index.above:
        return ExactSearch(placed, metric)
    graphs = OpenGraphs(snapshot.opened, embedder, metric, index)
    openers = [
        (lambda number=number: graphs.graph(number)) if len(segment) >= index.above else (lambda: None)
        for number, segment in zip(numbers, placed.segments, strict=True)
    ]
    return GraphSearch(placed, metric, openers, index.expansion_search)


def located(snapshot: Snapshot, group: str, embedder: str) -> tuple[PlacedVectors, list[int]]:
    """Where the vectors of a group's nodes stand, and the numbers of the segments that they stand in.

    Raises:
        StoreError: nodes without a vector.
        StoreCorrupt: a segment is not there.
    """
    keys, places, segments = _located(snapshot, group, embedder)
    vectors = {number: segment.vectors for number, segment in segments.items() if isinstance(segment, VectorSegment)}
    return PlacedVectors(keys, list(vectors.values()), places), list(vectors)


def sparse_search(snapshot: Snapshot, group: str, embedder: str) -> SparseSearch:
    """What searches a group's sparse vectors at a generation; see `located`."""
    keys, places, segments = _located(snapshot, group, embedder)
    return SparseSearch(keys, [found for found in segments.values() if isinstance(found, SparseSegment)], places)


def _located(snapshot: Snapshot, group: str, embedder: str) -> tuple[Keys, Rows, dict[int, AnySegment]]:
    """Node keys, the rows of their vectors in all segments put one below the other, the segments by number."""
    key = (group, embedder)
    for _ in range(_ATTEMPTS):
        if (places := snapshot.open.places.get(key)) is None:
            places = nowhere(snapshot.opened, group, embedder).at(snapshot.generation)
        try:
            found = _opened(snapshot, places)
        except FileNotFoundError as error:  # joined into another segment since the places were read
            missing = error
            snapshot.open.places.pop(key, None)
        else:
            snapshot.open.places[key] = places
            return found
    raise StoreCorrupt(
        f"The vector segment {missing.filename} is not there. Write writer.repair(), or "
        "spolia index FOLDER --store PATH: what it held is embedded again."
    ) from missing


def _opened(snapshot: Snapshot, places: VectorPlaces) -> tuple[Keys, Rows, dict[int, AnySegment]]:
    rows = places.rows
    if lacking := int(np.count_nonzero(rows["segment"] == LACKING)):
        raise StoreError(
            f"{lacking} nodes of group {places.group!r} in {snapshot.opened.store} have no vector from "
            f"{places.embedder!r}. Search with the embedder of the group's manifest, or index with this one into "
            "another store."
        )
    numbers = [int(number) for number in np.unique(rows["segment"])]
    segments = {number: _segment(places, number) for number in numbers}
    starts = np.cumsum([0, *(len(segment.hashes) for segment in segments.values())])
    return rows["key"].copy(), starts[np.searchsorted(numbers, rows["segment"])] + rows["row"], segments


def _segment(places: VectorPlaces, number: int) -> AnySegment:
    path = segment_path(places.opened.folder, places.embedder, number)
    return places.opened.shared((path, places.segments.get(number)), lambda: open_any(path))
