"""What searches along a graph have in common: where they begin, what they may touch, how they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.errors import StoreError
from spolia.filters import narrowed
from spolia.retrieval.graph.address import NodeGraph
from spolia.surrounding import access, narrowing
from spolia.types import Hit, Ranking

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.retrieval.graph.links import Links
    from spolia.stores.reading.allowed import Allowed
    from spolia.stores.snapshot import Snapshot

    Positions = npt.NDArray[np.int64]
    Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Walk:
    """A graph as one asker may see it, and the hits at which a search begins.

    Args:
        snapshot: of the graph's store.
        links: between nodes that may be found.
        allowed: which these are.
        seeds: hits of the graph's nodes that may be found, as they come.
        places: int64[seeds], their positions.
    """

    snapshot: Snapshot
    links: Links
    allowed: Allowed
    seeds: tuple[Hit, ...]
    places: Positions

    def hits(self, positions: Positions, scores: Scores) -> tuple[Hit, ...]:
        """These nodes as hits; a seed stays the hit that it was, with another score."""
        seeds = {hit.node.id: hit for hit in reversed(self.seeds)}
        keys = self.links.keys[positions].tolist()
        found = self.snapshot.hits(zip(keys, scores.tolist(), strict=True), access())
        return tuple(seeds[hit.node.id].but(score=hit.score) if hit.node.id in seeds else hit for hit in found)


def walk(graph: NodeGraph, ranking: Ranking) -> Walk:
    """Where a search along a graph begins.

    Raises:
        StoreError: hits of another group than the graph's.
        FilterError: for a filter on a field that the store does not declare.
    """
    import numpy as np

    from spolia.stores.reading.related import keys_of

    _refuse_others(graph, ranking.hits)
    snapshot = graph.group.snapshot()
    allowed = snapshot.allowed(graph.group.name, access(), narrowed(ranking.query.filter, narrowing()))
    links = graph.links(snapshot).within(allowed.mask)
    keys = keys_of(snapshot, (hit.node.id for hit in ranking.hits))
    there = [hit for hit in ranking.hits if hit.node.id in keys]
    at = np.array([keys[hit.node.id] for hit in there], dtype=np.int64)
    holds = allowed.holds(at)
    seeds = tuple(hit for hit, held in zip(there, holds, strict=True) if held)
    return Walk(snapshot, links, allowed, seeds, np.searchsorted(links.keys, at[holds]))


def _refuse_others(graph: NodeGraph, hits: Sequence[Hit]) -> None:
    for hit in hits:
        if hit.node.group != graph.group.name:
            raise StoreError(
                f"The graph is over group {graph.group.name!r}, and a hit is of group {hit.node.group!r}. "
                f"Search {graph.group.name!r}, or put Mapped(...) with that group before it."
            )
