"""In which segment and row the vectors of a group's nodes stand, brought from generation to generation.

Nodes never change and vectors stay where they were written, until segments are joined. So only of those nodes is asked
that were born since, and of those whose segment is not there any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spolia.stores.layout import segment_path
from spolia.stores.opened import Opened
from spolia.stores.tables import sql
from spolia.stores.vectors.dense import checksum_of

ROW = np.dtype([("key", "<i8"), ("segment", "<i4"), ("row", "<i4")])
LACKING = -1
"""Stands where the segment does of a node without a vector."""


@dataclass(frozen=True, eq=False)
class Places:
    """Where the vectors of the live nodes of a group stand at a generation.

    Args:
        opened: the store.
        group: name of the group.
        embedder: that made the vectors.
        generation: at which.
        rows: for each node its key, the segment of its vector and the row in it; by key.
        segments: those that there are, by number, and their checksums: when the last one was damaged, its number is
            given again.
    """

    opened: Opened
    group: str
    embedder: str
    generation: int
    rows: npt.NDArray[Any]
    segments: Mapping[int, bytes]

    def at(self, generation: int) -> Places:
        """Those at a later generation."""
        segments = dict(self._there())
        same = [number for number, checksum in segments.items() if self.segments.get(number) == checksum]
        lives = ~np.isin(self.rows["key"], self._dead(generation))
        stays = np.isin(self.rows["segment"], same) & lives
        values = {"embedder": self.embedder, "grp": self.group, "at": generation}
        known = int(self.rows["key"][-1]) if len(self.rows) else 0
        parts = [self.rows[stays], self._asked(sql.PLACED, {**values, "known": known})]
        if not (stays == lives).all():
            moved = json.dumps(self.rows["key"][lives & ~stays].tolist())
            parts.append(self._asked(sql.PLACED_OF_KEYS, {**values, "keys": moved}))
        rows = np.concatenate(parts)
        if len(parts) > 2:
            rows = rows[np.argsort(rows["key"])]
        return Places(self.opened, self.group, self.embedder, generation, rows, segments)

    def _there(self) -> Iterator[tuple[int, bytes]]:
        for number, *_ in self.opened.rows(sql.SEGMENTS_OF, (self.embedder,)):
            # One that is not there was joined in this moment, or damaged: who searches says so.
            with suppress(OSError):
                yield number, checksum_of(segment_path(self.opened.folder, self.embedder, number))

    def _dead(self, generation: int) -> list[int]:
        values = {"grp": self.group, "since": self.generation, "at": generation}
        return [key for (key,) in self.opened.rows(sql.DEAD_RECORDS, values)] if len(self.rows) else []

    def _asked(self, statement: str, values: Mapping[str, Any]) -> npt.NDArray[Any]:
        return np.fromiter(_known(self.opened.each(statement, values)), dtype=ROW)


def nowhere(opened: Opened, group: str, embedder: str) -> Places:
    """What is known of a group before anything was read."""
    return Places(opened, group, embedder, 0, np.zeros(0, dtype=ROW), {})


def _known(rows: Iterable[tuple[int, int | None, int | None]]) -> Iterator[tuple[int, int, int]]:
    for key, segment, row in rows:
        yield key, LACKING if segment is None else segment, row or 0
