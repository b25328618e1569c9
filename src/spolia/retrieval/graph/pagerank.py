"""What a random walk that keeps returning to the hits comes past most often."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.retrieval.graph.address import NodeGraph
from spolia.retrieval.graph.walking import Walk, walk
from spolia.types import Ranking
from spolia.wiring import refuse_counts

if TYPE_CHECKING:
    from spolia.retrieval.graph.links import Links
    from spolia.retrieval.graph.walking import Scores

PRECISION = 1e-9
"""The probabilities are off by this much in sum, at most."""


@dataclass(frozen=True)
class PersonalisedPageRank(Operator[Ranking, Ranking]):
    """Score nodes by a random walk over a graph that begins, and begins again, at the hits.

    π = (1 - damping) · r + damping · Pᵀπ: at each step the walk follows a link with probability `damping`, the heavier
    the likelier, and else jumps to a hit with probability r, in proportion to the hits' scores; those of 0 and below
    count for nothing, unless all are. A node without links leads back to the hits. The score is the probability π to be
    at the node, all of which sum to 1; computed by power iteration. Ties by the order of indexing.

    A node that may not be read, or that the filters do not let be found, is no part of the graph.

    Args:
        graph: over the hits' group.
        damping: 0.85 for the web by Page et al.; 0.5, nearer to the hits, by HippoRAG.
        top_k: hits to return, at most.

    Raises:
        StoreError: when the store cannot be read, or the hits are of another group.
        FilterError: for a filter on a field that the store does not declare.

    Source: Page, Brin, Motwani, Winograd, "The PageRank citation ranking: bringing order to the web", 1999; Gutiérrez,
    Shu, Gu, Yasunaga, Su, "HippoRAG: neurobiologically inspired long-term memory for large language models", 2024.

    >>> from spolia.retrieval.bm25 import BM25
    >>> from spolia.retrieval.graph.edges import SharedEntities
    >>> from spolia.stores.corpus import Corpus
    >>> from spolia.types import Query
    >>> chunks = Corpus("notes.spolia").group()
    >>> flow = BM25(chunks) >> PersonalisedPageRank(NodeGraph(chunks, (SharedEntities(),)))
    >>> flow.takes() is Query
    True
    """

    graph: NodeGraph
    damping: float = 0.5
    top_k: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.damping < 1:
            raise WiringError(f"{self.short}: damping is {self.damping}. Write a number from 0 to below 1.")
        refuse_counts(self, "top_k")

    def apply(self, value: Ranking, /) -> Ranking:
        import numpy as np

        found = walk(self.graph, value)
        if not found.seeds:
            return value.but(hits=())
        scores = pagerank(found.links, _restart(found), self.damping)
        reached = np.flatnonzero(scores > 0)
        best = reached[np.lexsort((reached, -scores[reached]))[: self.top_k]]
        return value.but(hits=found.hits(best, scores[best]))


def pagerank(links: Links, restart: Scores, damping: float) -> Scores:
    """The probability float64[n] to be at each node.

    Args:
        restart: r, float64[n] with sum 1.
        damping: of the links.
    """
    import numpy as np

    count, sources = len(links.keys), links.sources
    weights = links.weights.astype(np.float64)
    degrees = np.bincount(sources, weights, count)
    leads_on = degrees > 0
    weights /= degrees[sources]
    found = restart
    for _ in range(_steps(damping)):
        followed = np.bincount(links.targets, weights * found[sources], count)
        lost = float(found[~leads_on].sum())
        found = (1 - damping + damping * lost) * restart + damping * followed
    return found


def _steps(damping: float) -> int:
    """Iterations after which what is left to change, 2 · damping^steps, is below the precision."""
    return math.ceil(math.log(PRECISION / 2) / math.log(damping)) if damping > 0 else 0


def _restart(found: Walk) -> Scores:
    """r, by the hits' scores."""
    import numpy as np

    weights = np.maximum(0.0, [hit.score for hit in found.seeds])
    if not weights.any():
        weights = np.ones(len(found.seeds))
    restart = np.bincount(found.places, weights / weights.max(), len(found.links.keys))
    shares: Scores = restart / restart.sum()
    return shares
