"""The newest hits first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spolia.operator import Operator
from spolia.post_retrieval.times import latest
from spolia.types import Ranking
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class Newest(Operator[Ranking, Ranking]):
    """Order hits by a time in their metadata, newest first, whatever their scores, which stay as they are.

    Of several times the latest counts. Equal times keep their order; hits without a time come last.

    Args:
        field: name of the metadata field.
        top_k: hits to return, at most.

    Source: `time_reranker` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented
    Generation Pipeline", 2024.

    >>> from spolia.types import Hit, Node, Query
    >>> nodes = [Node(year, "", meta=(("year", year),)) for year in ("2019", "2024", "2022")]
    >>> [hit.node.id for hit in Newest("year", top_k=2)(Ranking(Query("?"), tuple(Hit(node, 1.0) for node in nodes)))]
    ['2024', '2022']
    """

    field: str = "file_modified"
    top_k: int = 10

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")

    def apply(self, value: Ranking, /) -> Ranking:
        times = [latest(node, self.field) for node in value.nodes]
        ages = [math.inf if time is None else -time for time in times]
        order = sorted(range(len(ages)), key=ages.__getitem__)
        return value.but(hits=tuple(value.hits[at] for at in order[: self.top_k]))
