"""Searches along a graph: their seeds, what they may touch, and their hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import access, run_filter
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.deferred import numpy as np
from spolia.errors import StoreError
from spolia.filters import combine_filters
from spolia.models.protocols import Embedder
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.vector_search import vector_scores
from spolia.types import Hit, Ranking

if TYPE_CHECKING:
    from spolia.retrieval.graph.links import Links
    from spolia.stores.access.allowed_nodes import Allowed
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Numbers, Positions


@dataclass(frozen=True, eq=False)
class Walk:
    """Graph as one asker may see it, with the hits at which a search begins."""

    snapshot: Snapshot
    links: Links  # between nodes that may be found
    allowed: Allowed
    seeds: tuple[Hit, ...]  # that may be found, as they come
    places: Positions  # int64[seeds]

    def hits(self, positions: Positions, scores: Numbers) -> tuple[Hit, ...]:
        """Return these nodes as hits; a seed stays the hit that it was, with another score."""
        seeds = {hit.node.id: hit for hit in reversed(self.seeds)}
        keys = self.links.keys[positions].tolist()
        hits = self.snapshot.hits(zip(keys, scores.tolist(), strict=True), access())
        return tuple(
            Hit(seed.node, hit.score, seed.parts, seed.found) if (seed := seeds.get(hit.node.id)) else hit
            for hit in hits
        )


def begin_walk(graph: NodeGraph, ranking: Ranking) -> Walk:
    """Prepare a search along a graph; raise StoreError for hits of another group, FilterError for unknown fields."""
    _refuse_others(graph, ranking.hits)
    snapshot = graph.snapshot()
    filter = combine_filters(ranking.query.filter, run_filter())
    allowed = snapshot.allowed(graph.group.name, access(), filter)
    links = graph.links(snapshot, access())
    if filter is not None:
        links = links.restrict_to(allowed.holds(links.keys))
    keys = snapshot.keys_of(hit.node.id for hit in ranking.hits)
    known_hits = [hit for hit in ranking.hits if hit.node.id in keys]
    seed_keys = np.array([keys[hit.node.id] for hit in known_hits], dtype=np.int64)
    holds = allowed.holds(seed_keys)
    seeds = tuple(hit for hit, is_allowed in zip(known_hits, holds, strict=True) if is_allowed)
    return Walk(snapshot, links, allowed, seeds, np.searchsorted(links.keys, seed_keys[holds]))


def _refuse_others(graph: NodeGraph, hits: Sequence[Hit]) -> None:
    for hit in hits:
        if hit.node.group != graph.group.name:
            raise StoreError(
                f"The graph is over group {graph.group.name!r}, and a hit is of group {hit.node.group!r}. "
                f"Search {graph.group.name!r}, or put Mapped(...) with that group before it."
            )


@dataclass(frozen=True)
class Hops(Operator[Ranking, Ranking]):
    """Add what can be reached from the hits along the links of a graph.

    A node v that is linked to u with weight w gets score(v) = s - (1 - f) · |s|, s the score of u and f = decay ·
    min(1, w): less than u, whatever the sign. The best of several ways counts, and a hit keeps its own score if that is
    better. With an embedder all of them are scored by the query instead, from the vectors that the store has. Best
    first; between equals what takes fewer hops.

    A node that may not be read, or that the filters do not let be found, is neither reached nor passed through.

    Args:
        graph: over the hits' group.
        hops: links in a row, at most.
        decay: factor of a score for a link of weight 1, from 0 to 1.
        embedder: scores hits and what was reached by the query; one that the group was embedded with. None for decay.
        top_k: hits to return, at most.

    Raises:
        StoreError: when the store cannot be read, or the hits are of another group.
        FilterError: for a filter on a field that the store does not declare.
        ManifestMismatch: when the group was not embedded with the embedder.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), knowledge graph index.

    >>> from spolia import BM25, Corpus, Query
    >>> from spolia.retrieval.graph.edges import InOrder, Similar
    >>> chunks = Corpus("notes.spolia").group()
    >>> flow = BM25(chunks) >> Hops(NodeGraph(chunks, (Similar(), InOrder())), hops=2)
    >>> flow.takes() is Query
    True
    """

    graph: NodeGraph
    hops: int = 1
    decay: float = 0.5
    embedder: Embedder | None = None
    top_k: int = 10

    version: ClassVar[int] = 3  # 2: links between readable nodes only; 3: links of whole documents

    def __post_init__(self) -> None:
        refuse_counts(self, "hops", "top_k")
        refuse_numbers(self, "a number from 0 to 1", "decay")

    def apply(self, value: Ranking, /) -> Ranking:
        start = begin_walk(self.graph, value)
        reached, scores, steps = self._follow_links(start)
        if self.embedder is not None:
            keys = start.links.keys[reached]
            judged = vector_scores(
                start.snapshot, self.graph.group, value.query, self.embedder, start.allowed.restrict_to(keys)
            )
            scores = np.array([judged[key] for key in keys.tolist()])
        best = np.lexsort((reached, steps, -scores))[: self.top_k]
        return value.but(hits=start.hits(reached[best], scores[best]))

    def _follow_links(self, start: Walk) -> tuple[Positions, Numbers, Positions]:
        """Return positions of reachable nodes, their scores, and after how many hops each is first reached."""
        scores = np.full(len(start.links.keys), -np.inf)
        steps = np.zeros(len(start.links.keys), dtype=np.int64)
        np.maximum.at(scores, start.places, [hit.score for hit in start.seeds])
        front = np.unique(start.places)
        for step in range(1, self.hops + 1):
            if not len(front):
                break
            source_numbers, targets, weights = start.links.of_nodes(front)
            source_scores = scores[front][source_numbers]
            offered = source_scores - (1 - self.decay * np.minimum(1.0, weights)) * np.abs(source_scores)
            old = scores[targets]
            np.maximum.at(scores, targets, offered)
            steps[targets[np.isneginf(old)]] = step
            front = np.unique(targets[scores[targets] > old])
        reached = np.flatnonzero(scores > -np.inf)
        return reached, scores[reached], steps[reached]


PRECISION = 1e-9  # the probabilities are off by this much in sum, at most


@dataclass(frozen=True)
class PersonalisedPageRank(Operator[Ranking, Ranking]):
    """Score nodes by a random walk over a graph that begins, and begins again, at the hits.

    π = (1 - damping) · r + damping · Pᵀπ: at each step the walk follows a link with probability `damping`, the heavier
    the likelier, and else jumps to a hit with probability r, in proportion to the hits' scores; those of 0 and below
    count for nothing, unless all are. A node without links leads back to the hits. The score is the probability π to be
    at the node, all of which sum to 1. Ties by the order of indexing.

    A node that may not be read, or that the filters do not let be found, is not in the graph.

    Args:
        graph: over the hits' group.
        damping: 0.85 for the web by Page et al.; 0.5, nearer to the hits, by HippoRAG.
        top_k: hits to return, at most.

    Raises:
        StoreError: when the store cannot be read, or the hits are of another group.
        FilterError: for a filter on a field that the store does not declare.

    Source: Page, Brin, Motwani, Winograd, "The PageRank citation ranking: bringing order to the web", 1999; Gutiérrez,
    Shu, Gu, Yasunaga, Su, "HippoRAG: neurobiologically inspired long-term memory for large language models", 2024.

    >>> from spolia import BM25, Corpus, Query
    >>> from spolia.retrieval.graph.edges import SharedEntities
    >>> chunks = Corpus("notes.spolia").group()
    >>> flow = BM25(chunks) >> PersonalisedPageRank(NodeGraph(chunks, (SharedEntities(),)))
    >>> flow.takes() is Query
    True
    """

    graph: NodeGraph
    damping: float = 0.5
    top_k: int = 10

    # 2: links between readable nodes only; 3: links of whole documents; 4: Chebyshev's semi-iteration
    version: ClassVar[int] = 4

    def __post_init__(self) -> None:
        refuse_numbers(self, "a number from 0 to below 1", "damping")
        refuse_counts(self, "top_k")

    def apply(self, value: Ranking, /) -> Ranking:
        start = begin_walk(self.graph, value)
        if not start.seeds:
            return value.but(hits=())
        scores = pagerank(start.links, _restart_shares(start), self.damping)
        reached = np.flatnonzero(scores > 0)
        if len(reached) > self.top_k:
            # Only nodes that reach the k-th best score are sorted; ties stay in.
            lowest = np.partition(scores[reached], -self.top_k)[-self.top_k]
            reached = reached[scores[reached] >= lowest]
        best = reached[np.lexsort((reached, -scores[reached]))[: self.top_k]]
        return value.but(hits=start.hits(best, scores[best]))


def pagerank(links: Links, restart: Numbers, damping: float) -> Numbers:
    """Return the probability float64[n] to be at each node; `restart` is r, float64[n] with sum 1.

    Links go both ways, so that the walk's eigenvalues are real: Chebyshev's semi-iteration, which needs about half as
    many steps as power iteration. It ends where the residual shows that all probabilities together are off by less than
    `PRECISION`.

    Source: Golub, Varga, "Chebyshev semi-iterative methods", Numerische Mathematik 3, 1961.
    """
    rows, firsts, targets, weights, degrees = links.rows
    alone = float(restart[links.degrees <= 0].sum())  # what begins at nodes without links leads back to the hits
    start = (1 - damping) / (1 - damping * alone) * restart
    if not rows.size or not damping:
        return start
    shares, begun, missed = damping / degrees, start[rows], np.zeros(len(restart))

    def take_step(values: Numbers) -> Numbers:
        """Take one step of the walk between nodes with links, with its restarts."""
        passed = (values * shares).take(targets)
        passed *= weights
        next_values: Numbers = np.add.reduceat(passed, firsts)
        next_values += begun
        return next_values

    previous, current, speed = begun, take_step(begun), 2.0
    while True:
        next_values = take_step(current)
        missed[rows] = np.abs(next_values - current)
        # The residual bounds the error: it grows at most by 1 / (1 - damping).
        if missed.sum() <= PRECISION * (1 - damping):
            start[rows] = next_values
            # Chebyshev's steps may leave a probability slightly below 0.
            return np.maximum(start, 0.0)
        # The factor of Chebyshev's semi-iteration for eigenvalues in [-damping, damping].
        speed = 1 / (1 - damping**2 * speed / 4)
        previous, current = current, previous + speed * (next_values - previous)


def _restart_shares(start: Walk) -> Numbers:
    """Return r by the seeds' scores."""
    weights = np.maximum(0.0, [hit.score for hit in start.seeds])
    # Without a score above 0, all seeds count the same.
    if not weights.any():
        weights = np.ones(len(start.seeds))
    restart = np.bincount(start.places, weights / weights.max(), len(start.links.keys))
    shares: Numbers = restart / restart.sum()
    return shares
