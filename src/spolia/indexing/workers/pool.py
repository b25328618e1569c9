"""The other side of a worker: its process, what it is asked, and what is made of its end."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import LifoQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from spolia import errors
from spolia.core.run_context import charge, check_cancelled
from spolia.errors import DocumentError, MissingExtra, ReaderDied, SpoliaError, WorkersFailed
from spolia.indexing.readers.reader import Blob, Container, FileReader
from spolia.indexing.workers.prepare import NOTHING, Prepared, SplitPlan
from spolia.indexing.workers.protocol import WorkerLimits, pieces_of, reading_of, receive, send
from spolia.types import Usage

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder
    from spolia.types.arrays import Vectors

STARTS = 4
"""How often a worker is started that dies before it has said that it is ready."""
WAIT_S = 0.1
"""Before another attempt; longer before each further one."""
_START_S = 60.0


class Died(Exception):
    """A worker did not end what it had begun.

    Args:
        final: another attempt at once would end in the same way.
        passes: another time it might not.
        more: the field of `WorkerLimits` that may have been too small.
    """

    def __init__(self, how: str, *, final: bool = False, passes: bool = True, more: str = "") -> None:
        super().__init__(how)
        self.final, self.passes = final, passes
        option = {"seconds": "--file-seconds", "memory_mb": "--file-mb"}.get(more)
        allow = f", allow more with sync(..., limits=WorkerLimits({more}=...), rebuild=True)" if more else ""
        allow += f", on the command line with {option} and --rebuild" if option else ""
        self.advice = f"Save the file again{allow}"


@dataclass
class Process:
    """A worker as this process sees it: asked one thing after the other, started when it is needed, and anew when it
    has died."""

    limits: WorkerLimits
    spool: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    seconds: float = 0.0
    late: bool = False
    is_busy: bool = False
    ended: bool = False

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan) -> Prepared:
        said, attached = self._asked("prepare", reader, blob, plan)
        with self._understanding("reading"):
            return Prepared(reading_of(said, attached), pieces_of(said["pieces"]), bool(said["has_parts"]))

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        import numpy as np

        self._running()
        self.seconds = self.limits.seconds
        self._send({"task": "embed", "texts": list(texts)}, [pickled(embedder)])
        said, attached = self._reply()
        with self._understanding("vectors"):
            usage = Usage(*map(int, said["usage"])).but(cost_usd=float(said["cost_usd"]))
            found = np.frombuffer(attached[0], "<f4").reshape(len(texts), embedder.dimension)
            if not np.isfinite(found).all():
                raise ValueError("they are not finite")
        charge(usage)
        return found

    @contextmanager
    def _understanding(self, what: str) -> Iterator[None]:
        """Make of what a worker sends what it should be; whatever took the worker over may have sent it."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError) as error:
            self.stop()
            raise Died(f"gave no {what} ({type(error).__name__}: {error})", final=True, passes=False) from error

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        under_way = True
        try:
            said, attached = self._asked("parts", container, blob)
            while "part" in said:
                yield Blob(str(said["part"]), self._spooled(str(said["file"])) if "file" in said else attached[0])
                if "file" in said:
                    self._send({})
                said, attached = self._reply()
            under_way = False
        except Died as died:
            kind = ReaderDied if died.passes else DocumentError
            raise kind(
                f"The {container.name} reader {died} on {blob.uri} ({blob.size} bytes). {died.advice}, or leave it out."
            ) from died
        finally:
            if under_way:  # who asked wants no more, and the rest would be taken for the next reply
                self.stop()

    def _asked(
        self, task: str, reader: FileReader | Container, blob: Blob, plan: SplitPlan = NOTHING
    ) -> tuple[dict[str, Any], list[bytes]]:
        self._running()
        self.seconds = self.limits.seconds_for(blob.size)
        path = str(blob.content.absolute()) if isinstance(blob.content, Path) else ""
        spool = str(self.spool.absolute()) if self.spool else ""
        request = {"task": task, "uri": blob.uri, "path": path, "spool": spool}
        self._send(request, [pickled(reader), b"" if path else blob.data, pickled(plan)])
        return self._reply()

    def _send(self, said: dict[str, Any], attached: Sequence[bytes] = ()) -> None:
        process = self._begun()
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # it has died, which the reply will tell
            send(process.stdin, said, attached)

    def _spooled(self, name: str) -> Path:
        """A part that the worker has put into the folder for them; nothing else is opened, whatever it says."""
        assert self.spool is not None
        path = self.spool / os.path.basename(name)
        if not path.is_file() or path.is_symlink():
            raise Died(f"gave no part ({name!r})", final=True, passes=False)
        return path

    def _reply(self) -> tuple[dict[str, Any], list[bytes]]:
        process = self._begun()
        assert process.stdout is not None
        clock = threading.Timer(self.seconds, self._too_late)
        clock.daemon = True
        clock.start()
        try:
            found = receive(process.stdout)
        except ValueError as error:
            self.stop()
            raise Died(f"said what makes no sense ({error})", final=True, passes=False) from error
        finally:
            clock.cancel()
        if found is None:
            raise self._death()
        if self.late:  # it was killed the moment that it had answered
            self.stop()
        self._raise_said(found[0])
        return found

    def _raise_said(self, said: dict[str, Any]) -> None:
        if "error" in said:
            kind = getattr(errors, str(said["error"]), DocumentError)
            if not (isinstance(kind, type) and issubclass(kind, DocumentError)):
                kind = DocumentError
            raise kind(str(said["message"]))
        if "missing" in said:
            extra, module, purpose = map(str, said["missing"])
            raise MissingExtra(extra, module, purpose)
        if "memory" in said:
            self.stop()
            raise Died(f"needed more than {self.limits.memory_mb} MB of memory", final=True, more="memory_mb")
        if "fault" in said:
            raise Died(f"failed ({str(said['fault'])[:500]})", final=True, passes=False)

    def _death(self) -> Died:
        process, late = self._begun(), self.late
        self.stop()
        if late:
            return Died(f"took longer than {self.seconds:g} s", final=True, more="seconds")
        code = process.returncode
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        if code == -signal.SIGABRT:  # as native code ends that gets no more memory
            name += f", perhaps for want of memory: it had {self.limits.memory_mb} MB"
        return Died(f"died ({name})")

    def _too_late(self) -> None:
        self.late = True
        if self.process is not None:
            self.process.kill()

    def _begun(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise Died("was ended", final=True)
        return self.process

    def _running(self) -> subprocess.Popen[bytes]:
        for attempt in range(STARTS):
            if self.ended:
                break
            if self.process is not None and self.process.poll() is None:
                return self.process
            self.stop()
            time.sleep(WAIT_S * (2**attempt - 1))
            self._start()
        raise WorkersFailed(
            f"No process that reads files could be started: {sys.executable} -m spolia.indexing.workers.worker ends "
            "at once. Run it to see why, or read in this process: workers=0."
        )

    def _start(self) -> None:
        command = [sys.executable, "-m", "spolia.indexing.workers.worker"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._folders()},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            send(self.process.stdin, {}, [pickle.dumps((self.limits,))])
            clock = threading.Timer(_START_S, self.process.kill)
            clock.daemon = True
            clock.start()
            ready = receive(self.process.stdout)
            clock.cancel()
            if ready is not None:
                return
        self.stop()

    def _folders(self) -> dict[str, str]:
        """Where it finds modules, and where it writes."""
        modules = os.pathsep.join(path or os.curdir for path in sys.path)
        return {"PYTHONPATH": modules} | ({"TMPDIR": str(self.spool.absolute())} if self.spool else {})

    def end(self) -> None:
        """End the process for good, also while somebody waits for it."""
        self.ended = True
        self.stop()

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self.process, self.late = self.process, None, False
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError, ValueError):
                assert stream is not None
                stream.close()


def pickled(reader: object) -> bytes:
    """A reader, plan or embedder for another process. Raises SpoliaError where no other process could make it."""
    try:
        found = pickle.dumps(reader)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _not_sent(reader, str(error)) from error
    if b"__main__" in found:
        raise _not_sent(reader, "it is defined in the program that was started, which no other process imports")
    return found


def _not_sent(reader: object, why: str) -> SpoliaError:
    return SpoliaError(
        f"{reader!r} cannot be sent to another process ({why}). Define it in a module that can be imported, or read in "
        "this process: workers=0."
    )


class WorkerProcesses:
    """An `Executor` of processes on this machine. Use it in a `with` statement; they start when they are needed.

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
        self._readers = [Process(self.limits, spool) for _ in range(count)]
        self._embedders = [Process(self.limits, spool) for _ in range(count)]  # which open no file of others
        self._unfit: set[str] = set()
        self._unpackers: list[Process] = []
        self._idle, self._idle_embedders = LifoQueue[Process](), LifoQueue[Process]()
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

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan = NOTHING) -> Prepared:
        """What a worker makes of a blob.

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

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, by a worker; where one fails, by this process from then on, so that it tells why."""
        worker = self._idle_embedders.get()
        try:
            if embedder.name not in self._unfit:
                return worker.embed(embedder, texts)
        except (Died, SpoliaError):
            check_cancelled()
            self._unfit.add(embedder.name)
        finally:
            self._idle_embedders.put(worker)
        return embedder.embed(texts, kind="passage")

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
