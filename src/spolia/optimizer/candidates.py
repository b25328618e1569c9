"""The flows of a space by number, each once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from random import Random
from typing import Any

from spolia.core.combinators.branch import Branch
from spolia.core.combinators.choice import Choice
from spolia.core.combinators.space import Point, Space
from spolia.core.operator import Operator, Then, Vary
from spolia.errors import WiringError
from spolia.stores.corpus import NodeGroup
from spolia.types import Query, digest_of, kept

LISTED = 10_000
"""Points up to which a space is listed; of a larger one as many flows are drawn."""


class Candidates:
    """The flows that may be chosen, numbered in the order in which they are met. Points that give equal flows share a
    number, so that nothing is asked twice.

    Args:
        space: may be far too large to be listed: flows are made when a strategy names them.
        seed: of the draw that stands for a large space.

    >>> from spolia import Choice, Identity, step
    >>> @step
    ... def cut(text: str, *, at: int = 1) -> str:
    ...     return text[:at]
    >>> candidates = Candidates(Space(Choice(Identity(), cut.vary(at=(1, 1, 2)), name="cutting")))
    >>> list(candidates.every), candidates.points
    ([0, 1, 2], [{'cutting': 0}, {'cutting': 1, 'cut.at': 0}, {'cutting': 1, 'cut.at': 2}])
    >>> candidates.neighbours(0), candidates.along(1, "cut.at"), candidates.choices(2)
    ([1], [1, 2], (('cutting', 'cut'), ('cut.at', '2')))
    """

    def __init__(self, space: Space[Query, Any], seed: int = 0) -> None:
        self.space, self.seed = space, seed
        self.points: list[Point] = []
        self.flows: list[Operator[Query, Any]] = []
        self._numbers: dict[bytes, int] = {}
        self._at: dict[tuple[tuple[str, int], ...], int] = {}
        self._lengths: dict[int, int] = {}
        self._searched: dict[int, frozenset[bytes]] = {}
        self._texts: dict[str, list[str]] = {}
        try:
            self.number(space.default)
        except WiringError:  # candidates that do not go together
            self.number(space.draw(Random(seed)))

    def number(self, point: Point) -> int:
        """The number of the flow at a point; `WiringError` if the point gives none."""
        key = tuple(point.items())
        if (known := self._at.get(key)) is not None:
            return known
        flow = self.space.decide(point)
        found = self._at[key] = self._numbers.setdefault(flow.digest, len(self.flows))
        if found == len(self.flows):
            self.points.append(point)
            self.flows.append(flow)
        return found

    def choices(self, number: int) -> tuple[tuple[str, str], ...]:
        """What is taken at each place of a flow, as it is written."""
        return tuple((name, self.written(name)[at]) for name, at in self.points[number].items())

    def written(self, place: str) -> list[str]:
        """The candidates of a place in few words, or in full where that does not tell them apart."""
        if place not in self._texts:
            values = self.space.places[place].values
            short = [*map(_short, values)]
            counts = Counter(short)
            for at, value in enumerate(values):
                if isinstance(value, Vary) and counts[short[at]] > 1:
                    short[at] += f" with {', '.join(name for name, _ in value.ranges)} varied"
            counts = Counter(short)
            pairs = zip(short, values, strict=True)
            self._texts[place] = [repr(value) if counts[one] > 1 else one for one, value in pairs]
        return self._texts[place]

    def idle_places(self) -> list[str]:
        """The places whose candidates are all the same."""
        return [
            name
            for name, place in self.space.places.items()
            if len(place.values) > 1 and all(value == place.values[0] for value in place.values)
        ]

    def length(self, number: int) -> int:
        """Characters of a flow as it is written."""
        if number not in self._lengths:
            self._lengths[number] = len(repr(self.flows[number]))
        return self._lengths[number]

    @kept
    def is_listed(self) -> bool:
        """Whether `every` holds all flows of the space."""
        return self.space.size <= LISTED

    @property
    def size(self) -> int:
        """How many flows there are; of a space that is not listed, how many points."""
        return len(self.every) if self.is_listed else self.space.size

    @kept
    def every(self) -> Sequence[int]:
        """All flows, or a draw of a space with more than 10,000 points."""
        if self.is_listed:
            return sorted(set(self._valid(self.space.points())))
        return sorted(self.draw(LISTED, Random(self.seed)))

    def draw(self, most: int, random: Random) -> list[int]:
        """At most `most` flows, each as likely as any other."""
        if self.is_listed:
            return random.sample(self.every, min(most, len(self.every)))
        found = dict.fromkeys(self.number(self.space.draw(random)) for _ in range(most))
        return list(found)

    def neighbours(self, number: int) -> list[int]:
        """The flows that differ in one place: numbers move to the next, all else to anything."""
        found = dict.fromkeys(self._valid(self.space.neighbours(self.points[number])))
        return [one for one in found if one != number]

    def sharing(self, number: int) -> list[int]:
        """The other flows that search nothing that this one does not search; of a space that is not listed, those of
        its neighbours."""
        own = self._searches(number)
        known = self.every if self.is_listed else self.neighbours(number)
        return [one for one in known if one != number and self._searches(one) <= own] if own else []

    def _searches(self, number: int) -> frozenset[bytes]:
        """The steps of a flow that read a store or ask a model, each with all that comes before it."""
        if number not in self._searched:
            self._searched[number] = frozenset(_searches(self.flows[number]))
        return self._searched[number]

    def along(self, number: int, place: str) -> list[int]:
        """The flows with every candidate of one place, and the others as they are."""
        point = self.points[number]
        if place not in point:
            return [number]
        values = range(len(self.space.places[place].values))
        return list(dict.fromkeys(self._valid(self.space.completed({**point, place: index}) for index in values)))

    def near(self, points: Sequence[Point]) -> list[int]:
        """The flows at points of another space, as far as their places are known here by name."""
        known = self.space.places
        fitting = (
            {name: at for name, at in point.items() if name in known and 0 <= at < len(known[name].values)}
            for point in points
        )
        return list(dict.fromkeys(self._valid(self.space.completed(point) for point in fitting)))

    def _valid(self, points: Iterator[Point]) -> Iterator[int]:
        for point in points:
            try:
                yield self.number(point)
            except WiringError:  # candidates that do not go together
                continue


def _searches(flow: Operator[Any, Any], before: bytes = b"") -> Iterator[bytes]:
    if isinstance(flow, Then):
        for step in flow.steps:
            yield from _searches(step, before)
            before = digest_of((before, step.digest))
    elif isinstance(flow, Branch):
        for arm in flow.arms:
            yield from _searches(arm, before)
    elif flow.resources:
        yield digest_of((before, flow.digest))


def _short(value: object) -> str:
    """A candidate in few words: an operator with those of its numbers and texts that are not the default."""
    if isinstance(value, Choice):
        return value.name or " | ".join(map(_short, value.options))
    if isinstance(value, Vary):
        return _short(value.body)
    if isinstance(value, Then):
        return " >> ".join(map(_short, value.steps))
    if isinstance(value, NodeGroup):
        return value.name
    if not isinstance(value, Operator):
        return repr(value)
    own = [(f, getattr(value, f.name)) for f in fields(value)]  # type: ignore[arg-type]
    shown = [f"{f.name}={one!r}" for f, one in own if isinstance(one, str | int | float) and one != f.default]
    return f"{type(value).__name__}({', '.join(shown)})" if shown else type(value).__name__
