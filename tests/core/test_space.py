"""The space of a flow with open places: what its places are called, and points without listing them all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.codec import decode, encode
from spolia.core.combinators import Best, Branch, Choice, Guard, Identity, Space, decide, places, settle
from spolia.core.combinators.space import Point
from spolia.core.function import step
from spolia.core.operator import Operator, walk_values
from spolia.errors import UndecidedError, WiringError


@dataclass(frozen=True)
class Plus(Operator[int, int]):
    by: int = 1
    most: int = 100
    mode: str = "plain"

    def __post_init__(self) -> None:
        if self.by > self.most:
            raise WiringError(f"by={self.by} is more than most={self.most}")

    def apply(self, value: int, /) -> int:
        return value + self.by


@dataclass(frozen=True)
class Scale(Operator[int, int]):
    by: float = 1.0

    def apply(self, value: int, /) -> int:
        return int(value * self.by)


@dataclass(frozen=True)
class Wrapped(Operator[int, int]):
    body: Operator[int, int]
    named: tuple[tuple[str, Operator[int, int]], ...] = ()

    def apply(self, value: int, /) -> int:
        return self.body(value)


@step
def same(n: int) -> int:
    return n


FLOW = Choice(Identity(), Plus().vary(by=(1, 3, 2)), Scale(), name="first") >> Scale().vary(by=(1, 0.5))


def test_a_place_tells_its_values_type_order_and_on_what_it_depends() -> None:
    first, add, times = places(FLOW).values()
    assert (first.name, first.type, first.order, first.parent) == ("first", Operator, None, None)
    assert (add.name, add.values, add.type) == ("Plus.by", (1, 3, 2), int)
    assert (add.order, add.parent) == ((0, 2, 1), ("first", 1))
    assert (times.name, times.type, times.order, times.parent) == ("Scale.by", float, (1, 0), None)
    (mode,) = places(Plus().vary(mode=("plain", "odd"))).values()
    assert (mode.type, mode.order) == (str, None)
    (mixed,) = places(Wrapped(Plus()).vary(named=((), ()))).values()
    assert (mixed.type, mixed.order) == (tuple, None)


PARTS: list[Operator[int, int]] = [
    FLOW,
    Plus().vary(by=(1, 2)),
    Choice(Plus(), Scale()),
    same,
    Guard(Scale().vary(by=(1, 2))),
]
OTHERS: list[Operator[int, int]] = [
    Plus(),
    same,
    Plus().vary(most=(3, 4)),
    Choice(Scale(), Plus()),
    Scale().vary("n", by=(1, 2)),
]


@pytest.mark.slow
@given(
    parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=3, unique_by=id),
    other=st.sampled_from(OTHERS),
    how=st.integers(0, 5),
)
def test_a_step_beside_or_around_renames_no_place(parts: list[Operator[int, int]], other: Any, how: int) -> None:
    flow = parts[0]
    for part in parts[1:]:
        flow = flow >> part
    wrapped = (
        other >> flow,
        flow >> other,
        Guard(flow),
        Wrapped(flow),
        Guard(Wrapped(other >> flow)),
        Choice(other, flow, name="outer"),
    )[how]
    places_alone, places_wrapped = places(flow), places(wrapped)
    for name, place in places_alone.items():
        assert places_wrapped[name].values == place.values


@dataclass(frozen=True)
class Cut(Operator[int, int]):
    """Takes a value from what it is given; `tag` tells which it is."""

    tag: str
    top_k: int = 9

    def apply(self, value: int, /) -> int:
        return value


A, B, C = (Cut(tag).vary(top_k=(1, 2)) for tag in "abc")


def values_by_tag(flow: Operator[int, int]) -> dict[str, int]:
    """The decided value of each operator by its tag."""
    return {op.tag: op.top_k for op in walk_values(flow) if isinstance(op, Cut)}


def test_operators_of_one_kind_are_told_apart_by_what_they_are() -> None:
    names = list(places(A >> B))
    assert all(name.startswith("Cut.top_k#") for name in names)
    assert list(places(A >> B >> C))[:2] == names
    assert list(places(B >> Guard(A))) == names[::-1]
    point = dict(zip(names, (1, 0), strict=True))
    assert values_by_tag(decide(A >> B, point)) == values_by_tag(decide(B >> A, point)) == {"a": 2, "b": 1}
    for swapped in (Branch(B, A) >> Best(same), Choice(B >> Wrapped(A), C, name="c")):
        assert values_by_tag(decide(swapped, {"c": 0, **point} if "c" in places(swapped) else point)) == {
            "a": 2,
            "b": 1,
        }


def test_a_saved_point_is_refused_where_its_names_have_become_ambiguous_or_are_gone() -> None:
    (name,) = places(A)
    assert name == "Cut.top_k"
    with pytest.raises(
        UndecidedError, match=r"No place 'Cut.top_k'.* 2 that are called 'Cut.top_k'.*Cut.top_k#\w{8} with"
    ):
        decide(A >> B, {name: 1})
    saved = dict.fromkeys(places(A >> B), 1)
    with pytest.raises(UndecidedError, match=r"No place 'Cut.top_k#\w+' in this flow. Nearest: Cut.top_k\."):
        decide(A, saved)
    with pytest.raises(UndecidedError, match=r"Nearest: Cut\.top_k"):
        decide(A, {"Cut.topk": 1})


def test_equal_open_operators_need_names() -> None:
    for flow in (A >> A, Guard(A, fallback=A)):
        with pytest.raises(WiringError, match=r"Two places are called 'Cut.top_k'.*vary\(name"):
            places(flow)
    with pytest.raises(WiringError, match=r"Two places are called 'Plus\|Scale'.*Choice\(..., name="):
        places(Choice(Plus(), Scale()) >> Choice(Plus(), Scale()))
    named_flow = Cut("a").vary("first", top_k=(1, 2)) >> Cut("a").vary("second", top_k=(1, 2))
    assert list(places(named_flow)) == ["first", "second"]
    assert list(places(Guard(named_flow.steps[0], fallback=named_flow.steps[0]))) == ["first"]  # type: ignore[attr-defined]
    assert set(places(A >> Choice(Cut("b"), Cut("c"), name="Cut.top_k"))) > {"Cut.top_k"}


TAGGED: list[Operator[int, int]] = [
    A, B, C, Guard(Cut("d").vary(top_k=(1, 2))),
    Wrapped(Cut("e").vary(top_k=(1, 2)), (("x", Cut("f").vary(top_k=(1, 2))),)),
    Choice(Cut("g", 1), Cut("g", 2)), Choice(Cut("h", 1), Cut("h", 2)), Cut("i").vary("own", top_k=(1, 2)),
    Cut("j"), same, Choice(Identity(), Cut("k").vary(top_k=(1, 2)), name="l"),
]  # fmt: skip


@given(
    parts=st.lists(st.sampled_from(TAGGED), min_size=1, max_size=4, unique_by=id),
    more=st.lists(st.sampled_from(TAGGED), max_size=2, unique_by=id),
    how=st.integers(0, 4),
    random=st.randoms(use_true_random=False),
)
def test_a_saved_point_gives_equal_operators_equal_values_or_is_refused(
    parts: list[Any], more: list[Any], how: int, random: Random
) -> None:
    flow = _flow_of(parts, 0)
    point = Space(flow).draw_point(random)
    changed = [*parts, *(part for part in more if part not in parts)][random.randrange(2) :]
    random.shuffle(changed)
    try:
        space = Space(_flow_of(changed or parts, how))
        values = values_by_tag(space.decide({**space.default, **point}))
    except (UndecidedError, WiringError):
        return
    former_values = values_by_tag(Space(flow).decide(point))
    assert {tag: former_values[tag] for tag in former_values.keys() & values.keys()} == {
        tag: values[tag] for tag in former_values.keys() & values.keys()
    }


def _flow_of(parts: list[Any], shape: int) -> Operator[int, int]:
    """The parts one after the other, in pairs of a branch, or some of them inside others."""
    flow = parts[0]
    for part in parts[1:]:
        flow = (flow >> part, Branch(flow, part) >> Best(same), Wrapped(part, (("y", flow),)),
                Guard(flow, fallback=part), part >> Guard(flow))[shape]  # fmt: skip
    return flow  # type: ignore[no-any-return]


def test_one_name_is_one_decision_for_several_operators() -> None:
    flow = Plus().vary("n", by=(1, 2)) >> Choice(Plus(10), Plus(20), name="n") >> Scale().vary("n", by=(1, 3))
    assert list(places(flow)) == ["n"]
    assert [decided(0) for _, decided in settle(flow)] == [11, 66]
    varied_flow = Plus().vary("add", by=(1, 2), most=(50, 60)).vary(mode=("x", "y")) >> Scale().vary(
        "add.by", by=(2, 3)
    )
    assert {name: len(place.values) for name, place in places(varied_flow).items()} == {
        "add.by": 2, "add.most": 2, "Plus.mode": 2
    }  # fmt: skip
    for op in (flow, varied_flow):
        assert decode(encode(op), Operator) == op
        assert eval(repr(op), {"Plus": Plus, "Scale": Scale, "Choice": Choice}) == op
    with pytest.raises(WiringError, match="Two choices are called 'n' and have 2 and 3"):
        places(Plus().vary("n", by=(1, 2)) >> Scale().vary("n", by=(1, 2, 3)))


def test_operators_that_are_decided_together_count_once_with_all_that_is_inside_them() -> None:
    inside = Plus().vary(by=(1, 2, 3), most=(50, 60)), Scale().vary(by=(1, 2))
    flow = Choice(inside[0], Identity(), name="n") >> Choice(inside[1], Identity(), name="n")
    space = Space(flow)
    assert space.size == len(list(space.points())) == 3 * 2 * 2 + 1
    random = Random(0)
    counter = Counter(space.draw_point(random)["n"] for _ in range(260))
    assert 225 < counter[0] < 255  # 12 of 13
    assert Space(Choice(flow, Identity(), name="outer")).size == 14


def test_a_place_in_several_options_depends_on_any_of_them() -> None:
    flow = Choice(Plus().vary("n", by=(1, 2)), Scale().vary("n", by=(1, 2)), Identity(), name="c")
    assert places(flow)["n"].parents == (("c", 0), ("c", 1))
    assert places(flow)["n"].parent is None
    assert places(flow >> Plus().vary("n", by=(1, 2)))["n"].parents == ()


def space_of_23_digits() -> Space[int, int]:
    flow: Operator[int, int] = Identity()
    for number in range(12):
        inner = Plus().vary(f"a{number}", by=tuple(range(1, 9)), most=(5, 100), mode=("x", "y", "z"))
        flow = flow >> Choice(Identity(), inner, Scale().vary(f"t{number}", by=tuple(range(1, 52))), name=f"c{number}")
    return Space(flow)


def test_points_of_a_huge_space_are_drawn_and_are_valid() -> None:
    space = space_of_23_digits()
    assert space.size == 100**12 > 10**23
    random = Random(0)
    for _ in range(20):
        point = space.draw_point(random)
        assert isinstance(space.decide(point)(1), int)
        assert space.complete(point) == point
        for number in range(12):
            inside = [name for name in point if name.startswith((f"a{number}.", f"t{number}"))]
            choice = point[f"c{number}"]
            assert len([name for name in inside if f"{number}" == name[1:].split(".")[0]]) == (0, 3, 1)[choice]
    neighbours = list(space.neighbours(point))
    assert point not in neighbours
    for neighbour in neighbours:
        shared = {name for name in point if neighbour.get(name) == point[name]}
        changed = {name for name in point.keys() & neighbour.keys() if neighbour[name] != point[name]}
        assert len(changed) == 1
        assert space.complete(neighbour) == neighbour
        assert shared


@pytest.mark.slow
def test_random_points_are_about_equally_likely() -> None:
    flow = Choice(Identity(), Plus().vary(by=(1, 4), most=(2, 9)), name="first") >> Scale().vary(by=(1, 2, 3))
    space = Space(flow)
    assert space.size == (1 + 4) * 3
    valid = {tuple(point.items()) for point in space.points() if _is_valid(space, point)}
    assert len(valid) == (1 + 3) * 3
    random, draws = Random(3), 2400
    counter = Counter(tuple(space.draw_point(random).items()) for _ in range(draws))
    assert counter.keys() == valid
    assert all(abs(count - draws / 12) < 60 for count in counter.values())  # 4.4 standard deviations


def _is_valid(space: Space[int, int], point: Point) -> bool:
    try:
        space.decide(point)
    except WiringError:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=60)
@given(parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=3, unique_by=id), seed=st.integers(0, 99))
def test_every_point_and_neighbour_is_one_of_those_that_settling_lists(parts: list[Any], seed: int) -> None:
    flow = parts[0]
    for part in parts[1:]:
        flow = flow >> part
    space = Space(flow)
    points = list(space.points())
    assert len(points) == space.size
    listed = {decided.digest for _, decided in space.settle()}
    point = space.draw_point(Random(seed))
    assert point in points
    assert space.default in points
    assert space.decide(point).digest in listed
    for near in space.neighbours(point):
        assert near in points
        assert point in [*space.neighbours(near)] or near.keys() != point.keys()


def test_the_default_is_what_the_operators_have() -> None:
    assert Space(FLOW).default == {"first": 0, "Scale.by": 0}
    assert Space(Plus(2).vary(by=(1, 2, 3))).default == {"Plus.by": 1}


def test_a_point_that_names_no_place_or_no_candidate_is_refused() -> None:
    with pytest.raises(UndecidedError, match="candidates 0 to 1; got 7"):
        decide(Plus().vary(by=(8, 7)), {"Plus.by": 7})
    with pytest.raises(UndecidedError, match="No place 'x'"):
        decide(FLOW, {"x": 1})
    with pytest.raises(UndecidedError, match="Nothing is decided for 'first'"):
        decide(FLOW, {"Scale.by": 1})
