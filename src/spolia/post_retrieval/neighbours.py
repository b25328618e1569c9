"""What stands before and after a hit, as hits of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import WiringError
from spolia.filters import narrowed
from spolia.operator import Operator
from spolia.post_retrieval.beside import beside, refuse_nothing
from spolia.ranking.order import falling
from spolia.stores.corpus import Corpus, refuse_no_corpus
from spolia.surrounding import access, narrowing
from spolia.types import Hit, Node, Ranking
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class Neighbours(Operator[Ranking, Ranking]):
    """Add the nodes before and after each hit in its document.

    A neighbour that is j nodes away has score(n) = s - (1 - decay^j) · |s|, s the hit's: less than the hit, whatever
    the sign. A node that is reached from several hits, or is one, keeps its best score. No text is embedded again.
    Best first; between equals a hit, then the nearer neighbour. The way ends with the document, and at a node that may
    not be read or that the filters do not let be found. 10 hits become 10 · (1 + before + after) at most.

    Args:
        corpus: the store that the hits are from.
        before: neighbours before a hit.
        after: neighbours after it.
        decay: what a neighbour keeps of the score with every step, from 0 to 1.
        top_k: hits to return, at most; None for all.

    Raises:
        StoreError: when the store cannot be read.
        FilterError: for a filter on a field that the store does not declare.

    Source: `prev_next_augmenter` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented
    Generation Pipeline", 2024, which embeds all of them again instead.

    >>> Neighbours(Corpus("notes.spolia"), before=0, after=2).short
    'Neighbours(before=0, after=2, decay=0.5)'
    """

    corpus: Corpus
    before: int = 1
    after: int = 1
    decay: float = 0.5
    top_k: int | None = None

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_no_corpus(self.corpus, "Neighbours(corpus)")
        refuse_nothing(self, "before", "after")
        if not 0 <= self.decay <= 1:
            raise WiringError(f"{self.short}: decay is {self.decay}. Write a number from 0 to 1.")
        refuse_counts(self, "top_k", optional=True)

    def apply(self, value: Ranking, /) -> Ranking:
        snapshot, who = self.corpus.snapshot(), access()
        wanted = narrowed(value.query.filter, narrowing())
        found: dict[str, tuple[float, int, int, Hit]] = {}
        for rank, hit in enumerate(value.hits):
            for node in beside(snapshot, hit.node, self.before, self.after, who, wanted):
                steps = abs(node.number - hit.node.number)
                new = self._hit(hit, node, steps)
                place = (falling(new.score), steps, rank, new)
                if node.id not in found or place[:3] < found[node.id][:3]:
                    found[node.id] = place
        hits = [place[3] for place in sorted(found.values(), key=lambda place: place[:3])]
        return value.but(hits=tuple(hits[: self.top_k]))

    def _hit(self, hit: Hit, node: Node, steps: int) -> Hit:
        if not steps:
            return hit
        less = (1 - self.decay**steps) * abs(hit.score) if math.isfinite(hit.score) else 0.0
        return Hit(node, hit.score - less)
