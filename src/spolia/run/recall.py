"""The results of steps, of one value or of a batch: taken where the run or the cache has them, else computed once."""

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
from spolia.core.operator import Operator, explained
from spolia.core.run_context import current_context
from spolia.errors import CodecError
from spolia.journal.cache import Cache, CacheEntry, unshared
from spolia.types import Failure, Filter, Query, Ranking, Usage, Value, digest_of

if TYPE_CHECKING:
    from spolia.run.frame import Frame

A = TypeVar("A")
B = TypeVar("B")
AnyOperator = Operator[Any, Any]
Compute = Callable[["Frame", AnyOperator, Any], Any]
ComputeRows = Callable[["Frame", AnyOperator, Sequence[Any], Sequence["Frame"]], list[Any]]
MOST_BYTES = 512 * 2**20


@dataclass(frozen=True)
class SharedEntry(CacheEntry):
    """A result as it is, the value that it was made of, and what the retrievers inside the step found."""

    given: Any = None
    retrievals: Sequence[Ranking] = ()
    plain: dict[str, Any] = field(default_factory=dict)

    def result(self, op: Operator[Any, Any], value: Any) -> Any:
        """The very result for a value of the same provenance; for others what a cache would give, or `CodecError`."""
        if is_same(self.given, value):
            return unshared(self.value)
        if not (op.cached or op.resources or isinstance(value, Query)):
            raise CodecError(f"{op.short} is cheap, and its value was made in another way.")
        if not self.plain:
            bare = decode(encode(self.value), object)
            again = op.attach(bare, self.given)
            if not (again == self.value if op.cached else is_same(again, self.value)):
                raise CodecError("the next step would get a changed value. Write attach and reads for it.")
            self.plain["value"] = bare
        return op.attach(unshared(self.plain["value"]), value)


class SharedResults(Cache):
    """Results of one run as they are, in memory, `most_bytes` about; the ones used longest ago are dropped first."""

    needs_fingerprint = False

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self.most_bytes, self.bytes = most_bytes, 0

    def share(self, key: bytes, value: Any, out: Any, usage: Usage, retrievals: Sequence[Ranking]) -> None:
        """Hold the result for a value, with what the retrievers inside the step found."""
        size = bytes_of(out) + bytes_of(value) + sum(map(bytes_of, retrievals)) + 500
        with self._lock:
            if key in self._kept:
                self.bytes -= self._kept.pop(key).size
            self._kept[key] = SharedEntry(unshared(out), usage, size, given=value, retrievals=tuple(retrievals))
            self.bytes += size
            while self.bytes > self.most_bytes:
                self.bytes -= self._kept.popitem(last=False)[1].size


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal in their provenance too."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, Value):
        return all(is_same(getattr(one, name), getattr(other, name)) for name in _names(type(one)))  # type: ignore[arg-type]
    return bool(one == other)


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def bytes_of(value: Any) -> int:
    """What a value takes in memory, about; a text that occurs in it twice counts twice."""
    if isinstance(value, Value):
        kept: dict[str, Any] = value.__dict__
        if "_bytes" not in kept:
            kept["_bytes"] = 300 + sum(map(bytes_of, list(kept.values())))
        return int(kept["_bytes"])
    whole = sys.getsizeof(value)
    return whole + sum(map(bytes_of, value)) if isinstance(value, (tuple, list)) else whole


def key_of(
    op: AnyOperator, value: Any, principals: frozenset[str], narrowing: Filter | None, needs_fingerprint: bool = True
) -> bytes | None:
    """What a result depends on: operator, code, resources as they are, who asks, what is read. None: do not cache."""
    parts = [op.digest + op.user_code]
    for resource in op.resources:
        fingerprint = resource.fingerprint()
        if fingerprint is None and needs_fingerprint:
            return None
        parts += [digest_of(resource), (fingerprint or "").encode()]
        if resource.scoped:
            parts.append(digest_of((tuple(sorted(principals)), narrowing)))
    parts.append(digest_of(op.reads(value)))
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


def shared(frame: Frame, op: AnyOperator, value: Any) -> Any:
    """The result of a step: that of an equal one of this run if it shares (but in a kept step), else `kept`."""
    results = frame.run.results
    if results is None or not _is_shared(frame, op):
        return kept(frame, op, value)
    return _recalled(results, frame, op, value, kept)


def _is_shared(frame: Frame, op: AnyOperator) -> bool:
    """Whether the run shares a step; of a sweep, which shares all steps itself, one that costs and no cache keeps."""
    if op.composes or frame.keeping:
        return False
    return frame.account is None or frame.account.shares or (op.cached and frame.run.cache is None)


def kept(frame: Frame, op: AnyOperator, value: Any) -> Any:
    """The result of a step: from the cache if it costs, else computed."""
    results = frame.run.cache
    if results is None or not op.cached:
        return _applied(frame, op, value)
    return _recalled(results, frame, op, value, _applied)


def _applied(frame: Frame, op: AnyOperator, value: Any) -> Any:
    next(frame.run.executed[type(op)])
    found = op.apply(value)
    return found if isinstance(found, op.classes) else op.refused(found)


def _recalled(cache: Cache, frame: Frame, op: AnyOperator, value: Any, compute: Compute) -> Any:
    """What is held, or computed and held; of equal steps at the same time only one is computed."""
    key = _key(cache, frame, op, value)
    if key is None:
        return compute(frame, op, value)
    while (entry := cache.get(key)) is None:
        if cache.claim(key):
            return _computed(cache, key, frame, op, value, compute)
        if _is_inside(frame, key):
            return compute(frame, op, value)
        frame.wait(cache, key)
    return _taken(entry, frame, op, value, compute)


def _is_inside(frame: Frame, key: bytes) -> bool:
    """Whether a step calls itself on an equal value: to wait for itself would take for ever."""
    above = frame.parent
    while above is not None and getattr(above, "claimed", None) != key:
        above = above.parent
    return above is not None


def _key(cache: Cache, frame: Frame, op: AnyOperator, value: Any) -> bytes | None:
    try:
        key = key_of(op, value, frame.run.principals, frame.run.filter, cache.needs_fingerprint)
        return hashlib.blake2b(cache.salt, key=key, digest_size=len(key)).digest() if cache.salt and key else key
    except TypeError as error:  # no content hash
        frame.note(f"not kept: {error}", None)
        return None


def _computed(cache: Cache, key: bytes, frame: Frame, op: AnyOperator, value: Any, compute: Compute) -> Any:
    frame.claimed = key
    try:
        entry = cache.get(key)  # somebody may have put it between our look and our claim
        if entry is not None:
            return _taken(entry, frame, op, value, compute)
        _open(cache, frame)
        started = perf_counter()
        out = compute(frame, op, value)
        _keep(cache, key, frame, op, value, out, perf_counter() - started)
        return out
    finally:
        cache.release(key)


def _open(cache: Cache, frame: Frame) -> None:
    """Record the results of retrievals inside this step, for steps that share its result; or what it reaches, if it is
    cached."""
    if isinstance(cache, SharedResults):
        frame.found = []
    else:
        frame.keeping = True


def _keep(cache: Cache, key: bytes, frame: Frame, op: AnyOperator, value: Any, out: Any, seconds: float) -> None:
    """Keep a result, unless it is degraded, failed, or what it was made from is not declared or has moved meanwhile."""
    if frame.notes is not None or _failed(out) or _key(cache, frame, op, value) != key:
        return
    if isinstance(cache, SharedResults):
        cache.share(key, value, out, frame.logical or Usage(), frame.found or ())
    elif frame.undeclared:
        frame.note(f"not kept: {op.short} depends on {frame.undeclared}, which none of its fields names.", None)
    else:
        try:
            cache.put(
                key,
                out,
                frame.logical or Usage(),
                seconds=seconds + frame.spared,
                comes_back=lambda kept: op.attach(kept, value) == out,
            )
        except CodecError as error:
            frame.note(f"not kept: {error}", None)


def _failed(out: Any) -> bool:
    return isinstance(out, Failure) or (isinstance(out, tuple) and any(map(_failed, out)))


def _taken(entry: CacheEntry, frame: Frame, op: AnyOperator, value: Any, compute: Compute) -> Any:
    try:
        out = entry.result(op, value)
    except CodecError:
        return compute(frame, op, value)
    frame.from_cache = True
    if isinstance(entry, SharedEntry):
        for ranking in entry.retrievals:
            frame.retrieved(ranking)
    if frame.account is not None:
        frame.account.cached = True
    with frame.run.lock:
        frame.spare(entry.seconds)
        if entry.usage != Usage():
            frame.add(entry.usage, Usage())
    return out


@dataclass(eq=False)
class CachedRows:
    """One window of a batch: the results that are kept are taken, the rest computed in one call of `compute`."""

    cache: Cache
    around: Frame
    op: AnyOperator
    values: Sequence[Any]
    frames: Sequence[Frame]
    compute: ComputeRows

    def __post_init__(self) -> None:
        self.results: list[Any] = [None] * len(self.values)

    def recalled(self) -> list[Any]:
        """The result of every row; equal rows are computed once, here or by the thread that already works on it."""
        waiting: dict[bytes, list[int]] = {}
        alone: list[int] = []
        for row, value in enumerate(self.values):
            key = _key(self.cache, self.frames[row], self.op, value)
            if key is None:
                alone.append(row)
            elif not self._take(key, [row]):
                waiting.setdefault(key, []).append(row)
        while waiting:
            mine = {key: rows for key, rows in waiting.items() if self.cache.claim(key)}
            if not mine:
                self.around.wait(self.cache, next(iter(waiting)))
            alone += self._claimed(mine)
            waiting = {key: rows for key, rows in waiting.items() if key not in mine and not self._take(key, rows)}
        self._fill(alone)
        return self.results

    def _claimed(self, mine: dict[bytes, list[int]]) -> list[int]:
        """Compute one row of each key, and give back the rows that its result does not serve."""
        try:
            missing = {key: rows for key, rows in mine.items() if not self._take(key, rows)}
            for row, *_ in missing.values():
                _open(self.cache, self.frames[row])
            started = perf_counter()
            self._fill([rows[0] for rows in missing.values()])
            each = (perf_counter() - started) / max(1, len(missing))
            for key, (row, *_) in missing.items():
                _keep(self.cache, key, self.frames[row], self.op, self.values[row], self.results[row], each)
        finally:
            for key in mine:
                self.cache.release(key)
        return [row for key, (_, *others) in missing.items() if not self._take(key, others) for row in others]

    def _take(self, key: bytes, rows: Sequence[int]) -> bool:
        """Give rows the cached result, each with its own provenance; returns whether there was one."""
        entry = self.cache.get(key) if rows else None
        if entry is None:
            return not rows
        for row in rows:
            self.results[row] = _taken(entry, self.frames[row], self.op, self.values[row], self._alone)
        return True

    def _alone(self, frame: Frame, op: AnyOperator, value: Any) -> Any:
        return self.compute(self.around, op, [value], [frame])[0]

    def _fill(self, rows: Sequence[int]) -> None:
        if rows:
            values, frames = [self.values[row] for row in rows], [self.frames[row] for row in rows]
            for row, result in zip(rows, self.compute(self.around, self.op, values, frames), strict=True):
                self.results[row] = result


def window(around: Frame, op: Operator[A, B], values: Sequence[A], above: Sequence[Frame]) -> list[B | Failure]:
    """Run the rows of one window for a step, each in the frame that `above` gives it."""
    if type(op).apply_batch is Operator.apply_batch:
        steps = [_Step(frame, op, value) for frame, value in zip(above, values, strict=True)]
        return [_named(result, op) for result in around.gather(steps, [op.waiting] * len(steps))]
    frames, run = [frame.inner(op) for frame in above], around.run
    if around.keeping:
        around.reach_all(op)
    if run.journal is not None:
        for frame in frames:
            frame.span = next(run.numbers)
    taken = [unshared(value) for value in values] if run.keeps_values else values
    started = perf_counter()
    if run.results is not None and _is_shared(around, op):
        results = CachedRows(run.results, around, op, values, frames, kept_rows).recalled()
    else:
        results = kept_rows(around, op, values, frames)
    seconds = (perf_counter() - started) / max(1, len(values))
    for frame, value, given, result in zip(frames, values, taken, results, strict=True):
        if isinstance(result, Failure):
            frame.error = f"{result.kind}: {result.message}"
            if frame.account is not None:
                frame.account.failed(result.error)
                frame.count_failure(result.error, f"{result.kind}: {result.message}")
        else:
            frame.gave(value, result)
        frame.record(seconds, given, result)
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
        said = explained(error, op, *values)
        return [Failure.of(said, op.short) for _ in values]
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
