"""Results of steps, for one value or a batch: taken from the run or the cache, else computed once."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from spolia.core.codec import decode, encode
from spolia.core.operator import Operator, explain_error
from spolia.core.run_context import current_context
from spolia.errors import CodecError
from spolia.journal.cache import Cache, CacheEntry, copy_mutable
from spolia.types import Failure, Filter, Query, Ranking, Usage, Value, digest_of

if TYPE_CHECKING:
    from spolia.run.step_frame import StepFrame

A = TypeVar("A")
B = TypeVar("B")
AnyOperator = Operator[Any, Any]
Compute = Callable[["StepFrame", AnyOperator, Any], Any]
ComputeRows = Callable[["StepFrame", AnyOperator, Sequence[Any], Sequence["StepFrame"]], list[Any]]
MOST_BYTES = 512 * 2**20


@dataclass(frozen=True)
class SharedEntry(CacheEntry):
    """Result as it is, the value it was made of, and the rankings of the retrievers inside the step."""

    source_value: Any = None
    retrievals: Sequence[Ranking] = ()
    plain: dict[str, Any] = field(default_factory=dict)

    def restore(self, op: Operator[Any, Any], value: Any) -> Any:
        """Return the very result for a value of the same provenance, else what a cache would give, or raise
        `CodecError`."""
        if is_same(self.source_value, value):
            return copy_mutable(self.value)
        if not (op.cached or op.resources or isinstance(value, Query)):
            raise CodecError(f"{op.short} is cheap, and its value was made in another way.")
        if not self.plain:
            plain_value = decode(encode(self.value), object)
            reattached = op.attach(plain_value, self.source_value)
            if not (reattached == self.value if op.cached else is_same(reattached, self.value)):
                raise CodecError("the next step would get a changed value. Write attach and reads for it.")
            self.plain["value"] = plain_value
        return op.attach(copy_mutable(self.plain["value"]), value)


class SharedResults(Cache):
    """Results of one run as they are, in memory, about `most_bytes`; the least recently used are dropped first."""

    needs_fingerprint = False

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self.most_bytes, self.bytes = most_bytes, 0

    def share(self, key: bytes, value: Any, out: Any, usage: Usage, retrievals: Sequence[Ranking]) -> None:
        """Hold the result for a value, with the rankings of the retrievers inside the step."""
        size = bytes_of(out) + bytes_of(value) + sum(map(bytes_of, retrievals)) + 500
        with self._lock:
            if key in self._entries:
                self.bytes -= self._entries.pop(key).size
            self._entries[key] = SharedEntry(
                copy_mutable(out), usage, size, source_value=value, retrievals=tuple(retrievals)
            )
            self.bytes += size
            while self.bytes > self.most_bytes:
                self.bytes -= self._entries.popitem(last=False)[1].size


def is_same(first: Any, second: Any) -> bool:
    """Return whether two values are equal in their provenance too."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(is_same, first, second))
    if isinstance(first, Value):
        return all(is_same(getattr(first, name), getattr(second, name)) for name in _names(type(first)))  # type: ignore[arg-type]
    return bool(first == second)


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def bytes_of(value: Any) -> int:
    """Estimate the memory of a value; a text that occurs twice in it counts twice."""
    if isinstance(value, Value):
        state: dict[str, Any] = value.__dict__
        if "_bytes" not in state:
            state["_bytes"] = 300 + sum(map(bytes_of, list(state.values())))
        return int(state["_bytes"])
    size = sys.getsizeof(value)
    return size + sum(map(bytes_of, value)) if isinstance(value, (tuple, list)) else size


def key_of(
    op: AnyOperator, value: Any, principals: frozenset[str], run_filter: Filter | None, needs_fingerprint: bool = True
) -> bytes | None:
    """Hash what a result depends on: operator, code, state of resources, principals, values. None: do not cache."""
    parts = [op.digest + op.user_code]
    for resource in op.resources:
        fingerprint = resource.fingerprint()
        if fingerprint is None and needs_fingerprint:
            return None
        parts += [digest_of(resource), (fingerprint or "").encode()]
        if resource.scoped:
            parts.append(digest_of((tuple(sorted(principals)), run_filter)))
    parts.append(digest_of(op.reads(value)))
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


def apply_shared(frame: StepFrame, op: AnyOperator, value: Any) -> Any:
    """Return the result of a step, from an equal one of this run if it shares and no step around is kept, else by
    `apply_cached`."""
    results = frame.run.results
    if results is None or not _is_shared(frame, op):
        return apply_cached(frame, op, value)
    return _recall(results, frame, op, value, apply_cached)


def _is_shared(frame: StepFrame, op: AnyOperator) -> bool:
    """Return whether the run shares a step; a sweep shares all itself, so there only costly ones without a cache."""
    if op.composes or frame.tracks_access:
        return False
    return frame.account is None or frame.account.shares or (op.cached and frame.run.cache is None)


def apply_cached(frame: StepFrame, op: AnyOperator, value: Any) -> Any:
    """Return the result of a step: from the cache if it costs, else computed."""
    results = frame.run.cache
    if results is None or not op.cached:
        return _apply(frame, op, value)
    return _recall(results, frame, op, value, _apply)


def _apply(frame: StepFrame, op: AnyOperator, value: Any) -> Any:
    next(frame.run.executed[type(op)])
    result = op.apply(value)
    return result if isinstance(result, op.classes) else op.refuse_result(result)


def _recall(cache: Cache, frame: StepFrame, op: AnyOperator, value: Any, compute: Compute) -> Any:
    """Return the held result, or compute and hold it; of equal steps at the same time only one is computed."""
    key = _make_key(cache, frame, op, value)
    if key is None:
        return compute(frame, op, value)
    while (entry := cache.get(key)) is None:
        if cache.claim(key):
            return _compute_and_keep(cache, key, frame, op, value, compute)
        if _is_inside(frame, key):
            return compute(frame, op, value)
        frame.wait(cache, key)
    return _take_entry(entry, frame, op, value, compute)


def _is_inside(frame: StepFrame, key: bytes) -> bool:
    """Return whether a step calls itself on an equal value: waiting for itself would take for ever."""
    ancestor = frame.parent
    while ancestor is not None and getattr(ancestor, "claimed_key", None) != key:
        ancestor = ancestor.parent
    return ancestor is not None


def _make_key(cache: Cache, frame: StepFrame, op: AnyOperator, value: Any) -> bytes | None:
    try:
        key = key_of(op, value, frame.run.principals, frame.run.filter, cache.needs_fingerprint)
        return hashlib.blake2b(cache.salt, key=key, digest_size=len(key)).digest() if cache.salt and key else key
    except TypeError as error:  # no content hash
        frame.note(f"not kept: {error}", None)
        return None


def _compute_and_keep(cache: Cache, key: bytes, frame: StepFrame, op: AnyOperator, value: Any, compute: Compute) -> Any:
    frame.claimed_key = key
    try:
        entry = cache.get(key)  # somebody may have put it between our look and our claim
        if entry is not None:
            return _take_entry(entry, frame, op, value, compute)
        _start_recording(cache, frame)
        started = perf_counter()
        out = compute(frame, op, value)
        _keep_result(cache, key, frame, op, value, out, perf_counter() - started)
        return out
    finally:
        cache.release(key)


def _start_recording(cache: Cache, frame: StepFrame) -> None:
    """Record the rankings of retrievers inside this step for steps that share its result; or its accesses, if it is
    cached."""
    if isinstance(cache, SharedResults):
        frame.retrievals = []
    else:
        frame.tracks_access = True


def _keep_result(
    cache: Cache, key: bytes, frame: StepFrame, op: AnyOperator, value: Any, out: Any, seconds: float
) -> None:
    """Keep a result unless it is degraded, failed, or made from something undeclared or changed meanwhile."""
    if frame.notes is not None or _has_failed(out) or _make_key(cache, frame, op, value) != key:
        return
    if isinstance(cache, SharedResults):
        cache.share(key, value, out, frame.logical or Usage(), frame.retrievals or ())
    elif frame.undeclared_access:
        frame.note(f"not kept: {op.short} depends on {frame.undeclared_access}, which none of its fields names.", None)
    else:
        try:
            cache.save(
                key,
                out,
                frame.logical or Usage(),
                seconds=seconds + frame.spared,
                comes_back=lambda stored_value: op.attach(stored_value, value) == out,
            )
        except CodecError as error:
            frame.note(f"not kept: {error}", None)


def _has_failed(out: Any) -> bool:
    return isinstance(out, Failure) or (isinstance(out, tuple) and any(map(_has_failed, out)))


def _take_entry(entry: CacheEntry, frame: StepFrame, op: AnyOperator, value: Any, compute: Compute) -> Any:
    try:
        out = entry.restore(op, value)
    except CodecError:
        return compute(frame, op, value)
    frame.from_cache = True
    if isinstance(entry, SharedEntry):
        for ranking in entry.retrievals:
            frame.record_retrieval(ranking)
    if frame.account is not None:
        frame.account.cached = True
    with frame.run.lock:
        frame.spare(entry.seconds)
        if entry.usage != Usage():
            frame.add_usage(entry.usage, Usage())
    return out


@dataclass(eq=False)
class CachedRows:
    """One window of a batch: kept results are taken, the rest computed in one call of `compute`."""

    cache: Cache
    parent: StepFrame
    op: AnyOperator
    values: Sequence[Any]
    frames: Sequence[StepFrame]
    compute: ComputeRows

    def __post_init__(self) -> None:
        self.results: list[Any] = [None] * len(self.values)

    def recall(self) -> list[Any]:
        """Return the result of every row; equal rows are computed once, here or by a thread already on it."""
        waiting: dict[bytes, list[int]] = {}
        alone: list[int] = []
        for row, value in enumerate(self.values):
            key = _make_key(self.cache, self.frames[row], self.op, value)
            if key is None:
                alone.append(row)
            elif not self._take(key, [row]):
                waiting.setdefault(key, []).append(row)
        while waiting:
            # What is claimed is computed before anything is waited for: two batches never wait for each other.
            mine = {key: rows for key, rows in waiting.items() if self.cache.claim(key)}
            if not mine:
                self.parent.wait(self.cache, next(iter(waiting)))
            alone += self._compute_claimed(mine)
            waiting = {key: rows for key, rows in waiting.items() if key not in mine and not self._take(key, rows)}
        self._fill(alone)
        return self.results

    def _compute_claimed(self, mine: dict[bytes, list[int]]) -> list[int]:
        """Compute one row of each key, and return the rows that its result does not serve."""
        try:
            missing = {key: rows for key, rows in mine.items() if not self._take(key, rows)}
            for row, *_ in missing.values():
                _start_recording(self.cache, self.frames[row])
            started = perf_counter()
            self._fill([rows[0] for rows in missing.values()])
            row_seconds = (perf_counter() - started) / max(1, len(missing))
            for key, (row, *_) in missing.items():
                _keep_result(
                    self.cache, key, self.frames[row], self.op, self.values[row], self.results[row], row_seconds
                )
        finally:
            for key in mine:
                self.cache.release(key)
        return [
            row for key, (_, *equal_rows) in missing.items() if not self._take(key, equal_rows) for row in equal_rows
        ]

    def _take(self, key: bytes, rows: Sequence[int]) -> bool:
        """Give rows the cached result, each with its own provenance; return whether there was one."""
        entry = self.cache.get(key) if rows else None
        if entry is None:
            return not rows
        for row in rows:
            self.results[row] = _take_entry(entry, self.frames[row], self.op, self.values[row], self._compute_row)
        return True

    def _compute_row(self, frame: StepFrame, op: AnyOperator, value: Any) -> Any:
        return self.compute(self.parent, op, [value], [frame])[0]

    def _fill(self, rows: Sequence[int]) -> None:
        if rows:
            values, frames = [self.values[row] for row in rows], [self.frames[row] for row in rows]
            for row, result in zip(rows, self.compute(self.parent, self.op, values, frames), strict=True):
                self.results[row] = result


def run_window(
    parent: StepFrame, op: Operator[A, B], values: Sequence[A], parents: Sequence[StepFrame]
) -> list[B | Failure]:
    """Run the rows of one window for a step, each in the frame of `parents` at its place."""
    if type(op).apply_batch is Operator.apply_batch:
        steps = [_Step(frame, op, value) for frame, value in zip(parents, values, strict=True)]
        return [_name_failure(result, op) for result in parent.gather(steps, [op.waiting] * len(steps))]
    frames, run = [frame.make_inner(op) for frame in parents], parent.run
    if parent.tracks_access:
        parent.record_resources(op)
    if run.journal is not None:
        for frame in frames:
            frame.span = next(run.numbers)
    inputs = [copy_mutable(value) for value in values] if run.keeps_values else values
    started = perf_counter()
    if run.results is not None and _is_shared(parent, op):
        results = CachedRows(run.results, parent, op, values, frames, apply_rows_cached).recall()
    else:
        results = apply_rows_cached(parent, op, values, frames)
    seconds = (perf_counter() - started) / max(1, len(values))
    for frame, value, input_value, result in zip(frames, values, inputs, results, strict=True):
        if isinstance(result, Failure):
            frame.error = f"{result.kind}: {result.message}"
            if frame.account is not None:
                frame.account.record_failure(result.error)
                frame.count_failure(result.error, f"{result.kind}: {result.message}")
        else:
            frame.record_result(value, result)
        frame.record(seconds, input_value, result)
    return results


def apply_rows_cached(
    parent: StepFrame, op: Operator[Any, Any], values: Sequence[Any], frames: Sequence[StepFrame]
) -> list[Any | Failure]:
    """Return the results of rows: from the cache if they cost, else computed."""
    if op.cached and (cache := parent.run.cache) is not None:
        return CachedRows(cache, parent, op, values, frames, apply_rows).recall()
    return apply_rows(parent, op, values, frames)


def apply_rows(
    parent: StepFrame, op: Operator[Any, Any], values: Sequence[Any], frames: Sequence[StepFrame]
) -> list[Any | Failure]:
    """Call `apply_batch` once; its costs go to the frames of the rows."""
    parent.check()
    batch_frame = parent.make_inner(op)
    batch_frame.rows, batch_frame.tracks_access = frames, any(frame.tracks_access for frame in frames)
    token = current_context.set(batch_frame)
    deque(islice(parent.run.executed[type(op)], len(values)), maxlen=0)
    try:
        return op.checked_results(values)
    except Exception as error:
        parent.check()
        explained_error = explain_error(error, op, *values)
        return [Failure.from_error(explained_error, op.short) for _ in values]
    finally:
        current_context.reset(token)


class _Step:
    """Call of one row of a batch, under the frame of its row."""

    __slots__ = ("frame", "op", "value")

    def __init__(self, frame: StepFrame, op: Operator[Any, Any], value: Any) -> None:
        self.frame, self.op, self.value = frame, op, value

    def __call__(self) -> Any:
        return self.frame.step(self.op, self.value)


def _name_failure(result: Any, op: Operator[Any, Any]) -> Any:
    return result.but(step=op.short) if isinstance(result, Failure) and not result.step else result
