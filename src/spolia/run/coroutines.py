"""Awaiting a run: the event loop waits, threads of the run work."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from spolia.core.run_context import Done, Event
from spolia.errors import Cancelled
from spolia.run.stream import PATIENCE_S, Raised, Scope, Sink, started

if TYPE_CHECKING:
    from spolia.run.frame import Frame

T = TypeVar("T")


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
    """As `streamed`, for an event loop: the thread waits while 256 events are unread."""
    scope, sink, arrived = Scope(frame.scope), Sink(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(arrived.set)
        except RuntimeError:  # the loop is closed, so nobody reads any more
            sink.close()
            scope.cancel()

    sink.wake = wake
    thread = started(lambda: work(frame.aside(scope, sink)), sink, context)
    try:
        while True:
            await asyncio.sleep(0)  # let other tasks run, however fast events come
            arrived.clear()
            try:
                event = sink.get(wait=False)
            except queue.Empty:
                await arrived.wait()
                continue
            if isinstance(event, Raised):
                raise event.error
            yield event
            if isinstance(event, Done):
                return
    finally:
        scope.cancel()
        sink.close()
        end = loop.time() + PATIENCE_S
        while thread.is_alive() and loop.time() < end:
            await asyncio.sleep(0.005)
