"""Links between nodes as sparse rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class Pairs(NamedTuple):
    """Nodes that are linked, by their positions; each pair in any order, and more than once if need be."""

    one: Positions
    other: Positions
    weight: Weights

    @classmethod
    def joined(cls, parts: Iterable[Pairs]) -> Pairs:
        """All of these."""
        found = [NONE, *parts]
        return cls(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


NONE = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True, eq=False)
class Links:
    """A weighted graph without direction: the links of the node at position i stand at `starts[i] : starts[i + 1]`.

    Args:
        keys: int64[n], the nodes' keys, ascending.
        starts: int64[n + 1].
        targets: int32[m], positions; ascending for each node.
        weights: float32[m].
    """

    keys: Positions
    starts: Positions
    targets: npt.NDArray[np.int32]
    weights: Weights

    @classmethod
    def of(cls, keys: Positions, kinds: Iterable[Pairs]) -> Links:
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

    def within(self, allowed: Mask | None) -> Links:
        """The links between nodes that may be found, of which the others are no part: as if they were not there."""
        if allowed is None:
            return self
        sources = self.sources
        kept = allowed[sources] & allowed[self.targets]
        starts = np.concatenate([[0], np.cumsum(np.bincount(sources[kept], minlength=len(self.keys)))]).astype(np.int64)
        return Links(self.keys, starts, self.targets[kept], self.weights[kept])

    def of_nodes(self, positions: Positions) -> Pairs:
        """The links that lead from these nodes: from which of them by its number, to where, how heavy."""
        counts = self.starts[positions + 1] - self.starts[positions]
        which = np.repeat(np.arange(len(positions)), counts)
        at = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts) + self.starts[positions][which]
        return Pairs(which, self.targets[at].astype(np.int64), self.weights[at])


def _once(pairs: Pairs, count: int) -> tuple[Positions, Weights]:
    """Each pair as one number, once, with its heaviest weight; no node is linked to itself."""
    apart = pairs.one != pairs.other
    low, high = np.minimum(pairs.one, pairs.other)[apart], np.maximum(pairs.one, pairs.other)[apart]
    codes, weights = low * count + high, pairs.weight[apart]
    order = np.lexsort((-weights, codes))
    distinct, first = np.unique(codes[order], return_index=True)
    return distinct, weights[order][first]
