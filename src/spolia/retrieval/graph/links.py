"""Links between nodes as sparse rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spolia.core.run_context import check_cancelled
from spolia.stores.backends.backend import Stored
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.search import unit

Positions = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
LinkWeights = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class NodePairs(NamedTuple):
    """Nodes that are linked, by their positions; each pair in any order, and more than once if need be."""

    one: Positions
    other: Positions
    weight: LinkWeights

    @classmethod
    def joined(cls, parts: Iterable[NodePairs]) -> NodePairs:
        """All of these."""
        found = [NONE, *parts]
        return cls(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


NONE = NodePairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


class SteppedRows(NamedTuple):
    """Links of the nodes that have some, with their targets as places among these nodes."""

    nodes: Positions
    firsts: Positions
    targets: Positions
    weights: Numbers
    degrees: Numbers


@dataclass(frozen=True, eq=False)
class Links:
    """A weighted graph without direction: the links of the node at position i are `starts[i] : starts[i + 1]`."""

    keys: Positions  # int64[n], ascending
    starts: Positions  # int64[n + 1]
    targets: npt.NDArray[np.int32]  # int32[m], positions; ascending for each node
    weights: LinkWeights  # float32[m]

    @classmethod
    def of(cls, keys: Positions, kinds: Iterable[NodePairs]) -> Links:
        """The links of several kinds: of a pair that one kind has twice the heavier, of different kinds the sum."""
        codes, weights = zip(*[_once(pairs, len(keys)) for pairs in [NONE, *kinds]], strict=True)
        distinct, which = np.unique(np.concatenate(codes), return_inverse=True)
        summed = np.bincount(which, np.concatenate(weights), len(distinct)).astype(np.float32)
        one, other = np.divmod(distinct, max(1, len(keys)))
        sources, targets = np.concatenate([one, other]), np.concatenate([other, one])
        order = np.lexsort((targets, sources))
        starts = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=len(keys)))]).astype(np.int64)
        return cls(keys, starts, targets[order].astype(np.int32), np.concatenate([summed, summed])[order])

    @property
    def sources(self) -> Positions:
        """int64[m], for each link the position that it leads from."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.starts))

    @cached_property
    def degrees(self) -> Numbers:
        """float64[n], the weights of the links of each node."""
        return np.bincount(self.sources, self.weights.astype(np.float64), len(self.keys)).astype(np.float64)

    @cached_property
    def rows(self) -> SteppedRows:
        """The nodes that have links, with these, as a walk takes steps along them."""
        (nodes,) = np.nonzero(self.degrees > 0)
        place = np.zeros(len(self.keys), np.intp)
        place[nodes] = np.arange(len(nodes))
        weights = self.weights.astype(np.float64)
        return SteppedRows(nodes, self.starts[nodes], place[self.targets], weights, self.degrees[nodes])

    def within(self, allowed: Mask | None) -> Links:
        """The links between nodes that may be found, of which the others are no part: as if they were not there."""
        if allowed is None:
            return self
        sources = self.sources
        kept = allowed[sources] & allowed[self.targets]
        starts = np.concatenate([[0], np.cumsum(np.bincount(sources[kept], minlength=len(self.keys)))]).astype(np.int64)
        return Links(self.keys, starts, self.targets[kept], self.weights[kept])

    def of_nodes(self, positions: Positions) -> NodePairs:
        """The links that lead from these nodes: from which of them by its number, to where, how heavy."""
        counts = self.starts[positions + 1] - self.starts[positions]
        which = np.repeat(np.arange(len(positions)), counts)
        at = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts) + self.starts[positions][which]
        return NodePairs(which, self.targets[at].astype(np.int64), self.weights[at])


def _once(pairs: NodePairs, count: int) -> tuple[Positions, LinkWeights]:
    """Each pair as one number, once, with its heaviest weight; no node is linked to itself."""
    apart = pairs.one != pairs.other
    low, high = np.minimum(pairs.one, pairs.other)[apart], np.maximum(pairs.one, pairs.other)[apart]
    codes, weights = low * count + high, pairs.weight[apart]
    order = np.lexsort((-weights, codes))
    distinct, first = np.unique(codes[order], return_index=True)
    return distinct, weights[order][first]


_BETWEEN_CHECKS = 1_024


class Having(NamedTuple):
    """Which node has which label: `labels[i]` is one of those of the node at `nodes[i]`."""

    nodes: Positions
    labels: Positions


class SparseLabelRows(NamedTuple):
    """Sparse rows: those of row i are `starts[i] : starts[i + 1]`."""

    starts: Positions
    columns: Positions

    @classmethod
    def of(cls, rows: Positions, columns: Positions, count: int) -> SparseLabelRows:
        order = np.lexsort((columns, rows))
        return cls(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), columns[order])

    def row(self, at: int) -> Positions:
        return self.columns[self.starts[at] : self.starts[at + 1]]


def sharing(having: Having, count: int, neighbours: int, most: int) -> NodePairs:
    """Each node with the nodes that it has most in common with: the cosine of their sets of labels, weighed by
    rarity."""
    nodes, labels = _common(having, most)
    spread = np.bincount(labels)
    rarity = np.log1p((count - spread + 0.5) / (spread + 0.5)) ** 2
    lengths = np.sqrt(np.bincount(nodes, rarity[labels], count))
    by_node, by_label = SparseLabelRows.of(nodes, labels, count), SparseLabelRows.of(labels, nodes, len(spread))
    return NodePairs.joined(_linked(np.unique(nodes), by_node, by_label, rarity, lengths, neighbours))


def _common(having: Having, most: int) -> tuple[Positions, Positions]:
    """Nodes and labels, each pair once, without the labels that too many have."""
    if not len(having.nodes):
        return having.nodes, having.labels
    pairs = np.unique(np.stack([having.nodes, having.labels]), axis=1)
    spread = np.bincount(pairs[1])
    nodes, labels = pairs[:, spread[pairs[1]] <= most]
    return nodes, labels


def _linked(
    nodes: Positions,
    by_node: SparseLabelRows,
    by_label: SparseLabelRows,
    rarity: npt.NDArray[np.float64],
    lengths: npt.NDArray[np.float64],
    neighbours: int,
) -> Iterator[NodePairs]:
    for number, node in enumerate(nodes.tolist()):
        if number % _BETWEEN_CHECKS == 0:
            check_cancelled()
        labels = by_node.row(node)
        others = [by_label.row(label) for label in labels.tolist()]
        shared = np.repeat(rarity[labels], [len(found) for found in others])
        found, which = np.unique(np.concatenate(others), return_inverse=True)
        cosines = np.bincount(which, shared) / (lengths[node] * lengths[found])
        apart = found != node
        found, cosines = found[apart], cosines[apart]
        best = np.lexsort((found, -cosines))[:neighbours]
        yield NodePairs(np.full(len(best), node), found[best], np.minimum(cosines[best], 1.0).astype(np.float32))


ROWS, COLUMNS = 2_048, 4_096  # vectors of a block: 32 MB of products at a time, whatever the number of nodes
_ULP = 2.0**-23
_NOTHING = 1e-6  # a cosine of vectors at right angles, as far as their float32 numbers tell
_NOBODY = -1

Cosines = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NearestNeighbours:
    """For each node its nearest ones, best first."""

    keys: Positions  # int64[n], ascending
    near: Positions  # int64[n, k], keys; -1 where there are fewer
    cosines: Cosines  # float64[n, k]; -inf where there are fewer

    @classmethod
    def none(cls, keys: Positions, neighbours: int) -> NearestNeighbours:
        """Nodes of which no neighbours are known."""
        shape = (len(keys), neighbours)
        return cls(keys, np.full(shape, _NOBODY, np.int64), np.full(shape, -np.inf))

    def pairs(self, at_least: float, neighbours: int | None = None) -> NodePairs:
        """The links to the nearest of them, or to all, without lower cosines and cosines not above 0."""
        cosines = self.cosines[:, :neighbours]
        one, place = np.nonzero((cosines >= at_least) & (cosines > _NOTHING))
        other = np.searchsorted(self.keys, self.near[one, place])
        return NodePairs(one, other, self.cosines[one, place].astype(np.float32))

    def among(self, nodes: Positions, keys: Positions, neighbours: int) -> tuple[Positions, Cosines, Mask]:
        """The nearest of some nodes among `keys`, their cosines, and whose others are not known any more."""
        near, cosines = self.near[nodes], self.cosines[nodes]
        gone = ~np.isin(near, keys)
        order = np.argsort(gone, axis=1, kind="stable")[:, :neighbours]
        left = np.take_along_axis(np.where(gone, _NOBODY, near), order, axis=1)
        lost = (left[:, -1] == _NOBODY) & (near[:, -1] != _NOBODY)
        left[lost] = _NOBODY
        return left, np.where(left == _NOBODY, -np.inf, np.take_along_axis(cosines, order, axis=1)), lost


def nearest(
    stored: Stored, keys: Positions, neighbours: int, before: NearestNeighbours | None = None
) -> NearestNeighbours:
    """Each node with those of the highest cosine; nodes that are in `before` are compared with the new ones only."""
    found, every = NearestNeighbours.none(keys, neighbours), np.arange(len(keys))
    if before is None or before.near.shape[1] < neighbours:
        _compare(stored, found, every, every)
        return found
    stays, place = np.isin(keys, before.keys), np.searchsorted(before.keys, keys)
    lost = np.zeros(len(keys), dtype=np.bool_)
    found.near[stays], found.cosines[stays], lost[stays] = before.among(place[stays], keys, neighbours)
    _compare(stored, found, every[~stays | lost], every)
    _compare(stored, found, every[stays & ~lost], every[~stays])
    return found


def _compare(stored: Stored, found: NearestNeighbours, nodes: Positions, others: Positions) -> None:
    """Replace neighbours of these nodes by nearer ones among the others, by position."""
    for start in range(0, len(nodes), ROWS):
        rows = nodes[start : start + ROWS]
        mine = unit(stored.at(rows))
        for first in range(0, len(others), COLUMNS):
            check_cancelled()
            columns = others[first : first + COLUMNS]
            _take(found, rows, mine, columns, unit(stored.at(columns)))


def _take(found: NearestNeighbours, rows: Positions, mine: Vectors, columns: Positions, theirs: Vectors) -> None:
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
