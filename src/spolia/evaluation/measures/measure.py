"""What a measure is, and what a retrieval measure sees of a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spolia.errors import MeasureError
from spolia.types import Answer, Item, Ranking, Value

Result: TypeAlias = Ranking | Answer


class Measure(Value, ABC):
    """How good the result for one question is: a number from 0 to 1. `str(measure)` is how it is written: `R@5`."""

    @abstractmethod
    def applies(self, item: Item) -> bool:
        """Whether the item has the gold that it takes."""

    @abstractmethod
    def score(self, result: Result, item: Item) -> float:
        """The number, for an item to which it applies."""


class RetrievalMeasure(Measure):
    """A measure of which passages were found, in which order."""

    def applies(self, item: Item) -> bool:
        return bool(item.gold)

    def score(self, result: Result, item: Item) -> float:
        return self.of(found_ids(result), item)

    @abstractmethod
    def of(self, found: Sequence[str], item: Item) -> float:
        """The number for ids in the order found, each once except where a place was wasted on a repeated one."""


@dataclass(frozen=True)
class CutMeasure(RetrievalMeasure):
    """A measure of the first `k` places."""

    k: int = 10

    def __post_init__(self) -> None:
        if self.k < 1:
            raise MeasureError(f"A measure of the first {self.k} places measures nothing. Write k = 1 or more.")


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
    return tuple(hit.node.document or hit.node.id for hit in result.hits)


def satisfied(found: Sequence[str], item: Item) -> int:
    """How many groups of the gold have a member among `found`."""
    seen = set(found)
    return sum(not seen.isdisjoint(group) for group in item.gold)
