"""Budgets where they are easily overstepped: batches, guards inside each other, threads, streams, loops."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from spolia.core.combinators import Branch, Each, Guard, Identity, Loop, Samples
from spolia.core.operator import Operator
from spolia.core.run_context import Done, charge, limit_calls, reserve
from spolia.errors import BudgetSpent, StepFailed, UndecidedError, WiringError
from spolia.run import Budget, Run
from spolia.types import Failure, Query, Usage
from tests.run.flows import COUNTER, Ask, Glue, Growing


@pytest.fixture(autouse=True)
def fresh() -> None:
    COUNTER.reset()


@dataclass(frozen=True)
class Together(Operator[Query, Query]):
    """Asks for all rows of a batch at once: one reservation, or one for each row."""

    by_row: bool = False
    calls_each: int = 1

    def apply(self, value: Query, /) -> Query:
        with reserve(Usage(calls=self.calls_each)):
            return value

    def apply_batch(self, values: Sequence[Query], /) -> list[Query | Failure]:
        if not self.by_row:
            with reserve(Usage(calls=len(values) * self.calls_each)):
                return list(values)
        results: list[Query | Failure] = []
        for row, value in enumerate(values):
            try:
                with reserve(Usage(calls=self.calls_each), row=row):
                    results.append(value)
            except BudgetSpent as error:
                results.append(Failure.from_error(error))
        return results


QUESTIONS = [Query(str(n)) for n in range(8)]


@pytest.mark.parametrize("by_row", [False, True])
def test_a_reservation_for_a_batch_is_shared_by_its_rows(by_row: bool) -> None:
    with Run(per_question=Budget(calls=2), budget=Budget(calls=16)) as run:
        assert (Together(by_row) >> Together(by_row)).batch(QUESTIONS) == QUESTIONS
        assert run.actual_usage.calls == 16
    with Run(per_question=Budget(calls=1)) as run:
        rows = (Together(by_row) >> Together(by_row)).batch(QUESTIONS)
        assert [type(row) for row in rows] == [Failure] * 8
        assert run.actual_usage.calls == 8


def test_a_row_whose_budget_is_spent_leaves_the_others_theirs() -> None:
    @dataclass(frozen=True)
    class Uneven(Operator[Query, Query]):
        def apply(self, value: Query, /) -> Query:
            charge(Usage(calls=int(value.text)))
            return value

    with Run(per_question=Budget(calls=4)):
        rows = (Uneven() >> Together(by_row=True)).batch(QUESTIONS)
    assert [isinstance(row, Failure) for row in rows] == [False] * 4 + [True] * 4


def test_the_room_of_a_settled_call_is_never_given_twice() -> None:
    """Between the end of a reservation and its charge nobody may find room."""
    wrong: list[int] = []
    with Run(budget=Budget(calls=40)) as run:

        def ask() -> None:
            for _ in range(40):
                try:
                    with reserve(Usage(calls=1)):
                        COUNTER.seen.append(1)
                except BudgetSpent:
                    continue
                if run.actual_usage.calls > 40:
                    wrong.append(run.actual_usage.calls)

        def entered() -> None:
            with run:
                ask()

        threads = [threading.Thread(target=entered) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.actual_usage.calls == len(COUNTER.seen) == 40
    assert wrong == []


def test_a_limit_inside_a_batch_holds_for_its_rows_and_ends_with_it() -> None:
    @dataclass(frozen=True)
    class Limited(Operator[Query, Query]):
        body: Operator[Query, Query]

        def apply(self, value: Query, /) -> Query:
            with limit_calls(3):
                return self.body(value)

        def apply_batch(self, values: Sequence[Query], /) -> list[Query | Failure]:
            with limit_calls(3):
                return self.body.batch(values, rows=range(len(values)))

    with Run(threads=3):
        rows = Limited(Ask()).batch(QUESTIONS)
        assert sum(isinstance(row, Query) for row in rows) == COUNTER.calls == 3
        assert not any(isinstance(row, Failure) for row in Ask().batch(QUESTIONS))


def test_limits_of_threads_do_not_outlive_them() -> None:
    with Run() as run:
        barrier, first_left = threading.Barrier(2), threading.Event()

        def first() -> None:
            with run, limit_calls(5):
                barrier.wait(10)
            first_left.set()

        def second() -> None:
            with run, limit_calls(5):
                barrier.wait(10)
                first_left.wait(10)

        threads = [threading.Thread(target=first), threading.Thread(target=second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.root.limiters == ()


def test_a_limit_ends_with_the_guard_also_when_it_fails() -> None:
    flow = Guard(Guard(Ask("1") >> Ask("2"), max_calls=1), fallback=Ask("3") >> Ask("4"), max_calls=5)
    with Run():
        assert flow(Query("q")).text == "q34"
        assert [row.text for row in flow.batch([Query("a"), Query("b")])] == ["a34", "b34"]  # type: ignore[union-attr]


def test_a_stream_is_a_question_with_a_budget() -> None:
    with Run(per_question=Budget(calls=1)) as run:
        for _ in range(3):
            assert list(run.stream(Ask(), Query("q")))[-1] == Done(Query("qa", "q"))
        with pytest.raises(BudgetSpent, match="1 of 1 calls"):
            list(run.stream(Ask() >> Ask(), Query("q")))
    with Run(budget=Budget(calls=1)) as run, pytest.raises(BudgetSpent, match="this run"):
        list(run.stream(Ask() >> Ask(), Query("q")))


@dataclass(frozen=True)
class Voted(Operator[Growing, Growing]):
    """A step of several calls, of which some may fail."""

    least: int | None = 3
    waits: ClassVar[bool] = True

    def apply(self, value: Growing, /) -> Growing:
        (Samples[Query](4) >> Each(Ask(), min_rows=self.least) >> Glue())(Query(value.text))
        return value.but(text=value.text + ".", steps=value.steps + 1)


@pytest.mark.parametrize("least", [None, 3])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_spent_budget_ends_a_loop_through_steps_of_several_calls(least: int | None, threads: int) -> None:
    with Run(budget=Budget(calls=6), threads=threads):
        assert Loop(Voted(least))(Growing("q")) == Growing("q.", 1, stop="budget")
    with Run(per_question=Budget(calls=6), threads=threads):
        assert Loop(Voted(least)).batch([Growing("q")] * 2) == [Growing("q.", 1, stop="budget")] * 2


def test_too_few_arms_say_so_when_the_budget_has_room() -> None:
    failing = Guard(Ask(), max_calls=0, on=()) >> Identity()
    with Run(), pytest.raises(BudgetSpent):
        Branch(failing, failing, min_arms=1)(Query("q"))
    with pytest.raises(StepFailed, match="0 of 2 arms"):
        Branch(Broken(), Broken(), min_arms=1)(Query("q"))


@dataclass(frozen=True)
class Broken(Operator[Query, Query]):
    def apply(self, value: Query, /) -> Query:
        raise ValueError("no")


def test_an_open_choice_is_never_taken_for_a_failure() -> None:
    open_flow = Ask().vary(by=("a", "b"))
    for flow in (Guard(open_flow, fallback=Identity()), Branch(open_flow, Identity(), min_arms=1)):
        with Run(), pytest.raises(UndecidedError):
            flow(Query("q"))


@pytest.mark.parametrize("wrong", [{"calls": -1}, {"tokens": -5}, {"cost_usd": -0.1}, {"cost_usd": math.nan}])
def test_a_limit_below_0_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(WiringError, match=rf"Budget: {name} is .*\. Write 0 or more, or None for no limit\."):
        Budget(**wrong)
    with pytest.raises(WiringError):
        Budget().but(**wrong)
