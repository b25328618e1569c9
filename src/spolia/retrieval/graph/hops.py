"""What is linked to what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.errors import WiringError
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.retrieval.among import by_meaning
from spolia.retrieval.graph.address import NodeGraph
from spolia.retrieval.graph.walking import Walk, walk
from spolia.types import Ranking
from spolia.wiring import refuse_counts

if TYPE_CHECKING:
    from spolia.retrieval.graph.walking import Positions, Scores


@dataclass(frozen=True)
class Hops(Operator[Ranking, Ranking]):
    """Add what can be reached from the hits along the links of a graph.

    A node v that is linked to u with weight w gets score(v) = s - (1 - f) · |s|, s the score of u and f = decay ·
    min(1, w): less than u, whatever the sign. Of several ways the best counts, and a hit keeps its own score if that is
    better. With an embedder all of them are scored by the query instead, from the vectors that the store has. Best
    first; between equals what takes fewer hops.

    A node that may not be read, or that the filters do not let be found, is neither reached nor passed through.

    Args:
        graph: over the hits' group.
        hops: links in a row, at most.
        decay: what is left of a score after a link of weight 1, from 0 to 1.
        embedder: scores hits and what was reached by the query; one that the group was embedded with. None for decay.
        top_k: hits to return, at most.

    Raises:
        StoreError: when the store cannot be read, or the hits are of another group.
        FilterError: for a filter on a field that the store does not declare.
        ManifestMismatch: when the group was not embedded with the embedder.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024,
    knowledge graph index.

    >>> from spolia.retrieval.bm25 import BM25
    >>> from spolia.retrieval.graph.edges import InOrder, Similar
    >>> from spolia.stores.corpus import Corpus
    >>> from spolia.types import Query
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

    def __post_init__(self) -> None:
        refuse_counts(self, "hops", "top_k")
        if not 0 <= self.decay <= 1:
            raise WiringError(f"{self.short}: decay is {self.decay}. Write a number from 0 to 1.")

    def apply(self, value: Ranking, /) -> Ranking:
        import numpy as np

        found = walk(self.graph, value)
        reached, scores, steps = self._reached(found)
        if self.embedder is not None:
            keys = found.links.keys[reached]
            judged = by_meaning(found.snapshot, self.graph.group, value.query, self.embedder, found.allowed.only(keys))
            scores = np.array([judged[key] for key in keys.tolist()])
        best = np.lexsort((reached, steps, -scores))[: self.top_k]
        return value.but(hits=found.hits(reached[best], scores[best]))

    def _reached(self, found: Walk) -> tuple[Positions, Scores, Positions]:
        """Positions of what can be reached, their scores, and after how many hops they are reached first."""
        import numpy as np

        scores = np.full(len(found.links.keys), -np.inf)
        steps = np.zeros(len(found.links.keys), dtype=np.int64)
        np.maximum.at(scores, found.places, [hit.score for hit in found.seeds])
        front = np.unique(found.places)
        for step in range(1, self.hops + 1):
            if not len(front):
                break
            which, targets, weights = found.links.of_nodes(front)
            before = scores[front][which]
            offered = before - (1 - self.decay * np.minimum(1.0, weights)) * np.abs(before)
            old = scores[targets]
            np.maximum.at(scores, targets, offered)
            steps[targets[np.isneginf(old)]] = step
            front = np.unique(targets[scores[targets] > old])
        reached = np.flatnonzero(scores > -np.inf)
        return reached, scores[reached], steps[reached]
