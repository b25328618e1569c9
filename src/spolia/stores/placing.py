"""Where the vectors of the live nodes of a group stand in the segments."""

from __future__ import annotations

import numpy as np

from spolia.errors import StoreCorrupt, StoreError
from spolia.stores import sql
from spolia.stores.layout import segment_path
from spolia.stores.nearest import Nearest
from spolia.stores.opened import Opened
from spolia.stores.placed import Placed
from spolia.stores.vectors import Segment, open_segment

_ATTEMPTS = 5


def nearest_of(opened: Opened, generation: int, group: str, embedder: str) -> Nearest:
    """The exact index of a group's nodes at a generation, over memory-mapped segments."""
    placed = placed_of(opened, generation, group, embedder)
    return Nearest(placed.keys, placed.segments, placed.places)


def placed_of(opened: Opened, generation: int, group: str, embedder: str) -> Placed:
    """The vectors of a group's nodes at a generation."""
    for attempt in range(_ATTEMPTS):
        try:
            return _placed_of(opened, generation, group, embedder)
        except FileNotFoundError as error:  # merged into another segment since the places were read
            if attempt == _ATTEMPTS - 1:
                raise StoreCorrupt(
                    f"The vector segment {error.filename} is not there. Write writer.repair(), or "
                    "spolia index FOLDER --store PATH: what it held is embedded again."
                ) from error
    raise AssertionError("unreachable")


def _placed_of(opened: Opened, generation: int, group: str, embedder: str) -> Placed:
    at = {"embedder": embedder, "grp": group, "at": generation}
    rows = opened.rows(sql.PLACED, at)
    if lacking := sum(row[1] is None for row in rows):
        raise StoreError(
            f"{lacking} nodes of group {group!r} in {opened.store} have no vector from {embedder!r}. Search with the "
            "embedder of the group's manifest, or index with this one into another store."
        )
    used = sorted({row[1] for row in rows})
    segments = [_segment(opened, embedder, number).vectors for number in used]
    start, starts = 0, {}
    for number, segment in zip(used, segments, strict=True):
        starts[number] = start
        start += len(segment)
    return Placed(
        np.array([row[0] for row in rows], dtype=np.int64),
        segments,
        np.array([starts[row[1]] + row[2] for row in rows], dtype=np.int64),
    )


def _segment(opened: Opened, embedder: str, number: int) -> Segment:
    path = segment_path(opened.folder, embedder, number)
    return opened.shared(path, lambda: open_segment(path))
