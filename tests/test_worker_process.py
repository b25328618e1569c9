"""A worker that stays, is killed at its limits, and is started again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from spolia import Run
from spolia.core.function import step
from spolia.core.patterns import is_match
from spolia.errors import Cancelled, StatementError
from spolia.worker_process import WorkerDied, WorkerProcess, _idle, borrow_worker

pytestmark = pytest.mark.slow
MB = 128


def pid() -> int:
    return os.getpid()


def refuse(text: str) -> None:
    raise StatementError(text)


def fill() -> int:
    return len(bytearray(10**9))


def leave() -> None:
    os._exit(3)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with borrow_worker(MB) as borrowed:
        yield borrowed


def test_errors_are_raised_here_and_the_process_stays(worker: WorkerProcess) -> None:
    first = worker.call(pid, seconds=0.3)
    with pytest.raises(StatementError, match=r"a \\ud800 text"):
        worker.call(refuse, "a \ud800 text", seconds=0.3)
    time.sleep(0.4)  # the limit of a call that raised is over with it
    assert worker.call(pid, seconds=0.3) == first != os.getpid()


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (sleep, (60,), r"took longer than 0\.3 s"),
        (is_match, ("(a+)+", 0, "fullmatch", "a" * 60 + "b"), r"took longer than 0\.3 s"),
        (fill, (), "needed more than 128 MB of memory"),
        (leave, (), r"died \(exit status 3\)"),
        (refuse, (), "failed .TypeError"),
    ],
)
def test_what_a_call_died_of_is_told_and_the_next_one_is_answered(
    worker: WorkerProcess, function: object, arguments: tuple[object, ...], said: str
) -> None:
    assert callable(function)
    with pytest.raises(WorkerDied, match=said):
        worker.call(function, *arguments, seconds=0.3)
    assert worker.call(pid, seconds=5)


def test_what_is_loaded_before_takes_no_time_of_the_call(worker: WorkerProcess) -> None:
    assert worker.call(pid, seconds=0.2, load=(sleep, 0.5))


def test_a_worker_outlives_the_thread_that_started_it_and_no_two_callers_share_it() -> None:
    pids: list[int] = []

    def ask() -> None:
        with borrow_worker(MB) as worker:
            pids.append(worker.call(pid, seconds=5))

    for _ in range(2):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert pids[0] == pids[1]
    with borrow_worker(MB) as first, borrow_worker(MB) as second:
        assert first.call(pid, seconds=5) != second.call(pid, seconds=5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_takes_no_worker_of_its_parent() -> None:
    with borrow_worker(MB) as worker:
        worker.ensure_running()
    child = os.fork()
    if not child:
        os._exit(len(_idle[MB]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _idle[MB]


def test_a_cancelled_run_ends_the_call() -> None:
    @step
    def asked(seconds: float) -> None:
        with borrow_worker(MB) as worker:
            worker.call(sleep, seconds, seconds=seconds)

    with Run() as run:
        threading.Timer(0.3, run.cancel).start()
        with pytest.raises((Cancelled, WorkerDied)):
            run(asked, 60.0)
