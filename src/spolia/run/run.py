"""The run: the one place for everything that surrounds a step.

    with Run(principal="ann", budget=Budget(calls=20)) as run:
        answer = flow(Query("Who employed Carsten Olsen?"))

Without a run a flow is a chain of plain calls: no trace, no cache, no threads, nobody's rights.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Token
from types import TracebackType
from typing import Any, Self, TypeVar

from spolia.errors import Cancelled, CodecError
from spolia.journal.cache import Cache, Entry, stripped
from spolia.journal.trace import Journal, new_run_id
from spolia.operator import Operator
from spolia.run.budget import Budget, Limiter
from spolia.run.frame import Frame, pool_of
from spolia.run.stream import Scope
from spolia.surrounding import Event, Surrounding, surrounding
from spolia.types import Failure, Usage, digest_of

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Run:
    """Run flows with what surrounds them.

    Args:
        principal: who asks; without one only what everybody may see is found.
        groups: principals that the asker also acts for.
        budget: limit of the whole run.
        per_question: limit of each question, that is of each call or row at the top.
        journal: where spans go; without one nothing is traced.
        cache: where costly results are kept; without one nothing is.
        threads: how many steps may run at the same time, the caller's own thread included.
        window: rows of a batch that are in memory at the same time.

    >>> from spolia.operator import operator
    >>> @operator
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> with Run() as run:
    ...     (double >> double)(3), double.batch([1, 2])
    (12, [2, 4])
    """

    def __init__(
        self,
        *,
        principal: str = "",
        groups: Sequence[str] = (),
        budget: Budget | None = None,
        per_question: Budget | None = None,
        journal: Journal | None = None,
        cache: Cache | None = None,
        threads: int = 8,
        window: int = 256,
    ) -> None:
        self.id = new_run_id()
        self.principals = frozenset(name for name in (principal, *groups) if name)
        self.per_question, self.journal, self.cache = per_question, journal, cache
        self.threads, self.window = max(1, threads), max(1, window)
        self.lock = threading.RLock()
        self.scope = Scope()
        self.numbers = itertools.count(1)
        self._pins: dict[object, Any] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._tokens: list[Token[Surrounding | None]] = []
        self.root = Frame(self, None, None)
        if budget is not None:
            self.root.limiters = (Limiter(budget, "this run"),)

    # Running.

    def __enter__(self) -> Self:
        self._tokens.append(surrounding.set(self.root))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        surrounding.reset(self._tokens.pop())
        if error is not None and not isinstance(error, Exception):
            self.cancel()
        if not self._tokens:
            self.close()

    def __call__(self, flow: Operator[A, B], value: A) -> B:
        """Run a flow on one value."""
        token = surrounding.set(self.root)
        try:
            return flow(value)
        finally:
            surrounding.reset(token)

    def batch(self, flow: Operator[A, B], values: Sequence[A]) -> list[B | Failure]:
        """Run a flow on many values; a failed one becomes a `Failure`."""
        token = surrounding.set(self.root)
        try:
            return flow.batch(values)
        finally:
            surrounding.reset(token)

    def stream(self, flow: Operator[A, B], value: A) -> Iterator[Event]:
        """Run a flow and yield what happens, `Done` last."""
        return self.root.stream(flow, value)

    def cancel(self) -> None:
        """Stop everything: the next step of each thread raises `Cancelled`, and sockets that wait are closed."""
        self.scope.cancel()

    def close(self) -> None:
        """Hand over what is traced and give the threads back."""
        if self.journal is not None:
            self.journal.hand_over()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    # What it cost.

    @property
    def usage(self) -> Usage:
        """What the flows needed, results taken from the cache included."""
        return self.root.logical or Usage()

    @property
    def spent(self) -> Usage:
        """What was really spent."""
        return self.root.spent or Usage()

    # What frames ask for.

    def pool(self) -> ThreadPoolExecutor | None:
        """The threads beside the caller's; none when the caller's is the only one."""
        if self.threads == 1:
            return None
        if self._pool is None:
            with self.lock:
                self._pool = self._pool or pool_of(self.threads - 1)
        return self._pool

    def pinned(self, key: object, open: Callable[[], T]) -> T:
        """What was opened first under a key in this run."""
        with self.lock:
            if key not in self._pins:
                self._pins[key] = open()
            found: T = self._pins[key]
            return found

    def listed(self, notes: Sequence[str]) -> str:
        """Notes as they are kept in the journal."""
        return json.dumps(list(notes))

    # Cache.

    def key(self, op: Operator[Any, Any], value: Any) -> bytes | None:
        """What a result depends on: operator, resources as they are now, who asks, what is read. None: do not cache."""
        parts = [op.digest]
        for resource in op.resources:
            fingerprint = resource.fingerprint()
            if fingerprint is None:
                return None
            parts += [digest_of(resource), fingerprint.encode()]
            if resource.scoped:
                parts.append(digest_of(sorted(self.principals)))
        parts.append(digest_of(op.reads(value)))
        return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()

    def recalled(self, frame: Frame, op: Operator[A, B], value: A) -> B:
        """The result from the cache, or computed and kept; of equal steps at the same time only one is computed."""
        cache = self.cache
        key = self.key(op, value)
        if cache is None or key is None:
            return op.apply(value)
        while (entry := cache.get(key)) is None:
            if cache.claim(key):
                found: B = self._computed(cache, key, frame, op, value)
                return found
            cache.wait(key, 0.1)
            if frame.scope.stopped:
                raise Cancelled("The run was cancelled.")
        taken: B = self._taken(entry, frame, op, value)
        return taken

    def _computed(self, cache: Cache, key: bytes, frame: Frame, op: Operator[Any, Any], value: Any) -> Any:
        try:
            entry = cache.get(key)
            if entry is not None:
                return self._taken(entry, frame, op, value)
            out = op.apply(value)
            self._keep(cache, key, frame, op, value, out)
            return out
        finally:
            cache.release(key)

    def _keep(self, cache: Cache, key: bytes, frame: Frame, op: Operator[Any, Any], value: Any, out: Any) -> None:
        """Keep a result, unless it is degraded or what it was made from has moved meanwhile."""
        if frame.notes is None and self.key(op, value) == key:
            try:
                cache.put(key, out, frame.logical or Usage())
            except CodecError as error:
                frame.notes = [f"not kept: {error}"]

    def _taken(self, entry: Entry, frame: Frame, op: Operator[Any, Any], value: Any) -> Any:
        frame.from_cache = True
        if entry.usage != Usage():
            with self.lock:
                frame.add(entry.usage, Usage())
        return op.attach(entry.value, value)

    def recalled_batch(
        self, above: Frame, op: Operator[A, B], values: Sequence[A], frames: Sequence[Frame]
    ) -> list[B | Failure]:
        """The same for a batch: what is kept is taken, the rest computed in one call, equal rows once."""
        cache = self.cache
        assert cache is not None
        keys = [self.key(op, value) for value in values]
        results: list[Any] = [None] * len(values)
        missing: dict[bytes | int, list[int]] = {}
        for row, key in enumerate(keys):
            entry = cache.get(key) if key is not None else None
            if entry is not None:
                results[row] = self._taken(entry, frames[row], op, values[row])
            else:
                missing.setdefault(row if key is None else key, []).append(row)
        first = [rows[0] for rows in missing.values()]
        self._compute(above, op, values, frames, first, results)
        for shared, (row, *others) in missing.items():
            result = results[row]
            if isinstance(shared, bytes) and not isinstance(result, Failure):
                self._keep(cache, shared, frames[row], op, values[row], result)
            if others:
                self._share(above, op, values, frames, results, row, others)
        return results

    def _compute(
        self,
        above: Frame,
        op: Operator[Any, Any],
        values: Sequence[Any],
        frames: Sequence[Frame],
        rows: Sequence[int],
        results: list[Any],
    ) -> None:
        """Fill in the results of some rows by one call."""
        if rows:
            computed = above.vectorised(op, [values[row] for row in rows], [frames[row] for row in rows])
            for row, result in zip(rows, computed, strict=True):
                results[row] = result

    def _share(
        self,
        above: Frame,
        op: Operator[Any, Any],
        values: Sequence[Any],
        frames: Sequence[Frame],
        results: list[Any],
        row: int,
        others: Sequence[int],
    ) -> None:
        """Give what one row gave to rows equal to it, each with its own provenance."""
        try:
            entry = Entry(stripped(results[row]), frames[row].logical or Usage())
        except CodecError:
            self._compute(above, op, values, frames, others, results)
            return
        for other in others:
            results[other] = self._taken(entry, frames[other], op, values[other])
            for note in frames[row].notes or ():
                frames[other].degrade(note, None)
