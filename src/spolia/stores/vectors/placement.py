"""Rows of the vectors of a group's live nodes in memory-mapped segments."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from spolia.errors import StoreError
from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.backends import sql
from spolia.stores.backends.backend import OpenedStore
from spolia.stores.definition import Metric
from spolia.stores.files import segment_names, segment_path
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.snapshot.shared_array import SharedArray, positions_of
from spolia.stores.vectors.dense import Vectors, read_checksum
from spolia.stores.vectors.search import exact_scores, rank_scores

Rows = npt.NDArray[np.int64]
T = TypeVar("T")

_AT_ONCE = 4_096
_NO_ROWS: Rows = np.zeros(0, dtype=np.int64)


class PlacedVectors:
    """Vectors of a group's live nodes, float32[rows, d] in segments put one below the other.

    A node is named by its position in `keys`; `places` has its row, which nodes of one text share.
    """

    def __init__(self, keys: Keys, segments: Sequence[Vectors], places: Rows) -> None:
        self.keys, self.places = keys, places
        self.segments = [np.asarray(segment) for segment in segments]  # plain arrays are cut faster than memmaps
        self.starts = np.cumsum([0, *(len(segment) for segment in segments)])
        self.dimension = int(segments[0].shape[1]) if segments else 0

    def positions(self, allowed: Allowed) -> Rows | None:
        if len(allowed.keys) != len(self.keys):
            raise StoreError(
                f"{len(allowed.keys)} nodes can be allowed, where {len(self.keys)} have vectors here. Ask the snapshot "
                "that the vectors are of."
            )
        return None if allowed.mask is None else np.flatnonzero(allowed.mask)

    def rows(self, positions: Rows | None) -> tuple[Rows, Rows | slice]:
        """Return the rows of these nodes, ascending, each once, and for each position which of them it has."""
        return self._all_rows if positions is None else _distinct(self.places[positions])

    @cached_property
    def _all_rows(self) -> tuple[Rows, Rows | slice]:
        return _distinct(self.places)

    @cached_property
    def segment_of(self) -> npt.NDArray[np.int32]:
        return np.repeat(np.arange(len(self.segments), dtype=np.int32), np.diff(self.starts))[self.places]

    @cached_property
    def _by_row(self) -> tuple[Rows, Rows | None]:
        """All rows in order, and the positions of their nodes; None where these are in order too."""
        if (self.places[1:] > self.places[:-1]).all():
            return self.places, None
        order = np.argsort(self.places, kind="stable")  # they are nearly in order, which makes this the fastest kind
        return self.places[order], order

    @cached_property
    def _bounds(self) -> list[int]:
        bounds: list[int] = np.searchsorted(self._by_row[0], self.starts).tolist()
        return bounds

    @cached_property
    def counts(self) -> Rows:
        """Nodes whose vectors are in each segment."""
        return np.diff(self._bounds)

    def members(self, segment: int) -> Rows:
        """Return the positions of the nodes whose vectors are in each segment."""
        first, end = self._bounds[segment : segment + 2]
        order = self._by_row[1]
        return np.arange(first, end) if order is None else np.sort(order[first:end])

    def owners(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return the positions of the nodes whose vectors are in these rows, and for each of them which of the rows it
        is."""
        by_row, order = self._by_row
        begins, ends = np.searchsorted(by_row, rows), np.searchsorted(by_row, rows, side="right")
        counts = ends - begins
        numbers = np.repeat(np.arange(len(rows)), counts)
        positions = np.arange(len(numbers)) + np.repeat(ends - np.cumsum(counts), counts)
        return positions if order is None else order[positions], numbers

    def vectors(self, rows: Rows) -> Vectors:
        """Return the vectors of rows that ascend."""
        result = np.empty((len(rows), self.dimension), dtype=np.float32)
        bounds = pairwise(np.searchsorted(rows, self.starts).tolist())
        for segment, start, (first, end) in zip(self.segments, self.starts, bounds, strict=False):
            # With mode "raise", numpy writes into a buffer first and copies it into `out`.
            segment.take(rows[first:end] - start, axis=0, out=result[first:end], mode="clip")
        return result

    def vectors_at(self, positions: Rows) -> Vectors:
        rows, order = self.rows(positions)
        return self.vectors(rows)[order]

    def rank_nodes(
        self, metric: Metric, query: Vectors, positions: Rows, limit: int, ids: Ids | None = None
    ) -> list[tuple[int, float]]:
        """Return keys and exact scores of the best of these nodes; `ids` as for `Search`."""
        positions = np.sort(positions)
        rows, order = self.rows(positions)
        # Scores are float64: in blocks, so that memory stays bounded.
        blocks = [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]
        scores = np.concatenate(
            [exact_scores(metric, query, self.vectors(block)) for block in blocks] or [np.zeros(0)]
        )[order]
        return rank_scores(self.keys[positions], scores, limit, ids)


def _distinct(places: Rows) -> tuple[Rows, Rows | slice]:
    if (places[1:] > places[:-1]).all():  # as they are when nodes were embedded in their order
        return places, slice(None)
    return np.unique(places, return_inverse=True)


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    return np.concatenate([_NO_ROWS, *parts])


ROW = np.dtype([("key", "<i8"), ("segment", "<i4"), ("row", "<i4")])
LACKING = -1
"""Stands where the segment does of a node without a vector."""


def _empty(dtype: str) -> SharedArray:
    return SharedArray(np.zeros(0, dtype=dtype))


@dataclass(frozen=True, eq=False)
class SegmentLayout:
    """Segments put one below the other, by number, and the rows of vectors in all of them: of the first nodes of a
    generation, or of all."""

    numbers: list[int] = field(default_factory=list)
    rows: SharedArray = field(default_factory=lambda: _empty("<i8"))

    def without(self, positions: Rows) -> "SegmentLayout":
        return SegmentLayout(self.numbers, self.rows.without(positions[positions < len(self.rows.values)]))


@dataclass(eq=False)
class VectorPlaces:
    """Key, segment and row of each vector of a group at a generation, and the checksums of the segments.

    Later generations inherit the opened files of segments that are still there: to read and check one takes a
    thousand times as long as a question. What they inherit of nodes is not copied, unless some of these died.
    """

    open_store: OpenedStore
    group: str
    embedder: str
    generation: int = 0
    keys: SharedArray = field(default_factory=lambda: _empty("<i8"))
    numbers: SharedArray = field(default_factory=lambda: _empty("<i4"))
    rows: SharedArray = field(default_factory=lambda: _empty("<i4"))
    is_lacking: bool = False
    layout: SegmentLayout = field(default_factory=SegmentLayout)
    segments: Mapping[int, bytes] = field(default_factory=dict)
    files: dict[tuple[str, bytes], Any] = field(default_factory=dict)

    def file(self, path: str, segment: int, open: Callable[[Path], T]) -> T:
        """Open a file of a segment, or return it if it is open; it stays open as long as the segment is there."""
        key = path, self.segments.get(segment, b"")
        file = self.files[key] = self.open_store.share(key, lambda: open(Path(path)))
        return file

    def path(self, segment: int) -> str:
        return f"{self._folder}{segment_names(self.embedder, segment)[1]}"

    @cached_property
    def _folder(self) -> str:
        return f"{segment_path(self.open_store.folder, self.embedder, 0).parent}{os.sep}"

    def for_generation(self, generation: int) -> "VectorPlaces":
        places = self._read_generation(generation)
        if len(self.keys.values) and self._were_replaced():  # asked last: then none of the rows is older than others
            return VectorPlaces(self.open_store, self.group, self.embedder, files=self.files).for_generation(generation)
        return places

    def _were_replaced(self) -> bool:
        """Return whether texts have other vectors since this generation, although their nodes are the same."""
        cursor = self.open_store.row(sql.CURSOR, (sql.REPLACED, self.embedder))
        return cursor is not None and cursor[1] > self.generation

    def _read_generation(self, generation: int) -> "VectorPlaces":
        segments = dict(self._read_checksums())
        keys, numbers, rows, layout = self.keys, self.numbers, self.rows, self.layout
        dead_values = {"grp": self.group, "since": self.generation, "at": generation}
        if len(keys.values) and (dead := [key for (key,) in self.open_store.rows(sql.DEAD_RECORDS, dead_values)]):
            gone = positions_of(dead, keys.values)
            keys, numbers, rows = keys.without(gone), numbers.without(gone), rows.without(gone)
            layout = layout.without(gone)
        values = {"embedder": self.embedder, "grp": self.group, "at": generation}
        last_key = int(self.keys.values[-1]) if len(self.keys.values) else 0
        added = self._fetch_rows(sql.PLACED, {**values, "known": last_key})
        unchanged = [number for number, checksum in segments.items() if self.segments.get(number) == checksum]
        if len(unchanged) == len(self.segments) and not self.is_lacking:
            keys, numbers, rows = (
                keys.appended(added["key"]),
                numbers.appended(added["segment"]),
                rows.appended(added["row"]),
            )
        else:
            stays = np.isin(numbers.values, unchanged)
            moved_keys = json.dumps(keys.values[~stays].tolist())
            added = np.concatenate([added, self._fetch_rows(sql.PLACED_OF_KEYS, {**values, "keys": moved_keys})])
            columns = ((keys, "key"), (numbers, "segment"), (rows, "row"))
            parts = [np.concatenate([column.values[stays], added[name]]) for column, name in columns]
            order = np.argsort(parts[0])
            keys, numbers, rows = (SharedArray(part[order]) for part in parts)
            layout = SegmentLayout()
        needed = set(segments.values())
        return VectorPlaces(
            self.open_store,
            self.group,
            self.embedder,
            generation,
            keys,
            numbers,
            rows,
            is_lacking=bool((added["segment"] == LACKING).any()),
            layout=layout,
            segments=segments,
            files={key: file for key, file in self.files.copy().items() if key[1] in needed},
        )

    def _read_checksums(self) -> Iterator[tuple[int, bytes]]:
        for number, *_ in self.open_store.rows(sql.SEGMENTS_OF, (self.embedder,)):
            # One that is not there was joined in this moment, or damaged: who searches says so.
            with suppress(OSError):
                yield number, read_checksum(self.path(number))

    def _fetch_rows(self, statement: str, values: Mapping[str, Any]) -> npt.NDArray[Any]:
        rows = self.open_store.stream_rows(statement, values)
        placed = ((key, LACKING if segment is None else segment, row or 0) for key, segment, row in rows)
        return np.fromiter(placed, dtype=ROW)
