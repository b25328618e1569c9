"""Awaiting a run: the event loop waits while threads of the run work."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import aclosing
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from spolia.core.run_context import Done, Event
from spolia.errors import Cancelled
from spolia.run.stream import PATIENCE_S, Scope, Sink, WorkFailed, run_and_report, start_thread

if TYPE_CHECKING:
    from spolia.run.step_frame import StepFrame

T = TypeVar("T")
MAX_UNREAD = 256
"""Events, at most; then the flow waits for its reader."""
PULSE_S = 0.01
"""Between two wakings of a loop in which many streams share one."""
Wake: TypeAlias = "Callable[[asyncio.Future[None]], None]"


class Pulse:
    """Alarm that wakes all waiting readers of a loop together, since waking a loop costs more than what it then does.

    Threads call it with the future that somebody awaits. The first one wakes the loop; as long as others follow, it
    then wakes by itself after each `PULSE_S`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._waiting = loop, deque[asyncio.Future[None]]()
        self._next: asyncio.TimerHandle | None = None

    def __call__(self, arrival: asyncio.Future[None]) -> None:
        self._waiting.append(arrival)
        if self._next is None:
            self.loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._next is None:
            self._wake()

    def _wake(self) -> None:
        self._next = None  # first: who comes from now on starts it again, or is woken now
        if self._waiting:
            self._next = self.loop.call_later(PULSE_S, self._wake)
        while self._waiting:
            _set_arrival(self._waiting.popleft())


async def await_work(frame: StepFrame, work: Callable[[StepFrame], T]) -> T:
    """Return what `work` returns in a thread of the run; cancelling stops it and waits at most `PATIENCE_S`."""
    scope = Scope()

    def run() -> T:
        frame.scope.adopt(scope)
        try:
            return work(frame.fork(scope))
        except StopIteration as error:  # which no future can carry
            raise RuntimeError("\n".join((f"A step raised {error!r}.", *getattr(error, "__notes__", ())))) from error
        finally:
            scope.cancel()  # it is empty now, and the outer scope drops it

    context = copy_context()
    is_inside = frame.op is not None
    pool = frame.borrow_thread() if is_inside and frame.run.threads == 1 else frame.run.workers()
    future_of_run: Future[T] = pool.submit(context.run, run)
    works: list[Future[Any]] = [future_of_run]
    if is_inside:  # the thread of a step that waits goes to what it waits for, if no other is free
        works.append(frame.borrow_thread().submit(lambda: context.run(run) if future_of_run.cancel() else None))
    current_future, *spare_futures = map(asyncio.wrap_future, works)
    for future in (current_future, *spare_futures):
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # a late error is not logged
    try:
        await asyncio.wait([current_future])
        if spare_futures and current_future.cancelled():
            current_future = spare_futures[0]
            await asyncio.wait([current_future])
    except asyncio.CancelledError:
        scope.cancel()
        if [work for work in works if not work.cancel()]:
            await asyncio.wait([current_future, *spare_futures], timeout=PATIENCE_S)
        raise
    if current_future.cancelled():
        raise Cancelled("The run was closed while this call waited for a thread. Await it inside `with Run():`.")
    result: T = current_future.result()
    return result


async def astream_events(frame: StepFrame, work: Callable[[StepFrame], Any], context: Context) -> AsyncIterator[Event]:
    """Stream events to an event loop, as `stream_events`; the thread waits while `MAX_UNREAD` events are unread."""
    loop = asyncio.get_running_loop()

    def wake(arrival: asyncio.Future[None]) -> None:
        loop.call_soon_threadsafe(_set_arrival, arrival)

    async with aclosing(event_batches(frame, work, context, start_thread, wake)) as batches:
        async for batch in batches:
            for event in batch:
                yield event


async def event_batches(
    frame: StepFrame,
    work: Callable[[StepFrame], Any],
    context: Context,
    start: Callable[[Callable[[], None]], Any],
    wake: Wake,
) -> AsyncGenerator[list[Event], None]:
    """Stream a flow's events in batches of all that are ready. `start` has a thread do the work, which calls `wake`."""
    scope, sink, loop = Scope(frame.scope), Sink(MAX_UNREAD // 2), asyncio.get_running_loop()  # as many are in a lot
    ended = threading.Event()

    def run() -> None:
        try:
            context.run(run_and_report, lambda: work(frame.fork(scope, sink)), sink)
        finally:
            ended.set()

    def wake_reader(arrival: asyncio.Future[None]) -> None:
        try:
            wake(arrival)
        except RuntimeError:  # the loop is closed, so nobody reads any more
            sink.close()
            scope.cancel()

    start(run)
    arrival, has_waited = loop.create_future(), True
    sink.wake = partial(wake_reader, arrival)
    try:
        while True:
            if arrival.done():
                arrival = loop.create_future()
                # Set while the reader is busy, too: it tells whether the loop is there.
                sink.wake = partial(wake_reader, arrival)
            if not (ready := sink.ready()):
                await arrival
                has_waited = True
                continue
            if not has_waited:
                await asyncio.sleep(0)  # let other tasks run, however fast events come
            has_waited, last = False, ready[-1]
            if isinstance(last, WorkFailed):
                ready.pop()
            if isinstance(last, (Done, WorkFailed)):
                ended.set()
            if ready:
                yield ready
            if isinstance(last, WorkFailed):
                raise last.error
            if isinstance(last, Done):
                return
    finally:
        scope.cancel()
        sink.close()
        end = loop.time() + PATIENCE_S
        while not ended.is_set() and loop.time() < end:
            await asyncio.sleep(0.005)


def _set_arrival(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)
