"""The queue of jobs, in SQLite and in PostgreSQL: one contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import BytesIO
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from spolia.services import jobs
from spolia.services.jobs import MOST_CLAIMS, Claim, JobQueue, JobTable, NewJob, SqliteTable

SOON = -1.0
"""Of a lease that has ended when it begins."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[JobTable]]:
    """Two connections to one table."""
    tables: list[Any] = []
    if request.param == "sqlite":
        tables += [SqliteTable(tmp_path / "jobs.db") for _ in range(2)]
    else:
        from spolia import Corpus
        from spolia.services.postgres_jobs import PostgresTable
        from spolia.stores.backends.postgres.address import parse_address

        address = request.getfixturevalue("server").address()
        Corpus(address).create()
        tables += [PostgresTable(parse_address(address)) for _ in range(2)]
    yield tables
    for table in tables:
        table.close()


@pytest.fixture
def queue(opened: list[JobTable]) -> JobQueue:
    return JobQueue(opened[0])


def put(queue: JobQueue, number: int) -> list[int]:
    return queue.enqueue([NewJob("add", {"uri": f"{index}.md"}) for index in range(number)])


def test_each_job_is_claimed_once(opened: list[JobTable]) -> None:
    ids = put(JobQueue(opened[0]), 60)

    def work(table: JobTable) -> list[Claim]:
        all_claims = []
        while claims := JobQueue(table).claim("w", 3):
            all_claims += claims
            assert len(JobQueue(table).end(claims)) == len(claims)
        return all_claims

    with ThreadPoolExecutor(2) as pool:
        claims = [claim for claims_of_worker in pool.map(work, opened) for claim in claims_of_worker]
    assert sorted(claim.id for claim in claims) == ids
    assert {claim.payload["uri"] for claim in claims} == {f"{index}.md" for index in range(60)}
    assert JobQueue(opened[0]).counts() == {"done": 60}


def test_the_word_of_a_worker_whose_lease_went_on_is_refused(queue: JobQueue) -> None:
    put(queue, 1)
    (late_claim,) = queue.claim("late", lease_s=SOON)
    (now,) = queue.claim("now")
    assert (queue.renew([late_claim]), queue.end([late_claim]), queue.retry([late_claim], "x", 0)) == ([], [], [])
    assert (queue.renew([now]), queue.end([now]), queue.end([now])) == ([now.id], [now.id], [])


def test_a_lease_that_is_renewed_stays(queue: JobQueue) -> None:
    put(queue, 1)
    claims = queue.claim("w", lease_s=SOON)
    queue.renew(claims)
    assert queue.claim("other") == []


def test_a_job_that_kills_its_workers_is_parked(queue: JobQueue) -> None:
    (id,) = put(queue, 1)
    for _ in range(MOST_CLAIMS):
        assert queue.claim("w", lease_s=SOON)
    assert queue.claim("w") == []
    assert (job := queue.job(id)) is not None
    assert (job.state, "worker" in job.reason, job.ended > 0) == ("failed", True, True)


def test_a_job_is_tried_again_after_a_while_and_parked_in_the_end(queue: JobQueue) -> None:
    (id,) = put(queue, 1)
    queue.retry(queue.claim("w"), "the model is away", 60)
    assert queue.claim("w") == []
    assert queue.cancel(id)
    (id,) = put(queue, 1)
    for _ in range(MOST_CLAIMS):
        queue.retry(queue.claim("w"), "the model is away", 0)
    assert (job := queue.job(id)) is not None
    assert (job.state, job.reason) == ("failed", "the model is away")


def test_of_a_name_there_is_one_job_and_only_a_waiting_one_is_cancelled(queue: JobQueue) -> None:
    first = queue.enqueue([NewJob("add", {"uri": "a"}, "once")])
    assert queue.enqueue([NewJob("add", {"uri": "b"}, "once"), NewJob("add", {"uri": "c"})])[:1] == first
    (claim,) = queue.claim("w")
    assert (claim.payload, queue.cancel(claim.id)) == ({"uri": "a"}, False)
    assert [job.state for job in queue.jobs()] == ["waiting", "working"]
    assert queue.cancel(queue.jobs("waiting")[0].id)
    queue.end([claim], "failed", "no text")
    assert [(job.state, job.reason) for job in queue.jobs(limit=9)] == [("cancelled", ""), ("failed", "no text")]
    assert (queue.delete_old_jobs(60), queue.delete_old_jobs(-1), queue.counts()) == (0, 2, {})


def test_the_bytes_of_a_job_stay_until_it_ends_and_those_of_the_last_one_that_is_done_longer(queue: JobQueue) -> None:
    def waiting(number: int) -> list[int]:
        jobs = [NewJob("add", {}, f"n{number}", "a"), NewJob("add", {}, subject="a")]
        return queue.enqueue(jobs, [BytesIO(b"\0%d" % index) for index in range(number, number + 2)])

    ids = waiting(0)
    assert (waiting(0)[0], queue.detach(["a"], keeps=False)) == (ids[0], [])
    assert [queue.attachment(job_id) for job_id in (*ids, 99)] == [b"\x000", b"\x001", None]
    queue.end(queue.claim("w", 9))
    assert len(queue.detach(["a"], keeps=True)) == 2
    assert (queue.attachment(ids[1]), queue.delete_old_jobs(-1)) == (None, 2), "a newer one is done"
    (last,) = queue.jobs()
    assert queue.attachment(last.id) == b"\x001"
    assert (queue.detach(["a"], keeps=False), queue.attachment(last.id)) == ([last.id], None)


def test_a_job_that_a_newer_one_has_overtaken_is_known(queue: JobQueue) -> None:
    old, new, other_id = queue.enqueue([NewJob("add", {}, subject=claim) for claim in ("a", "a", "b")])
    claims = queue.claim("w", 9)
    assert queue.outdated_ids(claims) == []
    queue.end([claim for claim in claims if claim.id in (new, other_id)])
    assert queue.outdated_ids(claims) == [old]


class Clock:
    """The wall clock of a machine, which somebody sets."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time() + self.ahead

    def monotonic(self) -> float:
        return monotonic()


def test_a_clock_that_is_set_back_delays_no_job_and_no_lease_that_goes_on_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, queue = Clock(), JobQueue(SqliteTable(tmp_path / "jobs.db"))
    monkeypatch.setattr(jobs, "time", clock)
    put(queue, 3)
    (slow,) = queue.claim("slow")
    (second_claim,) = queue.claim("again")
    queue.retry([second_claim], "later", 5.0)
    clock.ahead = 86_400.0  # leases end early: another worker gets the job, and the first one's word is refused
    claims = queue.claim("w", 3)
    assert sorted(claim.id for claim in claims) == [1, 2, 3]
    assert (queue.end([slow]), len(queue.end(claims[:1]))) == ([], 1)
    queue.record_presence("gone", "service", 5.0)
    clock.ahead = -86_400.0  # what was put and claimed yesterday seems to be of tomorrow
    monkeypatch.setattr(jobs, "LOOK_S", 0.0)
    queue.claim("w", 3)
    assert queue.present_names("service") == []
    assert sorted(claim.id for claim in queue.claim("w", 3)) == [2, 3]
    put(queue, 1)
    assert len(queue.claim("w")) == 1


def test_cleaning_waits_for_no_reader_and_says_that_it_is_to_be_done_again(tmp_path: Path) -> None:
    table = SqliteTable(tmp_path / "jobs.db")
    JobQueue(table).enqueue([NewJob("add", {})], [BytesIO(b"a secret")])
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchall()
        JobQueue(table).enqueue([NewJob("add", {})])
        assert not table.clean()
        reader.execute("COMMIT")
    assert table.clean()
    assert not (tmp_path / "jobs.db-wal").read_bytes()
    table.close()
