"""The nearest neighbours of all nodes of a group by the cosines of their vectors, found anew or followed.

Rough cosines, float32 products, leave some candidates, of which the exact ones choose, equal ones by key. So the lists
do not depend on how the vectors were put together, nor on whether they were found at once or from those of an earlier
generation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spolia.retrieval.graph.links import Pairs, Positions
from spolia.stores.truth import Stored
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.metrics import unit
from spolia.surrounding import check_cancelled

ROWS, COLUMNS = 2_048, 4_096
"""Vectors of a block: 32 MB of products at a time, whatever the number of nodes."""
_ULP = 2.0**-23
_NOTHING = 1e-6
"""A cosine of vectors at right angles, as far as their float32 numbers tell."""
_NOBODY = -1

Cosines = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For each node its nearest ones.

    Args:
        keys: int64[n], of the nodes, ascending.
        near: int64[n, k], keys of the nearest, best first; -1 where there are fewer.
        cosines: float64[n, k], of these; -inf where there are fewer.
    """

    keys: Positions
    near: Positions
    cosines: Cosines

    @classmethod
    def none(cls, keys: Positions, neighbours: int) -> Neighbours:
        """Nodes of which no neighbours are known."""
        shape = (len(keys), neighbours)
        return cls(keys, np.full(shape, _NOBODY, np.int64), np.full(shape, -np.inf))

    def pairs(self, at_least: float) -> Pairs:
        """The links that they are, without lower cosines, and those that are not above 0."""
        one, place = np.nonzero((self.cosines >= at_least) & (self.cosines > _NOTHING))
        other = np.searchsorted(self.keys, self.near[one, place])
        return Pairs(one, other, self.cosines[one, place].astype(np.float32))


def nearest(stored: Stored, keys: Positions, neighbours: int, before: Neighbours | None = None) -> Neighbours:
    """Each node with those of the highest cosine.

    Args:
        stored: the vectors of the nodes.
        keys: of the nodes, ascending.
        neighbours: of a node.
        before: those of another generation. Nodes that are in both are compared only with the new ones, unless one of
            their neighbours is gone; without it all are compared with all.
    """
    found, every = Neighbours.none(keys, neighbours), np.arange(len(keys))
    if before is None:
        _compare(stored, found, every, every)
        return found
    stays, place = np.isin(keys, before.keys), np.searchsorted(before.keys, keys)
    found.near[stays], found.cosines[stays] = before.near[place[stays]], before.cosines[place[stays]]
    lost = ((found.near != _NOBODY) & ~np.isin(found.near, keys)).any(axis=1)
    found.near[lost], found.cosines[lost] = _NOBODY, -np.inf
    _compare(stored, found, every[~stays | lost], every)
    _compare(stored, found, every[stays & ~lost], every[~stays])
    return found


def _compare(stored: Stored, found: Neighbours, nodes: Positions, others: Positions) -> None:
    """Put those of the others that are nearer than what was found for these nodes, by their positions, in its place."""
    for start in range(0, len(nodes), ROWS):
        rows = nodes[start : start + ROWS]
        mine = unit(stored.at(rows))
        for first in range(0, len(others), COLUMNS):
            check_cancelled()
            columns = others[first : first + COLUMNS]
            _take(found, rows, mine, columns, unit(stored.at(columns)))


def _take(found: Neighbours, rows: Positions, mine: Vectors, columns: Positions, theirs: Vectors) -> None:
    which, other = _candidates(mine @ theirs.T, rows, columns, found.cosines[rows], mine.shape[1])
    count, neighbours = found.near[rows].shape
    cosines = np.concatenate([found.cosines[rows].ravel(), _exact(mine, which, theirs, other)])
    near = np.concatenate([found.near[rows].ravel(), found.keys[columns[other]]])
    which = np.concatenate([np.repeat(np.arange(count), neighbours), which])
    order = np.lexsort((near, -cosines, which))
    begins = np.searchsorted(which[order], np.arange(count))
    best = order[begins[:, None] + np.arange(neighbours)]
    found.near[rows], found.cosines[rows] = near[best], cosines[best]


def _candidates(
    scores: Vectors, rows: Positions, columns: Positions, known: Cosines, dimension: int
) -> tuple[Positions, Positions]:
    """Which columns may be among the nearest of which rows, for all that float32 tells."""
    at = np.minimum(np.searchsorted(columns, rows), len(columns) - 1)
    itself = np.flatnonzero(columns[at] == rows)
    scores[itself, at[itself]] = -np.inf
    bar, neighbours = known[:, -1], known.shape[1]
    if scores.shape[1] > neighbours:
        bar = np.maximum(bar, np.partition(scores, -neighbours, axis=1)[:, -neighbours])
    least = np.maximum(bar - 2 * dimension * _ULP, np.finfo(np.float32).min)
    which, other = np.nonzero(scores >= least[:, None])
    return which, other


def _exact(mine: Vectors, which: Positions, theirs: Vectors, other: Positions) -> Cosines:
    """Cosines in double precision: the same from both sides, however the blocks were cut."""
    parts = [
        (mine[which[start:end]].astype(np.float64) * theirs[other[start:end]].astype(np.float64)).sum(axis=1)
        for start, end in ((start, start + COLUMNS) for start in range(0, max(1, len(which)), COLUMNS))
    ]
    found: Cosines = np.concatenate(parts)
    return found
