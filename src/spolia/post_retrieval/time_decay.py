"""Newer hits count more."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.post_retrieval.times import days_of, latest
from spolia.ranking.scalings import min_max
from spolia.types import Ranking, Time, is_time
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class TimeDecay(Operator[Ranking, Ranking]):
    """Mix how good a hit is with how new it is.

    score(d) = (1 - w) · φ(s(d)) + w · 2^(-age(d) / half_life), with φ the scaling from 0 (worst hit) to 1 (best), and
    the age in days before `now`. What is newer than that has the age 0; a hit without a time counts as endlessly old.
    Equal scores keep their order.

    Args:
        field: name of the metadata field; of several times the latest counts.
        half_life_days: days after which newness is worth half.
        weight: w, from 0 (scores alone) to 1 (newness alone).
        now: a time; empty for that of the newest hit, so that the result does not depend on the day.
        top_k: hits to return, at most.

    Raises:
        WiringError: a number that makes no sense, or `now` is no time.

    Source: exponential decay as in Li, Croft, "Time-based language models", CIKM 2003.

    >>> from spolia.types import Hit, Node, Query
    >>> days = {"old": "2026-01-01", "new": "2026-01-31"}
    >>> nodes = [Node(id, "", meta=(("day", day),)) for id, day in days.items()]
    >>> found = Ranking(Query("?"), tuple(Hit(node, 2.0) for node in nodes))
    >>> [(hit.node.id, hit.score) for hit in TimeDecay("day", half_life_days=30)(found)]
    [('new', 1.0), ('old', 0.75)]
    """

    field: str = "file_modified"
    half_life_days: float = 30.0
    weight: float = 0.5
    now: str = ""
    top_k: int = 10

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")
        if not 0 < self.half_life_days < float("inf"):
            raise WiringError(f"{self.short}: half_life_days is {self.half_life_days}. Write a number above 0.")
        if not 0 <= self.weight <= 1:
            raise WiringError(f"{self.short}: weight is {self.weight}. Write a number from 0 to 1.")
        if self.now and not is_time(self.now):
            raise WiringError(
                f"{self.short}: now is {self.now!r:.60}. Write a day, or a moment with its time zone, as "
                "2026-11-21T09:30:00Z; or nothing for the time of the newest hit."
            )

    def apply(self, value: Ranking, /) -> Ranking:
        times = [latest(node, self.field) for node in value.nodes]
        good, _ = min_max([hit.score for hit in value.hits])
        now = days_of(Time(self.now)) if self.now else max((time for time in times if time is not None), default=0.0)
        new = [0.0 if time is None else 2 ** (-max(0.0, now - time) / self.half_life_days) for time in times]
        mixed = ((1 - self.weight) * g + self.weight * n for g, n in zip(good, new, strict=True))
        hits = [hit.but(score=score) for hit, score in zip(value.hits, mixed, strict=True)]
        return value.but(hits=tuple(sorted(hits, key=lambda hit: -hit.score)[: self.top_k]))
