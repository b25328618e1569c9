"""Links between nodes as sparse rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spolia.core.run_context import check_cancelled
from spolia.stores.backends.searches import StoredVectors
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.search import unit_rows

Positions = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
LinkWeights = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class NodePairs(NamedTuple):
    """Pairs of linked nodes by their positions, in any order; a pair may come more than once."""

    first: Positions
    second: Positions
    weight: LinkWeights

    @classmethod
    def concatenate(cls, parts: Iterable[NodePairs]) -> NodePairs:
        """Join several lists of pairs."""
        # With an empty part, also no parts at all give arrays of the right types.
        all_parts = [NONE, *parts]
        return cls(*(np.concatenate(columns) for columns in zip(*all_parts, strict=True)))


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
    """Weighted graph without direction: the links of the node at position i are `starts[i] : starts[i + 1]`."""

    keys: Positions  # int64[n], ascending
    starts: Positions  # int64[n + 1]
    targets: npt.NDArray[np.int32]  # int32[m], positions; ascending for each node
    weights: LinkWeights  # float32[m]

    @classmethod
    def from_pairs(cls, keys: Positions, kinds: Iterable[NodePairs]) -> Links:
        """Build links of several kinds: a pair twice in one kind gets the heavier weight, different kinds add up."""
        codes, weights = zip(*[_merge_pairs(pairs, len(keys)) for pairs in [NONE, *kinds]], strict=True)
        distinct, inverse = np.unique(np.concatenate(codes), return_inverse=True)
        summed = np.bincount(inverse, np.concatenate(weights), len(distinct)).astype(np.float32)
        low, high = np.divmod(distinct, max(1, len(keys)))
        sources, targets = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort((targets, sources))
        starts = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=len(keys)))]).astype(np.int64)
        return cls(keys, starts, targets[order].astype(np.int32), np.concatenate([summed, summed])[order])

    @property
    def sources(self) -> Positions:
        """Return int64[m], for each link the position that it leads from."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.starts))

    @cached_property
    def degrees(self) -> Numbers:
        """Return float64[n], the summed weights of each node's links."""
        return np.bincount(self.sources, self.weights.astype(np.float64), len(self.keys)).astype(np.float64)

    @cached_property
    def rows(self) -> SteppedRows:
        """Return the nodes that have links, with these, as a walk takes steps along them."""
        (nodes,) = np.nonzero(self.degrees > 0)
        place = np.zeros(len(self.keys), np.intp)
        place[nodes] = np.arange(len(nodes))
        weights = self.weights.astype(np.float64)
        return SteppedRows(nodes, self.starts[nodes], place[self.targets], weights, self.degrees[nodes])

    def restrict_to(self, allowed: Mask | None) -> Links:
        """Return the links between allowed nodes, as if there were no other nodes."""
        if allowed is None:
            return self
        sources = self.sources
        is_inside = allowed[sources] & allowed[self.targets]
        starts = np.concatenate([[0], np.cumsum(np.bincount(sources[is_inside], minlength=len(self.keys)))]).astype(
            np.int64
        )
        return Links(self.keys, starts, self.targets[is_inside], self.weights[is_inside])

    def of_nodes(self, positions: Positions) -> NodePairs:
        """Return the links that lead from these nodes: number of the source among them, target position, weight."""
        counts = self.starts[positions + 1] - self.starts[positions]
        source_numbers = np.repeat(np.arange(len(positions)), counts)
        entries = (
            np.arange(len(source_numbers))
            - np.repeat(np.cumsum(counts) - counts, counts)
            + self.starts[positions][source_numbers]
        )
        return NodePairs(source_numbers, self.targets[entries].astype(np.int64), self.weights[entries])


def _merge_pairs(pairs: NodePairs, count: int) -> tuple[Positions, LinkWeights]:
    """Return each pair as one number, once, with its heaviest weight, without links of a node to itself."""
    is_link = pairs.first != pairs.second
    low, high = np.minimum(pairs.first, pairs.second)[is_link], np.maximum(pairs.first, pairs.second)[is_link]
    codes, weights = low * count + high, pairs.weight[is_link]
    order = np.lexsort((-weights, codes))
    distinct, first = np.unique(codes[order], return_index=True)
    return distinct, weights[order][first]


# Nodes between two looks at whether the run was cancelled.
_BETWEEN_CHECKS = 1_024


class Having(NamedTuple):
    """Pairs of node and label: `labels[i]` is a label of the node at `nodes[i]`."""

    nodes: Positions
    labels: Positions


class SparseLabelRows(NamedTuple):
    """Sparse rows: the columns of row i are `starts[i] : starts[i + 1]`."""

    starts: Positions
    columns: Positions

    @classmethod
    def from_pairs(cls, rows: Positions, columns: Positions, count: int) -> SparseLabelRows:
        order = np.lexsort((columns, rows))
        return cls(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), columns[order])

    def row(self, index: int) -> Positions:
        return self.columns[self.starts[index] : self.starts[index + 1]]


def link_sharing_nodes(having: Having, count: int, neighbours: int, max_spread: int) -> NodePairs:
    """Link each node to the nodes with the nearest set of labels: the cosine of both sets, weighed by rarity."""
    nodes, labels = _informative_pairs(having, max_spread)
    spread = np.bincount(labels)
    rarity = np.log1p((count - spread + 0.5) / (spread + 0.5)) ** 2
    lengths = np.sqrt(np.bincount(nodes, rarity[labels], count))
    by_node, by_label = (
        SparseLabelRows.from_pairs(nodes, labels, count),
        SparseLabelRows.from_pairs(labels, nodes, len(spread)),
    )
    return NodePairs.concatenate(_link_by_labels(np.unique(nodes), by_node, by_label, rarity, lengths, neighbours))


def _informative_pairs(having: Having, max_spread: int) -> tuple[Positions, Positions]:
    """Return nodes and labels, each pair once, without the labels that too many nodes have."""
    if not len(having.nodes):
        return having.nodes, having.labels
    pairs = np.unique(np.stack([having.nodes, having.labels]), axis=1)
    spread = np.bincount(pairs[1])
    nodes, labels = pairs[:, spread[pairs[1]] <= max_spread]
    return nodes, labels


def _link_by_labels(
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
        label_nodes = [by_label.row(label) for label in labels.tolist()]
        shared = np.repeat(rarity[labels], [len(label_row) for label_row in label_nodes])
        candidates, inverse = np.unique(np.concatenate(label_nodes), return_inverse=True)
        cosines = np.bincount(inverse, shared) / (lengths[node] * lengths[candidates])
        is_other = candidates != node
        candidates, cosines = candidates[is_other], cosines[is_other]
        best = np.lexsort((candidates, -cosines))[:neighbours]
        yield NodePairs(np.full(len(best), node), candidates[best], np.minimum(cosines[best], 1.0).astype(np.float32))


ROWS, COLUMNS = 2_048, 4_096  # vectors of a block: 32 MB of products at a time, whatever the number of nodes
_ULP = 2.0**-23
_NOTHING = 1e-6  # a cosine of vectors at right angles, as far as their float32 numbers tell
_NOBODY = -1

Cosines = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NearestNeighbours:
    """Nearest neighbours of each node, best first."""

    keys: Positions  # int64[n], ascending
    near: Positions  # int64[n, k], keys; -1 where there are fewer
    cosines: Cosines  # float64[n, k]; -inf where there are fewer

    @classmethod
    def empty(cls, keys: Positions, neighbours: int) -> NearestNeighbours:
        """Return nodes of which no neighbours are known."""
        shape = (len(keys), neighbours)
        return cls(keys, np.full(shape, _NOBODY, np.int64), np.full(shape, -np.inf))

    def pairs(self, at_least: float, neighbours: int | None = None) -> NodePairs:
        """Link each node to its nearest ones, without cosines below the bound or not above 0."""
        cosines = self.cosines[:, :neighbours]
        row, place = np.nonzero((cosines >= at_least) & (cosines > _NOTHING))
        target = np.searchsorted(self.keys, self.near[row, place])
        return NodePairs(row, target, self.cosines[row, place].astype(np.float32))

    def restrict_to(self, nodes: Positions, keys: Positions, neighbours: int) -> tuple[Positions, Cosines, Mask]:
        """Return the nearest of some nodes among `keys`, their cosines, and which nodes have lost neighbours
        whose successors are unknown."""
        near, cosines = self.near[nodes], self.cosines[nodes]
        is_removed = ~np.isin(near, keys)
        order = np.argsort(is_removed, axis=1, kind="stable")[:, :neighbours]
        remaining = np.take_along_axis(np.where(is_removed, _NOBODY, near), order, axis=1)
        # A full row that lost a neighbour may lack a nearer one that was never kept: it is compared again.
        lost = (remaining[:, -1] == _NOBODY) & (near[:, -1] != _NOBODY)
        remaining[lost] = _NOBODY
        return remaining, np.where(remaining == _NOBODY, -np.inf, np.take_along_axis(cosines, order, axis=1)), lost


def nearest(
    stored: StoredVectors, keys: Positions, neighbours: int, earlier: NearestNeighbours | None = None
) -> NearestNeighbours:
    """Find for each node those of the highest cosine; nodes in `earlier` are compared with the new ones only."""
    nearest_neighbours, positions = NearestNeighbours.empty(keys, neighbours), np.arange(len(keys))
    if earlier is None or earlier.near.shape[1] < neighbours:
        _compare(stored, nearest_neighbours, positions, positions)
        return nearest_neighbours
    stays, place = np.isin(keys, earlier.keys), np.searchsorted(earlier.keys, keys)
    lost = np.zeros(len(keys), dtype=np.bool_)
    nearest_neighbours.near[stays], nearest_neighbours.cosines[stays], lost[stays] = earlier.restrict_to(
        place[stays], keys, neighbours
    )
    _compare(stored, nearest_neighbours, positions[~stays | lost], positions)
    _compare(stored, nearest_neighbours, positions[stays & ~lost], positions[~stays])
    return nearest_neighbours


def _compare(stored: StoredVectors, neighbours: NearestNeighbours, nodes: Positions, candidates: Positions) -> None:
    """Replace neighbours of these nodes by nearer ones among the candidates, by position."""
    for start in range(0, len(nodes), ROWS):
        rows = nodes[start : start + ROWS]
        row_vectors = unit_rows(stored.vectors_at(rows))
        # In blocks, so that memory does not grow with the number of nodes.
        for first in range(0, len(candidates), COLUMNS):
            check_cancelled()
            columns = candidates[first : first + COLUMNS]
            _merge_block(neighbours, rows, row_vectors, columns, unit_rows(stored.vectors_at(columns)))


def _merge_block(
    neighbours: NearestNeighbours, rows: Positions, row_vectors: Vectors, columns: Positions, column_vectors: Vectors
) -> None:
    block_rows, block_columns = _candidates(
        row_vectors @ column_vectors.T, rows, columns, neighbours.cosines[rows], row_vectors.shape[1]
    )
    count, width = neighbours.near[rows].shape
    cosines = np.concatenate(
        [neighbours.cosines[rows].ravel(), _exact_cosines(row_vectors, block_rows, column_vectors, block_columns)]
    )
    near = np.concatenate([neighbours.near[rows].ravel(), neighbours.keys[columns[block_columns]]])
    block_rows = np.concatenate([np.repeat(np.arange(count), width), block_rows])
    order = np.lexsort((near, -cosines, block_rows))
    begins = np.searchsorted(block_rows[order], np.arange(count))
    best = order[begins[:, None] + np.arange(width)]
    neighbours.near[rows], neighbours.cosines[rows] = near[best], cosines[best]


def _candidates(
    scores: Vectors, rows: Positions, columns: Positions, cosines: Cosines, dimension: int
) -> tuple[Positions, Positions]:
    """Return which columns may be among the nearest of which rows, as far as float32 can tell."""
    columns_of_rows = np.minimum(np.searchsorted(columns, rows), len(columns) - 1)
    itself = np.flatnonzero(columns[columns_of_rows] == rows)
    # A node is no neighbour of itself.
    scores[itself, columns_of_rows[itself]] = -np.inf
    bar, neighbours = cosines[:, -1], cosines.shape[1]
    if scores.shape[1] > neighbours:
        bar = np.maximum(bar, np.partition(scores, -neighbours, axis=1)[:, -neighbours])
    # The bound on a float32 product's rounding, from both sides: no true neighbour is left out.
    lowest = np.maximum(bar - 2 * dimension * _ULP, np.finfo(np.float32).min)
    block_rows, block_columns = np.nonzero(scores >= lowest[:, None])
    return block_rows, block_columns


def _exact_cosines(
    row_vectors: Vectors, block_rows: Positions, column_vectors: Vectors, block_columns: Positions
) -> Cosines:
    """Compute cosines in double precision, the same from both sides however the blocks were cut."""
    parts = [
        (
            row_vectors[block_rows[start:end]].astype(np.float64)
            * column_vectors[block_columns[start:end]].astype(np.float64)
        ).sum(axis=1)
        for start, end in ((start, start + COLUMNS) for start in range(0, max(1, len(block_rows)), COLUMNS))
    ]
    cosines: Cosines = np.concatenate(parts)
    return cosines
