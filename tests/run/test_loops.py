"""Loops and what comes of them: judges of every kind fit, why they ended reaches the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from spolia import (
    BM25,
    Branch,
    Choice,
    Corpus,
    Each,
    Identity,
    Loop,
    Reader,
    ReciprocalRankFusion,
    Samples,
    ScriptedModel,
    check,
    dump,
    load,
    step,
)
from spolia.core import Get
from spolia.core.operator import Operator
from spolia.errors import StepFailed, WiringError
from spolia.journal import Runs
from spolia.orchestration import Classified, Confident, Exceeds, StopOn, StopWhen, Sufficient
from spolia.run import Budget, Run
from spolia.types import (
    Answer,
    ArmScores,
    Chain,
    Failure,
    Generation,
    Hit,
    Node,
    Query,
    Ranking,
    State,
    Token,
    Value,
    Verdict,
)
from tests.cases import check_each
from tests.run.flows import Grow, Growing, LongEnough, Say, Search, Start

RETRIEVE = BM25(Corpus("never-opened.spolia").group())


@step
def only(answers: Sequence[Answer]) -> Answer:
    return answers[0]


@step
def same(answer: Answer) -> Answer:
    return answer


@dataclass(frozen=True)
class Read(Operator[Growing, Answer]):
    """Says how it ended itself where `own` is given."""

    own: str = "answered"

    def apply(self, value: Growing, /) -> Answer:
        return Answer(value.text, stop_reason=self.own)


@pytest.mark.parametrize(
    ("until", "steps", "calls", "reason"),
    [(LongEnough(2), 5, 9, "sufficient"), (LongEnough(5), 2, 9, "cap"), (LongEnough(5), 5, 3, "budget")],
)
def test_an_answer_tells_why_the_loop_before_it_ended(until: Any, steps: int, calls: int, reason: str) -> None:
    @step
    def passages(state: Growing) -> Ranking:
        return Ranking(Query(state.text), (Hit(Node("a", "a"), 1.0),))

    loop = Start() >> Loop(Grow(), until=until, max_steps=steps)
    for flow in (loop >> Read(), loop >> passages >> Say(), loop >> Branch(Read()) >> only, (loop >> Read()) >> same):
        with Run(per_question=Budget(calls=calls)) as run:
            (row,) = flow.batch([Query("q")])
            (*_, done) = run.stream(flow, Query("q"))
            assert flow(Query("q")).stop_reason == reason
        assert isinstance(row, Answer)
        assert row.stop_reason == done.value.stop_reason == reason  # type: ignore[union-attr]
    assert (loop >> Read("forced"))(Query("q")).stop_reason == "forced"
    assert (loop >> Read("abstained"))(Query("q")).abstained


@pytest.mark.parametrize("flow", [
    Each(Loop(Grow(), until=LongEnough(4), max_steps=3)) >> Each(Read()),
    (Each(Loop(Grow(), until=LongEnough(4), max_steps=3)) >> Each(Identity())) >> Each(Read()),
])  # fmt: skip
def test_answers_to_several_states_tell_why_each_loop_ended(flow: Operator[Any, Any]) -> None:
    states = (Growing("a"), Growing("b", steps=2), Growing("c", stop="mine"))
    (row,) = flow.batch([states])
    assert isinstance(row, tuple)
    for answers in (flow(states), row):
        assert [answer.stop_reason for answer in answers] == ["cap", "sufficient", "mine"]


def test_the_answers_of_a_branch_after_a_loop_tell_why_it_ended() -> None:
    flow = Loop(Grow(), until=LongEnough(9), max_steps=3) >> Branch(Read(), Read("forced"))
    (row,) = flow.batch([Growing("a")])
    assert isinstance(row, tuple)
    for answers in (flow(Growing("a")), row):
        assert [answer.stop_reason for answer in answers] == ["cap", "forced"]


def test_rows_of_a_batch_tell_their_own_reasons() -> None:
    flow = Loop(Grow(), until=LongEnough(4), max_steps=3) >> Read()
    rows = [Growing("a"), Growing("b", steps=2), Growing("c", stop="answered"), Growing("d", stop="mine")]
    with Run() as run:
        answers = run.batch(flow, rows)
    assert [answer.stop_reason for answer in answers if isinstance(answer, Answer)] == [
        "cap", "sufficient", "answered", "mine",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ judges


NO_DRAFT, NO_SCORES = Generation(""), ArmScores(())


@dataclass(frozen=True)
class Found(State):
    """A state of the user's own, with something for each judge."""

    query: Query
    chain: Chain
    ranking: Ranking | None = None
    rankings: tuple[Ranking, ...] = ()
    draft: Generation = NO_DRAFT
    scores: ArmScores = NO_SCORES
    turns: int = 0


@step
def begin(query: Query) -> Found:
    return Found(query, Chain(query))


@step
def search_on(state: Found) -> Found:
    """Finds more, drafts more surely, knows better at every turn."""
    turns = state.turns + 1
    ranking = Ranking(state.query, tuple(Hit(Node(str(n), "Nokia " * n), 1.0) for n in range(1, turns + 1)))
    return state.but(
        turns=turns,
        ranking=ranking,
        rankings=(*state.rankings, ranking),
        chain=state.chain.but(pairs=(*state.chain.pairs, ("Who employed Olsen?", "Nokia employed Olsen."))),
        draft=Generation("Nokia", tokens=(Token("Nokia", math.log(0.3 * turns)),)),
        scores=ArmScores((("enough", 0.3 * turns),)),
    )


@step
def two_turns(state: Found) -> bool:
    return state.turns == 2


@step
def label(state: Found) -> Literal["enough", "search on"]:
    return "enough" if state.turns == 2 else "search on"


SAYS = ScriptedModel((("Nokia Nokia", "sufficient"), ("", "insufficient")))


@dataclass(frozen=True)
class Similar(Value):
    """A scorer that gives the number of pairs."""

    name: ClassVar[str] = "similar"
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return "1"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        return tuple(float(text.count("A:")) for text in texts)


JUDGES: dict[str, tuple[Operator[Any, Verdict | bool], str]] = {
    "sufficient": (Get("ranking") >> Sufficient(SAYS), "sufficient"),
    "sufficient of several": (Get("rankings") >> ReciprocalRankFusion() >> Sufficient(SAYS), "sufficient"),
    "confident": (Get("draft") >> Confident(0.6), "confident"),
    "classified": (Get("chain") >> Classified(Similar(), threshold=2.0), "sufficient"),
    "exceeds": (Get("scores") >> Exceeds("enough", "search on", threshold=0.5) >> StopOn("enough"), "enough"),
    "label": (label >> StopOn("enough", reason="sufficient"), "sufficient"),
    "a field of the state": (StopWhen("turns", 2), "sufficient"),
    "entries of a field": (StopWhen("rankings", 2), "sufficient"),
    "a function": (two_turns, "judged"),
}


@check_each("judge", JUDGES)
def test_every_judge_stops_a_loop_over_a_state_of_the_users_own(judge: str) -> None:
    until, reason = JUDGES[judge]
    flow = begin >> Loop(search_on, until=until, max_steps=4)
    assert check(flow, takes=Query, gives=Found).problems == ()
    with Run() as run:
        ended = flow(Query("Who employed Olsen?"))
        assert run.batch(flow, [Query("Who employed Olsen?")] * 2) == [ended, ended]
    assert (ended.turns, ended.stop) == (2, reason)
    assert load(dump(flow, objects=(objects := {"begin": begin, "on": search_on, "two": two_turns, "label": label,
                     "llm": SAYS, "similar": Similar()})), objects=objects) == flow  # fmt: skip


def test_a_judge_that_does_not_take_the_state_is_told_how_to_get_its_part() -> None:
    with pytest.raises(WiringError, match=r"Sufficient.* takes Ranking, not Found. Put Get\('ranking'\) >> before it."):
        Loop(search_on, until=Sufficient(SAYS))  # type: ignore[misc]
    with pytest.raises(WiringError, match=r"must give a Verdict, or whether to stop"):
        Loop(search_on, until=label)  # type: ignore[arg-type]
    with pytest.raises(WiringError, match=r"Found has no field 'rankin'. It has: stop, sample, query"):
        Loop(search_on, until=Get("rankin") >> Sufficient(SAYS))


def test_a_judge_that_gives_no_verdict_fails_its_row_and_says_so() -> None:
    @step
    def silent(state: Found) -> Any:
        return None

    with pytest.raises(StepFailed, match=r"silent.* gave None. Give a Verdict, or whether to stop"):
        (begin >> Loop(search_on, until=silent))(Query("q"))
    with pytest.raises(StepFailed, match="'ranking' of Found is None"):
        (begin >> Get("ranking"))(Query("q"))


# ----------------------------------------------------------------------------------------------------------- samples

WARM, COLD = (Reader(SAYS, temperature=temperature) for temperature in (0.7, 0.0))


@check_each(
    ("after", "says"),
    [
        (Each(Search() >> COLD), False),
        (Each(RETRIEVE >> COLD), True),
        (Each(RETRIEVE >> WARM), False),
        (Each(RETRIEVE >> COLD.vary(temperature=(0.0, 0.7))), False),
        (Each(RETRIEVE >> Choice(COLD, WARM)), False),
        (Each(Identity()), True),
        (Each(begin), False),
    ],
)
def test_check_tells_of_samples_that_cannot_differ(after: Operator[Any, Any], says: bool) -> None:
    problems = check(Samples[Query](3) >> after).problems
    assert [problem.place for problem in problems] == (["steps.0"] if says else [])
    if says:
        assert "Give its model's step a temperature above 0" in problems[0].message
        assert check(Samples[Query](1) >> after).ok


class Mute(Exception):
    """An error whose text raises."""

    def __str__(self) -> str:
        return str(self.args[0]["reason"])


def test_an_error_whose_text_raises_stays_the_error_of_its_step(tmp_path: Path) -> None:
    @step
    def broken(query: Query) -> Query:
        raise Mute({})

    with Runs(tmp_path / "runs.db") as runs, Run(journal=runs.journal):
        (row,) = broken.batch([Query("?")])
        with pytest.raises(Mute):
            broken(Query("?"))
    assert isinstance(row, Failure)
    assert row.kind == "Mute"
    assert row.message.startswith("Mute, whose text raises KeyError. In the step broken: ")
