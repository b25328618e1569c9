"""The place of a step in a run: everything that surrounds it, from the step up to the root.

A frame is made for every step and dropped with it, so this file is written for speed: slots, no locks where nothing
is charged, one context variable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from time import perf_counter
from time import time as now
from typing import TYPE_CHECKING, Any, TypeVar

from spolia.errors import BudgetSpent, Cancelled
from spolia.journal.trace import FREE
from spolia.operator import Operator
from spolia.run.budget import Budget, Limiter
from spolia.run.recall import Rows, recalled
from spolia.run.stream import Scope, Sink, streamed
from spolia.surrounding import Began, Emitted, Reservation, Retracted, attempt, surrounding
from spolia.types import Failure, Usage

if TYPE_CHECKING:
    from spolia.run.run import Run

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Frame:
    """What surrounds one step; implements `spolia.operator.Surrounding`."""

    __slots__ = (
        "emitted", "error", "final", "from_cache", "lane", "limiters", "logical", "notes", "op", "optional", "parent",
        "remarks", "rows", "run", "scope", "sink", "span", "spent",
    )  # fmt: skip

    def __init__(self, run: Run, parent: Frame | None, op: Operator[Any, Any] | None) -> None:
        self.run, self.parent, self.op = run, parent, op
        self.span = 0
        self.logical: Usage | None = None
        self.spent: Usage | None = None
        self.notes: list[str] | None = None
        self.remarks: list[str] | None = None
        self.error = ""
        self.from_cache = False
        self.rows: Sequence[Frame] | None = None
        self.emitted = 0
        self.final: bool | None = None
        if parent is None:
            self.lane = self
            self.limiters: tuple[Limiter, ...] = ()
            self.optional = False
            self.scope: Scope = run.scope
            self.sink: Sink | None = None
            return
        self.limiters, self.scope, self.sink = parent.limiters, parent.scope, parent.sink
        self.optional = parent.optional or (parent.op is not None and parent.op.optional)
        if parent.op is None and parent.lane is parent:
            self.lane = self
            if run.per_question is not None:
                self.limiters += (Limiter(run.per_question, "this question"),)
        else:
            self.lane = parent.lane

    # Steps.

    def step(self, op: Operator[A, B], value: A) -> B:
        run = self.run
        if self.scope.stopped:
            raise Cancelled("The run was cancelled.")
        frame = Frame(run, self, op)
        if frame.sink is not None:
            frame.sink.put(Began(op.short))
        token = surrounding.set(frame)
        if run.journal is None:
            try:
                return frame._result(op, value)
            finally:
                surrounding.reset(token)
        frame.span = next(run.numbers)
        started, out = perf_counter(), None
        try:
            out = frame._result(op, value)
            return out
        except BaseException as error:
            frame.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            surrounding.reset(token)
            frame.record(perf_counter() - started, out)

    def _result(self, op: Operator[A, B], value: A) -> B:
        if op.cached and self.run.cache is not None:
            found: B = recalled(self.run.cache, self, op, value)
            return found
        return op.apply(value)

    def record(self, seconds: float, out: Any) -> None:
        """Leave a span in the journal."""
        journal, op, parent = self.run.journal, self.op, self.parent
        if journal is None or op is None:
            return
        used = self.logical
        cost = FREE if used is None else (
            used.calls, used.input_tokens, used.output_tokens, used.embedded, used.cost_usd
        )  # fmt: skip
        above = parent.span if parent is not None else 0
        lane, said = self.lane.span, [*(self.notes or ()), *(self.remarks or ())]
        notes = json.dumps(said) if said else ""
        head = (self.run.id, self.span, above, lane, op.type_id(), now() - seconds, seconds, self.from_cache)
        journal.record((*head, *cost, self.error, notes, out))

    def batch(self, op: Operator[A, B], values: Sequence[A], rows: Sequence[int] | None) -> list[B | Failure]:
        if self.op is None and self.rows is None:
            size = self.run.window
            windows = (values[start : start + size] for start in range(0, len(values), size))
            return [result for window in windows for result in self._window(op, window, [self] * len(window))]
        above = [self] * len(values) if rows is None or self.rows is None else [self.rows[row] for row in rows]
        return self._window(op, values, above)

    def _window(self, op: Operator[A, B], values: Sequence[A], above: Sequence[Frame]) -> list[B | Failure]:
        """Run one window of rows, each under its own frame."""
        if type(op).apply_batch is Operator.apply_batch:
            steps = [_Step(frame, op, value) for frame, value in zip(above, values, strict=True)]
            return [_named(result, op) for result in self.gather(steps, op.waiting)]
        frames = [Frame(self.run, frame, op) for frame in above]
        if self.run.journal is not None:
            for frame in frames:
                frame.span = next(self.run.numbers)
        started = perf_counter()
        if op.cached and self.run.cache is not None:
            results = Rows(self.run.cache, self, op, values, frames).recalled()
        else:
            results = self.vectorised(op, values, frames)
        seconds = (perf_counter() - started) / max(1, len(values))
        for frame, result in zip(frames, results, strict=True):
            if isinstance(result, Failure):
                frame.error = f"{result.kind}: {result.message}"
            frame.record(seconds, result)
        return results

    def vectorised(self, op: Operator[A, B], values: Sequence[A], frames: Sequence[Frame]) -> list[B | Failure]:
        """One call of `apply_batch`, whose costs go to the frames of the rows."""
        if self.scope.stopped:
            raise Cancelled("The run was cancelled.")
        shared = Frame(self.run, self, op)
        shared.rows = frames
        shared.limiters = tuple(dict.fromkeys(limiter for frame in frames for limiter in frame.limiters))
        token = surrounding.set(shared)
        try:
            results = list(op.apply_batch(values))
        except Exception as error:
            return [Failure.of(error, op.short) for _ in values]
        finally:
            surrounding.reset(token)
        if len(results) != len(values):
            problem = (
                f"{op.short}.apply_batch gave {len(results)} results for {len(values)} values; one for each is due."
            )
            return [Failure("ValueError", problem, op.short) for _ in values]
        return results

    def stream(self, op: Operator[Any, Any], value: Any) -> Iterator[Any]:
        scope, sink = Scope(self.scope), Sink()
        frame = Frame(self.run, self, None)
        frame.lane = frame if self.lane is self and self.op is None else self.lane
        frame.span, frame.limiters = self.span, self.limiters
        frame.scope, frame.sink, frame.final = scope, sink, True
        return streamed(lambda: frame.step(op, value), scope, sink)

    # Threads.

    def gather(self, calls: Sequence[Callable[[], T]], waits: bool) -> list[T | Failure]:
        pool = self.run.pool() if waits and len(calls) > 1 else None
        if pool is None:
            return [attempt(call) for call in calls]
        results: dict[int, T | Failure] = {}
        futures = {
            index: pool.submit(copy_context().run, attempt, call) for index, call in enumerate(calls) if index > 0
        }
        try:
            results[0] = attempt(calls[0])
            for index in reversed(futures):
                if futures[index].cancel():
                    results[index] = attempt(calls[index])
            for index, future in futures.items():
                if index not in results:
                    results[index] = future.result()
        except BaseException:
            _abandon(list(futures.values()), self.scope)
            raise
        return [results[index] for index in range(len(calls))]

    # Costs.

    @contextmanager
    def limited(self, max_calls: int) -> Iterator[None]:
        before = self.limiters
        self.limiters = (*before, Limiter(Budget(calls=max_calls, forced=Usage()), "this Guard"))
        try:
            yield
        finally:
            self.limiters = before

    @contextmanager
    def reserve(self, usage: Usage) -> Iterator[Reservation]:
        limiters = self.limiters
        with self.run.lock:
            for limiter in limiters:
                if why := limiter.refuses(usage, optional=self.optional):
                    raise BudgetSpent(why)
            for limiter in limiters:
                limiter.held += usage
        held = Held(Usage(calls=usage.calls))
        try:
            yield held
        finally:
            with self.run.lock:
                for limiter in limiters:
                    limiter.held -= usage
            self.charge(held.spent, None)

    def charge(self, usage: Usage, row: int | None) -> None:
        frame = self if row is None or self.rows is None else self.rows[row]
        with self.run.lock:
            frame.pay(usage)
            frame.add(usage, usage)

    def pay(self, usage: Usage) -> None:
        """Take a cost from the budgets that it falls under. The caller holds the lock."""
        if self.rows is not None:
            for row, share in zip(self.rows, _split(usage, len(self.rows)), strict=True):
                row.pay(share)
            return
        for limiter in self.limiters:
            limiter.spent += usage

    def add(self, logical: Usage, spent: Usage) -> None:
        """Let a cost climb to the root; that of a whole batch is split among its rows. The caller holds the lock."""
        frame: Frame | None = self
        while frame is not None:
            if frame.rows is not None:
                n = len(frame.rows)
                for row, part, real in zip(frame.rows, _split(logical, n), _split(spent, n), strict=True):
                    row.add(part, real)
                return
            frame.logical = logical if frame.logical is None else frame.logical + logical
            frame.spent = spent if frame.spent is None else frame.spent + spent
            frame = frame.parent

    def degrade(self, reason: str, row: int | None) -> None:
        frame: Frame | None = self if row is None or self.rows is None else self.rows[row]
        while frame is not None:
            if frame.rows is not None:
                for inner in frame.rows:
                    inner.degrade(reason, None)
                return
            if frame.op is not None:
                frame.notes = [reason] if frame.notes is None else [*frame.notes, reason]
            frame = frame.parent

    def note(self, remark: str, row: int | None) -> None:
        for frame in (self,) if self.rows is None else self.rows if row is None else (self.rows[row],):
            frame.remarks = [*(frame.remarks or ()), remark]

    # Streaming.

    def emit(self, text: str) -> None:
        if self.sink is None or not text:
            return
        final = self.is_final()
        if final:
            frame: Frame | None = self
            while frame is not None and frame.sink is self.sink:
                frame.emitted += len(text)
                frame = frame.parent
        self.sink.put(Emitted(text, final))

    def retract(self) -> None:
        void = self.emitted
        if self.sink is None or not void:
            return
        frame: Frame | None = self
        while frame is not None and frame.sink is self.sink:
            frame.emitted -= void
            frame = frame.parent
        self.sink.put(Retracted(void))

    def is_final(self) -> bool:
        """Whether every ancestor says that this operator's output is its own."""
        if self.final is None:
            parent = self.parent
            if parent is None or parent.sink is not self.sink or (parent.final and parent.op is None):
                self.final = True
            else:
                self.final = parent.rows is None and parent.is_final() and _is_tail(self.op, parent)
        return self.final

    # The rest of the surroundings.

    def check(self) -> None:
        if self.scope.stopped:
            raise Cancelled("The run was cancelled.")

    @contextmanager
    def on_cancel(self, close: Callable[[], None]) -> Iterator[None]:
        self.scope.add(close)
        try:
            yield
        finally:
            self.scope.remove(close)

    def pin(self, key: object, open: Callable[[], T]) -> T:
        return self.run.pinned(key, open)

    def access(self) -> frozenset[str]:
        return self.run.principals


class Held:
    """What a reservation will be charged."""

    __slots__ = ("spent",)

    def __init__(self, spent: Usage) -> None:
        self.spent = spent

    def settle(self, usage: Usage) -> None:
        self.spent = usage


class _Step:
    """One row of a batch, run under the frame of its row."""

    __slots__ = ("frame", "op", "value")

    def __init__(self, frame: Frame, op: Operator[Any, Any], value: Any) -> None:
        self.frame, self.op, self.value = frame, op, value

    def __call__(self) -> Any:
        return self.frame.step(self.op, self.value)


def _named(result: Any, op: Operator[Any, Any]) -> Any:
    return result.but(step=op.short) if isinstance(result, Failure) and not result.step else result


def _is_tail(op: Operator[Any, Any] | None, parent: Frame) -> bool:
    return parent.op is not None and any(op is last for last in parent.op.tail())


def _abandon(futures: Sequence[Future[Any]], scope: Scope) -> None:
    """Stop what runs beside a call that was cancelled or interrupted, and wait for it."""
    scope.cancel()
    for future in futures:
        future.cancel()
    for future in futures:
        if not future.cancelled():
            future.exception()


def _split(usage: Usage, n: int) -> list[Usage]:
    """A cost in n whole parts that add up to it."""
    names = ("calls", "input_tokens", "output_tokens", "embedded")
    return [
        Usage(
            **{name: getattr(usage, name) // n + (row < getattr(usage, name) % n) for name in names},
            cost_usd=usage.cost_usd / n,
        )
        for row in range(n)
    ]


def pool_of(threads: int) -> ThreadPoolExecutor:
    """The threads beside the caller's own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="spolia")


__all__ = ["Frame", "pool_of"]
