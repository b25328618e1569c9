"""Protocol between a step and the current run, and its functions, which also work without a run."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from spolia.errors import BudgetSpent, DegradedWarning
from spolia.types import Addressed, Failure, Filter, Prompt, Usage, Value

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Reservation:
    """Call that the budget has room for, and its charge: its calls alone, unless it is settled."""

    __slots__ = ("spent",)

    def __init__(self, reserved: Usage) -> None:
        self.spent = Usage(calls=reserved.calls)

    def settle(self, usage: Usage) -> None:
        """Replace the reserved usage by the real one."""
        self.spent = usage


class RunContext(Protocol):
    """Services of the current run for a step; `spolia.run` implements it. `op` is an operator, built on this."""

    def step(self, op: Any, value: Any) -> Any: ...
    def batch(self, op: Any, values: Sequence[Any], rows: Sequence[int] | None) -> list[Any]: ...
    def stream(self, op: Any, value: Any) -> Iterator[Event]: ...
    async def acall(self, op: Any, value: Any) -> Any: ...
    async def abatch(self, op: Any, values: Sequence[Any]) -> list[Any]: ...
    def astream(self, op: Any, value: Any) -> AsyncIterator[Event]: ...
    def gather(self, calls: Sequence[Callable[[], T]], waits: Sequence[bool]) -> list[T | Failure]: ...
    def limit_calls(self, max_calls: int) -> AbstractContextManager[None]: ...
    def reserve(self, usage: Usage, row: int | None) -> AbstractContextManager[Reservation]: ...
    def charge(self, usage: Usage, row: int | None) -> None: ...
    def emit(self, text: str) -> None: ...
    def is_streamed(self) -> bool: ...
    def retract(self) -> None: ...
    def degrade(self, reason: str, row: int | None, error: Exception | None = None, partly: bool = False) -> bool: ...
    def note(self, remark: str, row: int | None, is_counted: bool = False) -> None: ...
    def record_exchange(self, model: str, prompt: Prompt, reply: Any) -> None: ...
    def recall_reply(self, key: Callable[[], bytes | None], ask: Callable[[], T]) -> T: ...
    def check(self) -> None: ...
    def keeps_results(self) -> bool: ...
    def on_cancel(self, close: Callable[[], None]) -> AbstractContextManager[None]: ...
    def pin(self, key: object, open: Callable[[], T], serves: Callable[[T], bool]) -> T: ...
    def record_access(self, address: Addressed) -> None: ...
    def access(self) -> frozenset[str]: ...
    def run_filter(self) -> Filter | None: ...


current_context: ContextVar[RunContext | None] = ContextVar("run_context", default=None)
_late_steps: ContextVar[tuple[object, ...]] = ContextVar("late", default=())
"""The steps whose hits the step after them fetches; see `call_late`."""
_degradation_reasons: ContextVar[list[str] | None] = ContextVar("overheard", default=None)
_allowed: ContextVar[tuple[list[int], ...]] = ContextVar("allowed", default=())
"""How many calls each guard around a step still allows where there is no run."""


@contextmanager
def collect_degradations() -> Iterator[list[str]]:
    """Collect the reasons why results made inside are degraded, with a run or without one."""
    reasons: list[str] = []
    token = _degradation_reasons.set(reasons)
    try:
        yield reasons
    finally:
        _degradation_reasons.reset(token)


def charge(usage: Usage, *, row: int | None = None) -> None:
    """Tell the run what a step cost; in `apply_batch`, `row` is the row of the batch that it was for."""
    if (context := current_context.get()) is not None:
        context.charge(usage, row)


def recall_reply(key: Callable[[], bytes | None], ask: Callable[[], T]) -> T:
    """Return the reply that the run has kept under this key, else ask the model."""
    context = current_context.get()
    return ask() if context is None else context.recall_reply(key, ask)


def reserve(usage: Usage, *, row: int | None = None) -> AbstractContextManager[Reservation]:
    """Reserve the upper bound of a call before it is sent; raises `BudgetSpent` if there is no room."""
    if (context := current_context.get()) is not None:
        return context.reserve(usage, row)
    if any(calls[0] < usage.calls for calls in _allowed.get()):
        raise BudgetSpent("The calls that Guard allows are spent. Raise max_calls, or ask for less.")
    for calls in _allowed.get():
        calls[0] -= usage.calls
    return nullcontext(Reservation(usage))


@contextmanager
def limit_calls(max_calls: int | None) -> Iterator[None]:
    """Limit the calls to language models made inside, with a run or without one."""
    context = current_context.get()
    if context is not None and max_calls is not None:
        with context.limit_calls(max_calls):
            yield
        return
    # A list of one, which calls deep inside count down.
    token = _allowed.set(_allowed.get() if max_calls is None else (*_allowed.get(), [max_calls]))
    try:
        yield
    finally:
        _allowed.reset(token)


def emit(text: str) -> None:
    """Send a piece of text to the consumer of a streamed run."""
    if (context := current_context.get()) is not None:
        context.emit(text)


def is_streamed() -> bool:
    """Return whether the run is streamed, so that text is to be sent as it comes."""
    return (context := current_context.get()) is not None and context.is_streamed()


def retract() -> None:
    """Take back the text that this step has emitted so far."""
    if (context := current_context.get()) is not None:
        context.retract()


def degrade(reason: str, *, row: int | None = None, error: Exception | None = None, partly: bool = False) -> None:
    """Record that a result is worse than normal: it and all that is made of it is not cached.

    `error` is what failed: if that may pass, the question is worth asking again. `partly`: the step did what it is for
    as far as it could; else the call counts as failed. Where nobody records it, a `DegradedWarning` is given.
    """
    reasons, context = _degradation_reasons.get(), current_context.get()
    if reasons is not None:
        reasons.append(reason)
    recorded = context is not None and context.degrade(reason, row, error, partly)
    if reasons is None and not recorded:
        warnings.warn(f"Degraded result: {reason}", DegradedWarning, stacklevel=_caller_depth())


_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def _caller_depth() -> int:
    """Count the frames between the caller and code that is not Spolia's, as `warnings.warn` counts them."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    return depth


def note(remark: str, *, row: int | None = None, is_counted: bool = False) -> None:
    """Record a problem that the same input would give again; `is_counted`: reports count it by step."""
    if (context := current_context.get()) is not None:
        context.note(remark, row, is_counted)


def record_exchange(model: str, prompt: Prompt, reply: Any) -> None:
    """Record what a language model was sent and what it replied, for the journal."""
    if (context := current_context.get()) is not None:
        context.record_exchange(model, prompt, reply)


def call_late(step: Callable[[A], B], value: A, late_steps: tuple[object, ...]) -> B:
    """Call a step whose `late_steps` may leave their hits to be fetched by the step that gets the result.

    They may not where the run keeps what steps give: then somebody else looks at their hits.
    """
    context = current_context.get()
    if context is not None and context.keeps_results():
        return step(value)
    token = _late_steps.set(late_steps)
    try:
        return step(value)
    finally:
        _late_steps.reset(token)


def may_be_late(op: object) -> bool:
    """Return whether a step may leave its hits to be fetched by the next step."""
    return any(op is step for step in _late_steps.get())


def check_cancelled() -> None:
    """Raise `Cancelled` if the caller has stopped the run."""
    if (context := current_context.get()) is not None:
        context.check()


def on_cancel(close: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `close` on a cancellation while inside: for sockets and the like that would block."""
    context = current_context.get()
    return context.on_cancel(close) if context is not None else nullcontext()


def pin(key: object, open: Callable[[], T], serves: Callable[[T], bool] = lambda _: True) -> T:
    """Return what `open` gave when this run first asked for `key`, as long as it `serves`: one snapshot a run."""
    context = current_context.get()
    return context.pin(key, open, serves) if context is not None else open()


def record_access(address: Addressed) -> None:
    """Record that a store or model is opened: a cached step that has it in no field is not kept."""
    if (context := current_context.get()) is not None:
        context.record_access(address)


def reach(address: Addressed) -> None:
    """Record an access, by the function's former name."""
    text = "reach is record_access now. The former name goes with the next minor version."
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    record_access(address)


def access() -> frozenset[str]:
    """Return the principals that the run acts for; none without a run."""
    context = current_context.get()
    return context.access() if context is not None else frozenset()


def run_filter() -> Filter | None:
    """Return the caller's filter, which can only narrow that of a query; None for everything."""
    context = current_context.get()
    return context.run_filter() if context is not None else None


def gather(calls: Sequence[Callable[[], T]], *, waits: bool | Sequence[bool] = True) -> list[T | Failure]:
    """Run calls at the same time where the run has threads, and return their results or failures in order.

    Args:
        waits: whether they wait for a server or a disk, or for each call if it does. The others run in turn: threads
            would share one processor, and to start them takes longer than a search.
    """
    context = current_context.get()
    if context is not None:
        return context.gather(calls, [waits] * len(calls) if isinstance(waits, bool) else waits)
    return [attempt(call) for call in calls]


def attempt(call: Callable[[], T]) -> T | Failure:
    """Return the result of a call, or the failure that it raised."""
    try:
        return call()
    except Exception as error:
        return Failure.from_error(error)


def raise_first_failure(results: Sequence[T | Failure]) -> list[T]:
    """Return the results of a batch; raise the first failure among them."""
    if failed := next((result for result in results if isinstance(result, Failure)), None):
        raise failed.raised()
    return list(results)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Began(Value):
    """Start of a step."""

    step: str


@dataclass(frozen=True)
class Emitted(Value):
    """Piece of text that a step sent. `final`: it belongs to the result of the whole flow, unless it is retracted."""

    text: str
    final: bool


@dataclass(frozen=True)
class Retracted(Value):
    """Retraction of the last `characters` characters of final text: the step that sent them was rejected."""

    characters: int


@dataclass(frozen=True)
class Done(Value, Generic[T]):
    """Result of the run; authoritative over streamed text."""

    value: T


Event: TypeAlias = Began | Emitted | Retracted | Done[Any]
