"""Precision and recall of an answer's citations, against the gold passages."""

from abc import abstractmethod
from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer_text import require_answer
from spolia.evaluation.measures.measure import Result, check_item
from spolia.evaluation.measures.quote_places import GoldPlace, locate_gold
from spolia.evaluation.measures.retrieval_measure import GoldMeasure, count_satisfied, gold_ids
from spolia.types import Item


@dataclass(frozen=True)
class CitationMeasure(GoldMeasure):
    """A measure of which documents an answer cites; each counts once.

    Args:
        share: of gold that is a quote, how much must be cited: all of it by default, 0 for any character. Then places
            in documents are counted instead, and the parts of one quote as one.
    """

    def score(self, result: Result, item: Item) -> float:
        check_item(self, item)
        citations = require_answer(result).citations
        if not item.quotes:
            return self.score_ids({citation.document or citation.node for citation in citations}, item)
        ids, places = locate_gold(
            tuple(dict.fromkeys(map(GoldPlace.from_citation, citations))), item, self.share
        ).first()
        return self.score_ids({id or f"wrong {index}" for index, id in enumerate(ids)}, places)

    @abstractmethod
    def score_ids(self, ids: Set[str], item: Item) -> float:
        """Score the ids of the cited documents."""


@dataclass(frozen=True)
class CitationPrecision(CitationMeasure):
    """Share of the cited documents that are gold; 0 when nothing is cited, an abstention included.

    Source: the set precision of what is cited; Gao et al. 2023 (ALCE) judge support instead (`ALCE-P`).

    >>> str(CitationPrecision()), CitationPrecision().score_ids({"p1", "p9"}, Item("q", "?", gold=(("p1", "p2"),)))
    ('CiteP', 0.5)
    """

    notation: ClassVar[str] = "CiteP"

    def score_ids(self, ids: Set[str], item: Item) -> float:
        return len(ids & gold_ids(item)) / len(ids) if ids else 0.0


@dataclass(frozen=True)
class CitationRecall(CitationMeasure):
    """Share of the groups of gold of which a member is cited.

    Source: the set recall of what is cited; Gao et al. 2023 (ALCE) judge support instead (`ALCE-R`).

    >>> str(CitationRecall()), CitationRecall().score_ids({"p1", "p9"}, Item("q", "?", gold=(("p1", "p2"), ("p3",))))
    ('CiteR', 0.5)
    """

    notation: ClassVar[str] = "CiteR"

    def score_ids(self, ids: Set[str], item: Item) -> float:
        return count_satisfied(tuple(ids), item) / len(item.gold)
