"""Workers: processes that read files for this one, each within limits, replaced when they die."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import LifoQueue
from types import TracebackType
from typing import Self, TypeVar

from spolia.errors import DocumentError, ReaderDied
from spolia.indexing.readers.reading import Blob, Container, Reader, Reading
from spolia.indexing.workers.limits import Limits
from spolia.indexing.workers.process import WAIT_S, Died, Process

R = TypeVar("R")


class Workers:
    """A number of processes that read files. Use it in a `with` statement; the processes start when they are needed.

    Args:
        count: how many files are read at the same time.
        limits: for each file.
        spool: folder for parts that are large, and for what readers write; by default that for temporary files, and
            parts are in memory.

    >>> from spolia.indexing.readers.text import TextReader
    >>> with Workers(1) as workers:
    ...     workers.read(TextReader(), Blob("a.txt", b"Stones.")).document.text
    'Stones.'
    """

    def __init__(self, count: int = 2, limits: Limits | None = None, spool: Path | None = None) -> None:
        self.count, self.limits, self.spool = count, limits or Limits(), spool
        self._readers = [Process(self.limits, spool) for _ in range(count)]
        self._unpackers: list[Process] = []
        self._idle: LifoQueue[Process] = LifoQueue()
        for worker in self._readers:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End all processes, also those that somebody waits for."""
        for worker in (*self._readers, *self._unpackers):
            worker.end()

    def read(self, reader: Reader, blob: Blob) -> Reading:
        """What a reader gets out of a blob, read by a worker.

        Raises:
            DocumentError, MissingExtra: the reader refuses it.
            ReaderDied: the reader died on it, or took too much time or memory.
            WorkersFailed: no worker can be started.
        """
        return self.look(reader, blob)[0]

    def look(self, reader: Reader, blob: Blob) -> tuple[Reading, bool]:
        """What `read` gives, and whether something stands in the blob that `parts` would give."""
        return self._persist(reader, blob, lambda worker: worker.read(reader, blob))

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        """What stands in a container, one after the other, while a worker unpacks it that reads nothing else.

        So the parts can be read meanwhile, and opened themselves.

        Raises:
            DocumentError: it cannot be unpacked.
            ReaderDied: the worker died on it.
        """
        worker = next((one for one in self._unpackers if not one.is_busy), None)
        if worker is None:
            self._unpackers.append(worker := Process(self.limits, self.spool))
        worker.is_busy = True
        try:
            yield from worker.parts(container, blob)
        finally:
            worker.is_busy = False

    def _persist(self, reader: Reader, blob: Blob, work: Callable[[Process], R]) -> R:
        worker = self._idle.get()
        try:
            for attempt in range(1, self.limits.attempts + 1):
                try:
                    return work(worker)
                except Died as died:
                    if attempt == self.limits.attempts or died.final:
                        tried = f" Tried {attempt} times." if attempt > 1 else ""
                        kind = ReaderDied if died.passes else DocumentError
                        raise kind(
                            f"The {reader.name} reader {died} on {blob.uri} ({blob.size} bytes).{tried} It was read in "
                            f"a process of its own, and nothing else was harmed. {died.advice}, or leave it out."
                        ) from died
                    time.sleep(WAIT_S * 2**attempt)
            raise AssertionError("the last attempt returns or raises")
        finally:
            self._idle.put(worker)
