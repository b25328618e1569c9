"""Worker processes that read files: start, requests, limits, and failures."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import LifoQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from spolia.core.run_context import check_cancelled
from spolia.errors import DocumentError, ReaderDied, SpoliaError
from spolia.indexing.readers.reader import Blob, Container, FileReader
from spolia.indexing.workers.prepare import EMPTY_PLAN, Prepared, SplitPlan
from spolia.indexing.workers.protocol import WorkerLimits, decode_prepared, decode_vectors
from spolia.worker_process import WAIT_S, WireFrame, WorkerDied, WorkerProcess, pickle_value

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder
    from spolia.types.arrays import Vectors


HERE = "read in this process: workers=0"


class ReaderProcess(WorkerProcess):
    """Worker that reads, unpacks or embeds."""

    program = "from spolia.indexing.workers.protocol import main; main()"
    refusals = DocumentError
    remedy = f"Run it to see why, or {HERE}"

    def __init__(self, limits: WorkerLimits, spool: Path | None = None) -> None:
        super().__init__(limits.memory_mb, limits.written_mb, spool)
        self.limits, self.spool, self.is_busy = limits, spool, False

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan) -> Prepared:
        reply, attached = self._request("prepare", reader, blob, plan)
        with self._check_reply("reading"):
            return decode_prepared(reply, attached)

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        self.ensure_running()
        self.seconds = self.limits.seconds
        reply, attached = self.send_request({"task": "embed", "texts": list(texts)}, [pickle_value(embedder, HERE)])
        with self._check_reply("vectors"):
            return decode_vectors(reply, attached, len(texts), embedder.dimension)

    @contextmanager
    def _check_reply(self, content: str) -> Iterator[None]:
        """Refuse a reply that is not what it should be; whatever took the worker over may have sent it."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError) as error:
            self.stop()
            raise WorkerDied(
                f"gave no {content} ({type(error).__name__}: {error})", final=True, passes=False
            ) from error

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        is_running = True
        try:
            reply, attached = self._request("parts", container, blob)
            while "part" in reply:
                yield Blob(
                    str(reply["part"]), self._find_spooled(str(reply["file"])) if "file" in reply else attached[0]
                )
                if "file" in reply:
                    self.send({})
                reply, attached = self.reply()
            is_running = False
        except WorkerDied as died:
            kind = ReaderDied if died.passes else DocumentError
            raise kind(
                f"The {container.name} reader {died} on {blob.uri} ({blob.size} bytes). {_advice(died)}"
            ) from died
        finally:
            if is_running:  # who asked wants no more, and the rest would be taken for the next reply
                self.stop()

    def _request(
        self, task: str, reader: FileReader | Container, blob: Blob, plan: SplitPlan = EMPTY_PLAN
    ) -> WireFrame:
        self.ensure_running()
        self.seconds = self.limits.seconds_for(blob.size)
        path = str(blob.content.absolute()) if isinstance(blob.content, Path) else ""
        spool = str(self.spool.absolute()) if self.spool else ""
        request = {"task": task, "uri": blob.uri, "path": path, "spool": spool}
        return self.send_request(
            request, [pickle_value(reader, HERE), b"" if path else blob.data, pickle_value(plan, HERE)]
        )

    def _find_spooled(self, name: str) -> Path:
        """Return a part that the worker put into the spool folder; nothing else is opened, whatever it says."""
        assert self.spool is not None
        path = self.spool / os.path.basename(name)
        if not path.is_file() or path.is_symlink():
            raise WorkerDied(f"gave no part ({name!r})", final=True, passes=False)
        return path


def _advice(died: WorkerDied) -> str:
    """Write what to do about a source that a worker died on."""
    option = {"seconds": "--file-seconds", "memory_mb": "--file-mb"}.get(died.lacked, "")
    allow = (
        f", allow more with sync(..., limits=WorkerLimits({died.lacked}=...), rebuild=True), on the command line with "
        f"{option} and --rebuild"
    )
    return f"Save the file again{allow if option else ''}, or leave it out."


class WorkerProcesses:
    """Processes on this machine as an `Executor`. Use it in a `with` statement; they start when they are needed.

    Args:
        count: how many files are read at the same time.
        limits: for each file.
        spool: folder for parts that are large, and for what readers write; by default that for temporary files, and
            parts are in memory.

    >>> from spolia.indexing.readers.text import TextReader
    >>> with WorkerProcesses(1) as workers:
    ...     workers.prepare(TextReader(), Blob("a.txt", b"Stones.")).reading.document.text
    'Stones.'
    """

    def __init__(self, count: int = 2, limits: WorkerLimits | None = None, spool: Path | None = None) -> None:
        self.count, self.limits, self.spool = count, limits or WorkerLimits(), spool
        self._readers = [ReaderProcess(self.limits, spool) for _ in range(count)]
        self._embedders = [ReaderProcess(self.limits, spool) for _ in range(count)]  # which open no file of others
        self._unfit: set[str] = set()
        self._unpackers: list[ReaderProcess] = []
        # Last in, first out: a worker that runs already is taken before one that has to be started.
        self._idle, self._idle_embedders = LifoQueue[ReaderProcess](), LifoQueue[ReaderProcess]()
        for reader, embedder in zip(self._readers, self._embedders, strict=True):
            self._idle.put(reader)
            self._idle_embedders.put(embedder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End all processes, also those that somebody waits for."""
        for worker in (*self._readers, *self._embedders, *self._unpackers):
            worker.end()

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan = EMPTY_PLAN) -> Prepared:
        """Have a worker read and split a blob.

        Raises:
            DocumentError, MissingExtra: the reader refuses it.
            ReaderDied: the reader died on it, or took too much time or memory.
            WorkersFailed: no worker can be started.
        """
        worker = self._idle.get()
        try:
            for attempt in range(1, self.limits.attempts + 1):
                try:
                    return worker.prepare(reader, blob, plan)
                except WorkerDied as died:
                    if attempt == self.limits.attempts or died.final:
                        tried = f" Tried {attempt} times." if attempt > 1 else ""
                        kind = ReaderDied if died.passes else DocumentError
                        raise kind(
                            f"The {reader.name} reader {died} on {blob.uri} ({blob.size} bytes).{tried} It was read in "
                            f"a process of its own, and nothing else was harmed. {_advice(died)}"
                        ) from died
                    time.sleep(WAIT_S * 2**attempt)  # it may have died because memory was short
            raise AssertionError("the last attempt returns or raises")
        finally:
            self._idle.put(worker)

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        """Embed texts in a worker; if one fails, in this process from then on, so that it tells why."""
        worker = self._idle_embedders.get()
        try:
            if embedder.name not in self._unfit:
                return worker.embed(embedder, texts)
        except (WorkerDied, SpoliaError):
            check_cancelled()
            self._unfit.add(embedder.name)
        finally:
            self._idle_embedders.put(worker)
        return embedder.embed(texts, kind="passage")

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        """Yield the members of a container, one after the other, unpacked by a worker that reads nothing else.

        So the parts can be read meanwhile, and opened themselves.

        Raises:
            DocumentError: it cannot be unpacked.
            ReaderDied: the worker died on it.
        """
        worker = next((unpacker for unpacker in self._unpackers if not unpacker.is_busy), None)
        if worker is None:
            self._unpackers.append(worker := ReaderProcess(self.limits, self.spool))
        worker.is_busy = True
        try:
            yield from worker.parts(container, blob)
        finally:
            worker.is_busy = False
