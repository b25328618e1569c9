"""Keeping what is new enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.post_retrieval.selection.kept import reaching
from spolia.post_retrieval.times import days_of, latest
from spolia.types import Ranking, Time, is_time


@dataclass(frozen=True)
class Recent(Operator[Ranking, Ranking]):
    """The hits of a time on: those of which a metadata field holds a time t ≥ since; else the newest one.

    A year, a month or a day counts where it begins. Of several values the latest counts; a hit without any is the
    oldest of all. Where no hit has a time, the first one stays. Order and scores are as they were.

    `Between("file_modified", at_least=...)` as a filter searches among these only, and may find nothing.

    Args:
        since: a year, a month, a day, or a moment with its time zone.
        field: name of the metadata field.

    Raises:
        WiringError: `since` is no time.

    Source: `recency_filter` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented
    Generation Pipeline", 2024.

    >>> from spolia.types import Hit, Node, Query
    >>> nodes = [Node(year, "", meta=(("year", year),)) for year in ("2019", "2024", "2022")]
    >>> found = Ranking(Query("?"), tuple(Hit(node, 1.0) for node in nodes))
    >>> [[hit.node.id for hit in Recent(since, "year")(found)] for since in ("2020-06", "2030")]
    [['2024', '2022'], ['2024']]
    """

    since: str
    field: str = "file_modified"

    def __post_init__(self) -> None:
        if not is_time(self.since):
            raise WiringError(
                f"{self.short}: since is {self.since!r:.60}. Write a year, a month, a day, or a moment with its time "
                "zone, as 2026-11-21T09:30:00Z."
            )

    def apply(self, value: Ranking, /) -> Ranking:
        since, times = days_of(Time(self.since)), [latest(hit.node, self.field) for hit in value.hits]
        dated = [-math.inf if time is None else time for time in times]
        return value.but(hits=reaching(value.hits, dated, since))
