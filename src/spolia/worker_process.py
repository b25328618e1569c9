"""A process that serves this one: started when it is needed, killed at its limit of time or memory, and restarted.

What must not be trusted with this process runs there: readers of files, statements for users' databases, and regular
expressions that others wrote. Requests and replies are frames of JSON and bytes: a worker that something hostile took
over can send data only.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, ClassVar, TypeAlias

from spolia import errors
from spolia.core.patterns import is_match
from spolia.core.run_context import on_cancel
from spolia.errors import MissingExtra, SpoliaError, WorkersFailed

if sys.platform != "win32":
    import resource

STARTS = 4
"""How often a worker is started that dies before it has said that it is ready."""
WAIT_S = 0.1
"""Before another attempt; longer before each further one."""
_START_S = 60.0
_HAS_ALARM = sys.platform != "win32"
_MEGABYTE = 2**20
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LENGTHS = struct.Struct("<II")
LARGEST = 2**31
"""Bytes of one frame."""
WireFrame: TypeAlias = tuple[dict[str, Any], list[bytes]]


class WorkerDied(Exception):
    """Error for a worker that did not end what it had begun."""

    def __init__(self, description: str, *, final: bool = False, passes: bool = True, lacked: str = "") -> None:
        super().__init__(description)
        self.final = final  # another attempt would end in the same way
        self.passes = passes  # another time it might not
        self.lacked = lacked  # what it had too little of: `seconds`, `memory_mb`


@dataclass
class WorkerProcess:
    """A worker as this process sees it: asked one thing after the other."""

    memory_mb: int  # of its own, with what Python takes; enforced where the system can (Linux)
    written_mb: int = 512  # of each file that it writes
    temporary: Path | None = None  # its folder for temporary files
    process: subprocess.Popen[bytes] | None = None
    seconds: float = 0.0
    is_late: bool = False
    is_ended: bool = False

    program: ClassVar[str] = "from spolia.worker_process import answer_call, serve; serve(answer_call)"
    refusals: ClassVar[type[SpoliaError]] = SpoliaError
    """What is raised of the errors that a worker names; other names become this one."""
    remedy: ClassVar[str] = "Run it to see why"

    def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float, load: Sequence[Any] | None = None
    ) -> Any:
        """Call a function of a module in the worker; arguments and result are what JSON has. Raise WorkerDied if it
        fails."""
        self.ensure_running()
        self.seconds = seconds
        calls = ((function, *arguments),) if load is None else (load, (function, *arguments))
        specs = [[target.__module__, target.__qualname__, *target_arguments] for target, *target_arguments in calls]
        self.send({}, [json.dumps([seconds, *specs]).encode()])
        return json.loads(self.reply(is_timed=_HAS_ALARM)[1][0])

    def send_request(self, message: dict[str, Any], attached: Sequence[bytes] = ()) -> WireFrame:
        """Send a request, and return the reply to it."""
        self.send(message, attached)
        return self.reply()

    def send(self, message: dict[str, Any], attached: Sequence[bytes] = ()) -> None:
        process = self._require_process()
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # it has died, which the reply will tell
            write_frame(process.stdin, message, attached)

    def reply(self, *, is_timed: bool = False) -> WireFrame:
        """Return the next frame that the worker sends, within its seconds; `is_timed`: it ends itself when they are
        over."""
        process = self._require_process()
        assert process.stdout is not None
        try:
            # A worker that ends itself needs no timer thread here.
            with nullcontext() if is_timed else _clock(self.seconds, self._kill_late):
                frame = read_frame(process.stdout)
        except ValueError as error:
            self.stop()
            raise WorkerDied(f"said what makes no sense ({error})", final=True, passes=False) from error
        if frame is None:
            raise self._death()
        if self.is_late:  # it was killed the moment that it had answered
            self.stop()
        self._raise_error(frame[0])
        return frame

    def _raise_error(self, message: dict[str, Any]) -> None:
        if "memory" in message:
            self.stop()
            raise WorkerDied(f"needed more than {self.memory_mb} MB of memory", final=True, lacked="memory_mb")
        raise_error(message, self.refusals)

    def _death(self) -> WorkerDied:
        process, is_late = self._require_process(), self.is_late
        self.stop()
        code = process.returncode
        if is_late or (_HAS_ALARM and code == -signal.SIGALRM):
            return WorkerDied(f"took longer than {self.seconds:g} s", final=True, lacked="seconds")
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        if code == -signal.SIGABRT:  # as native code ends that gets no more memory
            name += f", perhaps for want of memory: it had {self.memory_mb} MB"
        return WorkerDied(f"died ({name})")

    def _kill_late(self) -> None:
        self.is_late = True
        if self.process is not None:
            self.process.kill()

    def _require_process(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise WorkerDied("was ended", final=True)
        return self.process

    def ensure_running(self) -> None:
        """Start it if it does not run. Raises WorkersFailed if it cannot be started."""
        for attempt in range(STARTS):
            if self.is_ended:
                break
            if self.process is not None and self.process.poll() is None:
                return
            self.stop()
            time.sleep(WAIT_S * (2**attempt - 1))  # not before the first attempt
            self._start()
        raise WorkersFailed(
            f"No worker process could be started: {sys.executable} -c '{self.program}' ends immediately. {self.remedy}."
        )

    def _start(self) -> None:
        # The worker finds the same modules as this process, also those that were added to sys.path.
        modules = os.pathsep.join(path or os.curdir for path in sys.path)
        folders = {"PYTHONPATH": modules} | ({"TMPDIR": str(self.temporary.absolute())} if self.temporary else {})
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **folders},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            write_frame(self.process.stdin, {"memory_mb": self.memory_mb, "written_mb": self.written_mb})
            with _clock(_START_S, self.process.kill):
                ready = read_frame(self.process.stdout)
            if ready is not None:
                return
        self.stop()

    def end(self) -> None:
        """End the process for good, also while somebody waits for it."""
        self.is_ended = True
        self.stop()

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self.process, self.is_late = self.process, None, False
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError, ValueError):
                assert stream is not None
                stream.close()


@contextmanager
def _clock(seconds: float, end: Callable[[], None]) -> Iterator[None]:
    clock = threading.Timer(seconds, end)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


_idle: defaultdict[int, list[WorkerProcess]] = defaultdict(list)
_idle_alone: defaultdict[object, list[WorkerProcess]] = defaultdict(list)
"""By memory, and by what a worker serves alone."""
MOST_ALONE = 4
"""Kept workers that serve one thing alone, each with its memory."""
# A forked child must not use or end the workers of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)
    os.register_at_fork(after_in_child=_idle_alone.clear)


@atexit.register
def _end_idle() -> None:
    for worker in chain(*_idle.values(), *_idle_alone.values()):
        worker.end()


@contextmanager
def borrow_worker(memory_mb: int, serves: object = None) -> Iterator[WorkerProcess]:
    """Borrow a worker that nobody else asks meanwhile, kept for the next who wants one. A cancelled run ends it.

    Args:
        serves: the one thing that it serves; None for whatever comes.
    """
    idle = _idle[memory_mb] if serves is None else _idle_alone[memory_mb, serves]
    try:
        worker = idle.pop()
    except IndexError:
        worker = WorkerProcess(memory_mb)
    try:
        with on_cancel(worker.stop):
            yield worker
    finally:
        idle.append(worker)
        for key in list(_idle_alone)[:-MOST_ALONE]:
            for idle_worker in _idle_alone.pop(key, ()):
                idle_worker.end()


_MATCH_MB = 256
_HARMLESS = 2_000
"""Characters in which a pattern with one repetition and no alternatives ends within milliseconds."""


def pattern_matches(pattern: re.Pattern[str], method: str, text: str, seconds: float) -> bool:
    """Check whether a pattern that others wrote matches, by `search` or `fullmatch`; raise WorkerDied if it takes
    longer.

    One that repeats something could take for ever, and no thread can break it off, so a worker tries it.
    """
    arguments = pattern.pattern, pattern.flags, method, text
    repeated = len(re.findall(r"[*+?{]", pattern.pattern))
    if not repeated or (repeated == 1 and "|" not in pattern.pattern and len(text) <= _HARMLESS):
        return is_match(*arguments)
    with borrow_worker(_MATCH_MB) as worker:
        return bool(worker.call(is_match, *arguments, seconds=seconds))


def serve(answer: Callable[[dict[str, Any], list[bytes], BinaryIO, BinaryIO], None]) -> None:
    """Be a worker: answer requests until the other side closes. What is printed goes to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # before any code of others: what it prints would break a frame
    sys.stdin.close()
    if (limits := read_frame(requests)) is None:
        return
    _confine(**limits[0])
    write_frame(replies, {"ready": True})
    while (request := read_frame(requests)) is not None:
        try:
            answer(*request, requests, replies)
        except Exception as error:  # a fault on strange input is a reply like another
            write_frame(replies, describe_failure(error))


def describe_failure(error: Exception) -> dict[str, Any]:
    """Describe an error as plain data, which `raise_error` raises again."""
    match error:
        case MemoryError():
            return {"memory": True}
        case MissingExtra():
            return {"missing": [error.extra, error.module, error.purpose, error.cause]}
        case SpoliaError():
            return {"error": type(error).__name__, "message": _encodable_text(error)}
        case RecursionError():
            return {"fault": "it is nested too deep"}
    return {"fault": f"{type(error).__name__}: {_encodable_text(error)}"}


def raise_error(message: Mapping[str, Any], refusals: type[SpoliaError]) -> None:
    """Raise the error that a worker names; one of another kind than these `refusals` becomes such a one."""
    if "error" in message:
        kind = getattr(errors, str(message["error"]), refusals)
        if not (isinstance(kind, type) and issubclass(kind, refusals)):
            kind = refusals
        raise kind(str(message["message"]))
    if "missing" in message:
        raise MissingExtra(*map(str, message["missing"]))
    if "fault" in message:
        raise WorkerDied(f"failed ({str(message['fault'])[:500]})", final=True, passes=False)


def _encodable_text(error: Exception) -> str:
    """Return the text of an error, without halves of characters, which no frame takes."""
    return str(error).encode("utf-8", "backslashreplace").decode()


def answer_call(message: dict[str, Any], attached: list[bytes], requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer `WorkerProcess.call`."""
    seconds, *calls = json.loads(attached[0])
    *load, function = (
        partial(getattr(importlib.import_module(module), name), *arguments) for module, name, *arguments in calls
    )
    for prepare in load:
        prepare()
    try:
        if _HAS_ALARM:
            # without a handler the signal ends the process, also inside code in C
            signal.setitimer(signal.ITIMER_REAL, seconds)
        result = json.dumps(function()).encode()
    finally:
        if _HAS_ALARM:
            signal.setitimer(signal.ITIMER_REAL, 0)
    write_frame(replies, {}, [result])


def _confine(memory_mb: int, written_mb: int) -> None:
    """Limit this process for good."""
    if sys.platform == "win32":  # it has none of this; time is limited from outside there too
        return
    memory, file_size = memory_mb * _MEGABYTE, written_mb * _MEGABYTE
    # Linux limits data alone; elsewhere only the whole address space can be limited.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    for resource_kind, limit in ((kind, memory), (resource.RLIMIT_FSIZE, file_size), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a lower limit is there already
            resource.setrlimit(resource_kind, (limit, limit))


def die_with_parent() -> None:
    """End this process with the thread that started it, however that ends: nobody waits for it any more."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def pickle_value(value: object, instead: str) -> bytes:
    """Pickle a value for another process. Raise SpoliaError, with what to do instead, if no other process could make
    it."""
    try:
        data = pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _unsendable_error(value, str(error), instead) from error
    if b"__main__" in data:
        reason = "it is defined in the program that was started, which no other process imports"
        raise _unsendable_error(value, reason, instead)
    return data


def _unsendable_error(value: object, reason: str, instead: str) -> SpoliaError:
    return SpoliaError(
        f"{value!r:.300} cannot be sent to another process ({reason}). Define it in a module that can be imported, or "
        f"{instead}."
    )


def write_frame(stream: IO[bytes], message: Mapping[str, Any], attached: Sequence[bytes] = ()) -> None:
    """Write a frame; `message` is what JSON has, `attached` is written as it is."""
    head = json.dumps({**message, "sizes": [len(item) for item in attached]}, ensure_ascii=False).encode()
    total = sum(map(len, attached))
    if len(head) > LARGEST or total > LARGEST:
        raise errors.DocumentError(f"Its content has {len(head) + total} bytes, more than the limit. Split it.")
    stream.write(_LENGTHS.pack(len(head), total))
    stream.write(head)
    for item in attached:
        stream.write(item)
    stream.flush()


def read_frame(stream: IO[bytes]) -> WireFrame | None:
    """Read a frame; None where the other side has closed or died. Raises ValueError where it is no frame."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    size, total = _LENGTHS.unpack(lengths)
    # A worker that something hostile took over may announce any length: checked before memory is taken.
    if size > LARGEST or total > LARGEST:
        raise ValueError(f"a frame of {size} and {total} bytes")
    head, body = stream.read(size), stream.read(total)
    if len(head) < size or len(body) < total:
        return None
    message = json.loads(head)
    attached, offset = [], 0
    for length in message.pop("sizes"):
        attached.append(body[offset : offset + length])
        offset += length
    return message, attached
