"""Whether an accepted answer stands in the passages found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.accuracy import holds
from spolia.evaluation.measures.answers.words import checked_words
from spolia.evaluation.measures.measure import Measure, Result, checked_item
from spolia.evaluation.measures.ranked import checked_k
from spolia.types import Answer, Item


@dataclass(frozen=True)
class AnswerHit(Measure):
    """1 if the words of an accepted answer stand, in a row, in one of the first k passages, else 0.

    It needs no gold passages, and says less: the words may stand there by chance. FlashRAG reports it as recall.

    Args:
        k: how many places to look at.
        words: how a text is cut into words (`spolia.evaluation.measures.answers.words`); `unicode` for any script.

    Source: Chen et al. 2017 (DrQA) and Karpukhin et al. 2020 (DPR), top-k accuracy.

    >>> from spolia.types import Hit, Item, Node, Query, Ranking
    >>> found = Ranking(Query("?"), (Hit(Node("n1", "He worked for Nokia."), 1.0),))
    >>> str(AnswerHit(5)), AnswerHit(5).score(found, Item("q", "?", answers=("nokia",)))
    ('AnswerHit@5', 1.0)
    """

    k: int = 10
    words: str = "squad"

    called: ClassVar[str] = "AnswerHit"

    def __post_init__(self) -> None:
        checked_k(self.k)
        checked_words(self.called, self.words)

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float:
        checked_item(self, item)
        ranking = result.evidence if isinstance(result, Answer) else result
        if ranking is None:
            raise MeasureError("An Answer without evidence holds no passages. Measure the Ranking before it.")
        texts = [node.shown_text for node in ranking.cut(self.k).nodes]
        return float(any(holds(text, answer, self.words) for text in texts for answer in item.answers))
