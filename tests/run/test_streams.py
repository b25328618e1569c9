"""Streams and cancelling where things go wrong: abandoned, blocked, retracted, shared, closed."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from spolia.core.combinators import Branch, Guard, Identity, Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Then
from spolia.core.run_context import Done, Emitted, Retracted, access, emit, on_cancel, reserve
from spolia.errors import BudgetSpent, Cancelled, ModelUnavailable
from spolia.run import Budget, Run
from spolia.run import stream as streaming
from spolia.types import Answer, Failure, Query, Ranking, State, Usage
from tests.run.flows import COUNTER, Ask, Say, Search, Sleep


@pytest.fixture(autouse=True)
def fresh() -> None:
    COUNTER.reset()


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def streaming_threads() -> int:
    return sum(thread.name == "spolia-stream" for thread in threading.enumerate())


def final(events: Any) -> str:
    text = ""
    for event in events:
        if isinstance(event, Emitted) and event.final:
            text += event.text
        if isinstance(event, Retracted):
            text = text[: -event.characters]
    return text


LONG: Operator[Query, Query] = Then(*(Sleep(0.005) >> Ask() for _ in range(100)))


@pytest.mark.slow
def test_a_stream_that_nobody_holds_any_more_stops() -> None:
    with Run() as run:
        for _ in run.stream(LONG, Query("q")):
            break
        assert until(lambda: streaming_threads() == 0)
        cycle: list[Any] = [run.stream(LONG, Query("q"))]
        cycle.append(cycle)
        next(cycle[0])
        del cycle
        gc.collect()
        assert until(lambda: streaming_threads() == 0)
    assert COUNTER.calls < 50


def test_a_stream_that_was_never_read_starts_nothing() -> None:
    with Run() as run:
        unread = run.stream(LONG, Query("q"))
        assert streaming_threads() == 0
        del unread
    assert COUNTER.calls == 0


def test_closing_does_not_wait_for_ever_for_a_step_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PATIENCE_S", 0.05)
    wake = threading.Event()

    @step(waits=True)
    def asleep(query: Query) -> Query:
        wake.wait(20)
        return query

    with Run() as run:
        stream = run.stream(Identity[Query]() >> asleep >> Ask(), Query("q"))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert not wake.is_set()
        wake.set()
        assert until(lambda: streaming_threads() == 0)
    assert COUNTER.calls == 0


def test_a_closer_that_fails_leaves_the_others_and_the_cancelling_alone() -> None:
    cancelled = threading.Event()

    def refuses() -> None:
        raise OSError("closed already")

    @step(waits=True)
    def first(query: Query) -> Query:
        with on_cancel(refuses):
            assert cancelled.wait(600)
            raise ModelUnavailable("the socket was closed")

    @step(waits=True)
    def second(query: Query) -> Query:
        with on_cancel(cancelled.set):
            assert cancelled.wait(600)
            return query

    with Run(threads=3) as run:
        threading.Timer(0.05, run.cancel).start()
        with pytest.raises(Cancelled):
            Branch(first, second, min_arms=1).batch([Query("q")])


def test_what_fails_because_it_was_closed_is_no_failed_row() -> None:
    cancelled = threading.Event()

    @step(waits=True)
    def blocked(query: Query) -> Query:
        with on_cancel(cancelled.set):
            assert cancelled.wait(600)
            raise ModelUnavailable("the socket was closed")

    with Run(threads=1) as run:
        threading.Timer(0.05, run.cancel).start()
        with pytest.raises(Cancelled):
            Guard(blocked, fallback=Identity()).batch([Query("q"), Query("r")])


def test_what_waits_is_closed_once() -> None:
    closed: list[int] = []
    with Run() as run:
        with on_cancel(lambda: closed.append(1)):
            run.cancel()
            run.cancel()
        with on_cancel(lambda: closed.append(2)):
            pass
    assert closed == [1, 2]


def test_an_interrupt_stops_the_threads_and_reaches_the_caller() -> None:
    @step(waits=True)
    def interrupted(query: Query) -> Query:
        time.sleep(0.02)
        raise KeyboardInterrupt

    run = Run(threads=3)
    with pytest.raises(KeyboardInterrupt), run:
        Branch(interrupted, LONG, LONG, LONG)(Query("q"))
    assert COUNTER.now == 0
    assert COUNTER.calls < 100
    with pytest.raises(Cancelled):
        run(Ask(), Query("q"))


def test_several_threads_share_a_run() -> None:
    run, wrong = Run(principal="ann", threads=4), []
    entered = threading.Barrier(6)

    def ask(n: int) -> None:
        try:
            entered.wait(10)
            with run, run:
                assert access() == {"ann"}
                assert Branch(Ask(), Ask("b"))(Query(str(n)))[1].text == f"{n}b"
                time.sleep(0.01 * (n % 3))
            assert access() == frozenset()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert run.usage.calls == 12
    assert run._pool is None


def test_a_run_goes_on_after_it_was_closed() -> None:
    with Run(threads=3) as run:
        assert run(Branch(Ask(), Ask("b")), Query("q"))[0].text == "qa"
    assert list(run.stream(Branch(Ask(), Ask("b")), Query("q")))[-1] == Done((Query("qa", "q"), Query("qb", "q")))
    run.close()


def test_a_run_inside_a_run_has_its_own_rights_and_costs() -> None:
    @step
    def inner(query: Query) -> Query:
        with Run(principal="bob", budget=Budget(calls=1)) as own:
            query_given = Ask()(query)
            with pytest.raises(BudgetSpent):
                Ask()(query)
        assert own.actual_usage.calls == 1
        assert access() == {"ann"}
        return query_given

    with Run(principal="ann", budget=Budget(calls=0)) as outer:
        assert inner(Query("q")).text == "qa"
    assert outer.actual_usage == Usage()


# -------------------------------------------------------------------------------------------------------- finality


@step
def again(answer: Answer) -> Ranking:
    assert answer.evidence is not None
    return answer.evidence


def test_a_step_that_stands_twice_is_final_only_where_it_is_last() -> None:
    say = Say()
    flow = Search() >> say >> again >> say
    assert flow == Search() >> Say() >> again >> Say()
    with Run() as run:
        *events, last = run.stream(flow, Query("ab"))
    assert [event.final for event in events if isinstance(event, Emitted)] == [False, False, True, True]
    assert isinstance(last, Done)
    assert final(events) == last.value.text


@dataclass(frozen=True)
class Draft(State):
    text: str = ""


@dataclass(frozen=True)
class Write(Operator[Draft, Draft]):
    """Sends a word and adds it; the budget may refuse the second half of it."""

    calls_each: int = 2
    waits: ClassVar[bool] = True

    def apply(self, value: Draft, /) -> Draft:
        word = ""
        for part in "ab"[: self.calls_each]:
            with reserve(Usage(calls=1)):
                emit(part)
                word += part
        return value.but(text=value.text + word)


@pytest.mark.parametrize("calls", range(1, 9))
def test_what_a_loop_sends_is_what_it_gives_also_when_the_budget_ends_it(calls: int) -> None:
    with Run(budget=Budget(calls=calls)) as run:
        *events, last = run.stream(Loop(Write(), max_steps=3, appends=True), Draft())
    assert isinstance(last, Done)
    assert final(events) == last.value.text
    assert last.value.stop == ("cap" if calls > 6 else "budget")


def test_a_failed_step_takes_back_what_it_sent() -> None:
    @step
    def breaks(query: Query) -> Query:
        emit("half")
        raise ModelUnavailable("gone")

    events: list[Any] = []
    with Run() as run:
        with pytest.raises(ModelUnavailable):
            events.extend(event for event in _note_events(run.stream(breaks, Query("q")), events))
        assert final(events) == ""
        assert any(isinstance(event, Retracted) for event in events)
        events = list(run.stream(Guard(Guard(breaks), fallback=Identity()), Query("q")))
    assert final(events) == ""
    assert sum(event.characters for event in events if isinstance(event, Retracted)) == 4


def _note_events(stream: Iterator[Any], events: list[Any]) -> Iterator[Any]:
    for event in stream:
        events.append(event)
    yield from ()


def test_a_batch_reports_no_row_as_failed_when_it_was_cancelled() -> None:
    @dataclass(frozen=True)
    class Sends(Operator[Query, Query]):
        def apply(self, value: Query, /) -> Query:
            return value

        def apply_batch(self, values: Any, /) -> list[Query | Failure]:
            run.cancel()
            raise ModelUnavailable("the socket was closed")

    with Run() as run, pytest.raises(Cancelled):
        Sends().batch([Query("q"), Query("r")])
