"""Run: the one place for everything that surrounds a step.

    with Run(principal="ann", budget=Budget(calls=20)) as run:
        answer = flow(Query("Who employed Carsten Olsen?"))

Without a run a flow is a chain of plain calls: no trace, no cache, no threads, nobody's rights.
"""

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from spolia.core.deprecation import RenamedAttribute
from spolia.core.operator import Operator
from spolia.core.run_context import Began, Done, Emitted, Retracted, RunContext, current_context
from spolia.errors import WiringError
from spolia.journal.cache import Cache
from spolia.journal.trace import Journal, new_run_id
from spolia.run.budget import NO_COST, Budget, Limiter
from spolia.run.frame import DetachedFrame, Frame, _opening, make_pool
from spolia.run.lane import Lane
from spolia.run.recall import MOST_BYTES, SharedResults
from spolia.run.stream import Scope
from spolia.types import Failure, Filter, Usage
from spolia.types.value import refuse_arguments

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_outer: ContextVar[tuple[RunContext | None, ...]] = ContextVar("outer", default=())
"""What surrounded each run that was entered here, in this thread or task; a run may be left in another one."""


class Run:
    """Surroundings in which flows run.

    Args:
        principal: who asks; without one only what everybody may see is found.
        groups: principals that the asker also acts for.
        filter: what may be found at all, whatever the questions ask for.
        budget: limit of the whole run; a `Limiter` if several runs share it.
        per_question: limit of each question, that is of each call or row at the top.
        journal: where spans go; without one nothing is traced.
        cache: where costly results are kept; without one nothing is.
        share: equal steps on equal values compute once in this run, cheap ones too. Results are held in memory, up to
            512 MiB or the number of bytes that you write.
        replies: where replies of language models are kept by their prompt, for all steps: equal prompts are
            asked once.
        threads: how many steps may run at the same time, the caller's own thread included.
        window: rows of a batch that are in memory at the same time.

    >>> from spolia.core.function import step
    >>> @step
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> with Run() as run:
    ...     (double >> double)(3), double.batch([1, 2])
    (12, [2, 4])
    """

    if not TYPE_CHECKING:  # a checker sees the names themselves

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            refuse_arguments(cls, args, kwargs)
            return object.__new__(cls)

    def __init__(
        self,
        *,
        principal: str = "",
        groups: Sequence[str] = (),
        filter: Filter | None = None,
        budget: Budget | Limiter | None = None,
        per_question: Budget | None = None,
        journal: Journal | None = None,
        cache: Cache | None = None,
        share: bool | int = False,
        replies: Cache | None = None,
        threads: int = 8,
        window: int = 256,
    ) -> None:
        if isinstance(groups, str):
            raise WiringError(f"groups={groups!r} is one text. Write a list of principals: groups=[{groups!r}].")
        if not isinstance(principal, str):
            raise WiringError(
                f"principal={principal!r:.80} is not a text. Write one principal, and others as groups: "
                "Run(principal='ann', groups=['staff'])."
            )
        if not isinstance(groups, Collection) or not all(isinstance(name, str) for name in groups):
            raise WiringError(f"groups={groups!r:.80} are not principals. Write a list of texts: groups=['staff'].")
        for name, limit in (("budget", budget), ("per_question", per_question)):
            if limit is not None and not isinstance(limit, (Budget, Limiter)):
                raise WiringError(f"{name}={limit!r:.80} is no Budget. Write {name}=Budget(calls=100).")
        for name, storage in (("journal", journal), ("cache", cache), ("replies", replies)):
            if isinstance(storage, str | Path):
                raise WiringError(
                    f"{name}={storage!r} is a path. Write with Runs(PATH) as runs, Run({name}=runs.{name}): ..."
                )
            if storage is not None and type(storage).__module__ == "builtins":
                raise WiringError(
                    f"{name}={storage!r:.80} is not {name}. Write with Runs(PATH) as runs, Run({name}=runs.{name}): ..."
                )
        for name, number in (("threads", threads), ("window", window), ("share", share)):
            if not isinstance(number, int):
                raise WiringError(f"{name}={number!r:.80} is not a whole number. Write for example {name}=8.")
        self.id = new_run_id()
        self.principals = frozenset((principal, *groups)) - {""}
        self.filter = filter
        self.per_question, self.journal, self.cache = per_question, journal, cache
        self.keeps_values: bool = getattr(journal, "values", False)
        if journal is not None and self.principals and not self.keeps_values:  # else it is kept with the values
            journal.record_askers(self.id, self.principals)
        self.replies = replies
        self.results = None if share is False else SharedResults(MOST_BYTES if share is True else share)
        self.threads, self.window = max(1, threads), max(1, window)
        self.lock = threading.RLock()
        self.scope = Scope()
        self.numbers = itertools.count(1)
        self._pins: dict[object, Any] = {}
        self._turns: dict[object, threading.Lock] = {}
        self._pool: ThreadPoolExecutor | None = None
        self.executed: defaultdict[type[Operator[Any, Any]], Iterator[int]]
        self.executed = defaultdict(itertools.count)  # a number for each, without a lock
        self._looks: dict[type[Operator[Any, Any]], int] = {}
        self._entered = 0
        self._doors: list[Frame] = []
        self.root = Frame(self, None, None)
        if budget is not None:
            self.root.limiters = (budget if isinstance(budget, Limiter) else Limiter(budget, "this run"),)

    @staticmethod
    def current() -> "Run | None":
        """Return the run that this is inside of.

        >>> with Run() as run:
        ...     Run.current() is run
        True
        """
        frame = current_context.get()
        if not isinstance(frame, Frame) or isinstance(frame, DetachedFrame):
            return None
        return frame.run if isinstance(frame.run, Run) else None

    # Running.

    def __enter__(self) -> Self:
        _outer.set((*_outer.get(), current_context.get()))
        _leave_outer_run()
        current_context.set(door := self.root.fork(self.scope))
        with self.lock:
            self._entered += 1
            self._doors.append(door)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        door = current_context.get()
        if door in self._doors and (outer := _outer.get()):
            _outer.set(outer[:-1])
            current_context.set(outer[-1])
        with self.lock:
            self._entered -= 1
            last = not self._entered
            self._doors = [frame for frame in self._doors if frame is not door]
            if last:
                for entry_frame in self._doors:  # where it was entered, and not left
                    entry_frame.__class__ = DetachedFrame
                self._doors = []
        interrupts = isinstance(error, KeyboardInterrupt | SystemExit)
        if interrupts or (last and error is not None and not isinstance(error, Exception)):
            self.cancel()  # a cancelled task leaves the run to the other tasks that have entered it
        if last:
            self.close()

    def __call__(self, flow: Operator[A, B], value: A) -> B:
        """Run a flow on one value."""
        with self._enter_root():
            return flow(value)

    def batch(self, flow: Operator[A, B], values: Sequence[A]) -> list[B | Failure]:
        """Run a flow on many values; a failed one becomes a `Failure`."""
        with self._enter_root():
            return flow.batch(values)

    @contextmanager
    def lane(self, shares: bool = True) -> Iterator[Lane]:
        """Keep an account of what is called inside: what it takes, and what each call of a retriever finds.

        Args:
            shares: whether a run that shares equal steps also shares steps that are not `cached`.

        >>> from spolia import Query, Ranking, step
        >>> @step
        ... def nothing(query: Query) -> Ranking:
        ...     return Ranking(query, (), "nowhere")
        >>> with Run().lane() as lane:
        ...     found = nothing(Query("?"))
        >>> [ranking.source for ranking in lane.retrievals], lane.usage.calls
        (['nowhere'], 0)
        """
        account = Lane(shares)
        _leave_outer_run()
        token = current_context.set(self.root.open_account(account))
        try:
            yield account
        finally:
            current_context.reset(token)
            account.close()

    @contextmanager
    def limited(self, budget: Budget, label: str, usage_before: Usage = NO_COST) -> Iterator[Limiter]:
        """Limit what lanes inside may spend, beside the budget of the run.

        Args:
            label: what the budget is of, in words.
            usage_before: what it has borne before.
        """
        limiter = Limiter(budget, label)
        limiter.spent = usage_before
        self.root.limiters += (limiter,)
        try:
            yield limiter
        finally:
            self.root.limiters = tuple(active for active in self.root.limiters if active is not limiter)

    def stream(self, flow: Operator[A, B], value: A) -> Iterator[Began | Emitted | Retracted | Done[B]]:
        """Run a flow and yield what happens, `Done` last."""
        _leave_outer_run()
        return self.root.stream(flow, value)

    async def acall(self, flow: Operator[A, B], value: A) -> B:
        """Run a flow in a thread of this run, while the event loop goes on."""
        return await self.root.acall(flow, value)

    async def abatch(self, flow: Operator[A, B], values: Sequence[A]) -> list[B | Failure]:
        """Run a flow on many values in a thread of this run."""
        return await self.root.abatch(flow, values)

    def astream(self, flow: Operator[A, B], value: A) -> AsyncIterator[Began | Emitted | Retracted | Done[B]]:
        """Run a flow in a thread and yield what happens, `Done` last, to `async for`."""
        return self.root.astream(flow, value)

    def cancel(self) -> None:
        """Stop everything: the next step of each thread raises `Cancelled`, and sockets that wait are closed."""
        self.scope.cancel()

    def close(self) -> None:
        """Hand over what is traced and give the threads back."""
        if self.journal is not None:
            self.journal.end_run()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _enter_root(self) -> Iterator[None]:
        """Surround what is called inside, and nothing after it."""
        _leave_outer_run()
        token = current_context.set(self.root)
        try:
            yield
        finally:
            current_context.reset(token)

    # What it cost.

    @property
    def usage(self) -> Usage:
        """Return what the flows needed, results taken from the cache included."""
        return self.root.logical or Usage()

    spent = RenamedAttribute("actual_usage")

    @property
    def actual_usage(self) -> Usage:
        """Return what was really spent."""
        return self.root.spent or Usage()

    def counts(self) -> dict[str, int]:
        """Count how often operators really ran, by type id; shared and cached results did not run.

        >>> from spolia.core.function import step
        >>> @step
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> with Run(share=True) as run:
        ...     _ = double(3), double(3), double.batch([3, 4])
        >>> [count for name, count in run.counts().items() if name.endswith("double")]
        [2]
        """
        counts_by_type: Counter[str] = Counter()
        with self.lock:
            for cls, numbers in list(self.executed.items()):  # to look takes a number too
                looks = self._looks.get(cls, 0)
                counts_by_type[cls.type_id()] += next(numbers) - looks
                self._looks[cls] = looks + 1
        return dict(counts_by_type)

    @property
    def exhausted(self) -> bool:
        """Return whether the budget of the whole run has refused a call: later results are worse than without it."""
        return bool(self.refusal)

    @property
    def refusal(self) -> str:
        """Return why the budget of the whole run refused its first call; empty while it allowed all."""
        return next((limiter.first_refusal for limiter in self.root.limiters if limiter.first_refusal), "")

    # What frames ask for.

    def pool(self) -> "ThreadPoolExecutor | None":
        """Return the threads beside the caller's; None if the caller's is the only one."""
        return None if self.threads == 1 else self.workers()

    def workers(self) -> "ThreadPoolExecutor":
        """Return the threads beside the caller's, at least one: a caller that awaits does not work."""
        if (pool := self._pool) is None:
            with self.lock:
                pool = self._pool = self._pool or make_pool(max(1, self.threads - 1))
        return pool

    def pinned(self, key: object, open: Callable[[], T], serves: Callable[[T], bool]) -> T:
        """Return what was opened first under a key in this run, as long as it serves."""
        with self.lock:
            if key in self._pins and serves(self._pins[key]):
                return self._pins[key]  # type: ignore[no-any-return]
            turn = self._turns.setdefault(key, threading.Lock())
        opening = _opening.get()
        with turn if key not in opening else nullcontext():  # not the lock: a group may be built in threads of the run
            if key in self._pins and serves(self._pins[key]):
                return self._pins[key]  # type: ignore[no-any-return]
            token = _opening.set(opening | {key})
            try:
                value = self._pins[key] = open()
            finally:
                _opening.reset(token)
            return value


def _leave_outer_run() -> None:
    """Tell the surrounding run, if there is one, that it does not see what comes."""
    if isinstance(context := current_context.get(), Frame):
        context.leave_run()


Run.__signature__ = signature(partial(Run.__init__, None))  # type: ignore[attr-defined, arg-type]  # for `help`
