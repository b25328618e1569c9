"""Orders of hits by their metadata: their time, the title of their document."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import ClassVar

from spolia.core.sweepable import Rearrangement, VariantRanking
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.errors import WiringError
from spolia.post_retrieval.selection import select_at_least
from spolia.ranking.fusion import sort_best_first
from spolia.ranking.scalings import min_max
from spolia.types import Node, Time, is_time

SECONDS_A_DAY = 86_400


def find_latest_day(node: Node, field: str) -> float | None:
    """Return the latest time of a metadata field, in days since 1970; None if it holds none.

    A year, a month or a day counts where it begins.

    >>> find_latest_day(Node("n", "", meta=(("day", "1970-01-02"), ("day", "soon"))), "day")
    1.0
    """
    # Metadata may hold anything under this name.
    times = (str(value) for name, value in node.meta if name == field and value is not None)
    days = [to_days(Time(time)) for time in times if is_time(time)]
    return max(days, default=None)


def to_days(time: Time) -> float:
    """Return the beginning of a time, in days since 1970."""
    moment = datetime.strptime(time.first, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return moment.timestamp() / SECONDS_A_DAY


@dataclass(frozen=True)
class Newest(Rearrangement):
    """Order hits by a time in their metadata, newest first, whatever their scores, which stay as they are.

    Of several times the latest counts. Equal times keep their order; hits without a time come last.

    Args:
        field: name of the metadata field.
        top_k: hits to return, at most.

    Source: `time_reranker` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> nodes = [Node(year, "", meta=(("year", year),)) for year in ("2019", "2024", "2022")]
    >>> [hit.node.id for hit in Newest("year", top_k=2)(Ranking(Query("?"), tuple(Hit(node, 1.0) for node in nodes)))]
    ['2024', '2022']
    """

    field: str = "file_modified"
    top_k: int = 10

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")

    def variant_key(self) -> object:
        return self.field

    def compute_features(self, ranking: VariantRanking, /) -> list[int]:
        times = [find_latest_day(node, self.field) for node in ranking.nodes]
        ages = [math.inf if time is None else -time for time in times]
        return sorted(range(len(ages)), key=ages.__getitem__)

    def choose_hits(self, order: Sequence[int], /) -> tuple[Sequence[int], None]:
        return order[: self.top_k], None


@dataclass(frozen=True)
class Recent(Rearrangement):
    """The hits of which a metadata field holds a time t ≥ since; without any, the newest hit.

    A year, a month or a day counts where it begins. Of several values the latest counts; a hit without any is the
    oldest of all. Where no hit has a time, the first one stays. Order and scores are as they were.

    `Between("file_modified", at_least=...)` as a filter searches among these only, and may find nothing.

    Args:
        since: a year, a month, a day, or a moment with its time zone.
        field: name of the metadata field.

    Raises:
        WiringError: `since` is not a time.

    Source: `recency_filter` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.types import Hit, Node, Query, Ranking
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

    def variant_key(self) -> object:
        return self.field

    def compute_features(self, ranking: VariantRanking, /) -> list[float]:
        times = [find_latest_day(node, self.field) for node in ranking.nodes]
        return [-math.inf if time is None else time for time in times]

    def choose_hits(self, times: Sequence[float], /) -> tuple[Sequence[int], None]:
        return select_at_least(times, to_days(Time(self.since))), None


@dataclass(frozen=True)
class TimeDecay(Rearrangement):
    """Mix the relevance of a hit with its age.

    score(d) = (1 - w) · φ(s(d)) + w · 2^(-age(d) / half_life), with φ the scaling from 0 (worst hit) to 1 (best), and
    the age in days before `now`. A newer hit has the age 0; a hit without a time counts as endlessly old.
    Equal scores keep their order.

    Args:
        field: name of the metadata field; of several times the latest counts.
        half_life_days: days after which newness is worth half.
        weight: w, from 0 (scores alone) to 1 (newness alone).
        now: a time; empty for that of the newest hit, so that the result does not depend on the day.
        top_k: hits to return, at most.

    Raises:
        WiringError: a number that makes no sense, or `now` is not a time.

    Source: exponential decay as in Li, Croft, "Time-based language models", CIKM 2003.

    >>> from spolia.types import Hit, Node, Query, Ranking
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
        refuse_numbers(self, "a number above 0", "half_life_days")
        refuse_numbers(self, "a number from 0 to 1", "weight")
        if self.now and not is_time(self.now):
            raise WiringError(
                f"{self.short}: now is {self.now!r:.60}. Write a day, or a moment with its time zone, as "
                "2026-11-21T09:30:00Z; or nothing for the time of the newest hit."
            )

    def variant_key(self) -> object:
        return self.field, self.now

    def compute_features(self, ranking: VariantRanking, /) -> tuple[list[float], list[float]]:
        """Return the relevance of each hit, and its age in days."""
        times = [find_latest_day(node, self.field) for node in ranking.nodes]
        relevance, _ = min_max(ranking.scores)  # whatever the retriever's scale: it is mixed with a number from 0 to 1
        now = to_days(Time(self.now)) if self.now else max((time for time in times if time is not None), default=0.0)
        # A hit after `now` would have a negative age, and so a share above 1.
        return relevance, [math.inf if time is None else max(0.0, now - time) for time in times]

    def choose_hits(self, features: tuple[list[float], list[float]], /) -> tuple[Sequence[int], Sequence[float]]:
        new = [2 ** (-age / self.half_life_days) for age in features[1]]  # an infinite age gives 0
        mixed = [(1 - self.weight) * g + self.weight * n for g, n in zip(features[0], new, strict=True)]
        order = sorted(range(len(mixed)), key=lambda at: -mixed[at])[: self.top_k]
        return order, [mixed[index] for index in order]


_ARTICLE = re.compile(r"the\s+", re.IGNORECASE)


@dataclass(frozen=True)
class TitleBoost(Rearrangement):
    """Multiply the score of a hit by how well its title fits the query; the first row that holds counts.

    | the query is, with or without a leading "the" | factor |
    |---|---|
    | the title, letter for letter | `exact` |
    | the title in other case, or the title without what follows it in brackets | `near` |
    | that in other case; or the title in small letters is part of the query | `named` |
    | and the title without brackets is part of the query, in any case | `mentioned` |

    The title is the first part of `Node.context`, above the node's text; a node without one stays as it
    is. Scores of 0 and below are divided, so that a better title never counts against a hit. Equal scores keep their
    order. Behind `FieldedBM25(..., combine="best", top_k=50)` it is about the word search that IRCoT, Adaptive-RAG and
    PrefRAG call BM25.

    Args:
        exact: at least 1, as are the others.
        near: a factor.
        named: a factor.
        mentioned: a factor.
        top_k: hits to return, at most.

    Raises:
        WiringError: a factor below 1.

    Source: Qi, Lin, Mehr, Wang, Manning, "Answering complex open-domain questions through iterative query generation",
    EMNLP 2019.

    >>> from spolia.types import Hit, Query, Ranking
    >>> nodes = Node("a", "A band.", context="Spolia (band)"), Node("b", "Reused stones.", context="Spolia")
    >>> found = Ranking(Query("Spolia"), tuple(Hit(node, score) for node, score in zip(nodes, (1.2, 1.0))))
    >>> [(hit.node.id, round(hit.score, 3)) for hit in TitleBoost()(found)]
    [('b', 1.5), ('a', 1.44)]
    """

    exact: float = 1.5
    near: float = 1.2
    named: float = 1.1
    mentioned: float = 1.05
    top_k: int = 10

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")
        for name in ("exact", "near", "named", "mentioned"):
            # below 1 a fitting title would lower its hit; NaN fails it too
            if not 1 <= getattr(self, name) < float("inf"):
                raise WiringError(f"{self.short}: {name} is {getattr(self, name)}. Write a number of at least 1.")

    def compute_features(self, ranking: VariantRanking, /) -> list[tuple[float, str]]:
        """Return the score of each hit, and the name of its factor."""
        text = ranking.query.text.strip()
        fits = [_find_factor(text, _extract_title(node.context)) for node in ranking.nodes]
        return list(zip(ranking.scores, fits, strict=True))

    def choose_hits(self, features: list[tuple[float, str]], /) -> tuple[Sequence[int], Sequence[float]]:
        factors = {name: getattr(self, name) for name in ("exact", "near", "named", "mentioned")} | {"": 1.0}
        # A negative score rises when it is divided.
        scores = [score * factors[fit] if score > 0 else score / factors[fit] for score, fit in features]
        order = sort_best_first(scores)[: self.top_k]
        return order, [scores[index] for index in order]


@lru_cache(maxsize=4096)  # the rankings of a sweep hold the same hits again and again
def _find_factor(query: str, title: str) -> str:
    if not title or not query:
        return ""
    spellings = {query, _ARTICLE.sub("", query, count=1) if _ARTICLE.match(query) else query}
    lower = {text.lower() for text in spellings}
    # "Mercury (planet)" is asked for as "Mercury": brackets only tell namesakes apart.
    core = (title[:-2].rpartition("(")[0].rstrip() if title.endswith(")") else "") or title
    if title in spellings:
        return "exact"
    if title.lower() in lower or core in spellings:
        return "near"
    if core.lower() in lower or title.lower() in query:
        return "named"
    return "mentioned" if core.lower() in query.lower() else ""


@lru_cache(maxsize=4096)
def _extract_title(context: str) -> str:
    return re.split(r"\n| > ", context, maxsplit=1)[0].strip()
