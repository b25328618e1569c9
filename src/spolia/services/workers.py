"""Workers of a service: processes, here or on other machines, that read, split and embed; and their launchers.

The service hands calls of an `Executor` over as jobs of the store's table, with their bytes. A worker needs only the
address of that table: it reads jobs as plain data, and never opens the store.
"""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from os import getpid
from secrets import token_hex
from socket import gethostname
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from spolia.core.codec import decode, encode
from spolia.core.deprecation import renamed_arguments
from spolia.core.environment import refuse_env
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import CodecError, DocumentError, QueryError, ReaderDied, SpoliaError, WorkersFailed
from spolia.indexing.readers.reader import Blob, Container, FileReader, for_web, reader_of, versioned_name
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.workers.pool import WorkerProcesses
from spolia.indexing.workers.prepare import EMPTY_PLAN, Executor, Prepared, SplitPlan
from spolia.indexing.workers.protocol import decode_prepared, decode_vectors, encode_prepared, encode_vectors
from spolia.services.jobs import SERVICE, WORK, WORKER, Claim, JobQueue, NewJob
from spolia.stores.groups.nodes import GroupBuild
from spolia.types import Value
from spolia.worker_process import WireFrame, WorkerDied, describe_failure, raise_error, read_frame, write_frame

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder
    from spolia.types.arrays import Vectors

PRESENT_S = 5.0
"""Seconds until a service or a worker that was killed counts as away, and its job is given to another one."""
AWAIT_S, IDLE_S = 0.02, 0.05
"""Between two looks for results, and for jobs."""
ALONE_S = 10.0
"""Seconds without a worker; then the service does the work itself."""
RETRY_S = 0.5
LARGEST_SENT = 64 << 20
"""Bytes of a file; a larger one is read by the service."""
WATCH_S = 0.5
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
"""Before a worker that has ended is started again; twice as long each time that it ends soon."""
END_S = 10.0


class Unfit(Exception):
    """Sign that no worker can do a job; the service can."""


class Presence:
    """Row of the table that says, while inside, that this process is present.

    Args:
        also: what to do each time that the row is renewed.
    """

    def __init__(self, queue: JobQueue, role: str, *also: Callable[[], object]) -> None:
        self.queue, self.role, self.also = queue, role, also
        self.name = f"{gethostname()}-{getpid()}-{token_hex(4)}"  # random: containers share ids of processes
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._row = self.queue.record_presence(self.name, self.role, PRESENT_S)
        self._thread = threading.Thread(target=self._renew, daemon=True, name=f"spolia-{self.role}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.queue.remove([self._row])

    def _renew(self) -> None:
        while not self._ended.wait(PRESENT_S / 4):  # three renewals may fail before it counts as away
            for call in (self._attend, *self.also):
                with _log_failures("The table of jobs"):
                    call()

    def _attend(self) -> None:
        self._row = self.queue.record_presence(self.name, self.role, PRESENT_S, self._row)


class SharedWorkers:
    """An `Executor` whose calls are done by workers (`work`), wherever they are. Use it in a `with` statement.

    Containers, large files, and readers or embedders that plain data cannot name are left to `here`; so is everything
    while no worker is there.

    Args:
        queue: the table that the workers look at.
        count: calls at the same time.
        here: makes an executor on this machine.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from spolia.indexing import InProcess
    >>> from spolia.indexing.readers.text import TextReader
    >>> from spolia.services.jobs import SqliteTable
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     queue, stopped = JobQueue(SqliteTable(Path(folder) / "jobs.db")), threading.Event()
    ...     threading.Thread(target=work, args=(queue, InProcess()), kwargs={"stopped": stopped}).start()
    ...     with SharedWorkers(queue) as workers:
    ...         found = workers.prepare(TextReader(), Blob("a.txt", b"Stones.")).reading.document.text
    ...     stopped.set()
    >>> found
    'Stones.'
    """

    takes_all = False

    def __init__(self, queue: JobQueue, count: int = 8, here: Callable[[], Executor] = WorkerProcesses) -> None:
        self.queue, self.count, self._make = queue, count, here
        self._lock, self._wake_event, self._ended = threading.Lock(), threading.Event(), threading.Event()
        self._unsent: list[tuple[NewJob, bytes, Future[WireFrame]]] = []
        self._sent: dict[int, Future[WireFrame]] = {}
        self._alone_since: float | None = None
        self._here: Executor | None = None
        self._presence = Presence(queue, SERVICE, self._look_for_workers)

    def __enter__(self) -> Self:
        self._presence.__enter__()
        self._thread = threading.Thread(target=self._exchange, daemon=True, name="spolia-workers")
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.end()
        self._ended.set()
        self._wake_event.set()
        self._thread.join()
        self._presence.__exit__(*error)

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan = EMPTY_PLAN) -> Prepared:
        try:
            if blob.size > LARGEST_SENT:
                raise Unfit
            payload = {"task": "prepare", "uri": blob.uri, "reader": versioned_name(reader), "plan": _encode_plan(plan)}
            return decode_prepared(*self._call_worker(payload, blob.data))
        except (CodecError, Unfit):
            return self.here.prepare(reader, blob, plan)

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        try:
            payload = {"task": "embed", "embedder": json.dumps(encode(embedder)), "fingerprint": embedder.fingerprint()}
            return decode_vectors(
                *self._call_worker(payload, json.dumps(texts).encode()), len(texts), embedder.dimension
            )
        except (SpoliaError, Unfit):  # which tells why, if it cannot be done at all
            return self.here.embed(embedder, texts)

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        return self.here.parts(container, blob)

    @property
    def here(self) -> Executor:
        with self._lock:
            self._here = self._here or self._make()
            return self._here

    def end(self) -> None:
        """Drop the calls in progress; later calls are allowed."""
        with self._lock:
            dropped, unsent, here = self._sent, self._unsent, self._here
            self._sent, self._unsent, self._here = {}, [], None
        for future in (*dropped.values(), *(future for *_, future in unsent)):
            future.cancel()
        if dropped:
            self.queue.remove(list(dropped))
        if here is not None:
            here.end()

    def _call_worker(self, payload: dict[str, Any], data: bytes) -> WireFrame:
        future = Future[WireFrame]()
        with self._lock:
            self._unsent.append((NewJob(payload["task"], payload, owner=self._presence.name, queue=WORK), data, future))
        self._wake_event.set()
        reply, attached = future.result()
        if "unfit" in reply:
            logging.getLogger(__name__).warning("%s", reply["unfit"])
            raise Unfit
        try:
            raise_error(reply, DocumentError)
        except WorkerDied as died:
            raise DocumentError(f"A worker {died}.") from died
        return reply, attached

    def _exchange(self) -> None:
        """Send calls and take their results until the end; those that wait together in one transaction."""
        while not self._ended.is_set():
            # Without calls there is nothing to fetch, so the table is left alone.
            self._wake_event.wait(AWAIT_S if self._sent or self._unsent else None)
            self._wake_event.clear()
            with _log_failures("Workers wait"):
                self._send()
                self._take()

    def _send(self) -> None:
        with self._lock:  # while it sends, too: `end` must find each call in one of the two places
            if unsent := self._unsent:
                ids = self.queue.enqueue([job for job, *_ in unsent], [BytesIO(data) for _, data, _ in unsent])
                self._sent |= zip(ids, (future for *_, future in unsent), strict=True)
                self._unsent = []

    def _take(self) -> None:
        if not (ids := list(self._sent)):
            return
        for job, result in self.queue.take_results(ids):
            with self._lock:
                future = self._sent.pop(job.id, None)
            if future is None:  # `end` has dropped it
                continue
            if job.state == "done" and (frame := read_frame(BytesIO(result))) is not None:
                future.set_result(frame)
            else:
                future.set_exception(ReaderDied(f"It ended several workers: {job.reason}. Leave it out."))

    def _look_for_workers(self) -> None:
        """Take back what waits for a worker when there has been none for a while."""
        now = time.monotonic()
        if not self._sent or self.queue.present_names(WORKER):
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > ALONE_S:
            with self._lock:
                left, self._sent = self._sent, {}
            self.queue.remove(list(left))
            logging.getLogger(__name__).warning("No worker is there; the service reads %d files itself.", len(left))
            for future in left.values():
                future.set_exception(Unfit())


@renamed_arguments(known="operators")
def work(
    queue: JobQueue,
    own: Executor,
    *,
    readers: Readers = READERS,
    operators: Sequence[Any] = (),
    wait_s: float = 10.0,
    stopped: threading.Event | None = None,
) -> None:
    """Run a worker, until no service has been present for a while.

    Args:
        own: does the work.
        readers: of formats; of those that a service names, the ones with the same version.
        operators: operators of your own in definitions of groups.
        wait_s: how long to wait for a service.

    Raises:
        WorkersFailed: no process can be started here. Another worker gets the job.
    """
    stopped, runner = stopped or threading.Event(), _JobRunner(own, by_suffix(readers), Catalogue(operators))
    claims, last_seen = list[Claim](), time.monotonic()

    def check_services() -> None:
        nonlocal last_seen
        queue.renew(claims, PRESENT_S)
        if queue.present_names(SERVICE):
            last_seen = time.monotonic()

    def stop_if_alone() -> None:
        if time.monotonic() - last_seen > max(wait_s, PRESENT_S / 2):  # services are looked for each PRESENT_S / 4
            stopped.set()
            own.end()  # ends the work in progress, which no service waits for

    with Presence(queue, WORKER, check_services, stop_if_alone) as here:
        while not stopped.is_set():
            with _log_failures("The worker waits"):
                claims[:] = queue.claim(here.name, 1, PRESENT_S, WORK)
                for claim in claims:
                    result = BytesIO()
                    write_frame(result, *runner.run_job(claim, queue.attachment(claim.id) or b""))
                    if not stopped.is_set():  # else the work was cut short, which says nothing about the file
                        queue.end_with_result(claim, result.getvalue())
                if claims:
                    continue
            stopped.wait(IDLE_S)


class _JobRunner:
    """Runner of a worker's jobs."""

    def __init__(self, own: Executor, readers: Mapping[str, FileReader], catalogue: Catalogue) -> None:
        self.own, self.readers, self.catalogue = own, readers, catalogue
        self.plan, self.embedder = lru_cache(16)(self._decode_plan), lru_cache(16)(self._decode_embedder)

    def run_job(self, claim: Claim, data: bytes) -> WireFrame:
        """Return the result of a job; a fault on strange input is a result too."""
        try:
            return self._embed(claim.payload, data) if claim.kind == "embed" else self._prepare(claim.payload, data)
        except WorkersFailed:
            raise
        except CodecError as error:
            return {"unfit": f"A worker cannot make what the service names: {error}"}, []
        except Exception as error:
            return describe_failure(error), []

    def _prepare(self, payload: dict[str, Any], data: bytes) -> WireFrame:
        reader = reader_of(payload["uri"], self.readers)
        if reader is not None and versioned_name(reader) != payload["reader"]:
            reader = for_web(reader)
        if reader is None or versioned_name(reader) != payload["reader"]:
            return {"unfit": f"A worker lacks the reader {payload['reader']}. Start it with the service's options."}, []
        return encode_prepared(self.own.prepare(reader, Blob(payload["uri"], data), self.plan(payload["plan"])))

    def _embed(self, payload: dict[str, Any], data: bytes) -> WireFrame:
        embedder = self.embedder(payload["embedder"])
        if embedder.fingerprint() != payload["fingerprint"]:
            return {"unfit": f"A worker has other weights of {embedder.name} than the service."}, []
        return encode_vectors(lambda: self.own.embed(embedder, json.loads(data)))

    def _decode_plan(self, plain: str) -> SplitPlan:
        return SplitPlan(
            tuple(
                GroupBuild(group, self._decode(transform, Operator), parent, ref, between=tuple(between))
                for group, transform, parent, ref, between in json.loads(plain)
            )
        )

    def _decode_embedder(self, plain: str) -> Embedder:
        embedder: Embedder = self._decode(json.loads(plain))
        return embedder

    def _decode(self, plain: Any, declared: Any = Any) -> Any:
        return decode(plain, declared, classes=self.catalogue, accept=refuse_env)


def _encode_plan(plan: SplitPlan) -> str:
    groups = (
        [build.group, encode(build.transform, Operator), build.parent, build.ref, build.between]
        for build in plan.groups
    )
    return json.dumps(list(groups))


@contextmanager
def _log_failures(subject: str) -> Iterator[None]:
    """Log a failure inside, such as an absent database, and wait before the next attempt."""
    try:
        yield
    except WorkersFailed:
        raise
    except Exception as error:
        logging.getLogger(__name__).warning("%s: %s: %s", subject, type(error).__name__, error)
        time.sleep(RETRY_S)


class Launcher(Protocol):
    """Starter of workers."""

    def start(self, number: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that lasts as long as the worker.

        Args:
            number: of the worker, from 1.
            arguments: of `spolia`.
        """


@dataclass(frozen=True)
class LocalProcesses(Value):
    """Processes on this machine."""

    def start(self, number: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        return _start_process([sys.executable, "-m", "spolia", *arguments])


@dataclass(frozen=True)
class LaunchCommand(Value):
    """A command that starts a worker and ends with it.

    Args:
        template: with `{arguments}` in the place of the arguments of `spolia`, and perhaps `{number}`, from 1. Inside
            quotes the arguments are quoted for another shell, as ssh needs it.

    >>> LaunchCommand("srun -n1 spolia {arguments}").words(1, ["worker", "--jobs", "my notes"])
    ['srun', '-n1', 'spolia', 'worker', '--jobs', 'my notes']
    >>> LaunchCommand("ssh node{number} 'spolia {arguments}'").words(2, ["worker", "--jobs", "my notes"])
    ['ssh', 'node2', "spolia worker --jobs 'my notes'"]
    """

    template: str

    def __post_init__(self) -> None:
        if "{arguments}" not in self.template:
            raise QueryError(f"--launch {self.template!r} lacks {{arguments}}. Write: srun spolia {{arguments}}")

    def words(self, number: int, arguments: Sequence[str]) -> list[str]:
        command: list[str] = []
        for word in shlex.split(self.template):
            word = word.replace("{number}", str(number))
            command += arguments if word == "{arguments}" else [word.replace("{arguments}", shlex.join(arguments))]
        return command

    def start(self, number: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return _start_process(self.words(number, arguments))
        except OSError as error:
            raise QueryError(f"--launch {self.template!r} cannot be run: {error}. Correct the command.") from error


def _start_process(words: Sequence[str]) -> subprocess.Popen[bytes]:
    # The service's own output stays free of the workers' lines.
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr)


@contextmanager
def supervise_workers(launcher: Launcher, count: int, arguments: Sequence[str]) -> Iterator[None]:
    """Keep this many workers running while inside; restart one that ends."""
    ended = threading.Event()
    running = [launcher.start(number, arguments) for number in range(1, count + 1)]

    def watch(index: int) -> None:
        wait_s, began = FIRST_WAIT_S, time.monotonic()
        while not ended.wait(WATCH_S):
            if (code := running[index].poll()) is None:
                continue
            # A worker that ran for a while did not fail at its start.
            wait_s = FIRST_WAIT_S if time.monotonic() - began > LONGEST_WAIT_S else min(2 * wait_s, LONGEST_WAIT_S)
            log.warning("Worker %d ended with code %d; it is started again in %g s.", index + 1, code, wait_s)
            if ended.wait(wait_s):
                return
            began = time.monotonic()
            with suppress(QueryError):  # as at the start; it is tried again
                running[index] = launcher.start(index + 1, arguments)

    log = logging.getLogger(__name__)
    threads = [
        threading.Thread(target=watch, args=(index,), daemon=True, name="spolia-watch") for index in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        for process in running:  # all of them before the first wait, so that they end at the same time
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
                continue
            process.kill()
