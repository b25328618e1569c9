"""The place of a step in a run, up to the root. One is made for every step, so this file is written for speed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from time import perf_counter
from time import time as now
from typing import TYPE_CHECKING, Any, TypeVar

from spolia.core.operator import Operator, explained
from spolia.core.run_context import Began, Emitted, Event, Reservation, Retracted, attempt, current_context
from spolia.deferred import futures as concurrent
from spolia.errors import BudgetSpent, Cancelled, text_of
from spolia.journal.cache import unshared
from spolia.journal.values import Detail, Exchange
from spolia.run.budget import NO_COST, Budget, Limiter, split
from spolia.run.lane import CUT_SHORT
from spolia.run.recall import shared, window
from spolia.run.stream import Scope, Sink, streamed
from spolia.types import Addressed, Answer, Failure, Filter, Prompt, Query, Ranking, State, Usage

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from spolia.journal.cache import Cache
    from spolia.run.lane import Lane
    from spolia.run.run import Run

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_opening: ContextVar[frozenset[object]] = ContextVar("opening", default=frozenset())
"""What is being opened to be pinned, as those see it who take part in that, in whatever thread."""


class Frame:
    """The run context of one step; implements `spolia.core.run_context.RunContext`."""

    __slots__ = (
        "account", "claimed", "emitted", "error", "exchanges", "failed", "final", "found", "from_cache", "helped",
        "in_vain", "inner_errors", "keeping", "lane", "lender", "limiters", "logical", "notes", "op", "optional",
        "parent", "remarks", "rows", "run", "scope", "searched", "sink", "span", "spared", "spent", "undeclared",
    )  # fmt: skip
    claimed: bytes
    lender: ThreadPoolExecutor
    limiters: tuple[Limiter, ...]
    logical: Usage | None
    rows: Sequence[Frame] | None
    spent: Usage | None

    def __init__(self, run: Run, parent: Frame | None, op: Operator[Any, Any] | None) -> None:
        self.run, self.parent, self.op = run, parent, op
        self.span = 0
        self.logical = self.spent = self.rows = None
        self.spared = 0.0
        self.exchanges: list[Exchange] | None = None
        self.notes: list[str] | None = None
        self.remarks: list[str] | None = None
        self.error = ""
        self.inner_errors: tuple[BaseException, ...] = ()
        self.from_cache = self.searched = self.failed = self.in_vain = self.helped = False
        self.found: list[Ranking] | None = None
        self.emitted = 0
        self.final: bool | None = None
        self.undeclared = ""
        if parent is None:
            self.keeping = False
            self.lane: Frame | None = None  # the question's first frame; None for that itself, which is then no cycle
            self.limiters = ()
            self.optional = False
            self.scope: Scope = run.scope
            self.sink: Sink | None = None
            self.account: Lane | None = None
            return
        self.limiters, self.scope, self.sink = parent.limiters, parent.scope, parent.sink
        self.account, self.keeping = parent.account, parent.keeping
        self.optional = parent.optional or (parent.op is not None and parent.op.optional)
        if parent.op is None and parent.lane is None:
            self.lane = None
            if run.per_question is not None:
                self.limiters += (Limiter(run.per_question, "this question"),)
        else:
            self.lane = parent.lane or parent

    def inner(self, op: Operator[Any, Any]) -> Frame:
        return Frame(self.run, self, op)

    # Steps.

    def step(self, op: Operator[A, B], value: A) -> B:
        run = self.run
        if self.scope.stopped:
            raise Cancelled("The run was cancelled.")
        frame = Frame(run, self, op)
        if self.keeping:
            self.reach_all(op)
        if frame.sink is not None:
            frame.sink.put(Began(op.short))
        token = current_context.set(frame)
        if run.journal is None:
            try:
                return frame._result(op, value)
            except Exception:
                frame.retract()
                raise
            finally:
                current_context.reset(token)
        frame.span = next(run.numbers)
        given = unshared(value) if run.keeps_values else None
        started, out = perf_counter(), None
        try:
            out = frame._result(op, value)
            return out
        except BaseException as error:
            frame.error = f"{type(error).__name__}: {text_of(error)}"
            if isinstance(error, Exception):
                frame.retract()
            raise
        finally:
            current_context.reset(token)
            frame.record(perf_counter() - started, given, out)

    def _result(self, op: Operator[A, B], value: A) -> B:
        run, found = self.run, None
        try:
            if run.results is None and (run.cache is None or not op.cached):  # nearly every step: no call in between
                next(run.executed[type(op)])
                found = op.apply(value)
                if not isinstance(found, op.classes):
                    op.refused(found)
            else:
                found = shared(self, op, value)
        except Exception as error:
            said = explained(error, op, value)
            if self.account is not None:
                self.account.failed(said)
                self.count_failure(said)
            if said is not error:
                raise said from error
            raise
        if self.account is not None or run.results is not None:
            self.gave(value, found)
        return found

    def gave(self, value: Any, out: Any) -> None:
        """The step has ended; what it found is a retrieval, unless a step inside it has found that."""
        if self.account is not None:
            self._ended(self.account, out)
        if not self.searched and isinstance(out, Ranking) and isinstance(value, Query):
            self.retrieved(out)

    def _ended(self, account: Lane, out: Any) -> None:
        """Put the call on the account. A step whose own questions to a model all failed has failed; one is enough."""
        reason = out.stop if isinstance(out, State) else out.stop_reason if isinstance(out, Answer) else ""
        if reason in CUT_SHORT and reason not in account.ends:  # the innermost step that says so ends first
            self.count(f"Ended by {reason!r}.")
        if reason and (isinstance(out, State) or reason in CUT_SHORT):
            account.ends.add(reason)
        if (step := account.step_of(self)) is not self:
            for one in () if step is None else step.rows or (step,):
                one.helped |= not self.failed
        else:
            failed = self.failed or (self.in_vain and not self.helped)
            account.calls.append((self.op, failed, self.logical is not None))

    def retrieved(self, ranking: Ranking) -> None:
        """Put what a retriever found on the account, and tell the steps around it."""
        if self.account is not None:
            self.account.retrievals.append(ranking)
        above: Frame | None = self
        while above is not None and above.account is self.account:
            above.searched = True
            if above.found is not None:
                above.found.append(ranking)
            above = above.parent

    def opened(self, account: Lane) -> Frame:
        """A frame that only keeps an account of what is called in it."""
        frame = Frame(self.run, self, None)
        frame.limiters, frame.lane, frame.account = self.limiters, None, account
        account.opened(frame)
        return frame

    def record(self, seconds: float, given: Any, out: Any) -> None:
        journal, op, parent = self.run.journal, self.op, self.parent
        if journal is None or op is None:
            return
        if self.account is not None and self.lane is None and not self.account.number:
            self.account.number = self.span
        used = self.logical or NO_COST
        notes = json.dumps([*(self.notes or ()), *(self.remarks or ())]) if self.notes or self.remarks else ""
        keeps = self.run.keeps_values
        out = unshared(out) if keeps else out
        row = (
            self.run.id, self.span, 0 if parent is None else parent.span, (self.lane or self).span, op,
            now() - seconds, seconds, self.from_cache, used.calls, used.input_tokens, used.output_tokens, used.embedded,
            used.cost_usd, self.error, notes, out,
        )  # fmt: skip
        if keeps:
            journal.record(row, Detail(op, given, self.run.principals, self.exchanges or ()))
        else:
            journal.record(row)

    def batch(self, op: Operator[A, B], values: Sequence[A], rows: Sequence[int] | None) -> list[B | Failure]:
        if self.op is None and self.rows is None:
            size = self.run.window
            windows = (values[start : start + size] for start in range(0, len(values), size))
            return [result for part in windows for result in window(self, op, part, [self] * len(part))]
        above = [self] * len(values) if rows is None or self.rows is None else [self.rows[row] for row in rows]
        return window(self, op, values, above)

    def stream(self, op: Operator[Any, Any], value: Any) -> Iterator[Event]:
        return streamed(self, lambda frame: frame.step(op, value), copy_context())

    async def acall(self, op: Operator[A, B], value: A) -> B:
        from spolia.run.coroutines import awaited

        return await awaited(self, lambda frame: frame.step(op, value))

    async def abatch(self, op: Operator[A, B], values: Sequence[A]) -> list[B | Failure]:
        from spolia.run.coroutines import awaited

        return await awaited(self, lambda frame: frame.batch(op, values, None))

    def astream(self, op: Operator[Any, Any], value: Any) -> AsyncIterator[Event]:
        from spolia.run.coroutines import events

        return events(self, lambda frame: frame.step(op, value), copy_context())

    def aside(self, scope: Scope, sink: Sink | None = None) -> Frame:
        """A frame in the place of this one, for work in another thread that can be stopped apart."""
        frame = Frame(self.run, self, None)
        frame.lane = None if self.lane is None and self.op is None else self.lane or self
        frame.span, frame.limiters = self.span, self.limiters
        frame.scope, frame.sink, frame.final = scope, sink, True
        return frame

    # Threads.

    def lent(self) -> ThreadPoolExecutor:
        """One thread in the place of this step's own, for what it awaits."""
        if not hasattr(self, "lender"):
            self.lender = pool_of(1)
        return self.lender

    def gather(self, calls: Sequence[Callable[[], T]], waits: Sequence[bool]) -> list[T | Failure]:
        """Run the calls that wait in threads of the run, and the others here; the first one if all of them wait."""
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
            for index in reversed(futures):
                if futures[index].cancel():
                    results[index] = attempt(calls[index])
            for index, future in futures.items():
                if index not in results:
                    results[index] = future.result()
        except BaseException:
            _abandon(list(futures.values()), self.scope)
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
            frame.account.failed(error)
        frame._degraded(reason, error)
        return is_recorded

    def _degraded(self, reason: str, error: Exception | None) -> None:
        """Mark the result of every step around this one, which is made of it."""
        frame: Frame | None = self
        while frame is not None:
            if frame.rows is not None:
                for inner in frame.rows:
                    if inner.account is not None:
                        inner.account.failed(error)
                    inner._degraded(reason, error)
                return
            if frame.op is not None:
                frame.notes = [reason] if frame.notes is None else [*frame.notes, reason]
            frame = frame.parent

    def note(self, remark: str, row: int | None, counted: bool = False) -> None:
        for frame in (self,) if self.rows is None else self.rows if row is None else (self.rows[row],):
            frame.remarks = [*(frame.remarks or ()), remark]
            if counted:
                frame.count(remark)

    def exchanged(self, model: str, prompt: Prompt, reply: Any) -> None:
        if self.run.keeps_values:
            for frame in (self,) if self.rows is None else self.rows:
                frame.exchanges = [*(frame.exchanges or ()), Exchange(model, prompt, reply)]

    def count(self, reason: str, *, is_degraded: bool = False, failed: bool = False) -> None:
        """Put on the account that a call was out of order: of the innermost step around it that the flow names."""
        if self.rows is not None:
            for row in self.rows:
                row.count(reason, is_degraded=is_degraded, failed=failed)
        elif self.account is not None and (step := self.account.step_of(self)) is not None:
            if step.rows is not None:
                step.count(reason, is_degraded=is_degraded, failed=failed)
                return
            self.account.reasons.append((step.op, reason, is_degraded))
            if failed:
                self.failed = step.in_vain = True

    def count_failure(self, error: Exception | None, said: str = "") -> None:
        """A call has failed. It counts once, at the innermost step that the flow names; others pass it on."""
        account = self.account
        cause: BaseException | None = error
        while cause is not None and cause not in self.inner_errors:
            cause = cause.__cause__
        if account is not None and cause is None and account.step_of(self) is self:
            account.calls.append((self.op, True, self.logical is not None))
            account.reasons.append((self.op, said if error is None else f"{type(error).__name__}: {error}", True))
            above = self.parent
            while error is not None and above is not None and above.account is account:
                if above.op is not None:
                    above.inner_errors += (error,)
                above = above.parent

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

    def is_streamed(self) -> bool:
        return self.sink is not None

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
                is_tail = parent.op is not None and any(self.op is last for last in parent.op.tail())
                self.final = parent.rows is None and is_tail and parent.is_final()
        return self.final

    # The rest of the surroundings.

    def keeps_results(self) -> bool:
        """Whether more than the step after it sees the hits that a step gives: a journal, a cache. An account keeps
        them as they are, to be fetched when somebody looks at them."""
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
        self._undeclare("who asks", lambda op: any(one.scoped for one in op.resources))
        return self.run.principals

    def narrowing(self) -> Filter | None:
        self._undeclare("the filter of the run", lambda op: any(one.scoped for one in op.resources))
        return self.run.filter

    # Costs. A frame with `rows` stands for a whole batch, whose rows pay.

    @contextmanager
    def limited(self, max_calls: int) -> Iterator[None]:
        limiter = Limiter(Budget(calls=max_calls, forced=NO_COST), "this Guard")
        limited = (self,) if self.rows is None else self.rows
        for frame in limited:
            frame.limiters += (limiter,)
        try:
            yield
        finally:
            for frame in limited:
                frame.limiters = tuple(other for other in frame.limiters if other is not limiter)

    @contextmanager
    def reserve(self, usage: Usage, row: int | None) -> Iterator[Reservation]:
        if usage.calls:  # of a model that does not tell
            self._undeclare("a language model", lambda op: not all(one.scoped for one in op.resources))
        frame = self._of(row)
        with self.run.lock:
            shares = list(frame.shares(usage).items())
            for number, (limiter, share) in enumerate(shares):
                if why := limiter.reserve(share, optional=self.optional):
                    for other, part in shares[:number]:
                        other.release(part)
                    spent = BudgetSpent(why)
                    spent.in_loop = self.optional
                    raise spent
        held = Reservation(usage)
        try:
            yield held
        finally:
            with self.run.lock:  # in one go, or another call finds the room that this one has used
                frame.charge(held.spent, None)
                for limiter, share in shares:
                    limiter.release(share)

    def charge(self, usage: Usage, row: int | None) -> None:
        if usage.embedded and not _opening.get():  # likewise; a store may embed what it is asked
            self._undeclare("an embedder or scorer", lambda op: bool(op.resources))
        frame = self._of(row)
        with self.run.lock:
            for limiter, share in frame.shares(usage).items():
                limiter.charge(share)
            frame.add(usage, usage)

    def shares(self, usage: Usage) -> dict[Limiter, Usage]:
        """What each budget would bear of a cost; that of a whole batch is split among its rows."""
        if self.rows is None:
            return dict.fromkeys(self.limiters, usage)
        found: dict[Limiter, Usage] = {}
        for row, part in zip(self.rows, split(usage, len(self.rows)), strict=True):
            if part != NO_COST:
                for limiter, share in row.shares(part).items():
                    found[limiter] = found[limiter] + share if limiter in found else share
        return found

    def replied(self, key: Callable[[], bytes | None], ask: Callable[[], T]) -> T:
        """A reply that the run has kept, which costs nothing now; or asked, once at a time, and kept."""
        replies = self.run.replies
        if replies is None or self.rows is not None or (known := key()) is None:
            return ask()
        while (entry := replies.get(known)) is None:
            if replies.claim(known):
                try:
                    before, spared, started = self.logical or NO_COST, self.spared, perf_counter()
                    found = ask()
                    took = perf_counter() - started + self.spared - spared
                    replies.put(known, found, (self.logical or NO_COST) - before, seconds=took)
                finally:
                    replies.release(known)
                return found
            self.wait(replies, known)
        with self.run.lock:
            self.add(entry.usage, NO_COST)
            self.spare(entry.seconds)
        if self.account is not None:
            self.account.cached = True
        found = entry.value
        return found

    def add(self, logical: Usage, spent: Usage) -> None:
        """Let a cost climb to the root. The caller holds the lock."""
        frame: Frame | None = self
        while frame is not None:
            if frame.rows is not None:
                n = len(frame.rows)
                for row, part, real in zip(frame.rows, split(logical, n), split(spent, n), strict=True):
                    row.add(part, real)
                return
            frame.logical = logical if frame.logical is None else frame.logical + logical
            frame.spent = spent if frame.spent is None else frame.spent + spent
            frame = frame.parent

    def spare(self, seconds: float) -> None:
        """Let the time that a kept result took climb to the root; NaN where nobody knows. The caller holds the lock."""
        frame: Frame | None = self
        while frame is not None:
            if frame.rows is not None:
                for row in frame.rows:
                    row.spare(seconds / len(frame.rows))
                return
            frame.spared += seconds
            frame = frame.parent

    def wait(self, cache: Cache, key: bytes) -> None:
        """Wait a moment for another thread that computes a key; the step that it spares takes that time already."""
        started = perf_counter()
        cache.wait(key, 0.1)
        with self.run.lock:
            self.spare(started - perf_counter())
        self.check()

    def _of(self, row: int | None) -> Frame:
        return self if row is None or self.rows is None else self.rows[row]

    # What a cached step depends on.

    def reach(self, address: Addressed) -> None:
        if self.keeping and not _opening.get():
            self._undeclare(address, lambda op: op.declares(address))

    def leave(self) -> None:
        """Another run begins inside this one, which does not see what is opened there."""
        self._undeclare("what another run finds inside it", lambda op: False)

    def reach_all(self, op: Operator[Any, Any]) -> None:
        """The resources of a step inside this one, which need not open what its result in the cache is made of."""
        for address in op.resources:
            self.reach(address)

    def _undeclare(self, what: object, declared: Callable[[Operator[Any, Any]], bool]) -> None:
        """Note, up to the root, which steps that are to be kept do not declare what they depend on."""
        frame: Frame | None = self
        while frame is not None and frame.keeping:
            if frame.rows is not None:
                for row in frame.rows:
                    row._undeclare(what, declared)
                return
            if frame.op is not None and frame.op.cached and not frame.undeclared and not declared(frame.op):
                frame.undeclared = what if isinstance(what, str) else f"{what!r:.80}"
            frame = frame.parent


class Outside(Frame):
    """What stays where a run was entered that was left in another thread: as without a run."""

    __slots__ = ()

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

    def narrowing(self) -> Filter | None:
        return None


def _abandon(futures: Sequence[Future[Any]], scope: Scope) -> None:
    """Stop what runs beside a call that was cancelled or interrupted, and wait for it."""
    scope.cancel()
    for future in futures:
        future.cancel()
    for future in futures:
        if not future.cancelled():
            future.exception()


def pool_of(threads: int) -> ThreadPoolExecutor:
    """The threads beside the caller's own."""
    return concurrent.ThreadPoolExecutor(threads, thread_name_prefix="spolia")
