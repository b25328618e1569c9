"""The nearest neighbours of all vectors of a group, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from spolia.retrieval.graph.links import Pairs, Positions
from spolia.stores.truth import Stored
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.metrics import unit
from spolia.surrounding import check_cancelled

ROWS, COLUMNS = 2_048, 4_096
"""Vectors of a block: 32 MB of products at a time, whatever the number of nodes."""
_NOTHING = 1e-6
"""A cosine of vectors at right angles, as far as their float32 numbers tell."""


def similar(stored: Stored, count: int, neighbours: int, at_least: float) -> Pairs:
    """Each node with those of the highest cosine, found by comparing all with all.

    Args:
        stored: the vectors of the nodes.
        count: of the nodes.
        neighbours: of a node.
        at_least: lower cosines are left out, and those that are not above 0.
    """
    return Pairs.joined(_nearest(stored, count, start, neighbours, at_least) for start in range(0, count, ROWS))


def _nearest(stored: Stored, count: int, start: int, neighbours: int, at_least: float) -> Pairs:
    """The neighbours of one block of nodes."""
    own = np.arange(start, min(start + ROWS, count))
    rows = unit(stored.at(own))
    best = np.zeros((len(rows), 0), np.float32)
    where = np.zeros((len(rows), 0), np.int64)
    for first, columns in _blocks(stored, count):
        check_cancelled()
        scores = rows @ columns.T
        inside = (own >= first) & (own < first + len(columns))
        scores[inside, own[inside] - first] = -np.inf
        near = _highest(scores, neighbours)
        best = np.concatenate([best, np.take_along_axis(scores, near, axis=1)], axis=1)
        where = np.concatenate([where, near + first], axis=1)
        kept = _highest(best, neighbours)
        best, where = np.take_along_axis(best, kept, axis=1), np.take_along_axis(where, kept, axis=1)
    one, other = np.repeat(own, best.shape[1]), where.ravel()
    real = one != other
    return _weighed(stored, one[real], other[real], at_least)


def _highest(scores: Vectors, count: int) -> Positions:
    """In each row the columns of the highest scores, in any order."""
    if scores.shape[1] <= count:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.argpartition(scores, -count, axis=1)[:, -count:]


def _weighed(stored: Stored, one: Positions, other: Positions, at_least: float) -> Pairs:
    """Pairs with their cosines in double precision: the same from both sides, however the blocks were cut."""
    cosines = np.concatenate(
        [
            (_at(stored, one[start : start + COLUMNS]) * _at(stored, other[start : start + COLUMNS])).sum(axis=1)
            for start in range(0, max(1, len(one)), COLUMNS)
        ]
    )
    near = (cosines >= at_least) & (cosines > _NOTHING)
    return Pairs(one[near], other[near], cosines[near].astype(np.float32))


def _at(stored: Stored, positions: Positions) -> npt.NDArray[np.float64]:
    return unit(stored.at(positions)).astype(np.float64)


def _blocks(stored: Stored, count: int) -> Iterator[tuple[int, Vectors]]:
    for first in range(0, count, COLUMNS):
        yield first, unit(stored.at(np.arange(first, min(first + COLUMNS, count))))
