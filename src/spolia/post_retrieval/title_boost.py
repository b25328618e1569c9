"""Hits whose title is what was asked for count more."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.core.sweepable import Rearrangement
from spolia.core.wiring import refuse_counts
from spolia.errors import WiringError
from spolia.ranking.fusion import falling
from spolia.types import Node, Ranking

_ARTICLE = re.compile(r"the\s+", re.IGNORECASE)


@dataclass(frozen=True)
class TitleBoost(Rearrangement):
    """Multiply the score of a hit by how well its title fits the query; the first row that holds counts.

    | the query is, with or without a leading "the" | factor |
    |---|---|
    | the title, letter for letter | `exact` |
    | the title in other case, or the title without what follows it in brackets | `near` |
    | that in other case; or the title in small letters stands in the query | `named` |
    | and the title without brackets stands in the query, in any case | `mentioned` |

    The title is the first part of what stands above the node's text (`Node.context`); a node without one stays as it
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

    >>> from spolia.types import Hit, Query
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
            if not 1 <= getattr(self, name) < float("inf"):
                raise WiringError(f"{self.short}: {name} is {getattr(self, name)}. Write a number of at least 1.")

    def looked_up(self, value: Ranking, /) -> list[tuple[float, str]]:
        """The score of each hit, and the name of its factor."""
        return [(hit.score, _fit(value.query.text.strip(), _title(hit.node))) for hit in value.hits]

    def chosen(self, known: list[tuple[float, str]], /) -> tuple[Sequence[int], Sequence[float]]:
        factors = {name: getattr(self, name) for name in ("exact", "near", "named", "mentioned")} | {"": 1.0}
        scores = [score * factors[fit] if score > 0 else score / factors[fit] for score, fit in known]
        order = sorted(range(len(scores)), key=lambda at: falling(scores[at]))[: self.top_k]
        return order, [scores[at] for at in order]


def _fit(query: str, title: str) -> str:
    if not title or not query:
        return ""
    asked = {query, _ARTICLE.sub("", query, count=1) if _ARTICLE.match(query) else query}
    lower = {text.lower() for text in asked}
    core = (title[:-2].rpartition("(")[0].rstrip() if title.endswith(")") else "") or title
    if title in asked:
        return "exact"
    if title.lower() in lower or core in asked:
        return "near"
    if core.lower() in lower or title.lower() in query:
        return "named"
    return "mentioned" if core.lower() in query.lower() else ""


def _title(node: Node) -> str:
    return re.split(r"\n| > ", node.context, maxsplit=1)[0].strip()
