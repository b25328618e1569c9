"""Rows of the vectors of a group's live nodes in memory-mapped segments."""

import json
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
from spolia.stores.definition import Metric
from spolia.stores.files import segment_path
from spolia.stores.open_store import OpenStore
from spolia.stores.snapshot.hit_order import Ids
from spolia.stores.vectors.dense import Vectors, checksum_of
from spolia.stores.vectors.search import exact, ordered_scores

Rows = npt.NDArray[np.int64]
T = TypeVar("T")

_AT_ONCE = 4_096
_NOWHERE: Rows = np.zeros(0, dtype=np.int64)


class PlacedVectors:
    """The vectors of a group's live nodes, float32[rows, d] in segments put one below the other.

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
        """Rows of these nodes, ascending, each once, and for each position which of them it has."""
        return self._all_rows if positions is None else _distinct(self.places[positions])

    @cached_property
    def _all_rows(self) -> tuple[Rows, Rows | slice]:
        return _distinct(self.places)

    @cached_property
    def segment_of(self) -> npt.NDArray[np.int32]:
        return np.repeat(np.arange(len(self.segments), dtype=np.int32), np.diff(self.starts))[self.places]

    @cached_property
    def members(self) -> list[Rows]:
        """Positions of the nodes whose vectors are in each segment."""
        if isinstance(self._all_rows[1], slice):
            bounds = np.searchsorted(self.places, self.starts).tolist()
            return [np.arange(*pair) for pair in pairwise(bounds)]
        counts = np.bincount(self.segment_of, minlength=len(self.segments))
        return np.split(np.argsort(self.segment_of, kind="stable"), np.cumsum(counts)[:-1])

    @cached_property
    def _owners(self) -> tuple[Rows, npt.NDArray[np.int32]]:
        """Positions by row, and for each row where those of it begin there."""
        order = np.argsort(self.places, kind="stable")
        ends = np.cumsum(np.bincount(self.places, minlength=self.starts[-1]), dtype=np.int32)
        return order, np.append(np.int32(0), ends)

    def owners(self, rows: Rows) -> tuple[Rows, Rows]:
        """Positions of the nodes whose vectors are in these rows, and for each of them which of the rows it is."""
        if isinstance(self._all_rows[1], slice):  # the rest takes 1 ms of 100,000 nodes after each publication
            at = np.minimum(np.searchsorted(self.places, rows), len(self.places) - 1)
            which = np.flatnonzero(self.places[at] == rows)
            return at[which], which
        order, begins = self._owners
        ends = begins[rows + 1]
        counts = ends - begins[rows]
        which = np.arange(len(rows))
        if (counts == 1).all():  # nearly always, and it takes a third of the time
            return order[begins[rows]], which
        which = np.repeat(which, counts)
        return order[np.arange(len(which)) + np.repeat(ends - np.cumsum(counts), counts)], which

    def vectors(self, rows: Rows) -> Vectors:
        """The vectors of rows that ascend."""
        found = np.empty((len(rows), self.dimension), dtype=np.float32)
        within = pairwise(np.searchsorted(rows, self.starts).tolist())
        for segment, start, (first, end) in zip(self.segments, self.starts, within, strict=False):
            segment.take(rows[first:end] - start, axis=0, out=found[first:end], mode="clip")
        return found

    def at(self, positions: Rows) -> Vectors:
        rows, which = self.rows(positions)
        return self.vectors(rows)[which]

    def best(
        self, metric: Metric, query: Vectors, positions: Rows, wanted: int, ids: Ids | None = None
    ) -> list[tuple[int, float]]:
        """Keys and exact scores of the best of these nodes; `ids` as for `Search`."""
        positions = np.sort(positions)
        rows, which = self.rows(positions)
        blocks = [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]
        scores = np.concatenate([exact(metric, query, self.vectors(block)) for block in blocks] or [np.zeros(0)])[which]
        return ordered_scores(self.keys[positions], scores, wanted, ids)


def _distinct(places: Rows) -> tuple[Rows, Rows | slice]:
    if (places[1:] > places[:-1]).all():  # as they are when nodes were embedded in their order
        return places, slice(None)
    return np.unique(places, return_inverse=True)


def together(parts: Sequence[Rows]) -> Rows:
    return np.concatenate([_NOWHERE, *parts])


ROW = np.dtype([("key", "<i8"), ("segment", "<i4"), ("row", "<i4")])
_WIDE = np.dtype("<c16")
LACKING = -1
"""Stands where the segment does of a node without a vector."""


@dataclass(frozen=True, eq=False)
class VectorPlaces:
    """The key, segment and row of each vector of a group at a generation, and the checksums of the segments.

    Later generations inherit the opened files of segments that are still there: to read and check one takes a
    thousand times as long as a question.
    """

    opened: OpenStore
    group: str
    embedder: str
    generation: int = 0
    rows: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=ROW))
    segments: Mapping[int, bytes] = field(default_factory=dict)
    files: dict[tuple[Path, bytes], Any] = field(default_factory=dict)

    def file(self, path: Path, segment: int, open: Callable[[], T]) -> T:
        """Open a file of a segment, or return it if it is open; it stays open as long as the segment is there."""
        key = path, self.segments.get(segment, b"")
        file = self.files[key] = self.opened.shared(key, open)
        return file

    def at(self, generation: int) -> "VectorPlaces":
        found = self._at(generation)
        if len(self.rows) and self._were_replaced():  # asked last: then none of the rows is older than others
            return VectorPlaces(self.opened, self.group, self.embedder, files=self.files).at(generation)
        return found

    def _were_replaced(self) -> bool:
        """Whether texts have other vectors since this generation, although their nodes are the same."""
        noted = self.opened.row(sql.CURSOR, (sql.REPLACED, self.embedder))
        return noted is not None and noted[1] > self.generation

    def _at(self, generation: int) -> "VectorPlaces":
        segments = dict(self._there())
        rows = self.rows
        since = {"grp": self.group, "since": self.generation, "at": generation}
        if len(rows) and (dead := [key for (key,) in self.opened.rows(sql.DEAD_RECORDS, since)]):
            rows = rows[~np.isin(rows["key"], dead)]
        values = {"embedder": self.embedder, "grp": self.group, "at": generation}
        known = int(self.rows["key"][-1]) if len(self.rows) else 0
        parts = [rows, self._asked(sql.PLACED, {**values, "known": known})]
        same = [number for number, checksum in segments.items() if self.segments.get(number) == checksum]
        if len(same) < len(self.segments) or (rows["segment"] == LACKING).any():
            stays = np.isin(rows["segment"], same)
            moved = json.dumps(rows["key"][~stays].tolist())
            parts = [rows[stays], parts[1], self._asked(sql.PLACED_OF_KEYS, {**values, "keys": moved})]
        rows = np.concatenate([part.view(_WIDE) for part in parts]).view(ROW)  # numpy copies records field by field
        if len(parts) > 2:
            rows = rows[np.argsort(rows["key"])]
        needed = set(segments.values())
        files = {key: file for key, file in self.files.copy().items() if key[1] in needed}
        return VectorPlaces(self.opened, self.group, self.embedder, generation, rows, segments, files)

    def _there(self) -> Iterator[tuple[int, bytes]]:
        for number, *_ in self.opened.rows(sql.SEGMENTS_OF, (self.embedder,)):
            # One that is not there was joined in this moment, or damaged: who searches says so.
            with suppress(OSError):
                yield number, checksum_of(segment_path(self.opened.folder, self.embedder, number))

    def _asked(self, statement: str, values: Mapping[str, Any]) -> npt.NDArray[Any]:
        found = self.opened.each(statement, values)
        placed = ((key, LACKING if segment is None else segment, row or 0) for key, segment, row in found)
        return np.fromiter(placed, dtype=ROW)
