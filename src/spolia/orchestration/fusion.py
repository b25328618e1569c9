"""Base of all fusions: several rankings become one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from spolia.core.operator import Operator
from spolia.core.sweepable import VariantRanking
from spolia.core.type_compatibility import refuse_counts
from spolia.deferred import numpy as np
from spolia.errors import StepFailed
from spolia.ranking.alignment import AlignedLists
from spolia.ranking.fusion import check_weights
from spolia.types import Hit, Node, Query, Ranking
from spolia.types.value import unchecked_constructor

if TYPE_CHECKING:
    from spolia.ranking.alignment import AlignedLists, Numbers

_hit = unchecked_constructor(Hit)
PartScores: TypeAlias = tuple[tuple[str, float], ...]


class Fusion(Operator[Sequence[Ranking], Ranking]):
    """Base of operators that fuse several rankings; a node in several of them is one hit.

    Equal scores: the better rank first, then the id. A subclass is a frozen dataclass with this field, and writes
    `scores`; where variants of it can be computed together, `variant_key` and `weights_of` too.

    Args:
        top_k: hits to keep.

    Raises:
        StepFailed: when there is no ranking to fuse.
    """

    top_k: int

    takes_late: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")

    @abstractmethod
    def scores(self, table: RankingTable, variants: Sequence[Self], weights: Numbers, /) -> Numbers:
        """Return float64[variants, documents] for variants of one scaling, from float64[variants, rankings] weights."""

    def variant_key(self) -> object:
        """Return one key for all fusions, which are computed together."""
        return Fusion

    def scaling_key(self) -> object:
        """Return the key of variants of one class that are rows of one array."""
        return self.top_k

    def run_variants(
        self, variants: Sequence[Fusion], /
    ) -> Callable[[Sequence[Sequence[Ranking]]], list[list[VariantRanking]]]:
        """Align the rankings once, and scale them once for all variants with the same scaling."""
        places: dict[object, list[int]] = {}
        for place, variant in enumerate(variants):
            places.setdefault((type(variant), variant.scaling_key()), []).append(place)
        parts = [(own, _VariantGroup([variants[place] for place in own])) for own in places.values()]

        def fuse_variants(rankings: Sequence[Ranking]) -> list[VariantRanking]:
            documents, results = _DocumentPool(RankingTable.from_rankings(rankings)), dict[int, VariantRanking]()
            for own, group in parts:
                results |= zip(own, group.fuse(documents), strict=True)
            return [results[place] for place in range(len(variants))]

        return lambda values: [fuse_variants(rankings) for rankings in values]

    def weights_of(self, rankings: Sequence[Ranking], /) -> Sequence[float]:
        """Return how much each ranking counts; one of weight 0 does not even decide between equal scores."""
        return [ranking.query.weight for ranking in rankings]

    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        # The fast path fetches only nodes that may be among the best; `from_rankings` is the plain version beside it.
        table = RankingTable.from_late_rankings(value) or RankingTable.from_rankings(value)
        weights = check_weights(len(value), self.weights_of(value))
        scores = self.scores(table, [self], np.array([weights], dtype=np.float64))
        (order,) = table.aligned.select_best(scores, weights, self.top_k).tolist()
        return table.ranking(order, scores[0, order].tolist())


@dataclass(frozen=True, eq=False)
class RankingTable:
    """At least one ranking to fuse, and the documents, each with its first hit."""

    rankings: Sequence[Ranking]
    aligned: AlignedLists
    hits: Sequence[Hit] | Mapping[int, Hit]

    @classmethod
    def from_rankings(cls, rankings: Sequence[Ranking]) -> Self:
        """Align rankings for fusion; raise StepFailed without rankings."""
        if not rankings:
            raise StepFailed("There is no ranking to fuse: every arm before the fusion failed or was dropped.")
        # Backwards, so that of several hits of a node the first one stays.
        hits_by_id = [{hit.node.id: hit for hit in reversed(ranking.hits)} for ranking in rankings]
        names = [[hit.node.id for hit in ranking.hits] for ranking in rankings]
        # Two stores may use one id for different documents. That is rare, so names are built again only then.
        if ambiguous_ids := _find_ambiguous_ids(rankings, hits_by_id):
            names = [[_name_document(hit.node, ambiguous_ids) for hit in ranking.hits] for ranking in rankings]
            hits_by_id = [
                {_name_document(hit.node, ambiguous_ids): hit for hit in reversed(ranking.hits)} for ranking in rankings
            ]
        first: dict[str, Hit] = {}
        for own in reversed(hits_by_id):
            first |= own
        number = dict(zip(first, range(len(first)), strict=True))
        places = tuple(np.fromiter(map(number.__getitem__, own), np.int64, len(own)) for own in names)
        scores = tuple(np.array([hit.score for hit in ranking.hits], dtype=np.float64) for ranking in rankings)
        return cls(rankings, AlignedLists(list(first), places, scores), list(first.values()))

    @classmethod
    def from_late_rankings(cls, rankings: Sequence[Ranking]) -> Self | None:
        """Align late rankings of one snapshot, whose documents are identified by their keys; None for others.

        The nodes are fetched of those documents that may be among the best.
        """
        optional_hits = [ranking.late_hits for ranking in rankings]
        late_lists = [late_hits for late_hits in optional_hits if late_hits is not None]
        if (
            not late_lists
            or len(late_lists) < len(optional_hits)
            or any(late_hits.fetch != late_lists[0].fetch for late_hits in late_lists)
        ):
            return None
        if (fetch := late_lists[0].fetch.for_fusion()) is None:
            return None
        number: dict[int, int] = {}
        places = tuple(
            np.array([number.setdefault(key, len(number)) for key in late_hits.keys], np.int64)
            for late_hits in late_lists
        )
        scores = tuple(np.array(late_hits.scores, dtype=np.float64) for late_hits in late_lists)
        keys, hits = list(number), dict[int, Hit]()

        def find_names(indexes: Sequence[int]) -> dict[int, str]:
            nodes = fetch([keys[index] for index in indexes])
            hits.update((index, _hit(nodes[keys[index]], 0.0, (), ())) for index in indexes if keys[index] in nodes)
            return {index: hits[index].node.id for index in indexes if index in hits}

        return cls(rankings, AlignedLists([""] * len(keys), places, scores, find_names), hits)

    def ranking(self, order: Sequence[int], scores: Sequence[float]) -> Ranking:
        """Build the ranking of some documents in an order."""
        return self.build_ranking(order, scores, self.scores_by_source(order))

    def scores_by_source(self, order: Sequence[int]) -> list[PartScores]:
        """Return the scores that documents have in the rankings, by source."""
        lists = zip(self.rankings, self.aligned.places, self.aligned.scores, strict=True)
        by_source = [  # of a document that stands there twice, the first counts
            (ranking.source, dict(zip(places[::-1].tolist(), scores[::-1].tolist(), strict=True)))
            for ranking, places, scores in lists
        ]
        return [tuple([(source, own[index]) for source, own in by_source if index in own]) for index in order]

    def build_ranking(self, order: Sequence[int], scores: Sequence[float], parts: Sequence[PartScores]) -> Ranking:
        hits = self.hits
        return self.to_ranking(
            [
                _hit(hits[index].node, score, own, hits[index].found)
                for index, score, own in zip(order, scores, parts, strict=True)
            ]
        )

    def to_ranking(self, hits: Sequence[Hit]) -> Ranking:
        """Return these hits as a ranking for the query."""
        return Ranking(original_query(self.rankings[0].query), tuple(hits), "fused")


@dataclass(frozen=True, eq=False)
class _DocumentPool:
    """The documents of a table as a pool; their scores in each ranking are looked up once."""

    table: RankingTable

    @cached_property
    def query(self) -> Query:
        return original_query(self.table.rankings[0].query)

    @cached_property
    def nodes(self) -> list[Node]:
        hits = self.table.hits
        return [hits[index].node for index in range(len(hits))]

    @cached_property
    def _parts(self) -> list[PartScores]:
        return self.table.scores_by_source(range(len(self.table.hits)))

    def ranking(self, order: Sequence[int], scores: Sequence[float], /) -> Ranking:
        return self.table.build_ranking(order, scores, [self._parts[index] for index in order])


@dataclass(frozen=True, eq=False)
class _VariantGroup:
    variants: Sequence[Fusion]
    weights: dict[object, tuple[Numbers, dict[tuple[bool, ...], list[int]]]] = field(default_factory=dict)

    def fuse(self, documents: _DocumentPool) -> list[VariantRanking]:
        first, table = self.variants[0], documents.table
        aligned, results = table.aligned, dict[int, VariantRanking]()
        weights, by_say = self._weigh(table.rankings)
        scores = first.scores(table, self.variants, weights)
        for say, places in by_say.items():
            order = aligned.select_best(scores[places], say, first.top_k)
            numbers = np.take_along_axis(scores[places], order, axis=1)
            for place, best, best_scores in zip(places, order.tolist(), numbers.tolist(), strict=True):
                results[place] = VariantRanking(documents, best, best_scores)
        return [results[place] for place in range(len(self.variants))]

    def _weigh(self, rankings: Sequence[Ranking]) -> tuple[Numbers, dict[tuple[bool, ...], list[int]]]:
        """Return the weights by variant, and the variants by which rankings decide between equal scores."""
        # Weights depend on these alone, and the questions of a sweep see few of them.
        key = tuple((ranking.source, ranking.query.weight) for ranking in rankings)
        if key not in self.weights:
            rows = [check_weights(len(rankings), variant.weights_of(rankings)) for variant in self.variants]
            by_say: dict[tuple[bool, ...], list[int]] = {}
            for place, row in enumerate(rows):
                by_say.setdefault(tuple(weight > 0 for weight in row), []).append(place)
            self.weights[key] = np.array(rows, dtype=np.float64), by_say
        return self.weights[key]


def _find_ambiguous_ids(rankings: Sequence[Ranking], hits_by_id: Sequence[dict[str, Hit]]) -> set[str]:
    """Return ids that two stores gave to different texts of different URIs, by the first hit of each id."""
    ids: set[str] = set()
    earlier: dict[str, Hit] = {}
    for ranking, own in zip(rankings, hits_by_id, strict=True):
        pairs = [(own[name].node, earlier[name].node) for name in earlier.keys() & own.keys()]
        if len(own) < len(ranking.hits):
            pairs += [(hit.node, own[hit.node.id].node) for hit in ranking.hits]
        ids |= {first.id for first, second in pairs if first.uri != second.uri and first.text != second.text}
        earlier = earlier | own if earlier else own
    return ids


def _name_document(node: Node, ambiguous_ids: Set[str]) -> str:
    return f"{node.id}\0{node.uri}" if node.id in ambiguous_ids else node.id


def original_query(query: Query) -> Query:
    """Return the query before it was rewritten: a fusion of rewritings answers the question, not one of them."""
    if query.text == query.question:
        return query
    while query.origin is not None and query.text != query.question:
        query = query.origin
    return query if query.text == query.question else replace(query, text=query.question, vector=None, weight=1.0)
