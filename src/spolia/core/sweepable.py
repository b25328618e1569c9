"""Steps whose variants are cheap to compute together: each gives what it gives alone, to the last bit."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from spolia.core.operator import Operator
from spolia.types import Hit, Node, Query, Ranking, kept


class HitPool(Protocol):
    """Nodes that rankings are made of, for one value."""

    @property
    def query(self) -> Query:
        """That of the rankings."""

    @property
    def nodes(self) -> Sequence[Node]:
        """By place."""

    def ranking(self, order: Sequence[int], scores: Sequence[float], /) -> Ranking:
        """The ranking of the nodes at some places, best first."""


@dataclass(eq=False, slots=True)
class Swept:
    """What one variant gives for one value, as columns: places in a pool, best first, and scores.

    A ranking is made of them when it is looked at.
    """

    pool: HitPool
    order: Sequence[int]
    scores: Sequence[float]

    @classmethod
    def of(cls, value: "Swept | Ranking") -> "Swept":
        if isinstance(value, Swept):
            return value
        return cls(_Hits(value), range(len(value.hits)), [hit.score for hit in value.hits])

    @property
    def query(self) -> Query:
        return self.pool.query

    @property
    def nodes(self) -> list[Node]:
        nodes = self.pool.nodes
        return [nodes[at] for at in self.order]

    @property
    def ids(self) -> list[str]:
        """The ids of the nodes, best first."""
        return [node.id for node in self.nodes]

    @property
    def ranking(self) -> Ranking:
        """The ranking that the variant itself gives."""
        return self.pool.ranking(self.order, self.scores)

    def at(self, places: Sequence[int], scores: Sequence[float] | None = None) -> "Swept":
        """The entries at some places of this, best first, perhaps with other scores."""
        if scores is None:
            scores = [self.scores[place] for place in places]
        return Swept(self.pool, [self.order[place] for place in places], scores)


@dataclass(frozen=True, eq=False)
class _Hits:
    """The hits of a ranking as a pool."""

    value: Ranking

    @property
    def query(self) -> Query:
        return self.value.query

    @kept
    def nodes(self) -> Sequence[Node]:
        return [hit.node for hit in self.value.hits]

    def ranking(self, order: Sequence[int], scores: Sequence[float], /) -> Ranking:
        hits = [self.value.hits[at] for at in order]
        return self.value.but(
            hits=tuple(
                [
                    hit if hit.score is score else Hit(hit.node, score, hit.parts, hit.found)
                    for hit, score in zip(hits, scores, strict=True)
                ]
            )
        )


@runtime_checkable
class Sweepable(Protocol):
    """A step of which many variants can be computed together; see `spolia.orchestration.sweep`."""

    def alike(self) -> object:
        """Variants of one class that give the same here are computed together; those of all classes that give the same
        class."""

    def together(self, variants: Sequence[Any], /) -> Callable[[Sequence[Any]], list[list[Swept]]]:
        """A function that tells for each of some values what each of the variants gives; all are `alike`. A step of
        rankings takes them as `Swept` too."""


class Rearrangement(Operator[Ranking, Ranking]):
    """Base of steps that choose among the hits of a ranking, order or rescore them; subclasses write `chosen`."""

    def alike(self) -> object:
        """Variants of one class that give the same need the same to be looked up."""
        return None

    def looked_up(self, found: Swept, /) -> Any:
        """What is known of each hit."""
        return found.scores

    @abstractmethod
    def chosen(self, known: Any, /) -> tuple[Sequence[int], Sequence[float] | None]:
        """Places of the hits that stay, best first, and their new scores, if any, from what was looked up."""

    def apply(self, value: Ranking, /) -> Ranking:
        found = Swept.of(value)
        return found.at(*self.chosen(self.looked_up(found))).ranking

    def together(
        self, variants: "Sequence[Rearrangement]", /
    ) -> Callable[[Sequence[Ranking | Swept]], list[list[Swept]]]:
        def swept(found: Swept) -> list[Swept]:
            known = self.looked_up(found)
            return [found.at(*variant.chosen(known)) for variant in variants]

        return lambda values: [swept(Swept.of(value)) for value in values]
