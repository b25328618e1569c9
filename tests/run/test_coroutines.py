"""Flows awaited: many at the same time, cancelled in the middle, read slowly, failing, entered here and left there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.combinators import Branch, Each
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import Done, Emitted, access, check_cancelled, emit, on_cancel
from spolia.errors import Cancelled, ModelUnavailable, SpoliaError, WiringError
from spolia.models.http.chat import ChatModel
from spolia.run import Budget, Run
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Answer, Failure, Message, Prompt, Query, Ranking
from tests.run.flows import COUNTER, Ask, Down, Glue, Say, Search, Sleep, flows, outcome, queries

REQUEST: ContextVar[str] = ContextVar("request", default="none")


@pytest.fixture(autouse=True)
def fresh() -> None:
    COUNTER.reset()


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


async def outcome_of(awaited: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await awaited
    except Exception as error:
        return type(error).__name__


async def last_of(events: AsyncIterator[Any]) -> Any:
    return [event async for event in events][-1].value


@pytest.mark.slow
@settings(max_examples=40)
@given(flow=flows(), asked=queries())
def test_awaited_and_plain_runs_give_equal_results(flow: Operator[Query, Query], asked: list[Query]) -> None:
    async def awaited() -> tuple[list[Any], list[Any], Any]:
        with Run(threads=3):
            single = await asyncio.gather(*(outcome_of(flow.acall(query)) for query in asked))
            return list(single), await flow.abatch(asked), await outcome_of(last_of(flow.astream(asked[0])))

    with Run():
        plain = [outcome(lambda query=query: flow(query)) for query in asked]  # type: ignore[misc]
        expected = plain, flow.batch(asked), plain[0]
    assert asyncio.run(awaited()) == expected


@pytest.mark.slow
@settings(max_examples=15)
@given(cancelled=st.dictionaries(st.integers(0, 39), st.floats(0, 0.02), max_size=40), threads=st.integers(1, 9))
def test_tasks_cancelled_at_any_time_leave_the_others_alone(cancelled: dict[int, float], threads: int) -> None:
    flow = Sleep(0.001) >> Branch(Ask("a"), Sleep(0.002) >> Ask("b")) >> Glue()

    async def main() -> list[Any]:
        with Run(threads=threads) as run:
            tasks = [asyncio.create_task(flow.acall(Query(str(number)))) for number in range(40)]
            for number, delay in cancelled.items():
                asyncio.get_running_loop().call_later(delay, tasks[number].cancel)
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert run.scope.inner == ()
            assert not run.scope.stopped
        return outcomes

    for number, ended in enumerate(asyncio.run(main())):
        if not (number in cancelled and isinstance(ended, asyncio.CancelledError)):
            assert ended == Query(f"{number}a+{number}b", str(number))
    assert COUNTER.now == 0


def test_200_questions_at_the_same_time_each_with_its_own_context_and_cost() -> None:
    @step(waits=True)
    def told(query: Query) -> Query:
        time.sleep(0.005)
        return query.rewritten(f"{query.text} {REQUEST.get()} {sorted(access())}")

    flow = told >> Branch(Ask("a"), Ask("b"))

    async def ask(number: int) -> bool:
        REQUEST.set(f"request {number}")
        first, _ = await flow.acall(Query(str(number)))
        return first.text == f"{number} request {number} ['ann']a"

    async def main() -> tuple[list[bool], Run]:
        with Run(principal="ann", per_question=Budget(calls=2), threads=16) as run:
            return await asyncio.gather(*map(ask, range(200))), run

    right, run = asyncio.run(main())
    assert all(right)
    assert run.usage.calls == 400
    assert COUNTER.most < 16  # the event loop's thread is one of them
    assert run.scope.inner == ()


@pytest.mark.slow
def test_the_loop_goes_on_while_a_flow_works() -> None:
    async def main() -> int:
        with Run():
            task, turns = asyncio.create_task(Sleep(0.2).acall(Query("q"))), 0
            while not task.done():
                turns += 1
                await asyncio.sleep(0.005)
            return turns

    assert asyncio.run(main()) > 5


def test_one_thread_is_enough() -> None:
    async def main() -> list[Any]:
        with Run(threads=1):
            return await asyncio.gather(*(Branch(Ask("a"), Ask("b")).acall(Query(str(n))) for n in range(20)))

    assert [first.text for first, _ in asyncio.run(main())] == [f"{n}a" for n in range(20)]


@pytest.mark.slow
def test_cancelling_a_task_stops_its_own_work_and_no_other() -> None:
    begun, cancelled, ended = threading.Event(), threading.Event(), threading.Event()

    @step(waits=True)
    def blocked(query: Query) -> Query:
        with on_cancel(cancelled.set):
            begun.set()
            assert cancelled.wait(600)
        try:
            check_cancelled()
        finally:
            ended.set()
        return query

    async def main() -> Query:
        with Run() as run:
            task = asyncio.create_task((blocked >> Ask()).acall(Query("q")))
            other_task = asyncio.create_task((Sleep(0.1) >> Ask("b")).acall(Query("r")))
            await asyncio.to_thread(begun.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set(), "the work has ended when the task has"
            assert not run.scope.stopped
            return await other_task

    assert asyncio.run(main()).text == "rb"
    assert COUNTER.seen == ["r", "r"]  # Sleep and Ask; nothing after the blocked step


@pytest.mark.slow
def test_cancelling_closes_the_socket_that_a_model_waits_for() -> None:
    @step(waits=True)
    def reply(query: Query) -> str:
        return model.generate(Prompt((Message("user", query.text),))).text

    async def main() -> None:
        with Run():
            async with asyncio.timeout(0.5):
                await reply.acall(Query("q"))

    with OpenAIServer(ServedReply(wait_s=3_600)) as server:  # a socket that stays open ends the test by its limit
        model = ChatModel("any", server.url)
        with pytest.raises(TimeoutError):
            asyncio.run(main())


@pytest.mark.slow
def test_what_waits_for_a_thread_is_never_begun_after_it_was_cancelled() -> None:
    async def main() -> None:
        with Run(threads=2):
            first = asyncio.create_task(Sleep(0.1).acall(Query("first")))
            tasks = [asyncio.create_task(Ask().acall(Query(str(n)))) for n in range(10)]
            await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            assert (await first).text == "first"

    asyncio.run(main())
    assert COUNTER.seen == ["first"]


def test_cancelling_the_run_ends_what_is_awaited() -> None:
    async def main() -> None:
        with Run() as run:
            task = asyncio.create_task((Sleep(0.05) >> Sleep(0.05) >> Ask()).acall(Query("q")))
            await asyncio.sleep(0.02)
            run.cancel()
            await task

    with pytest.raises(Cancelled):
        asyncio.run(main())
    assert COUNTER.calls < 3


def test_a_task_that_is_cancelled_leaves_a_shared_run_to_the_others() -> None:
    async def ask(run: Run, number: int) -> Query:
        with run:
            return await (Sleep(0.03) >> Ask()).acall(Query(str(number)))

    async def main() -> list[Any]:
        run = Run()
        tasks = [asyncio.create_task(ask(run, number)) for number in range(4)]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(main())
    assert isinstance(outcomes.pop(1), asyncio.CancelledError)
    assert [query.text for query in outcomes] == ["0a", "2a", "3a"]


def test_errors_are_raised_where_they_are_awaited_and_rows_fail_alone() -> None:
    async def main() -> list[Query | Failure]:
        with Run():
            with pytest.raises(ModelUnavailable, match="down for x"):
                await Down("x").acall(Query("x"))
            with pytest.raises(ModelUnavailable, match="down for x"):
                async for _ in Down("x").astream(Query("x")):
                    pass
            return await (Down("x") >> Ask()).abatch([Query("a"), Query("x"), Query("b")])

    first, failed, last = asyncio.run(main())
    assert isinstance(failed, Failure)
    assert (first, last) == (Query("aa", "a"), Query("ba", "b"))


@pytest.mark.slow
def test_a_slow_reader_slows_the_flow() -> None:
    count = 0

    @step(waits=True)
    def talks(query: Query) -> Answer:
        nonlocal count
        for count in range(1, 2001):  # noqa: B007
            emit("x")
        return Answer("x" * 2000)

    async def main() -> tuple[int, str]:
        with Run():
            events = talks.astream(Query("q"))
            text, ahead = "", 0
            async for event in events:
                if isinstance(event, Emitted):
                    text += event.text
                    if len(text) % 400 == 0:
                        await asyncio.sleep(0.02)
                    ahead = max(ahead, count - len(text))
            assert isinstance(event, Done)
        return ahead, text

    ahead, text = asyncio.run(main())
    assert ahead < 260
    assert text == "x" * 2000


@pytest.mark.slow
def test_a_stream_has_one_thread_and_ends_with_its_reader() -> None:
    flow: Operator[Query, Query] = Ask("a")
    for _ in range(50):
        flow = flow >> Sleep(0.005) >> Ask("a")

    def threads() -> int:
        return sum(thread.name == "spolia-stream" for thread in threading.enumerate())

    async def read(count: int) -> int:
        pieces = 0
        async for _ in flow.astream(Query("q")):
            pieces += 1
            if pieces == count:
                break
        return pieces

    async def main() -> None:
        with Run() as run:
            reading = [asyncio.create_task(read(20)) for _ in range(5)]
            await asyncio.sleep(0.02)
            assert threads() == 5
            await asyncio.gather(*reading)
            assert run._pool is None
            task = asyncio.create_task(read(1000))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert until(lambda: threads() == 0)
    assert COUNTER.calls < 300


def test_tokens_arrive_as_they_are_sent() -> None:
    async def main() -> list[Any]:
        with Run() as run:
            return [event async for event in run.astream(Search() >> Say(), Query("ab"))]

    *events, last = asyncio.run(main())
    assert [event.text for event in events if isinstance(event, Emitted)] == ["aaa", "bbb"]
    assert isinstance(last, Done)


def test_a_stream_whose_loop_is_gone_stops() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> Any:
        with Run():
            events = (Sleep(0.05) >> Ask() >> Sleep(0.05) >> Ask()).astream(Query("q"))
            await anext(events)
            return events

    events = loop.run_until_complete(begin())
    loop.close()  # without ending what is open
    assert until(lambda: not any(thread.name == "spolia-stream" for thread in threading.enumerate()))
    assert COUNTER.calls < 3
    asyncio.run(events.aclose())


def test_awaiting_needs_a_run_and_a_value_of_the_right_type() -> None:
    with pytest.raises(SpoliaError, match=r"needs a run. Write: with Run\(\)"):
        asyncio.run(Ask().acall(Query("q")))
    with pytest.raises(SpoliaError, match=r"needs a run. Write: with Run\(\)"):
        Ask().astream(Query("q"))

    async def main() -> None:
        with Run():
            await Ask().acall("why?")  # type: ignore[arg-type]

    with pytest.raises(WiringError, match=r"Write Query\('why\?'\)"):
        asyncio.run(main())


def in_thread(call: Callable[[], Any]) -> Any:
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(outcome(call)))
    thread.start()
    thread.join(600)
    return outcomes[0]


def test_a_run_is_entered_in_one_thread_pulled_from_others_and_left_in_a_third() -> None:
    @step
    def told(query: Query) -> Query:
        return query.rewritten(f"{REQUEST.get()} {sorted(access())}")

    run, events = Run(principal="ann"), []

    def enter() -> Any:
        REQUEST.set("request 7")
        run.__enter__()
        return (told >> Search() >> Say()).stream(Query("q"))

    stream = in_thread(enter)
    while (event := in_thread(lambda: next(stream, None))) is not None:
        events.append(event)
    assert isinstance(events[-1], Done)
    evidence = events[-1].value.evidence
    assert isinstance(evidence, Ranking)
    assert evidence.query.text == "request 7 ['ann']"
    assert in_thread(lambda: run.__exit__(None, None, None)) is None
    assert run._pool is None


def test_where_a_run_was_entered_that_was_left_elsewhere_nobody_has_its_rights() -> None:
    @step
    def told(query: Query) -> Query:
        return query.rewritten(f"{sorted(access())}")

    run, context = Run(principal="ann"), copy_context()
    context.run(run.__enter__)
    assert context.run(told, Query("q")).text == "['ann']"
    run.__exit__(None, None, None)
    assert context.run(access) == frozenset()
    assert context.run(told, Query("q")).text == "[]"
    assert context.run(told.batch, [Query("q")])[0].text == "[]"  # type: ignore[union-attr]
    assert run(told, Query("q")).text == "['ann']"
    with run:
        assert told(Query("q")).text == "['ann']"


def test_leaving_a_run_where_it_was_not_entered_changes_nothing_there() -> None:
    run, other_run = Run(principal="ann"), Run(principal="bob")
    context = copy_context()
    context.run(run.__enter__)
    with other_run:
        run.__exit__(None, None, None)
        assert access() == {"bob"}
        with run:
            assert access() == {"ann"}
        assert access() == {"bob"}
    assert access() == frozenset()


@step
def awaiting(number: int) -> list[int]:
    """Awaits other steps, as asynchronous code inside a step does."""

    async def gather_both() -> list[int]:
        return await asyncio.gather(*(counted.acall(count) for count in (number, number + 1)))

    return asyncio.run(gather_both())


@step
def counted(number: int) -> int:
    with COUNTER.counted("step"):
        time.sleep(0.002)
    return number


@step
def twice_removed(number: int) -> list[int]:
    return asyncio.run(awaiting.acall(number))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_steps_that_await_steps_go_on_where_all_threads_wait(threads: int) -> None:
    expected = [[number, number + 1] for number in range(12)]

    async def main(run: Run) -> list[list[int]]:
        with run:
            return await asyncio.gather(*(twice_removed.acall(number) for number in range(12)))

    def work() -> None:
        ended.append(asyncio.run(main(Run(threads=threads))))
        with Run(threads=threads):
            ended.append(Each(twice_removed)(tuple(range(12))))

    ended: list[Any] = []
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(600)
    assert [list(map(list, rows)) for rows in ended] == [expected, expected]
    assert COUNTER.most <= threads


def test_a_step_that_stops_awaiting_a_step_goes_on() -> None:
    @step
    def impatient(number: int) -> str:
        async def main() -> str:
            tasks = [asyncio.create_task(endless.acall(error)) for error in range(3)]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            return " ".join(type(error).__name__ for error in ended)

        return asyncio.run(main())

    @step
    def endless(number: int) -> int:
        while True:
            check_cancelled()
            time.sleep(0.002)

    with Run(threads=2):
        assert impatient(1) == "CancelledError CancelledError CancelledError"


def test_a_step_that_asks_an_empty_iterator_for_its_next_item_fails_and_does_not_hang() -> None:
    @step
    def first(query: Query) -> Query:
        return next(iter(()))

    async def ask_first() -> Any:
        with Run():
            return await asyncio.wait_for(first.acall(Query("q")), 10)

    with pytest.raises(RuntimeError, match=r"A step raised StopIteration\(\)\.\n(?s:.*)In the step first"):
        asyncio.run(ask_first())
