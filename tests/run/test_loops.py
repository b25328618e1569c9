"""Loops and what comes of them: why they ended reaches the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from spolia.combinators import Branch, Loop
from spolia.function import step
from spolia.operator import Operator
from spolia.run import Budget, Run
from spolia.types import Answer, Hit, Node, Query, Ranking
from tests.run.flows import Grow, Growing, LongEnough, Say, Start


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


def test_rows_of_a_batch_tell_their_own_reasons() -> None:
    flow = Loop(Grow(), until=LongEnough(4), max_steps=3) >> Read()
    rows = [Growing("a"), Growing("b", steps=2), Growing("c", stop="answered"), Growing("d", stop="mine")]
    with Run() as run:
        found = run.batch(flow, rows)
    assert [answer.stop_reason for answer in found if isinstance(answer, Answer)] == [
        "cap", "sufficient", "answered", "mine",
    ]  # fmt: skip
