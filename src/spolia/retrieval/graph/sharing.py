"""Links between nodes that have something in common: what they speak of, or what they were cut from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spolia.retrieval.graph.links import Pairs, Positions
from spolia.surrounding import check_cancelled

_BETWEEN_CHECKS = 1_024


class Having(NamedTuple):
    """Which node has which label: `labels[i]` is one of those of the node at `nodes[i]`."""

    nodes: Positions
    labels: Positions


class Rows(NamedTuple):
    """Sparse rows: those of row i stand at `starts[i] : starts[i + 1]`."""

    starts: Positions
    columns: Positions

    @classmethod
    def of(cls, rows: Positions, columns: Positions, count: int) -> Rows:
        order = np.lexsort((columns, rows))
        return cls(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), columns[order])

    def row(self, at: int) -> Positions:
        return self.columns[self.starts[at] : self.starts[at + 1]]


def sharing(having: Having, count: int, neighbours: int, most: int) -> Pairs:
    """Each node with those that it has most in common with: the cosine of their sets of labels, weighed by rarity.

    Args:
        count: of all nodes.
        neighbours: of a node, at most; between equals those of the lowest position.
        most: labels that more nodes have count for nothing.
    """
    nodes, labels = _common(having, most)
    spread = np.bincount(labels)
    rarity = np.log1p((count - spread + 0.5) / (spread + 0.5)) ** 2
    lengths = np.sqrt(np.bincount(nodes, rarity[labels], count))
    by_node, by_label = Rows.of(nodes, labels, count), Rows.of(labels, nodes, len(spread))
    return Pairs.joined(_linked(np.unique(nodes), by_node, by_label, rarity, lengths, neighbours))


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
    by_node: Rows,
    by_label: Rows,
    rarity: npt.NDArray[np.float64],
    lengths: npt.NDArray[np.float64],
    neighbours: int,
) -> Iterator[Pairs]:
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
        yield Pairs(np.full(len(best), node), found[best], np.minimum(cosines[best], 1.0).astype(np.float32))
