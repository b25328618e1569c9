"""What a reader does in a worker stays there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spolia.errors import DocumentError, EncryptedDocument, SpoliaError, WorkersFailed
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.text import TextReader
from spolia.indexing.workers.pool import WorkerProcesses
from spolia.indexing.workers.protocol import WorkerLimits
from tests.indexing.workers.hostile import Obeying

ROOT = Path(__file__).resolve().parents[3]


LIMITS = WorkerLimits(seconds=600.0, memory_mb=400, written_mb=2)


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerProcesses]:
    with WorkerProcesses(1, LIMITS) as workers:
        yield workers


@pytest.fixture(scope="module")
def impatient() -> Iterator[WorkerProcesses]:
    """For readers that hang: whatever else is read here may take longer than that beside other programs."""
    with WorkerProcesses(1, LIMITS.but(seconds=2.0)) as workers:
        yield workers


def run_order(workers: WorkerProcesses, order: str) -> str:
    return workers.prepare(Obeying(), Blob("a.do", order.encode())).reading.document.text


def test_a_reading_comes_back_as_it_was(workers: WorkerProcesses) -> None:
    blob = Blob("a.do", b"full")
    assert workers.prepare(Obeying(), blob).reading == Obeying().read(blob)
    assert workers.prepare(TextReader(), Blob("é.txt", "Stones ü".encode())).reading.document.text == "Stones ü"


def test_a_blob_in_a_file_is_read_from_there(workers: WorkerProcesses, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Stones.")
    assert workers.prepare(TextReader(), Blob("a.txt", path)).reading == TextReader().read(Blob("a.txt", path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("crash", r"died \(SIGSEGV\).*Tried 2 times"),
        ("exit", r"died \(exit status 3\)"),
        ("abort", r"died \(SIGABRT, perhaps for want of memory: it had 400 MB\)"),
        ("fill", r"needed more than 400 MB|died"),
        ("deep", r"nested too deep"),
        ("raise salt", r"failed \(ValueError: salt\)"),
        ("half", r"failed \(UnicodeEncodeError"),
        ("unknown", r"failed \(AttributeError"),
    ],
)
def test_whatever_happens_the_file_is_named_and_the_next_one_is_read(
    workers: WorkerProcesses, order: str, why: str
) -> None:
    with pytest.raises(DocumentError, match=why) as error:
        run_order(workers, order)
    assert str(error.value).startswith("The obeying reader ")
    assert f" on a.do ({len(order)} bytes)." in str(error.value)
    assert run_order(workers, "say still here") == "still here"


@pytest.mark.slow
def test_a_reader_that_hangs_is_ended_and_a_large_file_may_take_longer(impatient: WorkerProcesses) -> None:
    with pytest.raises(DocumentError, match=r"reader took longer than 2 s on a.do.*WorkerLimits\(seconds="):
        run_order(impatient, "hang")
    with pytest.raises(DocumentError, match="took longer than 3 s"):
        run_order(impatient, "hang " + "." * 1_000_000)


def test_what_the_reader_says_itself_is_passed_on(workers: WorkerProcesses) -> None:
    with pytest.raises(EncryptedDocument, match=r"^it is locked$"):
        run_order(workers, "locked")


def test_what_a_reader_prints_is_no_reply(workers: WorkerProcesses) -> None:
    assert run_order(workers, "print stones") == "printed"


def test_a_worker_writes_no_large_files(workers: WorkerProcesses, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"File too large|SIGXFSZ"):
        run_order(workers, f"write {tmp_path / 'much'}")
    assert (tmp_path / "much").stat().st_size <= 2 * 2**20


@pytest.mark.slow
def test_a_worker_that_was_killed_once_tries_again(workers: WorkerProcesses, tmp_path: Path) -> None:
    assert run_order(workers, f"crash_once {tmp_path / 'done'}") == "again"


def test_one_worker_reads_many_files(workers: WorkerProcesses) -> None:
    assert run_order(workers, "pid") == run_order(workers, "pid") != str(os.getpid())


@pytest.mark.slow
def test_files_are_read_at_the_same_time() -> None:
    with WorkerProcesses(2) as workers, ThreadPoolExecutor(2) as threads:
        pids = set[str]()
        for _ in range(100):  # on a busy machine one process may do all that is asked in one round
            pids |= set(threads.map(lambda order: run_order(workers, order), ["sleep 0.2", "pid"] * 4))
            if len(pids) == 3:
                break
    assert len(pids) == 3  # "slept", and two processes


@pytest.mark.slow
def test_parts_come_one_after_the_other(workers: WorkerProcesses) -> None:
    parts = list(workers.parts(Obeying(), Blob("a", b"3")))
    assert [(part.uri, part.data) for part in parts] == [(f"a/{n}", b"part %d" % n) for n in range(3)]
    with pytest.raises(EncryptedDocument):
        list(workers.parts(Obeying(), Blob("bad", b"2")))
    with pytest.raises(DocumentError, match="died"):
        list(workers.parts(Obeying(), Blob("dies", b"2")))
    part_stream = workers.parts(Obeying(), Blob("a", b"1000"))
    assert next(part_stream).uri == "a/0"
    part_stream.close()  # type: ignore[attr-defined]
    assert run_order(workers, "say not a part") == "not a part"


@pytest.mark.slow
def test_large_parts_are_files_in_the_callers_folder(tmp_path: Path) -> None:
    with WorkerProcesses(1, spool=tmp_path) as workers:
        part_stream = workers.parts(Obeying(), Blob("files", b"3"))
        parts = [next(part_stream), next(part_stream)]
        assert run_order(workers, "say read meanwhile") == "read meanwhile"
        parts += part_stream
        assert [part.content.parent for part in parts if isinstance(part.content, Path)] == [tmp_path] * 3
        assert [part.data for part in parts] == [b"part 0", b"part 1", b"part 2"]


@pytest.mark.slow
def test_containers_are_opened_within_containers() -> None:
    with WorkerProcesses(1) as workers:
        for outer in workers.parts(Obeying(), Blob("a", b"2")):
            assert [part.uri for part in workers.parts(Obeying(), Blob(outer.uri, b"1"))] == [f"{outer.uri}/0"]


@pytest.mark.slow
def test_workers_end_while_they_read() -> None:
    began = threading.Event()
    with WorkerProcesses(1) as workers, ThreadPoolExecutor(1) as threads:
        pid = int(run_order(workers, "pid"))

        def hang() -> str:
            began.set()
            return run_order(workers, "hang")

        waiting = threads.submit(hang)
        began.wait()
        workers.__exit__(None, None, None)
        assert not is_alive(pid)
        with pytest.raises(SpoliaError):
            waiting.result(timeout=600)


def test_a_reader_that_no_other_process_can_import_is_refused(workers: WorkerProcesses) -> None:
    class Local(Obeying):
        pass

    with pytest.raises(SpoliaError, match=r"cannot be sent to another process.*workers=0"):
        workers.prepare(Local(), Blob("a.do", b"say x"))


@pytest.mark.slow
def test_workers_that_do_not_start_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr("spolia.worker_process.WAIT_S", 0.001)
    with WorkerProcesses(1) as workers, pytest.raises(WorkersFailed, match="/bin/false"):
        run_order(workers, "say x")


@pytest.mark.slow
def test_no_worker_outlives_who_started_it() -> None:
    code = (
        "from tests.indexing.workers.test_workers import *\n"
        "workers = WorkerProcesses(1); print(run_order(workers, 'pid'), flush=True); run_order(workers, 'hang')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until = time.monotonic() + 10
    while is_alive(worker) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_alive(worker)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
