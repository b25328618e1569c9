"""What all fusions have in common: several rankings side by side become one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from spolia.core.operator import Operator
from spolia.core.sweepable import Swept
from spolia.core.type_compatibility import refuse_counts
from spolia.deferred import numpy as np
from spolia.errors import StepFailed
from spolia.ranking.alignment import Aligned
from spolia.ranking.fusion import checked_weights
from spolia.types import Hit, Node, Query, Ranking
from spolia.types.value import maker

if TYPE_CHECKING:
    from spolia.ranking.alignment import Aligned, Numbers

_hit = maker(Hit)
PartScores: TypeAlias = tuple[tuple[str, float], ...]


class Fusion(Operator[Sequence[Ranking], Ranking]):
    """Base of what makes one ranking of several; a node that several have found is one hit.

    Equal scores: the better rank first, then the id. A subclass is a frozen dataclass with this field, and writes
    `scores`; where variants of it can be computed together, `alike` and `weights_of` too.

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
    def scores(self, side_by_side: SideBySide, variants: Sequence[Self], weights: Numbers, /) -> Numbers:
        """float64[variants, documents] by variants that are scaled alike, of float64[variants, rankings] weights."""

    def alike(self) -> object:
        """All fusions are computed together."""
        return Fusion

    def scaled_alike(self) -> object:
        """Variants of one class that give the same are rows of one array."""
        return self.top_k

    def together(self, variants: Sequence[Fusion], /) -> Callable[[Sequence[Sequence[Ranking]]], list[list[Swept]]]:
        """The rankings are laid side by side once, and scaled once for variants that are scaled alike."""
        places: dict[object, list[int]] = {}
        for place, variant in enumerate(variants):
            places.setdefault((type(variant), variant.scaled_alike()), []).append(place)
        parts = [(own, _Alike([variants[place] for place in own])) for own in places.values()]

        def fused(rankings: Sequence[Ranking]) -> list[Swept]:
            documents, found = _Documents(SideBySide.of(rankings)), dict[int, Swept]()
            for own, alike in parts:
                found |= zip(own, alike.fused(documents), strict=True)
            return [found[place] for place in range(len(variants))]

        return lambda values: [fused(rankings) for rankings in values]

    def weights_of(self, rankings: Sequence[Ranking], /) -> Sequence[float]:
        """How much each ranking counts; one of weight 0 has no say, not even between equal scores."""
        return [ranking.query.weight for ranking in rankings]

    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        side_by_side = SideBySide.late(value) or SideBySide.of(value)
        weights = checked_weights(len(value), self.weights_of(value))
        scores = self.scores(side_by_side, [self], np.array([weights], dtype=np.float64))
        (order,) = side_by_side.aligned.best(scores, weights, self.top_k).tolist()
        return side_by_side.ranking(order, scores[0, order].tolist())


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Rankings to be fused, at least one, and their documents, each with the first hit of it."""

    rankings: Sequence[Ranking]
    aligned: Aligned
    hits: Sequence[Hit] | Mapping[int, Hit]

    @classmethod
    def of(cls, rankings: Sequence[Ranking]) -> Self:
        """Rankings with what is needed to fuse them; StepFailed without any."""
        if not rankings:
            raise StepFailed("There is no ranking to fuse: every arm before the fusion failed or was dropped.")
        held = [{hit.node.id: hit for hit in reversed(ranking.hits)} for ranking in rankings]
        names = [[hit.node.id for hit in ranking.hits] for ranking in rankings]
        if twice := _with_two_meanings(rankings, held):
            names = [[_named(hit.node, twice) for hit in ranking.hits] for ranking in rankings]
            held = [{_named(hit.node, twice): hit for hit in reversed(ranking.hits)} for ranking in rankings]
        first: dict[str, Hit] = {}
        for own in reversed(held):
            first |= own
        number = dict(zip(first, range(len(first)), strict=True))
        places = tuple(np.fromiter(map(number.__getitem__, own), np.int64, len(own)) for own in names)
        scores = tuple(np.array([hit.score for hit in ranking.hits], dtype=np.float64) for ranking in rankings)
        return cls(rankings, Aligned(list(first), places, scores), list(first.values()))

    @classmethod
    def late(cls, rankings: Sequence[Ranking]) -> Self | None:
        """Late rankings of one snapshot, whose documents are identified by their keys; None for others.

        The nodes are fetched of those documents that may be among the best.
        """
        found = [ranking.late for ranking in rankings]
        parts = [late for late in found if late is not None]
        if not parts or len(parts) < len(found) or any(late.fetch != parts[0].fetch for late in parts):
            return None
        if (fetch := parts[0].fetch.for_fusion()) is None:
            return None
        number: dict[int, int] = {}
        places = tuple(np.array([number.setdefault(key, len(number)) for key in late.keys], np.int64) for late in parts)
        scores = tuple(np.array(late.scores, dtype=np.float64) for late in parts)
        keys, hits = list(number), dict[int, Hit]()

        def named(wanted: Sequence[int]) -> dict[int, str]:
            there = fetch([keys[at] for at in wanted])
            hits.update((at, _hit(there[keys[at]], 0.0, (), ())) for at in wanted if keys[at] in there)
            return {at: hits[at].node.id for at in wanted if at in hits}

        return cls(rankings, Aligned([""] * len(keys), places, scores, named), hits)

    def ranking(self, order: Sequence[int], scores: Sequence[float]) -> Ranking:
        """The ranking of some documents in an order."""
        return self.of_parts(order, scores, self.parts(order))

    def parts(self, order: Sequence[int]) -> list[PartScores]:
        """The scores that documents have in the rankings, by source."""
        lists = zip(self.rankings, self.aligned.places, self.aligned.scores, strict=True)
        held = [  # of a document that stands there twice, the first counts
            (ranking.source, dict(zip(places[::-1].tolist(), scores[::-1].tolist(), strict=True)))
            for ranking, places, scores in lists
        ]
        return [tuple([(source, own[at]) for source, own in held if at in own]) for at in order]

    def of_parts(self, order: Sequence[int], scores: Sequence[float], parts: Sequence[PartScores]) -> Ranking:
        hits = self.hits
        return self.ranked(
            [
                _hit(hits[at].node, score, own, hits[at].found)
                for at, score, own in zip(order, scores, parts, strict=True)
            ]
        )

    def ranked(self, hits: Sequence[Hit]) -> Ranking:
        """These hits as a ranking for the query."""
        return Ranking(asked(self.rankings[0].query), tuple(hits), "fused")


@dataclass(frozen=True, eq=False)
class _Documents:
    """The documents side by side as a pool: what each ranking says of each is looked up once."""

    side_by_side: SideBySide

    @cached_property
    def query(self) -> Query:
        return asked(self.side_by_side.rankings[0].query)

    @cached_property
    def nodes(self) -> list[Node]:
        hits = self.side_by_side.hits
        return [hits[at].node for at in range(len(hits))]

    @cached_property
    def _parts(self) -> list[PartScores]:
        return self.side_by_side.parts(range(len(self.side_by_side.hits)))

    def ranking(self, order: Sequence[int], scores: Sequence[float], /) -> Ranking:
        return self.side_by_side.of_parts(order, scores, [self._parts[at] for at in order])


@dataclass(frozen=True, eq=False)
class _Alike:
    variants: Sequence[Fusion]
    weights: dict[object, tuple[Numbers, dict[tuple[bool, ...], list[int]]]] = field(default_factory=dict)

    def fused(self, documents: _Documents) -> list[Swept]:
        first, side_by_side = self.variants[0], documents.side_by_side
        aligned, found = side_by_side.aligned, dict[int, Swept]()
        weights, by_say = self._weighed(side_by_side.rankings)
        scores = first.scores(side_by_side, self.variants, weights)
        for say, places in by_say.items():
            order = aligned.best(scores[places], say, first.top_k)
            numbers = np.take_along_axis(scores[places], order, axis=1)
            for place, best, its in zip(places, order.tolist(), numbers.tolist(), strict=True):
                found[place] = Swept(documents, best, its)
        return [found[place] for place in range(len(self.variants))]

    def _weighed(self, rankings: Sequence[Ranking]) -> tuple[Numbers, dict[tuple[bool, ...], list[int]]]:
        """Weights of the rankings by variant, and the variants by which rankings have a say between equal scores."""
        key = tuple((ranking.source, ranking.query.weight) for ranking in rankings)
        if key not in self.weights:
            rows = [checked_weights(len(rankings), variant.weights_of(rankings)) for variant in self.variants]
            by_say: dict[tuple[bool, ...], list[int]] = {}
            for place, row in enumerate(rows):
                by_say.setdefault(tuple(weight > 0 for weight in row), []).append(place)
            self.weights[key] = np.array(rows, dtype=np.float64), by_say
        return self.weights[key]


def _with_two_meanings(rankings: Sequence[Ranking], held: Sequence[dict[str, Hit]]) -> set[str]:
    """Ids that two stores have given to different texts, of different uris, by the first hit of each id."""
    found: set[str] = set()
    before: dict[str, Hit] = {}
    for ranking, own in zip(rankings, held, strict=True):
        again = [(own[name].node, before[name].node) for name in before.keys() & own.keys()]
        if len(own) < len(ranking.hits):
            again += [(hit.node, own[hit.node.id].node) for hit in ranking.hits]
        found |= {one.id for one, other in again if one.uri != other.uri and one.text != other.text}
        before = before | own if before else own
    return found


def _named(node: Node, twice: Set[str]) -> str:
    return f"{node.id}\0{node.uri}" if node.id in twice else node.id


def asked(query: Query) -> Query:
    """The query as it was before it was rewritten: fusing several rewritings answers the question, not one of them."""
    if query.text == query.question:
        return query
    while query.origin is not None and query.text != query.question:
        query = query.origin
    return query if query.text == query.question else replace(query, text=query.question, vector=None, weight=1.0)
