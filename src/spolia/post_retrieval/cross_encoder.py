"""Reranking by a model that reads question and passage together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.models.protocols import Scorer
from spolia.post_retrieval.judging import Judging


@dataclass(frozen=True)
class CrossEncoder(Judging):
    """Score each hit by a `Scorer`: a cross-encoder on this machine, or a hosted reranker (`RerankModel`).

    score(q, d) = scorer(q, d), whatever its scale.

    Args:
        scorer: the model. All texts are given to it in one call.
        top_k: hits to return, at most.
        judged: hits that are judged, at most; the others are left out.
        strict: a model that fails is an error; else the hits keep their order, and that is recorded (`Judging`).

    Source: Nogueira, Cho, "Passage re-ranking with BERT", 2019.

    >>> from spolia.models.reranking import RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "a blue sea"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> with OpenAIServer() as server:
    ...     [(hit.node.id, hit.score) for hit in CrossEncoder(RerankModel("any", server.url))(found)]
    [('b', 1.0), ('a', 0.0)]
    """

    scorer: Scorer
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(question, texts)
