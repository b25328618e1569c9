"""Candidates for one place, and what the optimizer does with a flow that has them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from spolia.core.call_bounds import most
from spolia.core.combinators.branch import gives_of_arms, narrowest
from spolia.core.operator import In, Operator, Out, Vary, checked_operator
from spolia.errors import UndecidedError, WiringError

Point: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, init=False, repr=False)
class Choice(Operator[In, Out]):
    """Candidates for one place of a flow, "do nothing" (`Identity()`) among them if you like.

    Args:
        options: the candidates.
        name: choices of one name are decided together; by default the place in the flow.

    >>> from spolia.core.combinators import Identity
    >>> from spolia.core.function import step
    >>> @step
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> flow = Choice(Identity(), double) >> Choice(Identity(), double)
    >>> [settled(5) for _, settled in settle(flow)]
    [5, 10, 10, 20]
    """

    options: tuple[Operator[In, Out], ...]
    name: str = ""
    variadic: ClassVar[str] = "options"

    def __init__(self, *options: Operator[In, Out], name: str = "") -> None:
        if not options:
            raise WiringError("Choice needs at least one option. Write Choice(Identity(), Other()).")
        for index, option in enumerate(options):
            checked_operator(option, f"option {index} of Choice")
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "name", name)
        self.gives(self.takes())

    def apply(self, value: In, /) -> Out:
        raise UndecidedError(
            f"Choice{f' {self.name!r}' if self.name else ''} among {len(self.options)} options is open. "
            "Write decide(flow, point), or settle(flow) to get every decided flow."
        )

    def takes(self) -> Any:
        return narrowest(self.options)

    def gives(self, taken: Any, /) -> Any:
        return gives_of_arms(self.options, taken, "Choice")

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return self.options

    def calls(self, rows: int | None = None, /) -> int | None:
        return most(option.calls(rows) for option in self.options)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return most(option.fanout(rows) for option in self.options)


def places(flow: Operator[Any, Any]) -> dict[str, int]:
    """The open places of a flow and how many candidates each has.

    A place is called by its choice's name, or by where it stands: `steps.0`, `steps.2.body.top_k`.
    """
    found: dict[str, int] = {}
    _collect(flow, "", found)
    return found


def _collect(op: Operator[Any, Any], place: str, found: dict[str, int]) -> None:
    if isinstance(op, Choice):
        _add(found, op.name or place or "choice", len(op.options))
    elif isinstance(op, Vary):
        for name, values in op.ranges:
            _add(found, f"{place}.{name}" if place else name, len(values))
    for inner_place, inner in op.inner():
        _collect(inner, f"{place}.{inner_place}" if place else inner_place, found)


def _add(found: dict[str, int], place: str, size: int) -> None:
    if found.setdefault(place, size) != size:
        raise WiringError(
            f"Two choices are called {place!r} and have {found[place]} and {size} candidates; they need as many."
        )


def decide(flow: Operator[In, Out], point: Point) -> Operator[In, Out]:
    """The flow with its places decided: `point` maps a place to the index of its candidate.

    Places inside an option that is not taken need no entry.
    """
    unknown = set(point) - set(places(flow))
    if unknown:
        raise UndecidedError(
            f"No place {sorted(unknown)[0]!r} in this flow. It has: {', '.join(places(flow)) or 'none'}."
        )
    return _decided(flow, "", point)


def _decided(op: Operator[Any, Any], place: str, point: Point) -> Operator[Any, Any]:
    if isinstance(op, Choice):
        index = _index(point, op.name or place or "choice", len(op.options))
        inner = f"options.{index}"
        return _decided(op.options[index], f"{place}.{inner}" if place else inner, point)
    if isinstance(op, Vary):
        chosen = {}
        for name, values in op.ranges:
            inner = f"{place}.{name}" if place else name
            index = _index(point, inner, len(values))
            ranges = f"{place}.ranges.{name}.{index}" if place else f"ranges.{name}.{index}"
            chosen[name] = _decided_field(values[index], ranges, point)
        return _decided(op.body.but(**chosen), f"{place}.body" if place else "body", point)
    if not op.inner():
        return op
    decided = {}
    for f in fields(op):  # type: ignore[arg-type]
        if f.init:
            decided[f.name] = _decided_field(getattr(op, f.name), f"{place}.{f.name}" if place else f.name, point)
    return op.made(decided)


def _decided_field(value: Any, place: str, point: Point) -> Any:
    if isinstance(value, Operator):
        return _decided(value, place, point)
    if isinstance(value, tuple):
        return tuple(
            (item[0], _decided_field(item[1], f"{place}.{item[0]}", point))
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
            else _decided_field(item, f"{place}.{index}", point)
            for index, item in enumerate(value)
        )
    return value


def _index(point: Point, place: str, size: int) -> int:
    if place not in point:
        raise UndecidedError(f"Nothing is decided for {place!r}. Give it an index from 0 to {size - 1}.")
    index = point[place]
    if not 0 <= index < size:
        raise UndecidedError(f"{place!r} has candidates 0 to {size - 1}; got {index}.")
    return index


def settle(flow: Operator[In, Out]) -> Iterator[tuple[Point, Operator[In, Out]]]:
    """Every decided flow with the point that leads to it; flows that come out equal appear once."""
    sizes = places(flow)
    seen: set[bytes] = set()
    for indexes in itertools.product(*(range(size) for size in sizes.values())):
        point = dict(zip(sizes, indexes, strict=True))
        try:
            decided = _decided(flow, "", point)
        except WiringError:  # candidates that an operator does not take together
            continue
        if decided.digest not in seen:
            seen.add(decided.digest)
            yield point, decided


__all__ = ["Choice", "Point", "decide", "places", "settle"]
