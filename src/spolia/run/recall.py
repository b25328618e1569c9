"""The cache of a run: what is kept is taken, what is missing is computed once, each with its own provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from spolia.errors import CodecError
from spolia.journal.cache import Cache, Entry
from spolia.operator import Operator
from spolia.types import Failure, Filter, Usage, digest_of

if TYPE_CHECKING:
    from spolia.run.frame import Frame

Step = Operator[Any, Any]


def key_of(op: Step, value: Any, principals: frozenset[str], narrowing: Filter | None) -> bytes | None:
    """What a result depends on: operator, resources as they are now, who asks, what is read. None: do not cache."""
    parts = [op.digest]
    for resource in op.resources:
        fingerprint = resource.fingerprint()
        if fingerprint is None:
            return None
        parts += [digest_of(resource), fingerprint.encode()]
        if resource.scoped:
            parts.append(digest_of((tuple(sorted(principals)), narrowing)))
    parts.append(digest_of(op.reads(value)))
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


def recalled(cache: Cache, frame: Frame, op: Step, value: Any) -> Any:
    """The result from the cache, or computed and kept; of equal steps at the same time only one is computed."""
    key = _key(frame, op, value)
    if key is None:
        return op.apply(value)
    while (entry := cache.get(key)) is None:
        if cache.claim(key):
            return _computed(cache, key, frame, op, value)
        cache.wait(key, 0.1)
        frame.check()
    return _taken(entry, frame, op, value)


def _key(frame: Frame, op: Step, value: Any) -> bytes | None:
    try:
        return key_of(op, value, frame.access(), frame.narrowing())
    except TypeError as error:  # no content hash
        frame.note(f"not kept: {error}", None)
        return None


def _computed(cache: Cache, key: bytes, frame: Frame, op: Step, value: Any) -> Any:
    try:
        entry = cache.get(key)  # somebody may have put it between our look and our claim
        if entry is not None:
            return _taken(entry, frame, op, value)
        out = op.apply(value)
        _keep(cache, key, frame, op, value, out)
        return out
    finally:
        cache.release(key)


def _keep(cache: Cache, key: bytes, frame: Frame, op: Step, value: Any, out: Any) -> None:
    """Keep a result, unless it is degraded, failed, or what it was made from has moved meanwhile."""
    if frame.notes is None and not _failed(out) and key_of(op, value, frame.access(), frame.narrowing()) == key:
        try:
            cache.put(key, out, frame.logical or Usage(), comes_back=lambda kept: op.attach(kept, value) == out)
        except CodecError as error:
            frame.note(f"not kept: {error}", None)


def _failed(out: Any) -> bool:
    return isinstance(out, Failure) or (isinstance(out, tuple) and any(map(_failed, out)))


def _taken(entry: Entry, frame: Frame, op: Step, value: Any) -> Any:
    frame.from_cache = True
    if frame.account is not None:
        frame.account.cached = True
    if entry.usage != Usage():
        with frame.run.lock:
            frame.add(entry.usage, Usage())
    return op.attach(entry.value, value)


class Rows:
    """One window of a batch whose results are kept: those that are there are taken, the rest computed in one call.

    Args:
        compute: gives the results of some rows in one call.
    """

    def __init__(
        self,
        cache: Cache,
        around: Frame,
        op: Step,
        values: Sequence[Any],
        frames: Sequence[Frame],
        compute: Callable[[Frame, Step, Sequence[Any], Sequence[Frame]], list[Any]],
    ) -> None:
        self.cache, self.around, self.op, self.values, self.frames = cache, around, op, values, frames
        self.compute = compute
        self.results: list[Any] = [None] * len(values)

    def recalled(self) -> list[Any]:
        """The result of every row; equal rows are computed once, here or by whoever is at it already."""
        waiting: dict[bytes, list[int]] = {}
        alone: list[int] = []
        for row, value in enumerate(self.values):
            key = _key(self.frames[row], self.op, value)
            if key is None:
                alone.append(row)
            elif not self._take(key, [row]):
                waiting.setdefault(key, []).append(row)
        while waiting:
            mine = {key: rows for key, rows in waiting.items() if self.cache.claim(key)}
            if not mine:
                self.cache.wait(next(iter(waiting)), 0.1)
                self.around.check()
            alone += self._claimed(mine)
            waiting = {key: rows for key, rows in waiting.items() if key not in mine and not self._take(key, rows)}
        self._fill(alone)
        return self.results

    def _claimed(self, mine: dict[bytes, list[int]]) -> list[int]:
        """Compute one row of each key, and give back the rows that its result does not serve."""
        try:
            missing = {key: rows for key, rows in mine.items() if not self._take(key, rows)}
            self._fill([rows[0] for rows in missing.values()])
            for key, (row, *_) in missing.items():
                _keep(self.cache, key, self.frames[row], self.op, self.values[row], self.results[row])
        finally:
            for key in mine:
                self.cache.release(key)
        return [row for key, (_, *others) in missing.items() if not self._take(key, others) for row in others]

    def _take(self, key: bytes, rows: Sequence[int]) -> bool:
        """Give rows what is kept, each with its own provenance; whether there was something."""
        entry = self.cache.get(key) if rows else None
        if entry is None:
            return not rows
        for row in rows:
            self.results[row] = _taken(entry, self.frames[row], self.op, self.values[row])
        return True

    def _fill(self, rows: Sequence[int]) -> None:
        """Compute some rows by one call."""
        if rows:
            values, frames = [self.values[row] for row in rows], [self.frames[row] for row in rows]
            for row, result in zip(rows, self.compute(self.around, self.op, values, frames), strict=True):
                self.results[row] = result
