"""Hits that are relevant, and not all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.errors import WiringError
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.operator import Operator
from spolia.post_retrieval.likeness import Likeness, by_vectors, by_words
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.types import Ranking
from spolia.wiring import refuse_counts

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class MMR(Operator[Ranking, Ranking]):
    """Take hits one after the other, each as relevant and as unlike those before it as possible: marginal relevance.

    Of the hits D that are left and those S that are taken, next is the d with the largest
    score = λ · sim(q, d) - (1 - λ) · max(0, max over s in S of sim(d, s)). It is the hit's new score, and never rises,
    since opposite is no more unlike than unlike.

    With an embedder sim is the cosine of vectors. Without one, two hits are alike by the share of their words that both
    have, and sim(q, d) is the hit's score, scaled so that the best has 1 and the worst 0.

    Args:
        embedder: gives the vectors; None for words.
        group: whose stored vectors are taken, so that only the question is embedded; None to embed the hits, too.
        relevance: λ, from 0 (only unlike) to 1 (only relevant).
        top_k: hits to return, at most. Give it more to choose from, four times as many or so.

    Raises:
        WiringError: λ is not from 0 to 1, or a group is named without an embedder.
        ManifestMismatch: the group was embedded by another embedder of that name.
        ModelError: what the embedder gives are no vectors.

    Source: Carbonell, Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing
    summaries", SIGIR 1998.

    >>> from spolia.types import Hit, Node, Query
    >>> texts = {"a": "red stones", "b": "red stones", "c": "blue sea"}
    >>> found = Ranking(Query("red"), tuple(Hit(Node(id, text), 1.0) for id, text in texts.items()))
    >>> [(hit.node.id, hit.score) for hit in MMR()(found)]
    [('a', 0.5), ('c', 0.5), ('b', 0.0)]
    """

    embedder: Embedder | None = None
    group: NodeGroup | None = None
    relevance: float = 0.5
    top_k: int = 10

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")
        if not 0 <= self.relevance <= 1:
            raise WiringError(f"{self.short}: relevance is {self.relevance}. Write a number from 0 to 1.")
        if self.embedder is not None:
            refuse_no_embedder(self.embedder, "MMR", Embedder)
        if self.group is not None:
            refuse_no_group(self.group, "MMR")
            if self.embedder is None:
                raise WiringError(f"{self.short}: a group has vectors of an embedder. Write embedder=, or no group.")

    def apply(self, value: Ranking, /) -> Ranking:
        if not value.hits:
            return value
        likeness = by_words(value) if self.embedder is None else by_vectors(value, self.embedder, self.group)
        taken = chosen(likeness, len(value.hits), self.top_k, self.relevance)
        return value.but(hits=tuple(value.hits[at].but(score=score) for at, score in taken))


def chosen(likeness: Likeness, count: int, top_k: int, relevance: float) -> list[tuple[int, float]]:
    """Places and scores of the hits that are taken, in turn; of equal ones the first.

    Args:
        count: of hits.
    """
    import numpy as np

    relevant = relevance * likeness.relevance()
    nearest = np.zeros(count)
    left = np.ones(count, dtype=np.bool_)
    found: list[tuple[int, float]] = []
    for _ in range(min(top_k, count)):
        scores = np.where(left, relevant - (1 - relevance) * nearest, -np.inf)
        best = int(np.argmax(scores))
        found.append((best, float(scores[best])))
        left[best] = False
        nearest = np.maximum(nearest, likeness.to(best))
    return found
