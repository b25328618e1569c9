"""Cancelling and streaming: a scope that can be stopped, a bounded queue of events, one thread between them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from spolia.core.run_context import Done, Event
from spolia.deferred import logging

PATIENCE_S = 5.0


class Scope:
    """Group of work that is stopped together; stopping it stops inner scopes and closes what they wait for."""

    __slots__ = ("_closers", "_inner", "_lock", "stopped")

    def __init__(self, outer: Scope | None = None) -> None:
        self.stopped = False
        self._lock = threading.RLock()  # a stream that is collected as garbage may cancel in any place
        self._closers: list[Callable[[], None]] = []
        self._inner: list[Scope] = []
        if outer is not None:
            outer.adopt(self)

    @property
    def inner(self) -> tuple[Scope, ...]:
        """Return the scopes inside that have not been stopped."""
        return tuple(scope for scope in self._inner if not scope.stopped)

    def adopt(self, inner: Scope) -> None:
        """Stop `inner` whenever this scope is stopped."""
        with self._lock:
            stopped = self.stopped
            if not stopped:
                self._inner = [scope for scope in self._inner if not scope.stopped] + [inner]
        if stopped:
            inner.cancel()

    def add(self, close: Callable[[], None]) -> None:
        """Call `close` when this scope is stopped; immediately if it already is."""
        with self._lock:
            stopped = self.stopped
            if not stopped:
                self._closers.append(close)
        if stopped:
            _close(close)

    def remove(self, close: Callable[[], None]) -> None:
        """Forget a `close` whose resource has ended."""
        with self._lock:
            if close in self._closers:
                self._closers.remove(close)

    def cancel(self) -> None:
        """Stop: the next step raises `Cancelled`, and what waits is closed."""
        with self._lock:
            self.stopped = True
            closers, self._closers = self._closers, []
            inner, self._inner = self._inner, []
        for close in closers:
            _close(close)
        for scope in inner:
            scope.cancel()


def _close(close: Callable[[], None]) -> None:
    """Close a waiting resource. One that cannot be closed must not keep the others open."""
    try:
        close()
    except Exception:
        logging.getLogger(__name__).warning("A waiting resource could not be closed on cancelling.", exc_info=True)


class Sink:
    """Bounded queue of events, so that a slow reader slows the flow. `wake` is called once, after the next event."""

    __slots__ = ("_queue", "closed", "size", "wake")

    def __init__(self, size: int = 256) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.size, self.closed = size, False
        self.wake: Callable[[], None] | None = None

    def send(self, event: Any) -> None:
        """Queue an event; wait for room, and give up when nobody reads any more."""
        wait_s = 0.001
        while self._queue.qsize() >= self.size and not self.closed:
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 0.1)
        if self.closed:
            return
        self._queue.put(event)
        wake, self.wake = self.wake, None
        if wake is not None:
            wake()

    def get(self) -> Any:
        """Return the next event."""
        return self._queue.get()

    def ready(self) -> list[Any]:
        """Return the events that are there."""
        return [self._queue.get() for _ in range(self._queue.qsize())]

    def close(self) -> None:
        """Stop queuing: nobody reads any more, and a waiting writer goes on."""
        self.closed = True


class WorkFailed:
    """Last event of work that failed."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def run_and_report(work: Callable[[], Any], sink: Sink) -> None:
    """Do the work, and send `Done`, or what it raised, last."""
    try:
        sink.send(Done(work()))
    except BaseException as error:
        sink.send(WorkFailed(error))


def start_thread(run: Callable[[], None]) -> threading.Thread:
    """Start a thread of its own."""
    thread = threading.Thread(target=run, name="spolia-stream", daemon=True)
    thread.start()
    return thread


class Forked(Protocol):
    """Frame that makes one in its place, whose work is stopped by itself."""

    @property
    def scope(self) -> Scope: ...
    def fork(self, scope: Scope, sink: Sink | None = None) -> Self: ...


F = TypeVar("F", bound=Forked)


def stream_events(frame: F, work: Callable[[F], Any], context: Context) -> Iterator[Event]:
    """Run `work` in a thread and yield its events, `Done` last, to any thread; closing stops the work."""
    scope, sink = Scope(frame.scope), Sink()
    thread = start_thread(partial(context.run, run_and_report, lambda: work(frame.fork(scope, sink)), sink))
    try:
        while True:
            event = sink.get()
            if isinstance(event, WorkFailed):
                raise event.error
            yield event
            if isinstance(event, Done):
                return
    finally:
        scope.cancel()
        sink.close()
        if thread is not threading.current_thread():
            thread.join(PATIENCE_S)  # not for ever: it may sleep, or wait for this very thread
