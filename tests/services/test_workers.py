"""Workers of a service, started by it or by hand: what is lost and done twice when they or the service are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from spolia import Corpus, sync
from spolia.cli.user_modules import load_user_modules
from spolia.core.redaction import Patterns
from spolia.errors import DocumentError, QueryError
from spolia.indexing import InProcess
from spolia.indexing.readers.html import HtmlReader
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.registry import redacting_readers
from spolia.services.documents import Documents
from spolia.services.jobs import JobQueue, SqliteTable
from spolia.services.workers import LaunchCommand, SharedWorkers, work
from tests.server.conftest import until
from tests.stores.servers import Server

SLOW = """
import os, time
from spolia.indexing.readers.reader import Reading

class Slow:
    name, version, media_type, suffixes, apart = "slow", 1, "text/plain", (".slow",), True

    def read(self, blob):
        with open("begun", "a") as file:
            file.write(f"{os.getppid()}\\n")
        while not os.path.exists("go"):
            time.sleep(0.05)
        return Reading(blob.document(self, blob.data.decode()))

READERS = {"*.slow": Slow()}
"""
SRUN = '#!/bin/sh\nshift\nexec "$@"\n'
Started = Callable[..., "subprocess.Popen[str]"]


class Refusing(InProcess):
    """No executor: everything is for the workers."""

    def prepare(self, *given: Any) -> Any:
        raise AssertionError("It was read here.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a reader that waits for the file `go` and says in `begun` which worker it is in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o700)
    return tmp_path


@pytest.fixture
def started(folder: Path) -> Iterator[Started]:
    """Starts `spolia`; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "spolia", *arguments, "--known", "slow.py"]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def killed_in_mid_job(folder: Path) -> int:
    """Kill the worker that reads, once the reading has begun; its number."""
    until(lambda: (folder / "begun").exists() and (folder / "begun").read_text().endswith("\n"))
    (pid,) = (folder / "begun").read_text().split()
    os.kill(int(pid), signal.SIGKILL)
    (folder / "go").touch()
    return int(pid)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_service_starts_its_workers_again_and_they_end_with_it(folder: Path, started: Started) -> None:
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("The moon causes the tides.")
    sync("notes", Corpus("n.spolia"))
    launch = f"./srun -n1 {sys.executable} -m spolia {{arguments}}"
    options = ("--documents", "--workers", "1", "--launch", launch, "--port", "0", "--json")
    service = started("serve", "bm25", "--store", "n.spolia", *options)
    assert service.stdout is not None
    announced = json.loads(service.stdout.readline())
    with httpx.Client(
        base_url=announced["url"], headers={"Authorization": f"Bearer {announced['token']}"}, timeout=600
    ) as client:
        task = client.put("/v1/documents/zebra.slow", content=b"Zebras sleep standing.").json()["task"]
        first = killed_in_mid_job(folder)
        until(lambda: client.get(f"/v1/tasks/{task}").json()["state"] == "done")
        assert client.get("/v1/documents").json()["documents"][0]["name"] == "zebra.slow"
        assert "standing" in client.post("/v1/search", json={"question": "zebras"}).text
    begun, server_pid = map(int, (folder / "begun").read_text().split())
    assert (begun, is_there(first), is_there(server_pid)) == (first, False, True)
    service.kill()
    until(lambda: not is_there(server_pid))


@pytest.mark.slow
def test_workers_that_are_started_by_hand_share_the_jobs_of_a_store(
    folder: Path, started: Started, server: Server
) -> None:
    documents = Documents(Corpus(server.address()), readers=load_user_modules(["slow.py"]).readers)
    workers = [started("worker", "--jobs", documents.corpus.path, "--wait", "0") for _ in range(2)]
    with SharedWorkers(documents.queue, here=Refusing) as documents.workers:
        until(lambda: len(documents.queue.present_names("worker")) == 2)
        task = documents.add("zebra.slow", b"Zebras sleep standing.")
        publishing = threading.Thread(target=documents.publish)
        publishing.start()
        dead = killed_in_mid_job(folder)
        publishing.join(600)
    job = documents.queue.job(task)
    assert job is not None
    assert (job.state, job.reason) == ("done", "")
    assert len(list(documents.corpus.snapshot().documents())) == 1
    assert sorted(worker.wait(600) == 0 for worker in workers) == [False, True]
    assert dead in [worker.pid for worker in workers]
    assert len((folder / "begun").read_text().split()) == 2
    assert documents.queue.counts() == {"done": 1}
    documents.queue.table.close()  # type: ignore[attr-defined]


def test_errors_of_readers_come_back_and_what_a_worker_lacks_is_done_here(tmp_path: Path) -> None:
    queue, stopped = JobQueue(SqliteTable(tmp_path / "jobs.db")), threading.Event()
    thread = threading.Thread(target=work, args=(queue, InProcess()), kwargs={"stopped": stopped})
    thread.start()
    try:
        with SharedWorkers(queue, here=Refusing) as workers:
            prepared = workers.prepare(HtmlReader(), Blob("a.html", b"<html><body><p>Salt.</p></body></html>"))
            assert prepared.reading.document.text.strip() == "Salt."
            with pytest.raises(DocumentError, match="PDF"):
                workers.prepare(HtmlReader(), Blob("b.html", b"%PDF-1.7"))
            with pytest.raises(AssertionError, match="here"):
                workers.prepare(redacting_readers(Patterns())[".html"], Blob("c.html", b""))
        assert queue.claim("another worker", 9, queue="work") == []
    finally:
        stopped.set()
        thread.join()


def test_a_command_that_starts_workers_says_where_their_arguments_are() -> None:
    with pytest.raises(QueryError, match="arguments"):
        LaunchCommand("srun spolia worker")
