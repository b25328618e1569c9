"""Processes that sync one store at once, killed at random: nothing is published twice, nothing is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from spolia.stores.corpus import Corpus
from tests.indexing.workers.test_workers import is_alive

ROOT = Path(__file__).resolve().parents[2]
FILES, SEED = 60, 3
pytestmark = pytest.mark.parametrize("address", ["folder", "PostgreSQL"], indirect=True)
BIRTHS = "SELECT uri, birth FROM sources"


class Contest:
    """Two processes at a time over one folder and store."""

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self.corpus, self.log, self.files = corpus, folder / "log", folder / "files"
        self.files.mkdir()
        self.log.touch()
        for number in range(FILES):
            (self.files / f"{number:02}.note").write_text(f"Stone number {number}.")

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.indexing.concurrent_sync"]
        return subprocess.Popen([*command, str(self.files), self.corpus.path, str(self.log)], cwd=ROOT)

    def read(self) -> list[tuple[str, int]]:
        """What was read so far, and for which process."""
        return [(uri, int(pid)) for uri, pid in map(str.split, self.log.read_text().splitlines())]

    def published_generations(self) -> dict[str, int]:
        """The generation in which each source was published."""
        if not self.corpus.exists():
            return {}
        snapshot = self.corpus.latest()
        rows = snapshot.open_store.rows(BIRTHS, {})
        return {uri: birth for uri, birth in rows if birth <= snapshot.generation}


@pytest.fixture
def contest(tmp_path: Path, address: str) -> Contest:
    return Contest(tmp_path, Corpus(address))


@pytest.mark.slow
def test_of_two_that_begin_together_each_publishes_what_the_other_one_has_not(contest: Contest) -> None:
    processes = [contest.start(), contest.start()]
    assert [process.wait(timeout=600) for process in processes] == [0, 0]
    assert len(contest.published_generations()) == FILES
    assert len(contest.corpus.latest().open_store.rows(BIRTHS, {})) == FILES  # no row was replaced by another one
    read = Counter(uri for uri, _ in contest.read())
    assert (len(read), max(read.values())) <= (FILES, 2)
    assert contest.corpus.latest().check() == []


@pytest.mark.slow
def test_killed_at_random_nothing_that_was_published_is_published_again(contest: Contest) -> None:
    draw, kills = random.Random(SEED), 0
    running = [contest.start(), contest.start()]
    while True:
        time.sleep(draw.uniform(0.3, 2.5))
        if all(process.poll() == 0 for process in running):
            break
        victim = draw.randrange(2)
        workers = child_pids(running[victim].pid)
        running[victim].send_signal(signal.SIGKILL)
        running[victim].wait()
        kills += 1
        published = contest.published_generations()
        running[victim] = contest.start()
        time.sleep(draw.uniform(0.0, 0.5))
        assert not [worker for worker in workers if is_alive(worker)]
        later = contest.published_generations()
        assert {uri: later[uri] for uri in published} == published
        if kills > 30:
            break
    assert [process.wait(timeout=600) for process in running] == [0, 0]
    assert kills > 0
    assert len(contest.published_generations()) == FILES
    assert {uri for uri, _ in contest.read()} == contest.published_generations().keys()


def child_pids(pid: int) -> list[int]:
    """Processes that a process has started."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            pids.append(int(path.parent.name))
    return pids
