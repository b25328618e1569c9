"""One thread that keeps all deadlines of a process: a thread for each request would cost more than the request."""

import heapq
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """Timer thread that calls functions when they are due."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int]] = []  # cancelled entries stay until they are due
        self._calls: dict[int, Callable[[], None]] = {}
        self._number = 0
        self._running = False

    @contextmanager
    def schedule(self, moment: float, call: Callable[[], None]) -> Iterator[None]:
        """Call at a time of `time.monotonic`, unless the block ends before."""
        with self._changed:
            self._number += 1
            number = self._number
            self._calls[number] = call
            soonest = not self._due or moment < self._due[0][0]
            heapq.heappush(self._due, (moment, number))
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="spolia-clock", daemon=True).start()
            elif soonest:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._calls.pop(number, None)
                # Cancelled entries would pile up, since most requests end long before their deadline.
                if len(self._due) > 64 + 4 * len(self._calls):
                    self._due = [entry for entry in self._due if entry[1] in self._calls]
                    heapq.heapify(self._due)

    def _run(self) -> None:
        while True:
            for call in self._take_due():
                call()

    def _take_due(self) -> list[Callable[[], None]]:
        """Return the calls that are due now; wait until the next may be."""
        with self._changed:
            wait_s = self._due[0][0] - time.monotonic() if self._due else None
            if wait_s is None or wait_s > 0:
                self._changed.wait(wait_s)
            now, due_calls = time.monotonic(), []
            while self._due and self._due[0][0] <= now:
                _, number = heapq.heappop(self._due)
                if number in self._calls:
                    due_calls.append(self._calls.pop(number))
            return due_calls


clock = Clock()


def _reset_after_fork() -> None:
    """Replace the clock in a forked child, which lacks this thread."""
    global clock
    clock = Clock()


os.register_at_fork(after_in_child=_reset_after_fork)
