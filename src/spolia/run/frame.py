"""Place of a step in a run, up to the root. Every step makes one, so this file is written for speed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from time import perf_counter
from time import time as now
from typing import TYPE_CHECKING, Any, TypeVar

from spolia.core.operator import Operator, explain_error
from spolia.core.run_context import Began, Emitted, Event, Reservation, Retracted, attempt, current_context
from spolia.deferred import futures as concurrent
from spolia.errors import BudgetSpent, Cancelled, text_of
from spolia.journal.cache import copy_mutable
from spolia.journal.values import Detail, Exchange
from spolia.run.budget import NO_COST, Budget, Limiter, split_usage
from spolia.run.lane import UNPLANNED_ENDS
from spolia.run.recall import apply_shared, run_window
from spolia.run.stream import Scope, Sink, stream_events
from spolia.types import Addressed, Answer, Failure, Filter, Prompt, Query, Ranking, State, Usage

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from spolia.journal.cache import Cache
    from spolia.run.lane import Lane
    from spolia.run.step_frame import RunState

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_opening: ContextVar[frozenset[object]] = ContextVar("opening", default=frozenset())
"""Keys being opened now, as seen by all threads that take part in opening them."""


class Frame:
    """Run context of one step; implements `spolia.core.run_context.RunContext`."""

    __slots__ = (
        "account", "claimed_key", "emitted_characters", "error", "exchanges", "final", "from_cache", "has_failed",
        "has_failed_calls", "has_helped", "has_searched", "inner_errors", "lane", "lender", "limiters", "logical",
        "notes", "op", "optional", "parent", "remarks", "retrievals", "rows", "run", "scope", "sink", "span",
        "spared", "spent", "tracks_access", "undeclared_access",
    )  # fmt: skip
    claimed_key: bytes
    lender: ThreadPoolExecutor
    limiters: tuple[Limiter, ...]
    logical: Usage | None
    rows: Sequence[Frame] | None
    spent: Usage | None

    def __init__(self, run: RunState, parent: Frame | None, op: Operator[Any, Any] | None) -> None:
        self.run, self.parent, self.op = run, parent, op
        self.span = 0
        self.logical = self.spent = self.rows = None
        self.spared = 0.0
        self.exchanges: list[Exchange] | None = None
        self.notes: list[str] | None = None
        self.remarks: list[str] | None = None
        self.error = ""
        self.inner_errors: tuple[BaseException, ...] = ()
        self.from_cache = self.has_searched = self.has_failed = self.has_failed_calls = self.has_helped = False
        self.retrievals: list[Ranking] | None = None
        self.emitted_characters = 0
        self.final: bool | None = None
        self.undeclared_access = ""
        if parent is None:
            self.tracks_access = False
            self.lane: Frame | None = None  # the question's first frame; None for that itself, which is then no cycle
            self.limiters = ()
            self.optional = False
            self.scope: Scope = run.scope
            self.sink: Sink | None = None
            self.account: Lane | None = None
            return
        self.limiters, self.scope, self.sink = parent.limiters, parent.scope, parent.sink
        self.account, self.tracks_access = parent.account, parent.tracks_access
        self.optional = parent.optional or (parent.op is not None and parent.op.optional)
        if parent.op is None and parent.lane is None:
            self.lane = None
            if run.per_question is not None:
                self.limiters += (Limiter(run.per_question, "this question"),)
        else:
            self.lane = parent.lane or parent

    def make_inner(self, op: Operator[Any, Any]) -> Frame:
        return Frame(self.run, self, op)

    # Steps.

    def step(self, op: Operator[A, B], value: A) -> B:
        run = self.run
        if self.scope.stopped:
            raise Cancelled("The run was cancelled.")
        frame = Frame(run, self, op)
        if self.tracks_access:
            self.record_resources(op)
        if frame.sink is not None:
            frame.sink.send(Began(op.short))
        token = current_context.set(frame)
        if run.journal is None:  # The fast path: no clock and no span (benchmarks/steps.py).
            try:
                return frame._apply_step(op, value)
            except Exception:
                frame.retract()
                raise
            finally:
                current_context.reset(token)
        frame.span = next(run.numbers)
        input_value = copy_mutable(value) if run.keeps_values else None
        started, out = perf_counter(), None
        try:
            out = frame._apply_step(op, value)
            return out
        except BaseException as error:
            frame.error = f"{type(error).__name__}: {text_of(error)}"
            if isinstance(error, Exception):
                frame.retract()
            raise
        finally:
            current_context.reset(token)
            frame.record(perf_counter() - started, input_value, out)

    def _apply_step(self, op: Operator[A, B], value: A) -> B:
        run, result = self.run, None
        try:
            if run.results is None and (run.cache is None or not op.cached):  # nearly every step: no call in between
                next(run.executed[type(op)])
                result = op.apply(value)
                if not isinstance(result, op.classes):
                    op.refuse_result(result)
            else:
                result = apply_shared(self, op, value)
        except Exception as error:
            explained_error = explain_error(error, op, value)
            if self.account is not None:
                self.account.record_failure(explained_error)
                self.count_failure(explained_error)
            if explained_error is not error:
                raise explained_error from error
            raise
        if self.account is not None or run.results is not None:
            self.record_result(value, result)
        return result

    def record_result(self, value: Any, out: Any) -> None:
        """Record the end of the step; its ranking is a retrieval unless a step inside it made one."""
        if self.account is not None:
            self._count_call(self.account, out)
        if not self.has_searched and isinstance(out, Ranking) and isinstance(value, Query):
            self.record_retrieval(out)

    def _count_call(self, account: Lane, out: Any) -> None:
        """Put the call on the account. A step has failed if all its own questions to a model failed."""
        reason = out.stop if isinstance(out, State) else out.stop_reason if isinstance(out, Answer) else ""
        if reason in UNPLANNED_ENDS and reason not in account.ends:  # the innermost step that says so ends first
            self.count(f"Ended by {reason!r}.")
        if reason and (isinstance(out, State) or reason in UNPLANNED_ENDS):
            account.ends.add(reason)
        if (step := account.step_of(self)) is not self:
            for frame in () if step is None else step.rows or (step,):
                frame.has_helped |= not self.has_failed
        else:
            failed = self.has_failed or (self.has_failed_calls and not self.has_helped)
            account.calls.append((self.op, failed, self.logical is not None))

    def record_retrieval(self, ranking: Ranking) -> None:
        """Put a retriever's ranking on the account, and tell the steps around it."""
        if self.account is not None:
            self.account.retrievals.append(ranking)
        frame: Frame | None = self
        while frame is not None and frame.account is self.account:
            frame.has_searched = True
            if frame.retrievals is not None:
                frame.retrievals.append(ranking)
            frame = frame.parent

    def open_account(self, account: Lane) -> Frame:
        """Return a frame that only keeps an account of what is called in it."""
        frame = Frame(self.run, self, None)
        frame.limiters, frame.lane, frame.account = self.limiters, None, account
        account.attach_frame(frame)
        return frame

    def record(self, seconds: float, input_value: Any, out: Any) -> None:
        journal, op, parent = self.run.journal, self.op, self.parent
        if journal is None or op is None:
            return
        if self.account is not None and self.lane is None and not self.account.number:
            self.account.number = self.span
        used = self.logical or NO_COST
        notes = json.dumps([*(self.notes or ()), *(self.remarks or ())]) if self.notes or self.remarks else ""
        keeps = self.run.keeps_values
        out = copy_mutable(out) if keeps else out
        row = (
            self.run.id, self.span, 0 if parent is None else parent.span, (self.lane or self).span, op,
            now() - seconds, seconds, self.from_cache, used.calls, used.input_tokens, used.output_tokens, used.embedded,
            used.cost_usd, self.error, notes, out,
        )  # fmt: skip
        if keeps:
            journal.record(row, Detail(op, input_value, self.run.principals, self.exchanges or ()))
        else:
            journal.record(row)

    def batch(self, op: Operator[A, B], values: Sequence[A], rows: Sequence[int] | None) -> list[B | Failure]:
        if self.op is None and self.rows is None:
            size = self.run.window
            windows = (values[start : start + size] for start in range(0, len(values), size))
            return [result for part in windows for result in run_window(self, op, part, [self] * len(part))]
        frames = [self] * len(values) if rows is None or self.rows is None else [self.rows[row] for row in rows]
        return run_window(self, op, values, frames)

    def stream(self, op: Operator[Any, Any], value: Any) -> Iterator[Event]:
        return stream_events(self, lambda frame: frame.step(op, value), copy_context())

    async def acall(self, op: Operator[A, B], value: A) -> B:
        from spolia.run.coroutines import await_work

        return await await_work(self, lambda frame: frame.step(op, value))

    async def abatch(self, op: Operator[A, B], values: Sequence[A]) -> list[B | Failure]:
        from spolia.run.coroutines import await_work

        return await await_work(self, lambda frame: frame.batch(op, values, None))

    def astream(self, op: Operator[Any, Any], value: Any) -> AsyncIterator[Event]:
        from spolia.run.coroutines import astream_events

        return astream_events(self, lambda frame: frame.step(op, value), copy_context())

    def fork(self, scope: Scope, sink: Sink | None = None) -> Frame:
        """Return a frame in the place of this one, for work in another thread that is stopped by itself."""
        frame = Frame(self.run, self, None)
        frame.lane = None if self.lane is None and self.op is None else self.lane or self
        frame.span, frame.limiters = self.span, self.limiters
        frame.scope, frame.sink, frame.final = scope, sink, True
        return frame

    # Threads.

    def borrow_thread(self) -> ThreadPoolExecutor:
        """Return a pool of one thread that stands for this step's own while it waits."""
        if not hasattr(self, "lender"):
            self.lender = make_pool(1)
        return self.lender

    def gather(self, calls: Sequence[Callable[[], T]], waits: Sequence[bool]) -> list[T | Failure]:
        """Run waiting calls in threads of the run and the others here; the first one too if all of them wait."""
        in_threads = [index for index, waiting in enumerate(waits) if waiting and (index or not all(waits))]
        pool = self.run.pool() if in_threads else None
        if pool is None:
            return [attempt(call) for call in calls]
        results: dict[int, T | Failure] = {}
        futures: dict[int, Future[T | Failure]] = {}
        try:
            for index in in_threads:
                futures[index] = pool.submit(copy_context().run, attempt, calls[index])
            for index in range(len(calls)):
                if index not in futures:
                    results[index] = attempt(calls[index])
            # From the end, as the pool begins at the front: what no thread has taken up is done here.
            for index in reversed(futures):
                if futures[index].cancel():
                    results[index] = attempt(calls[index])
            for index, future in futures.items():
                if index not in results:
                    results[index] = future.result()
        except BaseException:
            _stop_calls(list(futures.values()), self.scope)
            raise
        self.check()  # what failed because it was closed is no failed call
        return [results[index] for index in range(len(calls))]

    # What is out of order.

    def degrade(self, reason: str, row: int | None, error: Exception | None = None, partly: bool = False) -> bool:
        frame: Frame | None = self if row is None or self.rows is None else self.rows[row]
        assert frame is not None
        is_recorded = frame.run.journal is not None or frame.account is not None
        frame.count(reason, is_degraded=True, failed=not partly)
        if frame.account is not None:
            frame.account.record_failure(error)
        frame._mark_degraded(reason, error)
        return is_recorded

    def _mark_degraded(self, reason: str, error: Exception | None) -> None:
        """Mark the result of every step around this one as degraded, since it is made of this one's."""
        frame: Frame | None = self
        while frame is not None:
            if frame.rows is not None:
                for inner in frame.rows:
                    if inner.account is not None:
                        inner.account.record_failure(error)
                    inner._mark_degraded(reason, error)
                return
            if frame.op is not None:
                frame.notes = [reason] if frame.notes is None else [*frame.notes, reason]
            frame = frame.parent

    def note(self, remark: str, row: int | None, is_counted: bool = False) -> None:
        for frame in (self,) if self.rows is None else self.rows if row is None else (self.rows[row],):
            frame.remarks = [*(frame.remarks or ()), remark]
            if is_counted:
                frame.count(remark)

    def record_exchange(self, model: str, prompt: Prompt, reply: Any) -> None:
        if self.run.keeps_values:
            for frame in (self,) if self.rows is None else self.rows:
                frame.exchanges = [*(frame.exchanges or ()), Exchange(model, prompt, reply)]

    def count(self, reason: str, *, is_degraded: bool = False, failed: bool = False) -> None:
        """Record a call that was out of order at the innermost step around it that the flow names."""
        if self.rows is not None:
            for row in self.rows:
                row.count(reason, is_degraded=is_degraded, failed=failed)
        elif self.account is not None and (step := self.account.step_of(self)) is not None:
            if step.rows is not None:
                step.count(reason, is_degraded=is_degraded, failed=failed)
                return
            self.account.reasons.append((step.op, reason, is_degraded))
            if failed:
                self.has_failed = step.has_failed_calls = True

    def count_failure(self, error: Exception | None, message: str = "") -> None:
        """Record a failed call once, at the innermost step that the flow names; others pass it on."""
        account = self.account
        cause: BaseException | None = error
        while cause is not None and cause not in self.inner_errors:
            cause = cause.__cause__
        if account is not None and cause is None and account.step_of(self) is self:
            account.calls.append((self.op, True, self.logical is not None))
            account.reasons.append((self.op, message if error is None else f"{type(error).__name__}: {error}", True))
            frame = self.parent
            while error is not None and frame is not None and frame.account is account:
                if frame.op is not None:
                    frame.inner_errors += (error,)
                frame = frame.parent

    # Streaming.

    def emit(self, text: str) -> None:
        if self.sink is None or not text:
            return
        final = self.is_final()
        if final:
            frame: Frame | None = self
            while frame is not None and frame.sink is self.sink:
                frame.emitted_characters += len(text)
                frame = frame.parent
        self.sink.send(Emitted(text, final))

    def is_streamed(self) -> bool:
        return self.sink is not None

    def retract(self) -> None:
        void = self.emitted_characters
        if self.sink is None or not void:
            return
        frame: Frame | None = self
        while frame is not None and frame.sink is self.sink:
            frame.emitted_characters -= void
            frame = frame.parent
        self.sink.send(Retracted(void))

    def is_final(self) -> bool:
        """Return whether every ancestor takes this operator's output as its own."""
        if self.final is None:
            parent = self.parent
            if parent is None or parent.sink is not self.sink or (parent.final and parent.op is None):
                self.final = True
            else:
                is_tail = parent.op is not None and any(self.op is last for last in parent.op.tail())
                self.final = parent.rows is None and is_tail and parent.is_final()
        return self.final

    # The rest of the surroundings.

    def keeps_results(self) -> bool:
        """Return whether a journal or cache sees the hits of a step. An account keeps hits as they are, to be fetched
        when somebody reads them."""
        run = self.run
        return run.journal is not None or run.results is not None or run.cache is not None

    def check(self) -> None:
        if self.scope.stopped:
            raise Cancelled("The run was cancelled.")

    @contextmanager
    def on_cancel(self, close: Callable[[], None]) -> Iterator[None]:
        self.scope.add(close)
        try:
            yield
        except Exception:
            self.check()  # it failed because it was closed
            raise
        finally:
            self.scope.remove(close)

    def pin(self, key: object, open: Callable[[], T], serves: Callable[[T], bool]) -> T:
        return self.run.pinned(key, open, serves)

    def access(self) -> frozenset[str]:
        self._note_undeclared("who asks", lambda op: any(resource.scoped for resource in op.resources))
        return self.run.principals

    def run_filter(self) -> Filter | None:
        self._note_undeclared("the filter of the run", lambda op: any(resource.scoped for resource in op.resources))
        return self.run.filter

    # Costs. A frame with `rows` stands for a whole batch, whose rows pay.

    @contextmanager
    def limit_calls(self, max_calls: int) -> Iterator[None]:
        limiter = Limiter(Budget(calls=max_calls, forced=NO_COST), "this Guard")
        frames = (self,) if self.rows is None else self.rows
        for frame in frames:
            frame.limiters += (limiter,)
        try:
            yield
        finally:
            for frame in frames:
                frame.limiters = tuple(active for active in frame.limiters if active is not limiter)

    @contextmanager
    def reserve(self, usage: Usage, row: int | None) -> Iterator[Reservation]:
        if usage.calls:  # of a model that does not tell
            self._note_undeclared("a language model", lambda op: not all(resource.scoped for resource in op.resources))
        frame = self._row_frame(row)
        with self.run.lock:
            shares = list(frame.divide_usage(usage).items())
            for number, (limiter, share) in enumerate(shares):
                if refusal := limiter.reserve(share, optional=self.optional):
                    for reserved_limiter, part in shares[:number]:
                        reserved_limiter.release(part)
                    error = BudgetSpent(refusal)
                    error.in_loop = self.optional
                    raise error
        reservation = Reservation(usage)
        try:
            yield reservation
        finally:
            with self.run.lock:  # in one go, or another call finds the room that this one has used
                frame.charge(reservation.spent, None)
                for limiter, share in shares:
                    limiter.release(share)

    def charge(self, usage: Usage, row: int | None) -> None:
        if usage.embedded and not _opening.get():  # likewise; a store may embed what it is asked
            self._note_undeclared("an embedder or scorer", lambda op: bool(op.resources))
        frame = self._row_frame(row)
        with self.run.lock:
            for limiter, share in frame.divide_usage(usage).items():
                limiter.charge(share)
            frame.add_usage(usage, usage)

    def divide_usage(self, usage: Usage) -> dict[Limiter, Usage]:
        """Return what each limiter would bear of a cost; a batch's cost is split among its rows."""
        if self.rows is None:
            return dict.fromkeys(self.limiters, usage)
        shares: dict[Limiter, Usage] = {}
        for row, part in zip(self.rows, split_usage(usage, len(self.rows)), strict=True):
            if part != NO_COST:
                for limiter, share in row.divide_usage(part).items():
                    shares[limiter] = shares[limiter] + share if limiter in shares else share
        return shares

    def recall_reply(self, key: Callable[[], bytes | None], ask: Callable[[], T]) -> T:
        """Return a reply that the run has kept, which costs nothing now; or ask, once at a time, and keep it."""
        replies = self.run.replies
        if replies is None or self.rows is not None or (reply_key := key()) is None:
            return ask()
        while (entry := replies.get(reply_key)) is None:
            if replies.claim(reply_key):
                try:
                    usage_before, spared_before, started = self.logical or NO_COST, self.spared, perf_counter()
                    reply = ask()
                    seconds = perf_counter() - started + self.spared - spared_before
                    replies.save(reply_key, reply, (self.logical or NO_COST) - usage_before, seconds=seconds)
                finally:
                    replies.release(reply_key)
                return reply
            self.wait(replies, reply_key)
        with self.run.lock:
            self.add_usage(entry.usage, NO_COST)
            self.spare(entry.seconds)
        if self.account is not None:
            self.account.cached = True
        reply = entry.value
        return reply

    def add_usage(self, logical: Usage, paid: Usage) -> None:
        """Add a cost to all frames up to the root. The caller holds the lock."""
        frame: Frame | None = self
        while frame is not None:
            if frame.rows is not None:
                n = len(frame.rows)
                for row, part, paid_part in zip(frame.rows, split_usage(logical, n), split_usage(paid, n), strict=True):
                    row.add_usage(part, paid_part)
                return
            frame.logical = logical if frame.logical is None else frame.logical + logical
            frame.spent = paid if frame.spent is None else frame.spent + paid
            frame = frame.parent

    def spare(self, seconds: float) -> None:
        """Add the seconds that a kept result took to all frames up to the root; NaN if unknown. The caller holds the
        lock."""
        frame: Frame | None = self
        while frame is not None:
            if frame.rows is not None:
                for row in frame.rows:
                    row.spare(seconds / len(frame.rows))
                return
            frame.spared += seconds
            frame = frame.parent

    def wait(self, cache: Cache, key: bytes) -> None:
        """Wait a moment for another thread that computes a key; that time is already in the seconds spared."""
        started = perf_counter()
        cache.wait(key, 0.1)  # then it looks whether the run was cancelled
        with self.run.lock:
            self.spare(started - perf_counter())
        self.check()

    def _row_frame(self, row: int | None) -> Frame:
        return self if row is None or self.rows is None else self.rows[row]

    # What a cached step depends on.

    def record_access(self, address: Addressed) -> None:
        if self.tracks_access and not _opening.get():
            self._note_undeclared(address, lambda op: op.declares(address))

    def leave_run(self) -> None:
        """Note that another run begins inside this one, which does not see what is opened there."""
        self._note_undeclared("what another run finds inside it", lambda op: False)

    def record_resources(self, op: Operator[Any, Any]) -> None:
        """Record the resources of a step inside this one: a cached result need not open them."""
        for address in op.resources:
            self.record_access(address)

    def _note_undeclared(self, dependency: object, declares: Callable[[Operator[Any, Any]], bool]) -> None:
        """Note, up to the root, which cached steps do not declare a dependency."""
        frame: Frame | None = self
        while frame is not None and frame.tracks_access:
            if frame.rows is not None:
                for row in frame.rows:
                    row._note_undeclared(dependency, declares)
                return
            if frame.op is not None and frame.op.cached and not frame.undeclared_access and not declares(frame.op):
                frame.undeclared_access = dependency if isinstance(dependency, str) else f"{dependency!r:.80}"
            frame = frame.parent


class DetachedFrame(Frame):
    """Frame where a run was entered that was left in another thread; acts as if there were no run."""

    __slots__ = ()  # the layout must stay that of Frame, or `__class__` cannot be set

    def step(self, op: Operator[A, B], value: A) -> B:
        current_context.set(None)
        return op(value)

    def batch(self, op: Operator[A, B], values: Sequence[A], rows: Sequence[int] | None) -> list[B | Failure]:
        current_context.set(None)
        return op.batch(values)

    def pin(self, key: object, open: Callable[[], T], serves: Callable[[T], bool]) -> T:
        return open()

    def access(self) -> frozenset[str]:
        return frozenset()

    def run_filter(self) -> Filter | None:
        return None


def _stop_calls(futures: Sequence[Future[Any]], scope: Scope) -> None:
    """Stop the calls beside one that was cancelled or interrupted, and wait for them."""
    scope.cancel()
    for future in futures:
        future.cancel()
    for future in futures:
        if not future.cancelled():
            future.exception()


def make_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of the threads beside the caller's own."""
    return concurrent.ThreadPoolExecutor(threads, thread_name_prefix="spolia")
