"""Sessions of local models: opened once in a process, again in one that was forked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

S = TypeVar("S")


class OpenSessions(Generic[S]):
    """Sessions by what they are opened from.

    A session does not survive a fork: its threads are gone, and to free it would wait for them without end. A forked
    process keeps it unused and opens its own.

    >>> sessions = OpenSessions[list[int]]()
    >>> sessions.get("a", lambda: [1]) is sessions.get("a", lambda: [2])
    True
    >>> sessions.get("a", lambda: [2], state="the file has changed")
    [2]
    """

    def __init__(self) -> None:
        self._left_behind: list[object] = []
        self._begin()
        os.register_at_fork(after_in_child=self._forget)

    def get(self, key: Hashable, make: Callable[[], S], state: object = None) -> S:
        """The session of a key; made on its first use, and again where `state` is another one."""
        with self._opening:
            held = self._open.get(key)
            if held is None or held[0] != state:
                held = self._open[key] = (state, make())
        return held[1]

    def _begin(self) -> None:
        self._open: dict[Hashable, tuple[object, S]] = {}
        self._opening = threading.Lock()

    def _forget(self) -> None:
        self._left_behind.append(self._open)
        self._begin()
