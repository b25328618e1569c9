"""Threads that run flows for requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeAlias
from weakref import finalize

Work: TypeAlias = Callable[[], "Callable[[], None] | None"]
_Queue: TypeAlias = "SimpleQueue[Work | None]"


class RequestThreads:
    """Pool with one thread for each work in progress; the thread that worked last works next.

    `ThreadPoolExecutor` has one queue for all threads: each item wakes an idle thread in vain, and the thread that
    works next is the one whose memory is coldest (`benchmarks/answers.py`). The caller bounds the work.

    >>> from queue import Queue
    >>> done = Queue()
    >>> RequestThreads().submit(lambda: done.put("done"))
    >>> done.get()
    'done'
    """

    def __init__(self) -> None:
        self._idle: deque[_Queue] = deque()
        finalize(self, _end, self._idle)

    def submit(self, work: Work) -> None:
        """Work in a thread, then call what the work returns: the thread is free for the next work by then."""
        try:
            queue = self._idle.pop()
        except IndexError:
            queue = SimpleQueue()
            Thread(target=_work_on, args=(queue, self._idle), daemon=True, name="spolia-request").start()
        queue.put(work)


def _work_on(queue: _Queue, idle: deque[_Queue]) -> None:
    while (work := queue.get()) is not None:
        tell = work()
        del work  # what it holds may be large, and the next work may come late
        idle.append(queue)  # before `tell`, which may bring the next work
        if tell is not None:
            tell()
        del tell


def _end(idle: deque[_Queue]) -> None:
    for queue in idle:
        queue.put(None)
