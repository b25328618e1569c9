"""Steps whose variants are cheap to compute together: each gives what it gives alone, to the last bit."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from spolia.core.operator import Operator
from spolia.types import Hit, Ranking


class Swept(Protocol):
    """What one variant gives for one value."""

    @property
    def ids(self) -> list[str]:
        """The ids of the nodes, best first."""

    @property
    def ranking(self) -> Ranking:
        """The ranking that the variant itself gives."""


@runtime_checkable
class Sweepable(Protocol):
    """A step of which many variants can be computed together; see `spolia.orchestration.sweep`."""

    def alike(self) -> object:
        """Variants of one class that give the same here are computed together."""

    def together(self, variants: Sequence[Any], /) -> Callable[[Any], Iterator[Swept]]:
        """A function that tells what each of the variants gives for a value; all of them are `alike`."""


@dataclass(frozen=True, eq=False)
class Rearranged:
    """Hits of a ranking at some places, best first, perhaps with other scores; made when they are looked at."""

    value: Ranking
    order: Sequence[int]
    scores: Sequence[float] | None = None

    @property
    def ids(self) -> list[str]:
        return [self.value.hits[at].node.id for at in self.order]

    @property
    def ranking(self) -> Ranking:
        kept = [self.value.hits[at] for at in self.order]
        if self.scores is not None:
            kept = [Hit(hit.node, s, hit.parts, hit.found) for hit, s in zip(kept, self.scores, strict=True)]
        return self.value.but(hits=tuple(kept))


class Rearrangement(Operator[Ranking, Ranking]):
    """Base of steps that choose among the hits of a ranking, order or rescore them; subclasses write `chosen`."""

    def alike(self) -> object:
        """Variants of one class that give the same need the same to be looked up."""
        return None

    def looked_up(self, value: Ranking, /) -> Any:
        """What is known of each hit."""
        return [hit.score for hit in value.hits]

    @abstractmethod
    def chosen(self, known: Any, /) -> tuple[Sequence[int], Sequence[float] | None]:
        """Places of the hits that stay, best first, and their new scores, if any, from what was looked up."""

    def apply(self, value: Ranking, /) -> Ranking:
        return Rearranged(value, *self.chosen(self.looked_up(value))).ranking

    def together(self, variants: "Sequence[Rearrangement]", /) -> Callable[[Ranking], Iterator[Rearranged]]:
        def swept(value: Ranking) -> Iterator[Rearranged]:
            known = self.looked_up(value)
            return (Rearranged(value, *variant.chosen(known)) for variant in variants)

        return swept
