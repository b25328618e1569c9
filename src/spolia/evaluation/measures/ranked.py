"""What a measure of retrieval sees: ids in the order found, against groups of gold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Measure, Result, checked_item
from spolia.types import Answer, Item, Ranking


class RetrievalMeasure(Measure):
    """A measure of which passages were found, in which order.

    The gold is an AND of ORs: all groups are needed, and any member satisfies its group. With one passage in each group
    every measure here is the usual one; a further member of a satisfied group neither helps nor is missed.
    """

    def applies(self, item: Item) -> bool:
        return bool(item.gold)

    def score(self, result: Result, item: Item) -> float:
        checked_item(self, item)
        return self.of(found_ids(result), item)

    @abstractmethod
    def of(self, found: Sequence[str], item: Item) -> float:
        """The number for ids in the order found. An id that comes again keeps its place and counts nothing."""


@dataclass(frozen=True)
class CutMeasure(RetrievalMeasure):
    """A measure of the first `k` places."""

    k: int = 10

    def __post_init__(self) -> None:
        checked_k(self.k)


def checked_k(k: int | None) -> None:
    """Refuse to look at no place at all."""
    if k is not None and k < 1:
        raise MeasureError(f"A measure of the first {k} places measures nothing. Write k = 1 or more.")


def found_ids(result: Result) -> tuple[str, ...]:
    """Ids of the passages behind a result, best first: each node stands for its document.

    Several nodes of one document keep their places, but only the first of them can count. Of an answer, the evidence
    is measured; without evidence, its citations.

    >>> from spolia.types import Hit, Node, Query
    >>> found_ids(Ranking(Query("q"), (Hit(Node("n1", "", document="p1"), 2.0), Hit(Node("p2", ""), 1.0))))
    ('p1', 'p2')
    """
    if isinstance(result, Answer):
        if result.evidence is None:
            return tuple(citation.document or citation.node for citation in result.citations)
        result = result.evidence
    if not isinstance(result, Ranking):
        raise MeasureError(f"A {type(result).__name__} holds no passages to measure. Measure a Ranking or an Answer.")
    return tuple([hit.node.document or hit.node.id for hit in result.hits])


def gold_ids(item: Item) -> set[str]:
    """Every member of every group."""
    return {one for group in item.gold for one in group}


def satisfied(found: Sequence[str], item: Item) -> int:
    """How many groups of the gold have a member among `found`."""
    seen = set(found)
    return sum(not seen.isdisjoint(group) for group in item.gold)


def first_ranks(found: Sequence[str], item: Item) -> dict[str, int]:
    """Where each gold passage that was found stands first, from 1, best first.

    >>> first_ranks(["x", "b", "a", "b"], Item("q", "?", gold=(("a",), ("b", "c"))))
    {'b': 2, 'a': 3}
    """
    gold, ranks = gold_ids(item), dict[str, int]()
    for rank, one in enumerate(found, start=1):
        if one in gold and one not in ranks:
            ranks[one] = rank
    return ranks


def group_firsts(found: Sequence[str], item: Item) -> list[tuple[str, int]]:
    """The passage that first satisfies each group, and its rank; groups that nothing satisfies are left out.

    >>> group_firsts(["x", "b", "a"], Item("q", "?", gold=(("a", "b"), ("a",), ("c",))))
    [('b', 2), ('a', 3)]
    """
    ranks = first_ranks(found, item)
    firsts = (next((one for one in ranks if one in group), None) for group in item.gold) if ranks else ()
    return [(one, ranks[one]) for one in firsts if one is not None]
