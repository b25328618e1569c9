"""The cache of a run: what is kept is taken, what is missing is computed once, each with its own provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spolia.errors import Cancelled, CodecError
from spolia.journal.cache import Cache, Entry, stripped
from spolia.operator import Operator
from spolia.types import Failure, Usage, digest_of

if TYPE_CHECKING:
    from spolia.run.frame import Frame

Step = Operator[Any, Any]


def key_of(op: Step, value: Any, principals: frozenset[str]) -> bytes | None:
    """What a result depends on: operator, resources as they are now, who asks, what is read. None: do not cache."""
    parts = [op.digest]
    for resource in op.resources:
        fingerprint = resource.fingerprint()
        if fingerprint is None:
            return None
        parts += [digest_of(resource), fingerprint.encode()]
        if resource.scoped:
            parts.append(digest_of(sorted(principals)))
    parts.append(digest_of(op.reads(value)))
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


def recalled(cache: Cache, frame: Frame, op: Step, value: Any) -> Any:
    """The result from the cache, or computed and kept; of equal steps at the same time only one is computed."""
    key = key_of(op, value, frame.access())
    if key is None:
        return op.apply(value)
    while (entry := cache.get(key)) is None:
        if cache.claim(key):
            return _computed(cache, key, frame, op, value)
        cache.wait(key, 0.1)
        if frame.scope.stopped:
            raise Cancelled("The run was cancelled.")
    return _taken(entry, frame, op, value)


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
    """Keep a result, unless it is degraded or what it was made from has moved meanwhile."""
    if frame.notes is None and key_of(op, value, frame.access()) == key:
        try:
            cache.put(key, out, frame.logical or Usage())
        except CodecError as error:
            frame.note(f"not kept: {error}", None)


def _taken(entry: Entry, frame: Frame, op: Step, value: Any) -> Any:
    frame.from_cache = True
    if entry.usage != Usage():
        with frame.run.lock:
            frame.add(entry.usage, Usage())
    return op.attach(entry.value, value)


class Rows:
    """One window of a batch whose results are kept: those that are there are taken, the rest computed in one call."""

    def __init__(self, cache: Cache, above: Frame, op: Step, values: Sequence[Any], frames: Sequence[Frame]) -> None:
        self.cache, self.above, self.op, self.values, self.frames = cache, above, op, values, frames
        self.results: list[Any] = [None] * len(values)

    def recalled(self) -> list[Any]:
        """The result of every row; equal rows are computed once."""
        missing: dict[bytes | int, list[int]] = {}
        for row, value in enumerate(self.values):
            key = key_of(self.op, value, self.above.access())
            entry = self.cache.get(key) if key is not None else None
            if entry is not None:
                self.results[row] = _taken(entry, self.frames[row], self.op, value)
            else:
                missing.setdefault(row if key is None else key, []).append(row)
        self._compute([rows[0] for rows in missing.values()])
        for shared, (row, *others) in missing.items():
            result = self.results[row]
            if isinstance(shared, bytes) and not isinstance(result, Failure):
                _keep(self.cache, shared, self.frames[row], self.op, self.values[row], result)
            if others:
                self._share(row, others)
        return self.results

    def _compute(self, rows: Sequence[int]) -> None:
        """Fill in the results of some rows by one call."""
        if rows:
            values, frames = [self.values[row] for row in rows], [self.frames[row] for row in rows]
            for row, result in zip(rows, self.above.vectorised(self.op, values, frames), strict=True):
                self.results[row] = result

    def _share(self, row: int, others: Sequence[int]) -> None:
        """Give what one row gave to rows equal to it, each with its own provenance."""
        try:
            entry = Entry(stripped(self.results[row]), self.frames[row].logical or Usage())
        except CodecError:
            self._compute(others)
            return
        for other in others:
            self.results[other] = _taken(entry, self.frames[other], self.op, self.values[other])
            for note in self.frames[row].notes or ():
                self.frames[other].degrade(note, None)
