"""The small protocol between a step and the current run, and functions that do the plain thing without a run."""

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
    """A call that the budget has room for, and what it will be charged: its calls alone, unless it is settled."""

    __slots__ = ("spent",)

    def __init__(self, reserved: Usage) -> None:
        self.spent = Usage(calls=reserved.calls)

    def settle(self, usage: Usage) -> None:
        """Replace what was reserved by what was spent."""
        self.spent = usage


class RunContext(Protocol):
    """What the current run does for a step; `spolia.run` implements it. `op` is an operator, which is built on this."""

    def step(self, op: Any, value: Any) -> Any: ...
    def batch(self, op: Any, values: Sequence[Any], rows: Sequence[int] | None) -> list[Any]: ...
    def stream(self, op: Any, value: Any) -> Iterator[Event]: ...
    async def acall(self, op: Any, value: Any) -> Any: ...
    async def abatch(self, op: Any, values: Sequence[Any]) -> list[Any]: ...
    def astream(self, op: Any, value: Any) -> AsyncIterator[Event]: ...
    def gather(self, calls: Sequence[Callable[[], T]], waits: Sequence[bool]) -> list[T | Failure]: ...
    def limited(self, max_calls: int) -> AbstractContextManager[None]: ...
    def reserve(self, usage: Usage, row: int | None) -> AbstractContextManager[Reservation]: ...
    def charge(self, usage: Usage, row: int | None) -> None: ...
    def emit(self, text: str) -> None: ...
    def is_streamed(self) -> bool: ...
    def retract(self) -> None: ...
    def degrade(self, reason: str, row: int | None, error: Exception | None = None, partly: bool = False) -> bool: ...
    def note(self, remark: str, row: int | None, counted: bool = False) -> None: ...
    def exchanged(self, model: str, prompt: Prompt, reply: Any) -> None: ...
    def replied(self, key: Callable[[], bytes | None], ask: Callable[[], T]) -> T: ...
    def check(self) -> None: ...
    def keeps_results(self) -> bool: ...
    def on_cancel(self, close: Callable[[], None]) -> AbstractContextManager[None]: ...
    def pin(self, key: object, open: Callable[[], T], serves: Callable[[T], bool]) -> T: ...
    def reach(self, address: Addressed) -> None: ...
    def access(self) -> frozenset[str]: ...
    def narrowing(self) -> Filter | None: ...


current_context: ContextVar[RunContext | None] = ContextVar("run_context", default=None)
_late: ContextVar[tuple[object, ...]] = ContextVar("late", default=())
"""The steps whose hits the step after them fetches; see `called_late`."""
_overheard: ContextVar[list[str] | None] = ContextVar("overheard", default=None)
_allowed: ContextVar[tuple[list[int], ...]] = ContextVar("allowed", default=())
"""How many calls each guard around a step still allows where there is no run."""


@contextmanager
def overhearing() -> Iterator[list[str]]:
    """Why results that are made inside are degraded, with a run or without one."""
    said: list[str] = []
    token = _overheard.set(said)
    try:
        yield said
    finally:
        _overheard.reset(token)


def charge(usage: Usage, *, row: int | None = None) -> None:
    """Tell the run what a step cost; in `apply_batch`, `row` says which value of the batch it was for."""
    if (context := current_context.get()) is not None:
        context.charge(usage, row)


def replied(key: Callable[[], bytes | None], ask: Callable[[], T]) -> T:
    """The reply of a model, asked unless the run keeps replies and has one under this key."""
    context = current_context.get()
    return ask() if context is None else context.replied(key, ask)


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
def limited(max_calls: int | None) -> Iterator[None]:
    """Limit the calls to language models made inside, with a run or without one."""
    context = current_context.get()
    if context is not None and max_calls is not None:
        with context.limited(max_calls):
            yield
        return
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
    """Whether somebody streams the run, so that text is to be sent as it comes."""
    return (context := current_context.get()) is not None and context.is_streamed()


def retract() -> None:
    """Take back the text that this step has emitted so far."""
    if (context := current_context.get()) is not None:
        context.retract()


def degrade(reason: str, *, row: int | None = None, error: Exception | None = None, partly: bool = False) -> None:
    """Record that a result is not what it would be on a good day: it and all that is made of it is not cached.

    `error` is what failed: if that may pass, the question is worth asking again. `partly`: the step did what it is for
    as far as it could; else the call counts as failed. Where nobody records it, a `DegradedWarning` is given.
    """
    said, context = _overheard.get(), current_context.get()
    if said is not None:
        said.append(reason)
    recorded = context is not None and context.degrade(reason, row, error, partly)
    if said is None and not recorded:
        warnings.warn(f"Degraded result: {reason}", DegradedWarning, stacklevel=_depth())


_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def _depth() -> int:
    """How many frames lie between the caller of this and code that is not Spolia's, as `warnings.warn` counts them."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    return depth


def note(remark: str, *, row: int | None = None, counted: bool = False) -> None:
    """Record something out of order that the same input would give again; `counted`: reports count it by step."""
    if (context := current_context.get()) is not None:
        context.note(remark, row, counted)


def exchanged(model: str, prompt: Prompt, reply: Any) -> None:
    """Tell the run what a language model was sent and what it replied, for the journal."""
    if (context := current_context.get()) is not None:
        context.exchanged(model, prompt, reply)


def called_late(step: Callable[[A], B], value: A, late: tuple[object, ...]) -> B:
    """Call a step in which the `late` ones may leave their hits to be fetched by the step that gets the result.

    They may not where the run keeps what steps give: then somebody else looks at their hits.
    """
    context = current_context.get()
    if context is not None and context.keeps_results():
        return step(value)
    token = _late.set(late)
    try:
        return step(value)
    finally:
        _late.reset(token)


def may_be_late(op: object) -> bool:
    """Whether a step may leave its hits to be fetched by the step after it."""
    return any(op is one for one in _late.get())


def check_cancelled() -> None:
    """Raise `Cancelled` if the caller has stopped the run."""
    if (context := current_context.get()) is not None:
        context.check()


def on_cancel(close: Callable[[], None]) -> AbstractContextManager[None]:
    """While inside, a cancellation calls `close`: for sockets and the like that would block."""
    context = current_context.get()
    return context.on_cancel(close) if context is not None else nullcontext()


def pin(key: object, open: Callable[[], T], serves: Callable[[T], bool] = lambda _: True) -> T:
    """What `open` gave the first time that this run asked for `key`, as long as it `serves`: one snapshot a run."""
    context = current_context.get()
    return context.pin(key, open, serves) if context is not None else open()


def reach(address: Addressed) -> None:
    """Tell the run that a store or model is opened: a cached step that has it in no field is not kept."""
    if (context := current_context.get()) is not None:
        context.reach(address)


def access() -> frozenset[str]:
    """The principals that the run acts for; none without a run."""
    context = current_context.get()
    return context.access() if context is not None else frozenset()


def narrowing() -> Filter | None:
    """What the run's caller allows to be found; it can only narrow what a query asks for. None: everything."""
    context = current_context.get()
    return context.narrowing() if context is not None else None


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
    """The result of a call, or the failure that it raised."""
    try:
        return call()
    except Exception as error:
        return Failure.of(error)


def whole(results: Sequence[T | Failure]) -> list[T]:
    """The results of a batch; raises the first failure among them."""
    if failed := next((one for one in results if isinstance(one, Failure)), None):
        raise failed.raised()
    return list(results)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Began(Value):
    """A step has begun."""

    step: str


@dataclass(frozen=True)
class Emitted(Value):
    """A piece of text that a step sent. `final`: it belongs to the result of the whole flow, unless it is retracted."""

    text: str
    final: bool


@dataclass(frozen=True)
class Retracted(Value):
    """The last `characters` characters of final text are void: the step that sent them was rejected."""

    characters: int


@dataclass(frozen=True)
class Done(Value, Generic[T]):
    """The result; authoritative."""

    value: T


Event: TypeAlias = Began | Emitted | Retracted | Done[Any]
