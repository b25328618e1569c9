"""Flows of a space by number, each once."""

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
from spolia.types import Query, digest_of, lazy_property

LISTED_POINTS = 10_000
"""Points up to which a space is listed; of a larger one as many flows are drawn."""


class FlowTable:
    """Flows that may be chosen, numbered in the order in which they are met. Points that give equal flows share a
    number, so that nothing is asked twice.

    Args:
        space: may be far too large to be listed: flows are made when a strategy names them.
        seed: of the draw that stands for a large space.

    >>> from spolia import Choice, Identity, step
    >>> @step
    ... def cut(text: str, *, at: int = 1) -> str:
    ...     return text[:at]
    >>> candidates = FlowTable(Space(Choice(Identity(), cut.vary(at=(1, 1, 2)), name="cutting")))
    >>> list(candidates.all_flows), candidates.point_by_number
    ([0, 1, 2], [{'cutting': 0}, {'cutting': 1, 'cut.at': 0}, {'cutting': 1, 'cut.at': 2}])
    >>> candidates.neighbours(0), candidates.vary_place(1, "cut.at"), candidates.choices(2)
    ([1], [1, 2], (('cutting', 'cut'), ('cut.at', '2')))
    """

    def __init__(self, space: Space[Query, Any], seed: int = 0) -> None:
        self.space, self.seed = space, seed
        self.point_by_number: list[Point] = []
        self.flows: list[Operator[Query, Any]] = []
        self._numbers: dict[bytes, int] = {}
        self._number_by_point: dict[tuple[tuple[str, int], ...], int] = {}
        self._lengths: dict[int, int] = {}
        self._searches_by_number: dict[int, frozenset[bytes]] = {}
        self._texts: dict[str, list[str]] = {}
        try:
            self.number(space.default)
        except WiringError:  # candidates that do not go together
            self.number(space.draw_point(Random(seed)))

    def number(self, point: Point) -> int:
        """Return the number of the flow at a point; `WiringError` if the point gives none."""
        key = tuple(point.items())
        if (cached := self._number_by_point.get(key)) is not None:
            return cached
        flow = self.space.decide(point)
        index = self._number_by_point[key] = self._numbers.setdefault(flow.digest, len(self.flows))
        if index == len(self.flows):
            self.point_by_number.append(point)
            self.flows.append(flow)
        return index

    def choices(self, number: int) -> tuple[tuple[str, str], ...]:
        """Return the candidate that a flow takes at each place, as text."""
        return tuple((name, self.candidate_texts(name)[index]) for name, index in self.point_by_number[number].items())

    def candidate_texts(self, place: str) -> list[str]:
        """Return the candidates of a place in few words, or in full where that does not tell them apart."""
        if place not in self._texts:
            values = self.space.places[place].values
            short = [*map(_shorten, values)]
            counts = Counter(short)
            for index, value in enumerate(values):
                if isinstance(value, Vary) and counts[short[index]] > 1:
                    short[index] += f" with {', '.join(name for name, _ in value.ranges)} varied"
            counts = Counter(short)
            pairs = zip(short, values, strict=True)
            self._texts[place] = [repr(value) if counts[text] > 1 else text for text, value in pairs]
        return self._texts[place]

    def idle_places(self) -> list[str]:
        """Return the places whose candidates are all the same."""
        return [
            name
            for name, place in self.space.places.items()
            if len(place.values) > 1 and all(value == place.values[0] for value in place.values)
        ]

    def length(self, number: int) -> int:
        """Return how many characters the notation of a flow has."""
        if number not in self._lengths:
            self._lengths[number] = len(repr(self.flows[number]))
        return self._lengths[number]

    @lazy_property
    def is_listed(self) -> bool:
        """Return whether `all_flows` holds all flows of the space."""
        return self.space.size <= LISTED_POINTS

    @property
    def size(self) -> int:
        """Return how many flows there are; of a space that is not listed, how many points."""
        return len(self.all_flows) if self.is_listed else self.space.size

    @lazy_property
    def all_flows(self) -> Sequence[int]:
        """Return all flows, or a sample of a space with more than 10,000 points."""
        if self.is_listed:
            return sorted(set(self._valid_numbers(self.space.points())))
        return sorted(self.draw_flows(LISTED_POINTS, Random(self.seed)))

    def draw_flows(self, count: int, random: Random) -> list[int]:
        """Draw at most `count` flows, each as likely as any other."""
        if self.is_listed:
            return random.sample(self.all_flows, min(count, len(self.all_flows)))
        numbers = dict.fromkeys(self.number(self.space.draw_point(random)) for _ in range(count))
        return list(numbers)

    def neighbours(self, number: int) -> list[int]:
        """Return the flows that differ in one place: a numeric value moves to the next one, any other to anything."""
        numbers = dict.fromkeys(self._valid_numbers(self.space.neighbours(self.point_by_number[number])))
        return [flow for flow in numbers if flow != number]

    def sharing_searches(self, number: int) -> list[int]:
        """Return the other flows that need no search beyond those of this flow; of a space that is not listed, only
        neighbours."""
        own_searches = self._cached_searches(number)
        flows = self.all_flows if self.is_listed else self.neighbours(number)
        return (
            [flow for flow in flows if flow != number and self._cached_searches(flow) <= own_searches]
            if own_searches
            else []
        )

    def _cached_searches(self, number: int) -> frozenset[bytes]:
        """Return the steps of a flow that read a store or ask a model, each with everything before it."""
        if number not in self._searches_by_number:
            self._searches_by_number[number] = frozenset(_search_digests(self.flows[number]))
        return self._searches_by_number[number]

    def vary_place(self, number: int, place: str) -> list[int]:
        """Return the flows with every candidate of one place, and the other places unchanged."""
        point = self.point_by_number[number]
        if place not in point:
            return [number]
        values = range(len(self.space.places[place].values))
        return list(
            dict.fromkeys(self._valid_numbers(self.space.complete({**point, place: index}) for index in values))
        )

    def find_near(self, points: Sequence[Point]) -> list[int]:
        """Return the flows at points of another space, as far as their places exist here by name."""
        places = self.space.places
        fitting = (
            {name: index for name, index in point.items() if name in places and 0 <= index < len(places[name].values)}
            for point in points
        )
        return list(dict.fromkeys(self._valid_numbers(self.space.complete(point) for point in fitting)))

    def _valid_numbers(self, points: Iterator[Point]) -> Iterator[int]:
        for point in points:
            try:
                yield self.number(point)
            except WiringError:  # candidates that do not go together
                continue


def _search_digests(flow: Operator[Any, Any], prefix: bytes = b"") -> Iterator[bytes]:
    if isinstance(flow, Then):
        for step in flow.steps:
            yield from _search_digests(step, prefix)
            prefix = digest_of((prefix, step.digest))
    elif isinstance(flow, Branch):
        for arm in flow.arms:
            yield from _search_digests(arm, prefix)
    elif flow.resources:
        # The prefix counts: the same search after other steps gets another query.
        yield digest_of((prefix, flow.digest))


def _shorten(value: object) -> str:
    """Return a candidate in few words: an operator with those of its numbers and texts that are not the default."""
    if isinstance(value, Choice):
        return value.name or " | ".join(map(_shorten, value.options))
    if isinstance(value, Vary):
        return _shorten(value.body)
    if isinstance(value, Then):
        return " >> ".join(map(_shorten, value.steps))
    if isinstance(value, NodeGroup):
        return value.name
    if not isinstance(value, Operator):
        return repr(value)
    field_values = [(f, getattr(value, f.name)) for f in fields(value)]  # type: ignore[arg-type]
    arguments = [
        f"{f.name}={argument!r}"
        for f, argument in field_values
        if isinstance(argument, str | int | float) and argument != f.default
    ]
    return f"{type(value).__name__}({', '.join(arguments)})" if arguments else type(value).__name__
