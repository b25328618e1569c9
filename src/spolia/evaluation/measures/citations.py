"""Whether an answer cites what it should: precision and recall of its citations, against the gold passages."""

from abc import abstractmethod
from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer_text import answer_in
from spolia.evaluation.measures.measure import Result, checked_item
from spolia.evaluation.measures.quote_places import GoldPlace, placed
from spolia.evaluation.measures.retrieval_measure import GoldMeasure, gold_ids, satisfied
from spolia.types import Item


@dataclass(frozen=True)
class CitationMeasure(GoldMeasure):
    """A measure of which documents an answer cites; each counts once.

    Args:
        share: of gold that is a quote, how much must be cited: all of it by default, 0 for any character. Then places
            in documents are counted instead, and the parts of one quote as one.
    """

    def score(self, result: Result, item: Item) -> float:
        checked_item(self, item)
        citations = answer_in(result).citations
        if not item.quotes:
            return self.of({one.document or one.node for one in citations}, item)
        cited, places = placed(tuple(dict.fromkeys(map(GoldPlace.cited, citations))), item, self.share).first()
        return self.of({one or f"wrong {at}" for at, one in enumerate(cited)}, places)

    @abstractmethod
    def of(self, cited: Set[str], item: Item) -> float:
        """The number for the documents that are cited."""


@dataclass(frozen=True)
class CitationPrecision(CitationMeasure):
    """Share of the cited documents that are gold; 0 when nothing is cited, an abstention included.

    Source: the set precision of what is cited; Gao et al. 2023 (ALCE) judge support instead (`ALCE-P`).

    >>> str(CitationPrecision()), CitationPrecision().of({"p1", "p9"}, Item("q", "?", gold=(("p1", "p2"),)))
    ('CiteP', 0.5)
    """

    called: ClassVar[str] = "CiteP"

    def of(self, cited: Set[str], item: Item) -> float:
        return len(cited & gold_ids(item)) / len(cited) if cited else 0.0


@dataclass(frozen=True)
class CitationRecall(CitationMeasure):
    """Share of the groups of gold of which a member is cited.

    Source: the set recall of what is cited; Gao et al. 2023 (ALCE) judge support instead (`ALCE-R`).

    >>> str(CitationRecall()), CitationRecall().of({"p1", "p9"}, Item("q", "?", gold=(("p1", "p2"), ("p3",))))
    ('CiteR', 0.5)
    """

    called: ClassVar[str] = "CiteR"

    def of(self, cited: Set[str], item: Item) -> float:
        return satisfied(tuple(cited), item) / len(item.gold)
