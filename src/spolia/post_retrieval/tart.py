"""Reranking by a model that follows an instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.models.protocols import Scorer
from spolia.post_retrieval.judging import Judging

SEPARATOR = " [SEP] "
"""Between instruction and question, as TART was trained."""


@dataclass(frozen=True)
class TART(Judging):
    """Score each hit by a cross-encoder that was trained to be told what is looked for.

    score(q, d) = scorer(instruction [SEP] q, d).

    Args:
        scorer: the model, as `facebook/tart-full-flan-t5-xl`. All texts are given to it in one call.
        instruction: what a passage is wanted for.
        top_k: hits to return, at most.
        judged: hits that are judged, at most; the others are left out.
        strict: a model that fails is an error; else the hits keep their order, and that is recorded (`Judging`).

    Source: Asai et al., "Task-aware retrieval with instructions", ACL Findings 2023.

    >>> from spolia.models.reranking import RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("stones"), (Hit(Node("a", "stones"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> with OpenAIServer() as server:
    ...     reranked = TART(RerankModel("any", server.url), instruction="Find red things.")(found)
    ...     server.requests[0].body["query"], [hit.node.id for hit in reranked]
    ('Find red things. [SEP] stones', ['b', 'a'])
    """

    scorer: Scorer
    instruction: str = "Find passages to answer the question."
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(f"{self.instruction}{SEPARATOR}{question}", texts)
