"""Keeping what scores well enough, and at least one hit."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.operator import Operator
from spolia.post_retrieval.selection.kept import reaching, refuse_nan
from spolia.types import Ranking


@dataclass(frozen=True)
class Threshold(Operator[Ranking, Ranking]):
    """The hits whose score is at least as high as a bound, s ≥ at_least; the best one where none is.

    `Cut(at_least=...)` is the same, but may leave nothing. A distance d has the score -d, so that nothing has to be
    turned around.

    Args:
        at_least: the least score that is kept.

    Source: `threshold_cutoff` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented
    Generation Pipeline", 2024.

    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(str(s), ""), s) for s in (0.9, 0.5, 0.4)))
    >>> [hit.score for hit in Threshold(0.5)(found)], [hit.score for hit in Threshold(2.0)(found)]
    ([0.9, 0.5], [0.9])
    """

    at_least: float

    def __post_init__(self) -> None:
        refuse_nan(self, "at_least")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=reaching(value.hits, [hit.score for hit in value.hits], self.at_least))
