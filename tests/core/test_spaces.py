"""Open places in every corner of a flow, and the corners of the combinators."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from spolia.core.combinators import (
    Best,
    Branch,
    Choice,
    Each,
    Explore,
    Guard,
    Identity,
    Loop,
    Route,
    Samples,
    decide,
    places,
    settle,
)
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import StepFailed, WiringError
from spolia.run import Run
from spolia.types import Failure, State
from tests.cases import check_each


@dataclass(frozen=True)
class Add(Operator[int, int]):
    by: int = 1
    most: int = 10

    def __post_init__(self) -> None:
        if self.by > self.most:
            raise WiringError(f"by={self.by} is more than most={self.most}")

    def apply(self, value: int, /) -> int:
        return value + self.by


@dataclass(frozen=True)
class Holds(Operator[int, int]):
    """An operator with an operator as a field, and one among pairs."""

    body: Operator[int, int]
    named: tuple[tuple[str, Operator[int, int]], ...] = ()

    def apply(self, value: int, /) -> int:
        for _, op in self.named:
            value = op(value)
        return self.body(value)


@step
def odd(n: int) -> str:
    return "odd" if n % 2 else "even"


@step
def name_in_a_list(n: int) -> Any:
    return ["odd"]


@step
def doubled(n: int) -> int:
    return 2 * n


@dataclass(frozen=True)
class Count(State):
    n: int = 0


@dataclass(frozen=True)
class Up(Operator[Count, Count]):
    by: int = 1

    def apply(self, value: Count, /) -> Count:
        if value.n < 0:
            raise ValueError("below zero")
        return value.but(n=value.n + self.by)


@dataclass(frozen=True)
class Wide(Operator[Count, tuple[Count, ...]]):
    width: int = 2

    def apply(self, value: Count, /) -> tuple[Count, ...]:
        return tuple(value.but(n=value.n * 10 + digit) for digit in range(1, self.width + 1))


@dataclass(frozen=True)
class Size(Operator[Count, float]):
    sign: int = 1

    def apply(self, value: Count, /) -> float:
        return self.sign * value.n


ADD = Choice(Add(1), Add(2))
ONE, TWO = (Choice(Add(1), Add(2), name=name) for name in ("one", "two"))
OPEN: list[tuple[Operator[int, int], int]] = [
    (Holds(ADD), 2),
    (Holds(Add(), named=(("a", ADD), ("b", Add().vary(by=(3, 4))))), 4),
    (Holds(Add()).vary(body=(ADD, Add(5))), 3),
    (Holds(ONE).vary(named=((), (("x", TWO),))), 6),
    (Route(odd, {"odd": ADD, "even": Add().vary(by=(7, 8))}, default="odd"), 4),
    (Guard(ONE, fallback=TWO), 4),
    (Choice(Add(1), Add(1) >> Choice(Identity(), Add(3))), 3),
    (Branch(ONE, TWO) >> Best(doubled), 4),
    (Branch(ONE, ONE) >> Best(doubled), 2),
    (Add().vary(by=(1, 9), most=(5, 10)), 3),
    ((Add() >> Add()).vary(steps=((Add(3), ADD), (Add(4),))), 3),
]


@check_each(("flow", "many"), OPEN)
def test_every_place_is_decided_wherever_it_stands(flow: Operator[int, int], many: int) -> None:
    settled = list(settle(flow))
    assert len(settled) == many
    for point, decided in settled:
        assert places(decided) == {}
        assert decide(flow, point) == decided
        assert isinstance(decided(1), int)


def test_states_of_adaptive_flows_may_be_open_too() -> None:
    flow = Explore(Wide().vary(width=(1, 2)), max_depth=2, score=Size().vary(sign=(1, -1)), width=1)
    best = {decided(Count(1))[0].n for _, decided in settle(flow)}
    assert best == {111, 122}
    loop = Loop(Choice(Up(), Up(2)), max_steps=3)
    assert [decided(Count()).n for _, decided in settle(loop)] == [3, 6]


def test_several_of_nothing_is_nothing() -> None:
    flows: list[Operator[Any, Any]] = [
        Each(doubled), Each(Each(doubled)), Each(Branch(doubled, Add())), Each(Add() >> Add()),
    ]  # fmt: skip
    for flow in flows:
        assert flow(()) == Run()(flow, ()) == ()
        assert flow.batch([(), ()]) == Run().batch(flow, [(), ()]) == [(), ()]
    with pytest.raises(StepFailed, match="0 values"):
        Best(doubled)(())
    assert Each(doubled, min_rows=3)((1,)) == (2,)
    with pytest.raises(WiringError, match="min_rows is -1"):
        Each(doubled, min_rows=-1)


@step
def fragile(n: int) -> int:
    if n < 0:
        raise ValueError(f"{n} is below zero")
    return n


def test_failures_stay_in_their_row_through_every_combinator() -> None:
    flows: list[tuple[Operator[int, object], object]] = [
        (Branch(fragile, doubled), (1, 2)),
        (Route(odd, {"odd": fragile, "even": fragile}, default="odd"), 1),
        (Guard(fragile, fallback=doubled), 1),
        (fragile >> Branch(doubled, fragile) >> Each(fragile), (2, 1)),
    ]
    with Run(threads=3):
        for flow, right in flows:
            rows = flow.batch([1, -1, 1])
            assert [rows[0], rows[2]] == [right, right]
            assert isinstance(rows[1], Failure)
            assert rows[1].message.startswith("-1 is below zero. In the step fragile: ")
        assert Branch(fragile, doubled, min_arms=1).batch([1, -1]) == [(1, 2), (-2,)]
        states = Loop(Up(), max_steps=2).batch([Count(0), Count(-1), Count(5, stop="answered")])
    assert [states[0], states[2]] == [Count(2, stop="cap"), Count(5, stop="answered")]
    assert isinstance(states[1], Failure)


def test_a_router_that_names_nothing_takes_the_default() -> None:
    flow = Route(name_in_a_list, {"odd": doubled, "even": Add()}, default="even")
    assert flow(3) == 4
    with Run():
        assert flow.batch([3, 4]) == [4, 5]


def test_samples_of_samples_all_differ() -> None:
    flow = Samples[Count](3) >> Each(Samples[Count](4))
    samples = [state.sample for several in flow(Count()) for state in several]
    assert samples == list(range(12))


@dataclass(frozen=True)
class Told(Operator[str, float]):
    """The number that a text is."""

    def apply(self, value: str, /) -> float:
        return float(value)


@check_each(
    ("values", "best"),
    [
        (("nan", "1", "2"), "2"),
        (("1", "nan"), "1"),
        (("nan", "-inf"), "nan"),
        (("-inf", "nan", "0"), "0"),
        (("1", "inf", "inf "), "inf"),
        (("2", "2.0"), "2"),
    ],
)
def test_a_score_that_is_no_number_is_never_better_than_one(values: tuple[str, ...], best: str) -> None:
    assert Best(Told())(values) == best


@step
def nan_for_odd(count: Count) -> float:
    return float("nan") if count.n % 2 else float(count.n)


def test_a_beam_keeps_states_with_a_score_before_those_without() -> None:
    ended = Explore(Wide(4), max_depth=1, score=nan_for_odd, width=2)(Count(1))
    assert [state.n % 2 for state in ended] == [0, 0]


def test_exploring_says_of_every_state_why_it_ended_and_keeps_the_scores_in_order() -> None:
    ended = Explore(Wide(), max_depth=2, score=Size(), max_states=4)(Count(1))
    assert [state.n for state in ended] == sorted((state.n for state in ended), reverse=True)
    assert {state.stop for state in ended} == {"cap"}
    beam = Explore(Wide(3), max_depth=3, score=Size(-1), width=2)(Count(1))
    assert [state.n for state in beam] == [1111, 1112]
    assert Explore(Wide(), max_depth=2)(Count(5, stop="answered")) == (Count(5, stop="answered"),)
    with Run(threads=3):
        rows = Explore(Wide(), max_depth=2, score=Size()).batch([Count(1), Count(2)])
    assert rows == [Explore(Wide(), max_depth=2, score=Size())(Count(n)) for n in (1, 2)]


def test_functions_travel_to_other_processes_by_their_names() -> None:
    flow = Route(odd, {"odd": doubled, "even": Add()}, default="odd") >> fragile
    assert pickle.loads(pickle.dumps(flow)) == flow


def test_a_sequence_may_be_a_tuple_or_a_list() -> None:
    @dataclass(frozen=True)
    class Total(Operator[Sequence[int], int]):
        def apply(self, value: Sequence[int], /) -> int:
            return sum(value)

    @step
    def listed(n: int) -> list[int]:
        return [n, n]

    @step
    def pair(n: int) -> tuple[int, int]:
        return (n, n)

    for several in (listed, pair, Branch(doubled, doubled)):
        assert (several >> Each(doubled) >> Total())(2) in (8, 16)
    with pytest.raises(WiringError, match="Branch"):
        doubled >> Total()  # type: ignore[operator]
