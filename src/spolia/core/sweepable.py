"""Steps whose variants are cheap to compute together: each gives the same result as alone, to the last bit."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from spolia.core.operator import Operator
from spolia.types import Hit, Node, Query, Ranking, lazy_property


class HitPool(Protocol):
    """Nodes that rankings of one value are made of."""

    @property
    def query(self) -> Query:
        """Return the query of the rankings."""

    @property
    def nodes(self) -> Sequence[Node]:
        """Return the nodes by place."""

    def ranking(self, order: Sequence[int], scores: Sequence[float], /) -> Ranking:
        """Rank the nodes at some places, best first."""


@dataclass(eq=False, slots=True)
class VariantRanking:
    """Ranking of one variant for one value, as columns: places in a pool, best first, and scores.

    A ranking is made of them when it is looked at.
    """

    pool: HitPool
    order: Sequence[int]
    scores: Sequence[float]

    @classmethod
    def from_ranking(cls, value: "VariantRanking | Ranking") -> "VariantRanking":
        if isinstance(value, VariantRanking):
            return value
        return cls(_Hits(value), range(len(value.hits)), [hit.score for hit in value.hits])

    @property
    def query(self) -> Query:
        return self.pool.query

    @property
    def nodes(self) -> list[Node]:
        nodes = self.pool.nodes
        return [nodes[place] for place in self.order]

    @property
    def ids(self) -> list[str]:
        """Return the ids of the nodes, best first."""
        return [node.id for node in self.nodes]

    @property
    def ranking(self) -> Ranking:
        """Return the ranking that the variant itself gives."""
        return self.pool.ranking(self.order, self.scores)

    def select(self, places: Sequence[int], scores: Sequence[float] | None = None) -> "VariantRanking":
        """Select the entries at some places, best first, perhaps with other scores."""
        if scores is None:
            scores = [self.scores[place] for place in places]
        return VariantRanking(self.pool, [self.order[place] for place in places], scores)


@dataclass(frozen=True, eq=False)
class _Hits:
    """Pool of the hits of a ranking."""

    value: Ranking

    @property
    def query(self) -> Query:
        return self.value.query

    @lazy_property
    def nodes(self) -> Sequence[Node]:
        return [hit.node for hit in self.value.hits]

    def ranking(self, order: Sequence[int], scores: Sequence[float], /) -> Ranking:
        hits = [self.value.hits[place] for place in order]
        return self.value.but(
            hits=tuple(
                [
                    # `is`, since NaN equals nothing
                    hit if hit.score is score else Hit(hit.node, score, hit.parts, hit.found)
                    for hit, score in zip(hits, scores, strict=True)
                ]
            )
        )


@runtime_checkable
class Sweepable(Protocol):
    """Step of which many variants can be computed together; see `spolia.orchestration.sweep`."""

    def variant_key(self) -> object:
        """Return a key that variants of one class share if they are computed together; a class, if variants of several
        classes are."""

    def run_variants(self, variants: Sequence[Any], /) -> Callable[[Sequence[Any]], list[list[VariantRanking]]]:
        """Build a function from values to the results of each variant; all have the same `variant_key`. A step of
        rankings takes them as `VariantRanking` too."""


class Rearrangement(Operator[Ranking, Ranking]):
    """Base of steps that choose among the hits of a ranking, order or rescore them; subclasses write `choose_hits`."""

    def variant_key(self) -> object:
        """Return a key that variants of one class share if they need the same features."""
        return None

    def compute_features(self, ranking: VariantRanking, /) -> Any:
        """Compute from the hits what `choose_hits` needs."""
        return ranking.scores

    @abstractmethod
    def choose_hits(self, features: Any, /) -> tuple[Sequence[int], Sequence[float] | None]:
        """Choose from the features which places stay, best first, and perhaps new scores."""

    def apply(self, value: Ranking, /) -> Ranking:
        ranking = VariantRanking.from_ranking(value)
        return ranking.select(*self.choose_hits(self.compute_features(ranking))).ranking

    def run_variants(
        self, variants: "Sequence[Rearrangement]", /
    ) -> Callable[[Sequence[Ranking | VariantRanking]], list[list[VariantRanking]]]:
        def rank_variants(ranking: VariantRanking) -> list[VariantRanking]:
            features = self.compute_features(ranking)
            return [ranking.select(*variant.choose_hits(features)) for variant in variants]

        return lambda values: [rank_variants(VariantRanking.from_ranking(value)) for value in values]
