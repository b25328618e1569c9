"""Space of the flows that a flow with open places stands for: its places, points and neighbours."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from random import Random
from typing import Any, Generic, TypeAlias

from spolia.core.combinators.choice import Choice
from spolia.core.combinators.fused_sources import fused_sources, with_fused_source
from spolia.core.operator import In, Operator, Out, Then, Vary
from spolia.errors import UndecidedError, WiringError

Point: TypeAlias = Mapping[str, int]  # the index of the candidate that is taken, by place
Kind: TypeAlias = type
MAX_DRAWS = 1_000


@dataclass(frozen=True)
class OpenPlace:
    """Decision that is open in a flow.

    Args:
        name: stays the same wherever the step stands that has the place. It is the name that you gave, or made of the
            operators: `BM25.top_k`, `Identity|HyDE`. Where several would be called the same, each name ends in a hash
            of the operator with its fields and candidates: `BM25.top_k#3f09a1c2`. Equal ones need names.
        values: the candidates.
        parents: the place matters only where one of these (place, index) is taken; empty if it always matters.
    """

    name: str
    values: tuple[Any, ...]
    parents: tuple[tuple[str, int], ...] = ()

    @property
    def type(self) -> Kind:
        """Return the type of all values: `Operator` for operators, float for ints and floats mixed, object for any
        other mixture."""
        kinds = {type(value) for value in self.values}
        if len(kinds) == 1 and not issubclass(only := next(iter(kinds)), Operator):
            return only
        are_operators = all(issubclass(kind, Operator) for kind in kinds)
        return float if kinds == {int, float} else Operator if are_operators else object

    @property
    def order(self) -> tuple[int, ...] | None:
        """Return indexes of the values from the smallest to the largest; None if they are not numbers."""
        if self.type not in (int, float):
            return None
        return tuple(sorted(range(len(self.values)), key=self.values.__getitem__))

    @property
    def parent(self) -> tuple[str, int] | None:
        """Return the place and index on which it depends; None if it always matters, or has several parents."""
        return self.parents[0] if len(self.parents) == 1 else None

    def steps(self, index: int) -> Sequence[int]:
        """Return the neighbours of a candidate: for numbers the next smaller and larger, else all others."""
        if (order := self.order) is None:
            return [candidate for candidate in range(len(self.values)) if candidate != index]
        position = order.index(index)
        return order[max(0, position - 1) : position] + order[position + 1 : position + 2]


@dataclass(frozen=True)
class _Use:
    """`Choice`, or a range of a `Vary`, that takes part in the decision of a place."""

    path: str
    op: Operator[Any, Any]
    base: str  # the name of the place, unless there are several of it
    tied: bool  # the name was given, so that all uses of it are one place
    values: tuple[Any, ...]
    holder: tuple[str, int] | None  # path and index of the candidate that holds it
    default: int = 0  # index of the candidate that the operator has itself


class Space(Generic[In, Out]):
    """Flows that a flow with open places stands for, without listing them.

    Args:
        flow: with `Choice` and `vary`.

    Raises:
        WiringError: two places of one name have different numbers of candidates, or are equal and have no name.

    >>> from spolia import Identity, step
    >>> @step
    ... def cut(text: str, *, at: int = 2) -> str:
    ...     return text[:at]
    >>> space = Space(Choice(Identity(), cut.vary(at=(1, 2, 3)), name="cutting"))
    >>> space.size, [(place.name, place.parent) for place in space.places.values()]
    (4, [('cutting', None), ('cut.at', ('cutting', 1))])
    >>> point = space.draw_point(Random(1))
    >>> point, list(space.neighbours({"cutting": 1, "cut.at": 0}))
    ({'cutting': 1, 'cut.at': 2}, [{'cutting': 0}, {'cutting': 1, 'cut.at': 1}])
    """

    def __init__(self, flow: Operator[In, Out]) -> None:
        self.flow = flow
        self._uses = list(_find_uses(flow, "", None))
        self._fused = fused_sources(flow)
        self._names = _place_names(self._uses)
        self._children: defaultdict[tuple[str, int] | None, list[_Use]] = defaultdict(list)
        for use in self._uses:
            self._children[use.holder].append(use)
        self._counts: dict[tuple[str, ...], int] = {}
        self._names_inside: dict[str, tuple[str, ...]] = {}
        self._parts: dict[tuple[str, int, tuple[int | None, ...]], tuple[Operator[Any, Any], Operator[Any, Any]]] = {}
        self.places = self._places()

    def _places(self) -> dict[str, OpenPlace]:
        by_name: dict[str, OpenPlace] = {}
        for use in self._uses:
            name = self._names[use.path]
            parents = () if use.holder is None else ((self._names[use.holder[0]], use.holder[1]),)
            if (existing := by_name.get(name)) is None:
                by_name[name] = OpenPlace(name, use.values, parents)
                continue
            if len(existing.values) != len(use.values):
                raise WiringError(
                    f"Two choices are called {name!r} and have {len(existing.values)} and {len(use.values)} "
                    "candidates; they need as many."
                )
            common = tuple(dict.fromkeys(existing.parents + parents)) if existing.parents and parents else ()
            by_name[name] = OpenPlace(name, existing.values, common)
        return by_name

    # Points.

    @cached_property
    def size(self) -> int:
        """Count the points, with those that no operator takes and those that give equal flows.

        Where places of one name stand inside different options, about as many.
        """
        return self._product(self._children[None])

    @cached_property
    def default(self) -> Point:
        """Return the first option of each choice, and the operators' own values if they are candidates."""
        return self.complete({})

    def complete(self, point: Point) -> Point:
        """Complete a point with the decisions of `default`, and drop places that do not matter."""
        indexes: dict[str, int] = {}
        for use in self._walk(indexes):
            index = point.get(name := self._names[use.path], use.default)
            indexes[name] = _checked(index, self.places[name])
        return indexes

    def draw_point(self, random: Random) -> Point:
        """Draw a random point that gives a flow, uniformly; about uniformly where several options have places of one
        name.

        Raises:
            WiringError: none of 1,000 drawn points gives a flow.
        """
        problem: WiringError | None = None
        for _ in range(MAX_DRAWS):
            point: dict[str, int] = {}
            for use in self._walk(point):
                if (name := self._names[use.path]) not in point:
                    tied = [sibling for sibling in self._children[use.holder] if self._names[sibling.path] == name]
                    left = random.randrange(self._count(tied))
                    for index in range(len(use.values)):
                        if (left := left - self._ways(tied, index)) < 0:
                            point[name] = index
                            break
            try:
                self.decide(point)
            except WiringError as error:
                problem = error
            else:
                return point
        raise WiringError(f"None of {MAX_DRAWS} random points gives a flow. The last problem was: {problem}")

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Yield the points that differ in one place and give a flow; a number moves to the next value, all else to any.

        Places that come to matter are as in `default`.
        """
        current = self.complete(point)
        for name, index in current.items():
            for candidate in self.places[name].steps(index):
                neighbour = self.complete({**current, name: candidate})
                try:
                    self.decide(neighbour)
                except WiringError:
                    continue
                yield neighbour

    def points(self) -> Iterator[Point]:
        """Yield every point, also those that give no flow."""
        yield from self._points(self._children[None], {})

    def _points(self, open_: Sequence[_Use], point: dict[str, int]) -> Iterator[Point]:
        if not open_:
            yield point
            return
        use, name = open_[0], self._names[open_[0].path]
        for index in (point[name],) if name in point else range(len(use.values)):
            yield from self._points([*self._children[use.path, index], *open_[1:]], {**point, name: index})

    def _walk(self, point: Mapping[str, int]) -> Iterator[_Use]:
        """Yield the uses that matter, in order; the caller puts each into the point before the next."""
        waiting = list(reversed(self._children[None]))  # a stack: what is inside an option comes right after it
        while waiting:
            use = waiting.pop()
            yield use
            waiting += reversed(self._children[use.path, point[self._names[use.path]]])

    def _count(self, tied: Sequence[_Use]) -> int:
        """Count the ways to decide sibling uses of one name, and what is inside them."""
        paths = tuple(use.path for use in tied)
        if paths not in self._counts:
            self._counts[paths] = sum(self._ways(tied, index) for index in range(len(tied[0].values)))
        return self._counts[paths]

    def _ways(self, tied: Sequence[_Use], index: int) -> int:
        """Count the ways to decide what is inside the candidates of one index."""
        return self._product([inner for use in tied for inner in self._children[use.path, index]])

    def _product(self, uses: Iterable[_Use]) -> int:
        by_name: defaultdict[str, list[_Use]] = defaultdict(list)
        for use in uses:
            by_name[self._names[use.path]].append(use)
        return math.prod(map(self._count, by_name.values()))

    # Flows.

    def decide(self, point: Point) -> Operator[In, Out]:
        """Return the flow at a point; see `decide`."""
        for name in point:
            if name not in self.places:
                raise UndecidedError(f"No place {name!r} in this flow. {self._suggest_places(name)}")
        return self._decide_part(self.flow, "", point)

    def _suggest_places(self, name: str) -> str:
        """Suggest names for an unknown one: the places of the same field, else similar names."""
        base = name.partition("#")[0]
        same_base = [candidate for candidate in self.places if candidate.partition("#")[0] == base]
        if len(same_base) > 1:
            return f"It has {len(same_base)} that are called {base!r}, distinguished by their values: " + "; ".join(
                f"{candidate} with {self.places[candidate].values!r:.80}" for candidate in same_base
            )
        if near := same_base or get_close_matches(name, self.places):
            return f"Nearest: {', '.join(near)}."
        return f"It has: {', '.join(self.places) or 'none'}."

    def settle(self) -> Iterator[tuple[Point, Operator[In, Out]]]:
        """Yield every flow with the first point that leads to it."""
        digests: set[bytes] = set()
        for point in self.points():
            try:
                decided = self.decide(point)
            except WiringError:  # candidates that an operator does not take together
                continue
            if decided.digest not in digests:
                digests.add(decided.digest)
                yield point, decided

    def _decide_part(self, op: Operator[Any, Any], path: str, point: Point) -> Operator[Any, Any]:
        """Decide the part of the flow at a path; points that agree on what is inside it share one operator."""
        if path not in self._names_inside:
            uses = (use for use in self._names if not path or f"{use}.".startswith(f"{path}."))
            self._names_inside[path] = tuple(dict.fromkeys(self._names[use] for use in uses))
        key = path, id(op), tuple([point.get(name) for name in self._names_inside[path]])
        if key not in self._parts:
            self._parts[key] = op, self._decide_operator(op, path, point)  # with `op`, so that nothing else gets its id
        return self._parts[key][1]

    def _decide_operator(self, op: Operator[Any, Any], path: str, point: Point) -> Operator[Any, Any]:
        if isinstance(op, Choice):
            index = self._index(path, point)
            option = self._decide_part(op.options[index], join_path(path, f"options.{index}"), point)
            return with_fused_source(option, op, self._fused)
        if isinstance(op, Vary):
            chosen = {}
            for name, values in op.ranges:
                place = join_path(path, f"ranges.{name}")
                index = self._index(place, point)
                chosen[name] = self._field(values[index], f"{place}.{index}", point)
            return self._decide_operator(op.body.but(**chosen), join_path(path, "body"), point)
        if not op.inner():
            return op
        return op.from_fields({
            f.name: self._field(getattr(op, f.name), join_path(path, f.name), point)
            for f in fields(op)  # type: ignore[arg-type]
            if f.init
        })  # fmt: skip

    def _field(self, value: Any, path: str, point: Point) -> Any:
        if isinstance(value, Operator):
            return self._decide_part(value, path, point)
        if isinstance(value, tuple):
            return tuple(
                (item[0], self._field(item[1], f"{path}.{item[0]}", point))
                if _is_named(item)
                else self._field(item, f"{path}.{index}", point)
                for index, item in enumerate(value)
            )
        if isinstance(value, dict):
            return {key: self._field(item, f"{path}.{key}", point) for key, item in value.items()}
        return value

    def _index(self, path: str, point: Point) -> int:
        place = self.places[self._names[path]]
        if place.name not in point:
            last = len(place.values) - 1
            raise UndecidedError(f"Nothing is decided for {place.name!r}. Give it an index from 0 to {last}.")
        return _checked(point[place.name], place)


def places(flow: Operator[Any, Any]) -> dict[str, OpenPlace]:
    """Return the open places of a flow by name."""
    return Space(flow).places


def decide(flow: Operator[In, Out], point: Point) -> Operator[In, Out]:
    """Return the flow with its places decided: `point` maps a place to the index of its candidate.

    Places inside an option that is not taken need no entry.
    """
    return Space(flow).decide(point)


def settle(flow: Operator[In, Out]) -> Iterator[tuple[Point, Operator[In, Out]]]:
    """Yield every decided flow with the point that leads to it; equal flows appear once."""
    return Space(flow).settle()


def _checked(index: int, place: OpenPlace) -> int:
    if not 0 <= index < len(place.values):
        raise UndecidedError(f"{place.name!r} has candidates 0 to {len(place.values) - 1}; got {index}.")
    return index


def _find_uses(value: Any, path: str, holder: tuple[str, int] | None, without: Sequence[str] = ()) -> Iterator[_Use]:
    """Yield what is open in an operator or in a field's value, in order, without the fields in `without`."""
    if isinstance(value, Choice):
        yield _Use(path, value, value.name or _label(value), bool(value.name), value.options, holder)
        for index, option in enumerate(value.options):
            yield from _find_uses(option, join_path(path, f"options.{index}"), (path, index))
    elif isinstance(value, Vary):
        names = dict(value.names)
        for name, values in value.ranges:
            place, own = join_path(path, f"ranges.{name}"), _own_value(value.body, name)
            default = next((index for index, candidate in enumerate(values) if candidate == own), 0)
            base = names.get(name, f"{_label(value.body)}.{name}")
            yield _Use(place, value, base, name in names, values, holder, default)
            for index, candidate in enumerate(values):
                yield from _find_uses(candidate, f"{place}.{index}", (place, index))
        yield from _find_uses(value.body, join_path(path, "body"), holder, [name for name, _ in value.ranges])
    elif isinstance(value, Operator):
        for f in fields(value) if value.inner() else ():  # type: ignore[arg-type]
            if f.init and f.name not in without:
                yield from _find_uses(getattr(value, f.name), join_path(path, f.name), holder)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if _is_named(item):
                yield from _find_uses(item[1], f"{path}.{item[0]}", holder)
            else:
                yield from _find_uses(item, f"{path}.{index}", holder)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find_uses(item, f"{path}.{key}", holder)


def _place_names(uses: Sequence[_Use]) -> dict[str, str]:
    """Return the name of each use's place, by path."""
    counts = Counter(use.base for use in uses if not use.tied) + Counter({use.base for use in uses if use.tied})
    names: dict[str, str] = {}
    hashed: dict[str, _Use] = {}
    for use in uses:
        name = use.base
        if not use.tied and counts[name] > 1:
            name += f"#{use.op.digest.hex()[:8]}"
            if first_use := hashed.get(name):
                raise WiringError(
                    f"Two places are called {use.base!r}, at {first_use.path} and {use.path}, and nothing "
                    f"distinguishes them: both are {use.op!r:.200}. Give each a name, or both the same one to decide "
                    f"them together: {'Choice(..., name=...)' if isinstance(use.op, Choice) else '.vary(name, ...)'}."
                )
            hashed[name] = use
        names[use.path] = name
    return names


def _label(op: Operator[Any, Any]) -> str:
    """Return a short name for an operator that does not depend on its position."""
    if isinstance(op, Choice):
        return op.name or "|".join(dict.fromkeys(map(_label, op.options)))
    if isinstance(op, Then):
        return ">".join(map(_label, op.steps))
    return _label(op.body) if isinstance(op, Vary) else type(op).__name__


def _own_value(op: Operator[Any, Any], name: str) -> Any:
    return getattr(op, name, dict(getattr(op, "arguments", ())).get(name))


def join_path(path: str, name: str) -> str:
    """Join the path of an operator and the name of its part; the flow itself has the empty path."""
    return f"{path}.{name}" if path else name


def _is_named(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
