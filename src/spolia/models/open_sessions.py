"""Sessions of local models: opened once in a process, again in one that was forked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

S = TypeVar("S")


class OpenSessions(Generic[S]):
    """Sessions by the key that they are opened from.

    A session does not survive a fork: its threads are gone, and to free it would wait for them without end. A forked
    process keeps it unused and opens its own.

    >>> sessions = OpenSessions[list[int]]()
    >>> sessions.get("a", lambda: [1]) is sessions.get("a", lambda: [2])
    True
    >>> sessions.get("a", lambda: [2], state="the file has changed")
    [2]
    """

    def __init__(self) -> None:
        self._parent_sessions: list[object] = []
        self._reset()
        os.register_at_fork(after_in_child=self._reset_after_fork)

    def get(self, key: Hashable, make: Callable[[], S], state: object = None) -> S:
        """Return the session of a key; made on its first use, and again if `state` is another one."""
        with self._lock:
            entry = self._sessions.get(key)
            if entry is None or entry[0] != state:  # under the lock: two threads must not load one model twice
                entry = self._sessions[key] = (state, make())
        return entry[1]

    def _reset(self) -> None:
        self._sessions: dict[Hashable, tuple[object, S]] = {}
        self._lock = threading.Lock()

    def _reset_after_fork(self) -> None:
        # Freeing a session of the parent would wait for threads that the child lacks.
        self._parent_sessions.append(self._sessions)
        self._reset()
