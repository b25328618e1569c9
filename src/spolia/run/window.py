"""One window of a batch: every row under a frame of its own, the work of all in one call where that is faster."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from spolia.core.operator import Operator, located
from spolia.core.run_context import current_context
from spolia.run.recall import CachedRows
from spolia.types import Failure

if TYPE_CHECKING:
    from spolia.run.frame import Frame

A = TypeVar("A")
B = TypeVar("B")


def window(around: Frame, op: Operator[A, B], values: Sequence[A], above: Sequence[Frame]) -> list[B | Failure]:
    """Run the rows of one window for a step, each in the frame that `above` gives it."""
    if type(op).apply_batch is Operator.apply_batch:
        steps = [_Step(frame, op, value) for frame, value in zip(above, values, strict=True)]
        return [_named(result, op) for result in around.gather(steps, op.waiting)]
    frames, run = [frame.inner(op) for frame in above], around.run
    if around.keeping:
        around.reach_all(op)
    if run.journal is not None:
        for frame in frames:
            frame.span = next(run.numbers)
    started = perf_counter()
    if run.results is not None and not op.composes and not around.keeping:
        results = CachedRows(run.results, around, op, values, frames, kept_rows).recalled()
    else:
        results = kept_rows(around, op, values, frames)
    seconds = (perf_counter() - started) / max(1, len(values))
    for frame, value, result in zip(frames, values, results, strict=True):
        if isinstance(result, Failure):
            frame.error = f"{result.kind}: {result.message}"
            if frame.account is not None:
                frame.account.failed(result.error)
                frame.count_failure(result.error, f"{result.kind}: {result.message}")
        else:
            frame.gave(value, result)
        frame.record(seconds, result)
    return results


def kept_rows(
    around: Frame, op: Operator[Any, Any], values: Sequence[Any], frames: Sequence[Frame]
) -> list[Any | Failure]:
    """The results of rows: from the cache if they cost, else computed."""
    if op.cached and (cache := around.run.cache) is not None:
        return CachedRows(cache, around, op, values, frames, vectorised).recalled()
    return vectorised(around, op, values, frames)


def vectorised(
    around: Frame, op: Operator[Any, Any], values: Sequence[Any], frames: Sequence[Frame]
) -> list[Any | Failure]:
    """One call of `apply_batch`, whose costs go to the frames of the rows."""
    around.check()
    shared = around.inner(op)
    shared.rows, shared.keeping = frames, any(frame.keeping for frame in frames)
    token = current_context.set(shared)
    deque(islice(around.run.executed[type(op)], len(values)), maxlen=0)
    try:
        return op.results(values)
    except Exception as error:
        around.check()
        located(error, op)
        return [Failure.of(error, op.short) for _ in values]
    finally:
        current_context.reset(token)


class _Step:
    """One row of a batch, run under the frame of its row."""

    __slots__ = ("frame", "op", "value")

    def __init__(self, frame: Frame, op: Operator[Any, Any], value: Any) -> None:
        self.frame, self.op, self.value = frame, op, value

    def __call__(self) -> Any:
        return self.frame.step(self.op, self.value)


def _named(result: Any, op: Operator[Any, Any]) -> Any:
    return result.but(step=op.short) if isinstance(result, Failure) and not result.step else result
