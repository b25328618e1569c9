"""Operators: composing, wiring, identity."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from spolia.core import operator as operator_module
from spolia.core.combinators import (
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
from spolia.core.function import Function, step
from spolia.core.operator import Operator, Then
from spolia.core.type_compatibility import Bindings, fits
from spolia.errors import UndecidedError, WiringError
from spolia.types import Answer, Chain, Failure, Hit, Node, Query, Ranking, State, Verdict
from tests.cases import check_each


@dataclass(frozen=True)
class Multi(Operator[Query, tuple[Query, ...]]):
    n: int = 2

    def apply(self, value: Query, /) -> tuple[Query, ...]:
        return tuple(value.rewritten(f"{value.text} {index}") for index in range(self.n))


@dataclass(frozen=True)
class Find(Operator[Query, Ranking]):
    top_k: int = 5

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ValueError("top_k")

    def apply(self, value: Query, /) -> Ranking:
        return Ranking(value, tuple(Hit(Node(f"{value.text}-{i}", "text"), 1.0 / (i + 1)) for i in range(self.top_k)))


@dataclass(frozen=True)
class Fuse(Operator[Sequence[Ranking], Ranking]):
    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        return value[0]


@dataclass(frozen=True)
class Read(Operator[Ranking, Answer]):
    def apply(self, value: Ranking, /) -> Answer:
        return Answer(value.hits[0].node.id)


@dataclass(frozen=True)
class Count(State):
    n: int = 0


@dataclass(frozen=True)
class Step(Operator[Count, Count]):
    by: int = 1

    def apply(self, value: Count, /) -> Count:
        return value.but(n=value.n + self.by)


@dataclass(frozen=True)
class Enough(Operator[State, Verdict]):
    def apply(self, value: State, /) -> Verdict:
        return Verdict(isinstance(value, Count) and value.n >= 3, "sufficient")


def test_chains_are_flat_and_equal_however_they_were_put_together() -> None:
    a, b, c = Identity[Query](), Find(), Read()
    left, right = (a >> b) >> c, a >> (b >> c)
    assert left == right
    assert left.digest == right.digest
    assert isinstance(left, Then)
    assert len(left.steps) == 3


def test_a_flow_runs_as_a_call_without_a_run() -> None:
    assert (Multi() >> Each(Find()) >> Fuse() >> Read())(Query("q")).text == "q 0-0"


WRONG = {
    "Find() >> Multi()": "gives Ranking, but Multi(n=2) takes Query",
    "Multi() >> Find()": "Write Each(Find(...))",
    "Find() >> Fuse()": "Branch",
    "Read() >> Read()": "Put an operator from Answer to Ranking",
    "Branch(Find(), Read())": "Arm 1",
    "Find() >> Each(Read())": "several values",
    "Multi() >> Each(Read())": "takes Ranking, not Query",
    "Loop(Find())": "must give the state",
    "Loop(Step(), until=Step())": "must give a Verdict",
    "Route(Find(), {'a': Find()}, default='a')": "name of an arm",
    "Route(Title(), {'a': Find()}, default='a')": "The router of Route: Title() takes Answer, not Query. Put an "
    "operator from Query to Answer >> before it.",
    "Choice(Find(), Read())": "Arm 1 of Choice: Read() takes Ranking, not Query. Put an operator from Query to Ranking",
    "Route(Named(), {'a': Find()}, default='b')": "'b' is not an arm",
    "Guard(Find(), fallback=Read())": "Arm 1 of Guard",
    "Explore(Step(), 2)": "several values",
    "Find() >> Find": "is a class",
    "Find() >> (lambda ranking: ranking)": "plain function",
    "Find() >> 5": "not an operator",
    "Find() >> Samples[Ranking](2)": "field `sample`",
    "Find().but(k=5)": "no field 'k'. It has: top_k",
    "Find().vary(k=(1, 2))": "no field 'k'",
    "Find().vary(top_k=())": "empty",
    "Branch()": "at least one arm",
    "Then()": "at least one step",
}


@dataclass(frozen=True)
class Named(Operator[Query, str]):
    def apply(self, value: Query, /) -> str:
        return value.text


@dataclass(frozen=True)
class Title(Operator[Answer, str]):
    def apply(self, value: Answer, /) -> str:
        return value.text


@dataclass(frozen=True)
class Has(Operator[State, bool]):
    def gives(self, input_type: Any, /) -> Any:
        raise WiringError("Count has no field 'm'. It has: stop, n.")

    def apply(self, value: State, /) -> bool:
        return True


@step
def told(state: Count, *, ask: int) -> bool:
    return state.n > ask


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (Has(), "The judge of Loop: Count has no field 'm'. It has: stop, n."),
        (told, "The judge of Loop: told lacks ask. Write told.but(ask=...)."),
    ],
)
def test_a_judge_that_takes_the_state_is_not_told_to_get_a_field_of_it(judge: Any, message: str) -> None:
    with pytest.raises(WiringError) as error:
        Loop(Step(), until=judge)
    assert str(error.value) == message


@check_each("code", WRONG)
def test_wrong_wiring_is_refused_while_building_and_says_what_to_write(code: str) -> None:
    with pytest.raises(WiringError) as error:
        eval(code)
    assert WRONG[code] in str(error.value)


def test_a_range_is_checked_by_the_operator_itself() -> None:
    with pytest.raises(ValueError, match="top_k"):
        Find().vary(top_k=(5, 0))


# mypy checks the tests strictly: it infers what is right, and reports an ignore that nothing needs.
if TYPE_CHECKING:
    Find() >> Multi()  # type: ignore[operator]
    Multi() >> Find()  # type: ignore[operator]
    Find() >> Fuse()  # type: ignore[operator]
    Read() >> Read()  # type: ignore[operator]
    Find() >> Each(Read())  # type: ignore[operator]
    Multi() >> Each(Find()) >> Fuse() >> Read()
    Branch(Find(), Identity[Query]() >> Find()) >> Fuse()
    Find().vary(top_k=(1, 2)) >> Read()
    Guard(Find(), fallback=Find(1)) >> Read()
    Loop(Step(), until=Enough())
    Choice(Find(1), Find(2)) >> Read()


def test_identity_knows_the_type_it_passes_on() -> None:
    assert (Identity[Query]() >> Find()).gives(Query) is Ranking
    either: Branch[Query, object] = Branch(Identity[Query](), Find())
    assert either.takes() is Query


def test_an_operator_whose_fields_could_change_or_are_none_is_refused_and_told_what_to_write() -> None:
    class Plain(Operator[Query, Query]):
        def apply(self, value: Query, /) -> Query:
            return value

    @dataclass
    class Changing(Plain):
        top_k: int = 3

    for cls in (Plain, Changing):
        with pytest.raises(
            WiringError, match=rf"^{cls.__name__} is not a frozen dataclass\. Write @dataclass\(frozen=True\)"
        ):
            cls()


def test_a_field_that_a_class_declares_without_being_a_dataclass_is_refused() -> None:
    class Longer(Find):
        extra: int = 5

    for inputs in ({}, {"extra": 3}):
        with pytest.raises(WiringError, match=r"^Longer is not a frozen dataclass\. Write @dataclass\(frozen=True\)"):
            Longer(**inputs)


def test_a_check_of_the_user_may_take_variables_that_are_no_fields() -> None:
    @dataclass(frozen=True)
    class Tagged(Operator[Query, Query]):
        words: InitVar[list[str]]
        tag: str = field(init=False)

        def __post_init__(self, words: list[str]) -> None:
            object.__setattr__(self, "tag", "-".join(words))

        def apply(self, value: Query, /) -> Query:
            return value.rewritten(f"{value.text} {self.tag}")

    assert Tagged(["a", "b"])(Query("x")).text == "x a-b"


def test_digest_tells_fields_versions_and_types_apart() -> None:
    assert Find().digest == Find(5).digest != Find(6).digest

    @dataclass(frozen=True)
    class Find2(Find):
        version = 2

    assert Find2().digest != Find().digest


def test_repr_rebuilds_every_combinator() -> None:
    score = Scored()
    flows: list[Operator[Any, Any]] = [
        Multi() >> Each(Find(), min_rows=1) >> Fuse(),
        Branch(Find(), Find(2), min_arms=1) >> Fuse(),
        Route(Named(), {"a": Find(), "b": Find(2) >> Rank()}, default="a"),
        Loop(Step(), until=Enough(), max_steps=4),
        Explore(Spread(), max_depth=2, score=score, width=1),
        Guard(Find(), fallback=Find(1), max_calls=2, on=("ValueError",)),
        Samples[Query](3),
        Choice(Find(1), Find(2), name="k") >> Read(),
        Find().vary(top_k=(1, 2)) >> Read(),
        (Find() >> Rank()).vary(steps=((Find(),), (Find(2),))),
    ]
    for flow in flows:
        assert eval(repr(flow), globals()) == flow, repr(flow)


@dataclass(frozen=True)
class Rank(Operator[Ranking, Ranking]):
    def apply(self, value: Ranking, /) -> Ranking:
        return value


@dataclass(frozen=True)
class Spread(Operator[Count, tuple[Count, ...]]):
    width: int = 2

    def apply(self, value: Count, /) -> tuple[Count, ...]:
        return tuple(value.but(n=value.n * self.width + index) for index in range(1, self.width + 1))


@dataclass(frozen=True)
class Scored(Operator[Count, float]):
    def apply(self, value: Count, /) -> float:
        return value.n


def test_flows_can_be_sent_to_another_process() -> None:
    flow = Branch(Find(), Find(2)) >> Fuse() >> Read()
    assert pickle.loads(pickle.dumps(flow)) == flow


def test_a_step_over_texts_looks_its_types_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def counting_fits(wanted: object, given: object, bound: Bindings) -> bool:
        looks.append(wanted)
        return fits(wanted, given, bound)

    monkeypatch.setattr(operator_module, "fits", counting_fits)

    @step
    def upper(text: str) -> str:
        return text.upper()

    for _ in range(3):
        assert upper("a") == "A"
        assert upper.batch(["a", "b"]) == ["A", "B"]
    assert len(looks) == 1
    with pytest.raises(WiringError, match=r"Write Query\('a'\)"):
        Find()("a")  # type: ignore[arg-type]
    with pytest.raises(WiringError, match=r"Write Query\('a'\)"):
        Find().batch(["a"])  # type: ignore[list-item]


def test_a_function_is_an_operator_with_its_name_types_and_version() -> None:
    @step(version=3)
    def cut(ranking: Ranking) -> Ranking:
        return ranking.cut(1)

    flow = Find() >> cut >> Read()
    assert flow(Query("q")).text == "q-0"
    assert repr(cut) == "cut"
    assert isinstance(cut, Function)
    assert cut.version == 3
    with pytest.raises(WiringError, match="cut takes Ranking, not Answer"):
        cut.gives(Answer)
    with pytest.raises(WiringError, match="takes 2 values"):
        step(pow)
    with pytest.raises(WiringError, match="cannot be cached"):
        step(cached=True)(lambda ranking: ranking)


# ------------------------------------------------------------------------------------------------ loops and search


def test_a_loop_says_why_it_ended() -> None:
    assert Loop(Step(), until=Enough())(Count()) == Count(3, stop="sufficient")
    assert Loop(Step(), max_steps=2)(Count()) == Count(2, stop="cap")
    assert Loop(Step(), max_steps=2)(Count(7, stop="answered")) == Count(7, stop="answered")


def test_a_loop_over_a_batch_equals_the_loop_over_each() -> None:
    loop = Loop(Step(), until=Enough(), max_steps=5)
    states = [Count(n) for n in range(-4, 4)]
    assert loop.batch(states) == [loop(state) for state in states]


@step
def ask_in_two_ways(chain: Chain) -> tuple[Chain, ...]:
    """The same question in two spellings, twice, and two others."""
    questions = ("Who is it?", "who is it", "C#?", "C?", "Where is Åland?", "Where is A\u030aland?")
    return tuple(chain.but(pairs=(*chain.pairs, (question, "Olsen."))) for question in questions)


def test_a_question_in_another_spelling_is_explored_once() -> None:
    ended = Explore(ask_in_two_ways, max_depth=1)(Chain(Query("What happened?")))
    assert [chain.pairs[0][0] for chain in ended] == ["Who is it?", "C#?", "C?", "Where is Åland?"]


def test_exploring_visits_no_state_twice_and_every_state_says_why_it_ended() -> None:
    ended = Explore(Spread(), max_depth=3, score=Scored(), width=2)(Count())
    assert [state.stop for state in ended] == ["cap", "cap"]
    assert len({state.identity for state in ended}) == len(ended)
    assert ended[0].n >= ended[1].n
    none = Explore(Nothing(), max_depth=3)(Count())
    assert none == (Count(0, stop="exhausted"),)
    few = Explore(Spread(), max_depth=9, max_states=5)(Count())
    assert {state.stop for state in few} == {"cap"}


def test_exploring_keeps_a_good_state_that_stopped_early() -> None:
    ended = Explore(StopsHigh(), max_depth=3, score=Scored(), width=1)(Count(1))
    assert ended[0] == Count(100, stop="answered")


@dataclass(frozen=True)
class Nothing(Operator[Count, tuple[Count, ...]]):
    def apply(self, value: Count, /) -> tuple[Count, ...]:
        return ()


@dataclass(frozen=True)
class StopsHigh(Operator[Count, tuple[Count, ...]]):
    def apply(self, value: Count, /) -> tuple[Count, ...]:
        return (Count(100, stop="answered"), value.but(n=value.n + 1)) if value.n == 1 else (value.but(n=value.n + 1),)


# --------------------------------------------------------------------------------------------------------- choices


def test_an_open_flow_refuses_to_run_and_says_what_to_write() -> None:
    with pytest.raises(UndecidedError, match="decide"):
        (Find().vary(top_k=(1, 2)) >> Read())(Query("q"))
    with pytest.raises(UndecidedError, match="settle"):
        Choice(Find(1), Find(2))(Query("q"))


def test_places_of_one_name_are_decided_together() -> None:
    flow = Branch(Choice(Find(1), Find(2), name="k"), Choice(Find(3), Find(4), name="k")) >> Fuse()
    assert [(name, len(place.values)) for name, place in places(flow).items()] == [("k", 2)]
    assert decide(flow, {"k": 1}) == Branch(Find(2), Find(4)) >> Fuse()
    with pytest.raises(UndecidedError, match="No place 'j'"):
        decide(flow, {"j": 0})
    with pytest.raises(UndecidedError, match="candidates 0 to 1; got 7"):
        decide(flow, {"k": 7})
    with pytest.raises(WiringError, match="need as many"):
        places(Branch(Choice(Find(1), Find(2), name="k"), Choice(Find(3), name="k")))


def test_settling_yields_every_distinct_flow_once() -> None:
    flow = Choice(Find(), Find().vary(top_k=(5, 6))) >> Read()
    settled = [decided for _, decided in settle(flow)]
    assert settled == [Find(5) >> Read(), Find(6) >> Read()]
    for point, decided in settle(flow):
        assert decide(flow, point) == decided


def test_a_failed_arm_is_raised_as_it_was_or_left_out() -> None:
    @step
    def broken(query: Query) -> Ranking:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Branch(broken, Find())(Query("q"))
    assert len(Branch(broken, Find(), min_arms=1)(Query("q"))) == 1
    rows = Branch(broken, Find()).batch([Query("q")])
    assert isinstance(rows[0], Failure)
