"""The score of the best passage, as a sign of how sure a flow may be."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from spolia.evaluation.measures.measure import Measure, Result
from spolia.types import Answer, Item


@dataclass(frozen=True)
class TopScore(Measure):
    """The highest score among the passages found, in the units of the flow's last retriever or reranker.

    It needs no gold and says nothing about quality by itself; it is what `AURC` orders answers by. Without a passage it
    is -inf.

    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> str(TopScore()), TopScore().score(Ranking(Query("?"), (Hit(Node("n", ""), 3.5),)), Item("q", "?"))
    ('TopScore', 3.5)
    """

    called: ClassVar[str] = "TopScore"
    range: ClassVar[tuple[float, float]] = (-inf, inf)

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        ranking = result.evidence if isinstance(result, Answer) else result
        return max((hit.score for hit in ranking.hits), default=-inf) if ranking is not None else -inf
