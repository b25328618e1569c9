"""Several rankings become one: the fusion formulas of `spolia.ranking` as operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from spolia.errors import StepFailed, WiringError
from spolia.operator import Operator
from spolia.ranking import (
    Scaling,
    Scored,
    convex_combination,
    min_max,
    reciprocal_rank_fusion,
    theoretical_min_max,
    three_sigma,
    z_score,
)
from spolia.types import Node, Query, Ranking
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class ReciprocalRankFusion(Operator[Sequence[Ranking], Ranking]):
    """Fuse rankings by rank alone: score(d) = Σ_r w_r / (k + rank_r(d)), w_r the weight of ranking r's query.

    For rankings whose scores cannot be compared, and for several rewritings of one question.

    Args:
        k: how slowly the value of a rank falls.
        top_k: hits to keep.

    Raises:
        StepFailed: when there is no ranking to fuse.

    Source: Cormack, Clarke, Büttcher, SIGIR 2009.

    >>> from spolia.types import Hit, Node
    >>> def found(source, *ids):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), 1 / n) for n, i in enumerate(ids, 1)), source)
    >>> fused = ReciprocalRankFusion(top_k=2)((found("bm25", "a", "b"), found("dense", "b", "c")))
    >>> [(hit.node.id, hit.parts) for hit in fused.hits]
    [('b', (('bm25', 0.5), ('dense', 1.0))), ('a', (('bm25', 1.0),))]
    """

    k: float = 60.0
    top_k: int = 10

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")
        if not 0 <= self.k < float("inf"):
            raise WiringError(f"{self.short}: k is {self.k}. Write a number of at least 0.")

    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        weights = [ranking.query.weight for ranking in value]
        return fused(value, lambda lists: reciprocal_rank_fusion(lists, k=self.k, weights=weights), self.top_k)


@dataclass(frozen=True)
class ConvexCombination(Operator[Sequence[Ranking], Ranking]):
    """Fuse rankings by score: score(d) = Σ_r w_r · φ(s_r(d)) / Σ_r w_r, weights named by the rankings' `source`.

    Args:
        weights: for each source; relative, and times the weight of the ranking's query.
        normalisation: φ: `min-max`, `theoretical-min-max`, `z-score` or `3-sigma` (distribution-based score fusion).
        top_k: hits to keep.
        minimums: the least score that a source could give, for `theoretical-min-max`.

    Raises:
        StepFailed: when there is no ranking to fuse.
        WiringError: for a ranking whose source has no weight or, where it is needed, no minimum.

    Source: Bruch, Gai, Ingber, "An analysis of fusion functions for hybrid retrieval", TOIS 2023.

    >>> from spolia.types import Hit, Node
    >>> def found(source, **scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()), source)
    >>> fused = ConvexCombination((("bm25", 0.3), ("dense", 0.7)), normalisation="min-max")(
    ...     (found("bm25", a=9.0, b=3.0), found("dense", b=0.8, a=0.6, c=0.4)))
    >>> [(hit.node.id, round(hit.score, 2)) for hit in fused.hits]
    [('b', 0.7), ('a', 0.65), ('c', 0.0)]
    """

    weights: tuple[tuple[str, float], ...] = (("bm25", 0.5), ("dense", 0.5))
    normalisation: str = "z-score"
    top_k: int = 10
    minimums: tuple[tuple[str, float], ...] = (("bm25", 0.0), ("dense", -1.0))

    version: ClassVar[int] = 2
    known: ClassVar[tuple[str, ...]] = ("min-max", "theoretical-min-max", "z-score", "3-sigma")

    def __post_init__(self) -> None:
        if self.normalisation not in self.known:
            raise WiringError(
                f"There is no normalisation {self.normalisation!r}. Write one of: {', '.join(self.known)}."
            )
        refuse_counts(self, "top_k")
        if any(weight < 0 for _, weight in self.weights) or not any(weight for _, weight in self.weights):
            raise WiringError(f"The weights are {self.weights!r}. Write numbers of at least 0, not all of them 0.")

    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        weights = [self._of(self.weights, "weight", ranking) * ranking.query.weight for ranking in value]
        scalings = [self._scaling(ranking) for ranking in value]
        return fused(value, lambda lists: convex_combination(lists, scaling=scalings, weights=weights), self.top_k)

    def _scaling(self, ranking: Ranking) -> Scaling:
        if self.normalisation == "theoretical-min-max":
            return partial(theoretical_min_max, minimum=self._of(self.minimums, "minimum", ranking))
        return {"min-max": min_max, "z-score": z_score, "3-sigma": three_sigma}[self.normalisation]

    def _of(self, named: tuple[tuple[str, float], ...], what: str, ranking: Ranking) -> float:
        for source, number in named:
            if source == ranking.source:
                return number
        raise WiringError(
            f"There is no {what} for the source {ranking.source!r}, only for {', '.join(repr(s) for s, _ in named)}. "
            f"Write {what}s=(({ranking.source!r}, ...), ...), or give the retriever one of these as its source."
        )


def fused(
    rankings: Sequence[Ranking], fuse: Callable[[Sequence[Scored]], list[tuple[str, float]]], top_k: int
) -> Ranking:
    """The best hits of several rankings by a formula; a node that several have found is one hit."""
    if not rankings:
        raise StepFailed("There is no ranking to fuse: every arm before the fusion failed or was dropped.")
    name_of = _names(rankings)
    lists = [[(name_of(hit.node), hit) for hit in ranking.hits] for ranking in rankings]
    first = {name: hit for hits in reversed(lists) for name, hit in reversed(hits)}
    parts: dict[str, tuple[tuple[str, float], ...]] = {}
    for ranking, hits in zip(rankings, lists, strict=True):
        for name, score in {name: hit.score for name, hit in reversed(hits)}.items():
            parts[name] = (*parts.get(name, ()), (ranking.source, score))
    best = fuse([[(name, hit.score) for name, hit in hits] for hits in lists])[:top_k]
    found = tuple(first[name].but(score=score, parts=parts[name]) for name, score in best)
    return Ranking(asked(rankings[0].query), found, "fused")


def _names(rankings: Sequence[Ranking]) -> Callable[[Node], str]:
    """What tells nodes apart: their ids, unless two stores have given one id to different texts, of different uris."""
    uris: dict[str, set[str]] = {}
    texts: dict[str, set[str]] = {}
    for node in (hit.node for ranking in rankings for hit in ranking.hits):
        uris.setdefault(node.id, set()).add(node.uri)
        texts.setdefault(node.id, set()).add(node.text)
    twice = {id for id in uris if len(uris[id]) > 1 and len(texts[id]) > 1}
    return lambda node: f"{node.id}\0{node.uri}" if node.id in twice else node.id


def asked(query: Query) -> Query:
    """The query as it was before it was rewritten: fusing several rewritings answers the question, not one of them.

    >>> asked(Query("Who wrote Emma?").rewritten("author of Emma")).text
    'Who wrote Emma?'
    """
    if query.text == query.question:
        return query
    while query.origin is not None and query.text != query.question:
        query = query.origin
    return query if query.text == query.question else replace(query, text=query.question, vector=None, weight=1.0)
