"""How often a source is asked, how often that was of use, and how much of it a reader is shown."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.measure import Case, CostMeasure
from spolia.types import Answer, Failure, Hit, Ranking


@dataclass(frozen=True)
class _OfSource(CostMeasure):
    """What the three have in common."""

    source: str = ""

    def cost(self, case: Case) -> float:
        asked = [call for call in case.retrievals if self.source in ("", call.source)]
        return float(self.counted(asked, shown(case)))

    @abstractmethod
    def counted(self, calls: Sequence[Ranking], shown: Sequence[Hit]) -> int:
        """The number for the calls of the source and what the reader was shown."""


@dataclass(frozen=True)
class RetrievalCalls(_OfSource):
    """Calls of retrievers for a question. A call of a second source to supplement the first counts for both.

    Args:
        source: of this source alone (`Ranking.source`); empty: of all.

    >>> from spolia.types import Item, Query
    >>> calls = (Ranking(Query("?"), (), "local"), Ranking(Query("?"), (), "web"), Ranking(Query("??"), (), "local"))
    >>> measure = RetrievalCalls(source="local")
    >>> str(measure), measure.cost(Case(Item("q", "?"), Answer("so"), retrievals=calls))
    ('Calls(source="local")', 2.0)
    """

    called: ClassVar[str] = "Calls"

    def counted(self, calls: Sequence[Ranking], shown: Sequence[Hit]) -> int:
        return len(calls)


@dataclass(frozen=True)
class UsedCalls(_OfSource):
    """Calls of retrievers of which the reader was shown a passage; of a failed question, none.

    Args:
        source: of this source alone; empty: of all.

    >>> from spolia.types import Item, Node, Query
    >>> local, web = (Ranking(Query("?"), (Hit(Node(name, ""), 1.0),), name) for name in ("local", "web"))
    >>> measure, answer = UsedCalls(), Answer("so", evidence=local)
    >>> str(measure), measure.cost(Case(Item("q", "?"), answer, retrievals=(local, web)))
    ('UsedCalls', 1.0)
    """

    called: ClassVar[str] = "UsedCalls"

    def counted(self, calls: Sequence[Ranking], shown: Sequence[Hit]) -> int:
        seen = set[str]().union(*(names(hit) for hit in shown))
        return sum(any(not seen.isdisjoint(names(hit)) for hit in call.hits) for call in calls)


@dataclass(frozen=True)
class DocumentsShown(_OfSource):
    """Passages that the reader was shown; those that two sources found count for both.

    Args:
        source: found by this source alone; empty: all, also those that no recorded call found.

    >>> from spolia.types import Item, Node, Query
    >>> web = Ranking(Query("?"), (Hit(Node("w1", ""), 1.0), Hit(Node("w2", ""), 0.5)), "web")
    >>> measure, answer = DocumentsShown(source="web"), Answer("so", evidence=web.cut(1))
    >>> str(measure), measure.cost(Case(Item("q", "?"), answer, retrievals=(web,)))
    ('DocsShown(source="web")', 1.0)
    """

    called: ClassVar[str] = "DocsShown"

    def counted(self, calls: Sequence[Ranking], shown: Sequence[Hit]) -> int:
        if not self.source:
            return len(shown)
        found = set[str]().union(*(names(hit) for call in calls for hit in call.hits))
        return sum(not found.isdisjoint(names(hit)) for hit in shown)


def shown(case: Case) -> Sequence[Hit]:
    """What the reader was shown: the evidence of an answer, or the ranking that the flow ends with."""
    if isinstance(case.result, Failure):
        return ()
    ranking = case.result.evidence if isinstance(case.result, Answer) else case.result
    return ranking.hits if ranking is not None else ()


def names(hit: Hit) -> Set[str]:
    """Ids under which a passage may have been found: its own, or those of smaller ones that it is shown for."""
    return {hit.node.id, *(node.id for node in hit.found)}
