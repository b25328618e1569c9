"""Many variants of a fusion on many questions at once, for whoever looks for the best of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.orchestration.fusion import Fusion, SideBySide
from spolia.ranking.fusion import checked_weights
from spolia.types import Ranking

if TYPE_CHECKING:
    from spolia.ranking.alignment import Numbers, Places


@dataclass(frozen=True, eq=False)
class Fused:
    """What one variant gives for one question.

    Args:
        side_by_side: the rankings that were fused.
        order: int64[hits], which documents, best first.
        scores: float64[hits].
    """

    side_by_side: SideBySide
    order: Places
    scores: Numbers

    @property
    def ids(self) -> list[str]:
        """The ids of the nodes, best first."""
        hits = self.side_by_side.hits
        return [hits[at].node.id for at in self.order.tolist()]

    @property
    def ranking(self) -> Ranking:
        """The ranking that the fusion itself gives."""
        return self.side_by_side.ranking(self.order.tolist(), self.scores.tolist())


def sweep(
    values: Iterable[Sequence[Ranking]], variants: Sequence[Operator[Sequence[Ranking], Ranking]]
) -> Iterator[list[Fused]]:
    """For each question in turn what each variant makes of its rankings: what the variant itself gives, and faster.

    The rankings are laid side by side once, and scaled once for each normalisation; variants that differ in `k` or in
    weights are then rows of one array. Hits are made only of what is looked at (`Fused.ranking`).

    Args:
        values: the rankings of each question.
        variants: fusions; of a fusion with ranges, `[*fusion.vary(k=range(4, 81)).decided()]`.

    Raises:
        StepFailed: a question without rankings.
        WiringError: a variant that is no such fusion, or a ranking whose source has no weight or minimum.

    >>> from spolia.orchestration.rank_fusion import ConvexCombination, ReciprocalRankFusion
    >>> from spolia.types import Hit, Node, Query
    >>> def found(source, **scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()), source)
    >>> question = (found("bm25", a=9.0, b=3.0), found("dense", b=0.8, c=0.4))
    >>> combination = ConvexCombination(normalisation="min-max")
    >>> words, meaning = (combination.but(weights=(("bm25", w), ("dense", 1 - w))) for w in (1.0, 0.0))
    >>> [[one.ids for one in row] for row in sweep([question], [words, meaning, ReciprocalRankFusion(top_k=1)])]
    [[['a', 'b', 'c'], ['b', 'c', 'a'], ['b']]]
    """
    fusions = [_checked(variant) for variant in variants]
    together = [_Alike(rows, [fusions[row] for row in rows]) for rows in _together(fusions)]
    for rankings in values:
        side_by_side = SideBySide.of(rankings)
        found: dict[int, Fused] = {}
        for alike in together:
            found.update(alike.fused(side_by_side))
        yield [found[row] for row in range(len(variants))]


def _checked(variant: Operator[Sequence[Ranking], Ranking]) -> Fusion:
    if isinstance(variant, Fusion):
        return variant
    raise WiringError(f"{variant.short} cannot be swept. Write fusions by rank or score, or run it by batch(...).")


def _together(variants: Sequence[Fusion]) -> list[list[int]]:
    """Which variants are computed together."""
    rows: dict[object, list[int]] = {}
    for row, variant in enumerate(variants):
        rows.setdefault((type(variant), variant.alike()), []).append(row)
    return list(rows.values())


@dataclass(frozen=True, eq=False)
class _Alike:
    """Variants that are computed together, and which rows of all variants they are."""

    rows: Sequence[int]
    variants: Sequence[Fusion]
    weights: dict[object, tuple[Numbers, dict[tuple[bool, ...], list[int]]]] = field(default_factory=dict)

    def fused(self, side_by_side: SideBySide) -> Iterator[tuple[int, Fused]]:
        import numpy as np

        first, aligned = self.variants[0], side_by_side.aligned
        weights, by_say = self._weighed(side_by_side.rankings)
        scores = first.scores(side_by_side, self.variants, weights)
        for say, places in by_say.items():
            order = aligned.best(scores[places], say, first.top_k)
            numbers = np.take_along_axis(scores[places], order, axis=1)
            for place, best, its in zip(places, order, numbers, strict=True):
                yield self.rows[place], Fused(side_by_side, best, its)

    def _weighed(self, rankings: Sequence[Ranking]) -> tuple[Numbers, dict[tuple[bool, ...], list[int]]]:
        """Weights of the rankings by variant, and the variants by which rankings have a say between equal scores."""
        import numpy as np

        key = tuple((ranking.source, ranking.query.weight) for ranking in rankings)
        if key not in self.weights:
            rows = [checked_weights(len(rankings), variant.weights_of(rankings)) for variant in self.variants]
            by_say: dict[tuple[bool, ...], list[int]] = {}
            for place, row in enumerate(rows):
                by_say.setdefault(tuple(weight > 0 for weight in row), []).append(place)
            self.weights[key] = np.array(rows, dtype=np.float64), by_say
        return self.weights[key]
