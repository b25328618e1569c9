"""Fusions of rankings: the formulas of `spolia.ranking` as operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING, ClassVar

from spolia.core.operator import Operator
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.deferred import numpy as np
from spolia.errors import WiringError
from spolia.orchestration.fusion import Fusion, RankingTable
from spolia.ranking.fusion import (
    compute_convex_scores,
    compute_highest_scores,
    compute_rank_scores,
    descending_key,
    scale_scores,
)
from spolia.ranking.scalings import Scaling, min_max, theoretical_min_max, three_sigma, z_score
from spolia.types import Hit, Ranking

if TYPE_CHECKING:
    from spolia.ranking.alignment import Numbers


@dataclass(frozen=True)
class ReciprocalRankFusion(Fusion):
    """Fuse rankings by rank alone: score(d) = Σ_r w_r / (k + rank_r(d)), w_r the weight of ranking r's query.

    For rankings whose scores cannot be compared, and for several rewritings of one question.

    Args:
        k: how slowly the value of a rank falls.
        top_k: as for every `Fusion`, which names the errors too.

    Source: Cormack, Clarke, Büttcher, SIGIR 2009.

    >>> from spolia.types import Hit, Node, Query
    >>> def found(source, *ids):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), 1 / n) for n, i in enumerate(ids, 1)), source)
    >>> fused = ReciprocalRankFusion(top_k=2)((found("bm25", "a", "b"), found("dense", "b", "c")))
    >>> [(hit.node.id, hit.parts) for hit in fused.hits]
    [('b', (('bm25', 0.5), ('dense', 1.0))), ('a', (('bm25', 1.0),))]
    """

    k: float = 60.0
    top_k: int = 10

    version: ClassVar[int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_numbers(self, "a number of at least 0", "k")

    def scores(self, table: RankingTable, variants: Sequence[ReciprocalRankFusion], weights: Numbers, /) -> Numbers:
        return compute_rank_scores(table.aligned, [variant.k for variant in variants], weights)


@dataclass(frozen=True)
class ConvexCombination(Fusion):
    """Fuse rankings by score: score(d) = Σ_r w_r · φ(s_r(d)) / Σ_r w_r, weights named by the rankings' `source`.

    A document that ranking r does not hold counts 0 there: never more than one that it holds. So `z-score` is counted
    from 3 deviations below the mean, or from the least that r has if that is lower.

    Args:
        weights: for each source; relative, and times the weight of the ranking's query.
        normalisation: φ: `min-max`, `theoretical-min-max`, `z-score` or `3-sigma` (distribution-based score fusion).
        top_k: hits to keep.
        minimums: the least score that a source could give, for `theoretical-min-max`.

    Raises:
        StepFailed: when there is no ranking to fuse.
        WiringError: for weights or minimums that make no sense; when it runs, for a ranking whose source has no weight
            or, where it is needed, no minimum.

    Source: Bruch, Gai, Ingber, "An analysis of fusion functions for hybrid retrieval", TOIS 2023.

    >>> from spolia.types import Hit, Node, Query
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

    version: ClassVar[int] = 6  # 4: NaN comes last; 5: z-scores are counted from what is absent
    normalisations: ClassVar[tuple[str, ...]] = ("min-max", "theoretical-min-max", "z-score", "3-sigma")

    def __post_init__(self) -> None:
        if self.normalisation not in self.normalisations:
            raise WiringError(
                f"There is no normalisation {self.normalisation!r}. Write one of: {', '.join(self.normalisations)}."
            )
        super().__post_init__()
        if not all(0 <= weight < inf for _, weight in self.weights) or not any(weight for _, weight in self.weights):
            raise WiringError(f"The weights are {self.weights!r}. Write numbers of at least 0, not all of them 0.")
        if not all(isfinite(minimum) for _, minimum in self.minimums):
            raise WiringError(f"The minimums are {self.minimums!r}. Write numbers.")

    @property
    def fuses(self) -> tuple[str, ...]:
        """Return the sources that have a weight and, if the normalisation needs it, a minimum."""
        weighted = tuple(source for source, _ in self.weights)
        with_minimum = {source for source, _ in self.minimums}
        needs_minimum = self.normalisation == "theoretical-min-max"
        return tuple(source for source in weighted if not needs_minimum or source in with_minimum)

    def scaling_key(self) -> object:
        return self.top_k, self.normalisation, self.minimums

    def weights_of(self, rankings: Sequence[Ranking], /) -> Sequence[float]:
        return [self._find_number(self.weights, "weight", ranking) * ranking.query.weight for ranking in rankings]

    def scores(self, table: RankingTable, variants: Sequence[ConvexCombination], weights: Numbers, /) -> Numbers:
        scalings = [self._choose_scaling(ranking) for ranking in table.rankings]
        return compute_convex_scores(scale_scores(table.aligned, scalings), weights)

    def _choose_scaling(self, ranking: Ranking) -> Scaling:
        if self.normalisation == "theoretical-min-max":
            return partial(theoretical_min_max, minimum=self._find_number(self.minimums, "minimum", ranking))
        return {"min-max": min_max, "z-score": z_score, "3-sigma": three_sigma}[self.normalisation]

    def _find_number(self, numbers: tuple[tuple[str, float], ...], kind: str, ranking: Ranking) -> float:
        for source, number in numbers:
            if source == ranking.source:
                return number
        raise WiringError(
            f"There is no {kind} for the source {ranking.source!r}, only for {', '.join(repr(s) for s, _ in numbers)}. "
            f"Write {kind}s=(({ranking.source!r}, ...), ...), or give the retriever one of these as its source."
        )


@dataclass(frozen=True)
class HighestScore(Fusion):
    """Fuse rankings by their scores as they are: score(d) = max_r s_r(d).

    For rankings whose scores can be compared: several groups or corpora searched by one embedder, or by one similarity.
    BM25 counts words of one group only, so its scores cannot.

    Args:
        top_k: as for every `Fusion`, which names the errors too.

    Source: CombMAX in Fox, Shaw, "Combination of multiple searches", TREC-2, 1994.

    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> def found(**scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()))
    >>> [(hit.node.id, hit.score) for hit in HighestScore(top_k=2)((found(a=0.9, b=0.2), found(b=0.5, c=0.4)))]
    [('a', 0.9), ('b', 0.5)]
    """

    top_k: int = 10

    version: ClassVar[int] = 3

    def scores(self, table: RankingTable, variants: Sequence[HighestScore], weights: Numbers, /) -> Numbers:
        return np.tile(compute_highest_scores(table.aligned), (len(variants), 1))


@dataclass(frozen=True)
class EvenSplit(Operator[Sequence[Ranking], Ranking]):
    """Take the best ⌊top_k / n⌋ hits of each of n rankings, one more of the first top_k mod n, by their scores.

    As AutoRAG puts together what several rewritings of a question have found. `ReciprocalRankFusion` is better where a
    node that several have found is to count more. The scores stay as they are, so that they should be of one retriever.

    Args:
        top_k: hits of all rankings together, at most.
        once: a node that several have found is one hit, with the best of its scores, so that there may be fewer; else
            it is a hit several times, as in AutoRAG.

    Raises:
        StepFailed: when there is no ranking.

    Source: Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.types import Node, Query
    >>> def found(**scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()))
    >>> both = (found(a=0.9, b=0.4, c=0.3), found(a=0.8, d=0.7))
    >>> [hit.node.id for hit in EvenSplit(3)(both)], [hit.node.id for hit in EvenSplit(3, once=False)(both)]
    (['a', 'b'], ['a', 'a', 'b'])
    """

    top_k: int = 10
    once: bool = True

    version: ClassVar[int] = 3

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")

    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        table = RankingTable.from_rankings(value)
        share, more = divmod(self.top_k, len(value))
        entries: list[tuple[int, Hit]] = []
        for row, (ranking, places) in enumerate(zip(value, table.aligned.places, strict=True)):
            entries += list(zip(places.tolist(), ranking.hits, strict=True))[: share + (row < more)]
        entries.sort(key=lambda entry: descending_key(entry[1].score))
        if self.once:
            best: dict[int, Hit] = {}
            for place, hit in entries:
                best.setdefault(place, hit)
            entries = list(best.items())
        return table.to_ranking([hit for _, hit in entries])
