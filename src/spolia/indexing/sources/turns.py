"""Turns of those who ask one host: not two of them sooner after each other than it likes."""

from __future__ import annotations

import threading
import time

from spolia.egress.patience import pause


class Turns:
    """For threads that ask several hosts."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    def wait(self, host: str, delay_s: float) -> None:
        """Wait for a turn; the next one comes so many seconds after it."""
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next.get(host, now))
            self._next[host] = at + delay_s
        if at > now:
            pause(at - now)
