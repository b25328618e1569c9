"""Leaving out what is too far down, or not good enough."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.types import Ranking
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class Cut(Operator[Ranking, Ranking]):
    """The best hits, and of them those whose score is at least as high as a bound: s ≥ at_least.

    The one place where scores are cut off, so that the bound means the same for every retriever and every embedding:
    `Branch(Dense(notes, small) >> Cut(at_least=0.3), Dense(notes, large) >> Cut(at_least=0.5))`. Nothing may be left.

    Args:
        top_k: hits to keep, at most; None for all.
        at_least: the least score that is kept; None for all. A distance d has the score -d.

    >>> from spolia.types import Hit, Node, Query
    >>> scores = {"a": 0.9, "b": 0.5, "c": 0.4}
    >>> found = Ranking(Query("why?"), tuple(Hit(Node(id, id), score) for id, score in scores.items()))
    >>> [hit.node.id for hit in Cut(at_least=0.5)(found)], [hit.node.id for hit in Cut(top_k=1)(found)]
    (['a', 'b'], ['a'])
    """

    top_k: int | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k", optional=True)
        if self.at_least is not None and self.at_least != self.at_least:
            raise WiringError(f"{self.short}: no score is at least NaN. Write a number, or None.")

    def apply(self, value: Ranking, /) -> Ranking:
        kept = value if self.top_k is None else value.cut(self.top_k)
        if self.at_least is None:
            return kept
        return kept.but(hits=tuple(hit for hit in kept.hits if hit.score >= self.at_least))
