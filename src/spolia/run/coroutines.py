"""Awaiting a run: the event loop waits, threads of the run work."""

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
from spolia.run.stream import PATIENCE_S, Raised, Scope, Sink, in_thread, told

if TYPE_CHECKING:
    from spolia.run.frame import Frame

T = TypeVar("T")
UNREAD = 256
"""Events, at most; then the flow waits for its reader."""
PULSE_S = 0.01
"""Between two wakings of a loop in which many streams share one."""
Wake: TypeAlias = "Callable[[asyncio.Future[None]], None]"


class Pulse:
    """Wakes those that wait in a loop together, not each by itself: waking the loop costs more than what it then does.

    Threads call it with the future that somebody awaits. The first one wakes the loop; as long as others follow, it
    then wakes by itself after each `PULSE_S`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._waiting = loop, deque[asyncio.Future[None]]()
        self._next: asyncio.TimerHandle | None = None

    def __call__(self, arrived: asyncio.Future[None]) -> None:
        self._waiting.append(arrived)
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
            _arrive(self._waiting.popleft())


async def awaited(frame: Frame, work: Callable[[Frame], T]) -> T:
    """What `work` returns in a thread of the run; cancelling stops it and waits `PATIENCE_S` for its step at most."""
    scope = Scope()

    def run() -> T:
        frame.scope.adopt(scope)
        try:
            return work(frame.aside(scope))
        except StopIteration as error:  # which no future can carry
            raise RuntimeError("\n".join((f"A step raised {error!r}.", *getattr(error, "__notes__", ())))) from error
        finally:
            scope.cancel()  # it is empty now, and the outer scope drops it

    context = copy_context()
    is_inside = frame.op is not None
    pool = frame.lent() if is_inside and frame.run.threads == 1 else frame.run.workers()
    submitted: Future[T] = pool.submit(context.run, run)
    works: list[Future[Any]] = [submitted]
    if is_inside:  # the thread of a step that waits goes to what it waits for, if no other is free
        works.append(frame.lent().submit(lambda: context.run(run) if submitted.cancel() else None))
    running, *lent = map(asyncio.wrap_future, works)
    for one in (running, *lent):
        one.add_done_callback(lambda done: done.cancelled() or done.exception())  # a late error is not logged
    try:
        await asyncio.wait([running])
        if lent and running.cancelled():
            running = lent[0]
            await asyncio.wait([running])
    except asyncio.CancelledError:
        scope.cancel()
        if [work for work in works if not work.cancel()]:
            await asyncio.wait([running, *lent], timeout=PATIENCE_S)
        raise
    if running.cancelled():
        raise Cancelled("The run was closed while this call waited for a thread. Await it inside `with Run():`.")
    found: T = running.result()
    return found


async def events(frame: Frame, work: Callable[[Frame], Any], context: Context) -> AsyncIterator[Event]:
    """As `streamed`, for an event loop: the thread waits while `UNREAD` events are unread."""
    loop = asyncio.get_running_loop()

    def wake(arrived: asyncio.Future[None]) -> None:
        loop.call_soon_threadsafe(_arrive, arrived)

    async with aclosing(lots(frame, work, context, in_thread, wake)) as found:
        async for lot in found:
            for event in lot:
                yield event


async def lots(
    frame: Frame, work: Callable[[Frame], Any], context: Context, start: Callable[[Callable[[], None]], Any], wake: Wake
) -> AsyncGenerator[list[Event], None]:
    """As `events`, in lots: all events that are ready. `start` has a thread do the work, which calls `wake`."""
    scope, sink, loop = Scope(frame.scope), Sink(UNREAD // 2), asyncio.get_running_loop()  # as many are in a lot
    ended = threading.Event()

    def run() -> None:
        try:
            context.run(told, lambda: work(frame.aside(scope, sink)), sink)
        finally:
            ended.set()

    def woken(arrived: asyncio.Future[None]) -> None:
        try:
            wake(arrived)
        except RuntimeError:  # the loop is closed, so nobody reads any more
            sink.close()
            scope.cancel()

    start(run)
    arrived, has_waited = loop.create_future(), True
    sink.wake = partial(woken, arrived)
    try:
        while True:
            if arrived.done():
                arrived = loop.create_future()
                sink.wake = partial(woken, arrived)  # while the reader is busy, too: it tells whether the loop is there
            if not (ready := sink.ready()):
                await arrived
                has_waited = True
                continue
            if not has_waited:
                await asyncio.sleep(0)  # let other tasks run, however fast events come
            has_waited, last = False, ready[-1]
            if isinstance(last, Raised):
                ready.pop()
            if isinstance(last, (Done, Raised)):
                ended.set()
            if ready:
                yield ready
            if isinstance(last, Raised):
                raise last.error
            if isinstance(last, Done):
                return
    finally:
        scope.cancel()
        sink.close()
        end = loop.time() + PATIENCE_S
        while not ended.is_set() and loop.time() < end:
            await asyncio.sleep(0.005)


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
