"""Queue of jobs in one table: many workers, each job done once, although workers are killed.

A claim is a lease with a number (a fencing token). A worker that is slow keeps its lease by renewing it. When a lease
ends, another worker may claim the job. The queue then refuses what the first one says, since its number is old.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

from spolia.errors import StoreUnavailable
from spolia.record_files import connect, guard, translate_damage
from spolia.stores.backends.sqlite.connection import is_full
from spolia.types import Value

JobState: TypeAlias = Literal["waiting", "working", "done", "failed", "cancelled"]
LEASE_S = 60.0
LONGEST_S, LOOK_S = 600.0, 10.0
"""Longer than any lease or wait, except of callbacks: what is due later was put before a clock was set back. Seconds
between two looks."""
MOST_CLAIMS = 5
"""Then a job that is not done is parked: it is `failed`, with its reason."""
KILLED = "its last worker ended without a word"
TABLE = """CREATE TABLE IF NOT EXISTS jobs (
    id {key}, kind TEXT NOT NULL, payload TEXT NOT NULL, name TEXT UNIQUE, subject TEXT NOT NULL,
    owner TEXT NOT NULL, queue TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    due DOUBLE PRECISION NOT NULL, token BIGINT NOT NULL DEFAULT 0, worker TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '', made DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION NOT NULL DEFAULT 0
)"""
OTHER_TABLES = (
    "CREATE TABLE IF NOT EXISTS attachments (job BIGINT PRIMARY KEY, data {bytes} NOT NULL)",
    # Only open jobs are looked for by time, while the table keeps ended ones for a month.
    "CREATE INDEX IF NOT EXISTS jobs_due ON jobs (queue, due, id) WHERE state IN ('waiting', 'working')",
    "CREATE INDEX IF NOT EXISTS jobs_subject ON jobs (subject, id) WHERE subject <> ''",
    "CREATE TABLE IF NOT EXISTS bases (name TEXT PRIMARY KEY, description TEXT NOT NULL, owner TEXT NOT NULL, "
    "access TEXT NOT NULL, made DOUBLE PRECISION NOT NULL)",
)
# On a conflict the name is written again, because `DO NOTHING` would not return the id of the existing job.
PUT = """INSERT INTO jobs (kind, payload, name, subject, owner, queue, due, made)
    VALUES (:kind, :payload, :name, :subject, :owner, :queue, {now}, {now})
    ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id"""
CLAIM = """WITH open AS MATERIALIZED (
        SELECT id FROM jobs WHERE queue = :queue AND state IN ('waiting', 'working') AND due <= {now}
        ORDER BY due, id LIMIT :limit {skip})
    UPDATE jobs SET state = CASE WHEN token < :most THEN 'working' ELSE 'failed' END, worker = :worker,
        token = token + 1, due = {now} + :lease_s, reason = CASE WHEN token < :most THEN '' ELSE :killed END,
        ended = CASE WHEN token < :most THEN 0 ELSE {now} END
    WHERE id IN (SELECT id FROM open) RETURNING id, kind, payload, token, state"""
# A callback may wait for a day and a fifth (`callbacks.WAITS_S`), other jobs less than ten minutes.
SET_BACK = """UPDATE jobs SET due = {now} WHERE state IN ('waiting', 'working')
    AND due > {now} + CASE WHEN queue = 'callback' THEN 2 * 86400 ELSE :longest END RETURNING id"""
# `token = :token` is the fence: a worker whose lease has ended and was given to another one changes nothing.
RENEW = (
    """UPDATE jobs SET due = {now} + :lease_s WHERE id = :id AND token = :token AND state = 'working' RETURNING id"""
)
END = """UPDATE jobs SET state = :state, reason = :reason, ended = {now}
    WHERE id = :id AND token = :token AND state = 'working' RETURNING id"""
RETRY = """UPDATE jobs SET state = CASE WHEN token < :most THEN 'waiting' ELSE 'failed' END, reason = :reason,
        due = {now} + :after_s, ended = CASE WHEN token < :most THEN 0 ELSE {now} END
    WHERE id = :id AND token = :token AND state = 'working' RETURNING id"""
OUTDATED = """SELECT old.id FROM jobs old WHERE old.id = :id AND EXISTS (
    SELECT 1 FROM jobs WHERE subject = old.subject AND subject <> '' AND id > old.id AND state = 'done')"""
CANCEL = """UPDATE jobs SET state = 'cancelled', ended = {now} WHERE id = :id AND state = 'waiting' RETURNING id"""
# Only to a job that waits: a repeated name gives the first job, which may be done and without its bytes by now.
ATTACH = """INSERT INTO attachments (job, data) SELECT id, :data FROM jobs WHERE id = :job AND state = 'waiting'
    ON CONFLICT (job) DO NOTHING RETURNING job"""
RESULT = """INSERT INTO attachments (job, data) VALUES (:id, :data)
    ON CONFLICT (job) DO UPDATE SET data = excluded.data RETURNING job"""
ATTACHED = "SELECT data FROM attachments WHERE job = :id"
COPY = """INSERT INTO attachments (job, data) SELECT :id, data FROM attachments WHERE job = :of
    ON CONFLICT (job) DO NOTHING RETURNING job"""
DETACH = """DELETE FROM attachments WHERE job IN (
    SELECT id FROM jobs WHERE subject = :subject AND subject <> '' AND state IN ('done', 'failed', 'cancelled')
    AND NOT (:keeps AND id = (
        SELECT max(id) FROM jobs WHERE subject = :subject AND subject <> '' AND state = 'done'))) RETURNING job"""
DETACH_UNKNOWN = "DELETE FROM attachments WHERE job NOT IN (SELECT id FROM jobs) RETURNING job"
COLUMNS = "id, kind, payload, owner, state, reason, made, ended"
LOOK = f"SELECT {COLUMNS} FROM jobs WHERE id = :id"
LIST = f"""SELECT {COLUMNS} FROM jobs WHERE queue = '' AND (:state = '' OR state = :state)
    AND (:owner = '' OR owner = :owner) AND id < :before ORDER BY id DESC LIMIT :limit"""
LATEST = f"""SELECT subject, {COLUMNS} FROM jobs WHERE subject = :subject AND subject <> ''
    AND (state = 'done' OR :also AND state IN ('waiting', 'working')) ORDER BY id DESC LIMIT 1"""
LAST = f"""SELECT {COLUMNS} FROM jobs WHERE subject = :subject AND subject <> '' AND state <> 'cancelled'
    ORDER BY id DESC LIMIT 1"""
UNDONE = f"""SELECT {COLUMNS} FROM jobs WHERE subject > :after AND subject <> '' AND owner = :owner AND queue = ''
    AND kind <> 'delete' AND state IN ('waiting', 'working', 'failed') AND NOT EXISTS (SELECT 1 FROM jobs newer
        WHERE newer.subject = jobs.subject AND newer.subject <> '' AND newer.state <> 'cancelled'
        AND newer.id > jobs.id) ORDER BY subject LIMIT :limit"""
RESTORED = "UPDATE jobs SET state = 'done', ended = {now} WHERE id = :id RETURNING id"
NAMED = "SELECT id FROM jobs WHERE name = :name"
DELIVERY = "SELECT name, state, token, reason FROM jobs WHERE name = :name"
SUBJECTS = """SELECT DISTINCT subject FROM jobs WHERE subject LIKE :like ESCAPE '!' AND (:owner = '' OR owner = :owner)
    AND state IN ('waiting', 'working', 'done')"""
OPEN = f"SELECT {COLUMNS} FROM jobs WHERE subject = :subject AND subject <> '' AND state IN ('waiting', 'working')"
ENDED = f"SELECT {COLUMNS} FROM jobs WHERE id = :id AND state IN ('done', 'failed', 'cancelled')"
REMOVE = "DELETE FROM jobs WHERE id = :id RETURNING id", "DELETE FROM attachments WHERE job = :id RETURNING job"
PRESENT = "UPDATE jobs SET state = 'working', due = {now} + :lease_s WHERE id = :id RETURNING id"
PRESENCE = "SELECT owner FROM jobs WHERE queue = :queue AND state = 'working' AND due > {now}"
AWAY = f"DELETE FROM jobs WHERE queue IN (:queue, :work) AND owner NOT IN ({PRESENCE}) RETURNING id"
COUNT = "SELECT state, count(*) FROM jobs WHERE queue = :queue GROUP BY state"
OLDEST_S = "SELECT {now} - min(made) FROM jobs WHERE queue = :queue AND state IN ('waiting', 'working')"
FORGET = """DELETE FROM jobs WHERE state IN ('done', 'failed', 'cancelled') AND ended < {now} - :age_s
    AND (state <> 'done' OR subject = '' OR EXISTS (SELECT 1 FROM jobs newer WHERE newer.subject = jobs.subject
        AND newer.subject <> '' AND newer.state = 'done' AND newer.id > jobs.id)) RETURNING id"""
NEWEST = 2**62
WORK, SERVICE, WORKER, CALLBACK = "work", "service", "worker", "callback"
"""Queues: what workers do for services, rows that say that a service or a worker is there, and whom to tell that a job
has ended, if its payload has a `callback`."""
MOST_LOG_BYTES = 64 << 20
"""Of SQLite's log, between transactions."""
REMEDY = (
    "It holds uploads that are nowhere else, so it stays as it is: stop the service, and restore it from a backup. "
    "Without one, move it away and send the documents again."
)
BUSY_S = 60
"""How long SQLite waits for who writes."""


@dataclass(frozen=True)
class NewJob(Value):
    """A job to be done.

    Args:
        payload: plain data.
        name: two jobs of one name are one; None for no name.
        subject: what it changes, if the order of changes matters.
        owner: who asks for it.
        queue: workers claim the jobs of one queue.
    """

    kind: str
    payload: dict[str, Any]
    name: str | None = None
    subject: str = ""
    owner: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Claim(Value):
    """A job that a worker holds; `token` is the number of its lease."""

    id: int
    kind: str
    payload: dict[str, Any]
    token: int


@dataclass(frozen=True)
class Job(Value):
    """A job as others see it; times in seconds since the epoch, `ended` 0 while it is not."""

    id: int
    kind: str
    payload: dict[str, Any]
    owner: str
    state: JobState
    reason: str
    made: float
    ended: float


@dataclass(frozen=True)
class Delivery(Value):
    """A callback: how often it was posted, and why the last attempt failed."""

    state: JobState = "waiting"
    attempts: int = 0
    reason: str = ""


class JobTable(Protocol):
    """A database with the table of jobs."""

    now: str
    """The time as an expression: that of the database where machines share it, so that their clocks do not matter."""
    skip: str
    lock_statement: str
    """Waits in a transaction until no other one has asked for it; empty where one writes at a time."""

    def transaction(self) -> Any:
        """Open a transaction in which `ask` may be called, all or nothing; a nested one is part of the outer one."""

    def ask(self, statement: str, rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
        """Return the result rows of a statement for each row of values, in their order."""

    def clean(self) -> bool:
        """Free the space of deleted bytes; return False if readers hold it now and it must be called again."""


class SqliteTable:
    """Table of jobs in a file."""

    now, skip, lock_statement = ":now", "", ""

    def __init__(self, file: Path) -> None:
        self._lock, self.file = RLock(), file  # a transaction inside another one takes the lock again
        self._connection = connect(file, REMEDY, timeout_s=BUSY_S, isolation_level=None)
        # secure_delete: a deleted document must not stay readable in free pages of the file.
        for setting in ("journal_mode = WAL", f"journal_size_limit = {MOST_LOG_BYTES}", "secure_delete = ON"):
            self._connection.execute(f"PRAGMA {setting}")
        with self.transaction():
            for statement in (TABLE, *OTHER_TABLES):
                # AUTOINCREMENT: else a new job could get the id of a deleted one, and old task numbers would name it.
                self._connection.execute(statement.format(key="INTEGER PRIMARY KEY AUTOINCREMENT", bytes="BLOB"))
            guard(self._connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            try:
                with translate_damage(self.file, REMEDY):
                    # The write lock from the start: a transaction that reads first and writes later fails if another
                    # process has written meanwhile.
                    self._connection.execute("BEGIN IMMEDIATE")
                    yield
                    self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:  # SQLite has rolled back itself when the disk is full
                    self._connection.execute("ROLLBACK")
                if is_full(error):
                    raise StoreUnavailable("The disk is full.") from error
                raise

    def ask(self, statement: str, rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
        now = time.time()
        return [result for row in rows for result in self._connection.execute(statement, {**row, "now": now})]

    def clean(self) -> bool:
        with self._lock:
            self._connection.execute("PRAGMA busy_timeout = 0")  # who waits here holds up every request
            try:
                # the log holds deleted bytes too
                (is_busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
        return not is_busy

    def close(self) -> None:
        self._connection.close()


class JobQueue:
    """Queue of jobs in a table.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     queue = JobQueue(SqliteTable(Path(folder) / "jobs.db"))
    ...     _ = queue.enqueue([NewJob("add", {"uri": "a.md"})])
    ...     (claim,) = queue.claim("worker 1")
    ...     queue.end([claim]), queue.end([claim]), queue.counts()
    ([1], [], {'done': 1})
    """

    def __init__(self, table: JobTable) -> None:
        self.table, self._last_look = table, time.monotonic()

    def _ask_in_transaction(self, statement: str, rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
        with self.table.transaction():
            return self._ask(statement, rows)

    def _ask(self, statement: str, rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return self.table.ask(statement.format(now=self.table.now, skip=self.table.skip), rows)

    def enqueue(
        self, jobs: Sequence[NewJob], attachments: Sequence[BinaryIO] = (), source_ids: Sequence[int] = ()
    ) -> list[int]:
        """Add jobs, all or none; return their ids. A job whose name is taken is the existing one.

        Args:
            attachments: files with the bytes of each job, if they have any.
            source_ids: the job whose bytes each one gets too, instead.
        """
        rows = [{**vars(job), "payload": json.dumps(job.payload)} for job in jobs]
        with self.table.transaction():
            ids = [id for (id,) in self._ask(PUT, rows)]
            # Either list may be empty.
            self._ask(ATTACH, ({"job": id, "data": file.read()} for id, file in zip(ids, attachments, strict=False)))
            self._ask(
                COPY,
                # A repeated name gives an older job, which has its own bytes.
                [{"id": id, "of": source_id} for id, source_id in zip(ids, source_ids, strict=False) if id > source_id],
            )
            return ids

    @contextmanager
    def changes(self, subjects: Iterable[str] = ()) -> Iterator[dict[str, Job]]:
        """Open a transaction that alone may change subjects; yield the last job of each one that waits or is done."""
        with self.table.transaction():
            if self.table.lock_statement:  # empty for SQLite, where one transaction writes at a time
                self._ask(self.table.lock_statement, [{}])
            rows = self._ask(LATEST, [{"subject": changed_subject, "also": True} for changed_subject in subjects])
            yield {subject: _parse_job(row) for subject, *row in rows}

    def restore(self, jobs: Sequence[NewJob], attachments: Sequence[BinaryIO]) -> list[int]:
        """Add jobs with their bytes as done, unless their subject has a newer one; return the ids of those added."""
        with self.table.transaction():
            missing = [index for index, job in enumerate(jobs) if not self._ask(LAST, [{"subject": job.subject}])]
            rows = [{**vars(jobs[index]), "payload": json.dumps(jobs[index].payload)} for index in missing]
            ids = [id for (id,) in self._ask(PUT, rows)]
            self._ask(
                ATTACH, ({"job": id, "data": attachments[index].read()} for id, index in zip(ids, missing, strict=True))
            )
            self._ask(RESTORED, [{"id": id} for id in ids])
            return ids

    def job_ids(self, names: Iterable[str | None]) -> list[int]:
        """Return the ids of the jobs with these names; unknown names are left out."""
        return [id for (id,) in self._ask_in_transaction(NAMED, [{"name": name} for name in names])]

    def last_job(self, subject: str) -> Job | None:
        """Return the last job on a subject that was not cancelled."""
        return next(map(_parse_job, self._ask_in_transaction(LAST, [{"subject": subject}])), None)

    def subjects(self, prefix: str = "", owner: str = "") -> list[str]:
        """Return the subjects with this prefix, of an owner or of all, unless their jobs have failed."""
        escaped = prefix.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        rows = self._ask_in_transaction(SUBJECTS, [{"like": f"{escaped}%", "owner": owner}])
        # SQLite's LIKE ignores case
        return sorted(subject for (subject,) in rows if subject and subject.startswith(prefix))

    def unfinished_jobs(self, owner: str, after_subject: str = "", limit: int = 100) -> list[Job]:
        """Return an owner's jobs, by subject, that are the last on their subject and wait, are worked on or have
        failed, unless they delete."""
        return [
            _parse_job(row)
            for row in self._ask_in_transaction(UNDONE, [{"owner": owner, "after": after_subject, "limit": limit}])
        ]

    def last_done_job(self, subject: str) -> Job | None:
        return next(
            (_parse_job(row) for _, *row in self._ask_in_transaction(LATEST, [{"subject": subject, "also": False}])),
            None,
        )

    def attachment(self, id: int) -> bytes | None:
        """Return the bytes of a job; None if it has none, or they are deleted."""
        return next((bytes(data) for (data,) in self._ask_in_transaction(ATTACHED, [{"id": id}])), None)

    def detach(self, subjects: Iterable[str], keeps: bool) -> list[int]:
        """Delete the bytes of ended jobs on these subjects; with `keeps`, except those of the last done job on each.
        Return the ids of the jobs."""
        return [
            id
            for (id,) in self._ask_in_transaction(
                DETACH, [{"subject": subject, "keeps": keeps} for subject in subjects]
            )
        ]

    def claim(
        self, worker: str, limit: int = 1, lease_s: float = LEASE_S, queue: str = "", max_claims: int = MOST_CLAIMS
    ) -> list[Claim]:
        """Take jobs, oldest first; park one that was claimed `max_claims` times."""
        values: dict[str, Any] = {"worker": worker, "limit": limit, "lease_s": lease_s, "queue": queue}
        with self.table.transaction():
            # RETURNING has no order
            rows = sorted(self._ask(CLAIM, [{**values, "most": max_claims, "killed": KILLED}]))
            self._enqueue_callbacks(id for id, *_, state in rows if state == "failed")
            if not rows and time.monotonic() - self._last_look >= LOOK_S:  # after a clock was set back nothing is due
                self._last_look = time.monotonic()
                self._ask(SET_BACK, [{"longest": LONGEST_S}])
        return [
            Claim(id, kind, json.loads(payload), token)
            for id, kind, payload, token, state in rows
            if state == "working"
        ]

    def end_with_result(self, claim: Claim, result: bytes) -> bool:
        """End a job with a result in the place of its bytes; return whether it was still held."""
        with self.table.transaction():
            ended_ids = self._ask(END, [{"id": claim.id, "token": claim.token, "state": "done", "reason": ""}])
            self._ask(RESULT, [{"id": id, "data": result} for (id,) in ended_ids])
            return bool(ended_ids)

    def take_results(self, ids: Iterable[int]) -> list[tuple[Job, bytes]]:
        """Return these jobs that have ended, with their results, and delete them."""
        with self.table.transaction():
            ended = [_parse_job(row) for row in self._ask(ENDED, [{"id": id} for id in ids])]
            results = [
                (job, b"".join(bytes(data) for (data,) in self._ask(ATTACHED, [{"id": job.id}]))) for job in ended
            ]
            self._remove([job.id for job in ended])
            return results

    def remove(self, ids: Sequence[int]) -> None:
        """Delete jobs in any state."""
        with self.table.transaction():
            self._remove(ids)

    def _remove(self, ids: Sequence[int]) -> None:
        for statement in REMOVE:
            self._ask(statement, [{"id": id} for id in ids])

    def record_presence(self, name: str, role: str, lease_s: float, row: int | None = None) -> int:
        """Record that a service or a worker is present for the lease; return its row. The first call deletes rows and
        work of absent ones."""
        here = {"id": row, "lease_s": lease_s}
        with self.table.transaction():
            if row is None or not self._ask(PRESENT, [here]):  # or others found it absent and deleted its row
                self._ask(AWAY, [{"queue": role, "work": WORK if role == SERVICE else role}])
                job = vars(NewJob(role, {}, owner=name, queue=role))
                ((row,),) = self._ask(PUT, [{**job, "payload": "{}"}])
                self._ask(PRESENT, [{**here, "id": row}])
        return int(row)

    def present_names(self, role: str) -> list[str]:
        """Return the names of the services or workers that are present."""
        return [name for (name,) in self._ask_in_transaction(PRESENCE, [{"queue": role}])]

    def renew(self, claims: Sequence[Claim], lease_s: float = LEASE_S) -> list[int]:
        """Hold jobs longer; return the ids of the jobs that are still held."""
        return self._update_claims(RENEW, claims, lease_s=lease_s)

    def end(self, claims: Sequence[Claim], state: JobState = "done", reason: str = "") -> list[int]:
        """Mark jobs as done, or as failed for good; return the ids of the jobs that were still held."""
        return self._update_claims(END, claims, state=state, reason=reason)

    def retry(self, claims: Sequence[Claim], reason: str, after_s: float, max_claims: int = MOST_CLAIMS) -> list[int]:
        """Give jobs back, to be claimed again after a while; park a job that was claimed `max_claims` times."""
        return self._update_claims(RETRY, claims, reason=reason, after_s=after_s, most=max_claims)

    def _update_claims(self, statement: str, claims: Sequence[Claim], **values: Any) -> list[int]:
        rows = [{"id": claim.id, "token": claim.token, **values} for claim in claims]
        with self.table.transaction():
            ids = [id for (id,) in self._ask(statement, rows)]
            if waited := {claim.id for claim in claims if CALLBACK in claim.payload}:
                self._enqueue_callbacks(id for id in ids if id in waited)
            return ids

    def _enqueue_callbacks(self, ids: Iterable[int]) -> None:
        """Add a callback job for each of these jobs that has ended and names one; a second end adds no other."""
        ended = [_parse_job(row) for row in self._ask(ENDED, [{"id": id} for id in ids])]
        callbacks = [
            NewJob(CALLBACK, {"task": job.id}, callback_name(job.id), owner=job.owner, queue=CALLBACK)
            for job in ended
            if CALLBACK in job.payload
        ]
        self._ask(PUT, [{**vars(job), "payload": json.dumps(job.payload)} for job in callbacks])

    def deliveries(self, jobs: Iterable[Job]) -> dict[int, Delivery]:
        """Return the state of these jobs' callbacks, by the id of the job; jobs without one are left out."""
        job_ids = [job.id for job in jobs if CALLBACK in job.payload]
        rows = self._ask_in_transaction(DELIVERY, [{"name": callback_name(id)} for id in job_ids])
        by_name = {name: Delivery(state, attempts, reason) for name, state, attempts, reason in rows}
        return {id: by_name.get(callback_name(id), Delivery()) for id in job_ids}

    def outdated_ids(self, claims: Sequence[Claim]) -> list[int]:
        """Return the ids of the jobs whose subject a newer job has changed meanwhile."""
        return self._update_claims(OUTDATED, claims)

    def cancel(self, id: int) -> bool:
        """Cancel a job that no worker has taken; return whether it was cancelled."""
        with self.table.transaction():
            cancelled = self._ask(CANCEL, [{"id": id}])
            self._enqueue_callbacks(id for (id,) in cancelled)
            return bool(cancelled)

    def job(self, id: int) -> Job | None:
        return next(iter(self.find_jobs([id])), None)

    def find_jobs(self, ids: Iterable[int]) -> list[Job]:
        """Return these jobs; unknown ids are left out."""
        return [
            # A request can name any number, and both databases raise an error above 64 bits.
            _parse_job(row)
            for row in self._ask_in_transaction(LOOK, [{"id": id} for id in ids if 0 < id <= NEWEST])
        ]

    def jobs(self, state: str = "", owner: str = "", *, limit: int = 100, before_id: int = NEWEST) -> list[Job]:
        """Return the newest jobs, of a state and an owner or of all."""
        values = {"state": state, "owner": owner, "limit": limit, "before": before_id}
        return [_parse_job(row) for row in self._ask_in_transaction(LIST, [values])]

    def open_jobs(self, subjects: Iterable[str]) -> list[Job]:
        """Return the jobs on these subjects that have not ended."""
        return [
            _parse_job(row) for row in self._ask_in_transaction(OPEN, [{"subject": subject} for subject in subjects])
        ]

    def counts(self, queue: str = "") -> dict[str, int]:
        return {state: int(number) for state, number in self._ask_in_transaction(COUNT, [{"queue": queue}])}

    def load(self, queue: str = "") -> tuple[dict[str, int], float]:
        """Return the number of jobs by state, and the age in seconds of the oldest that has not ended."""
        ((oldest_s,),) = self._ask_in_transaction(OLDEST_S, [{"queue": queue}])
        return self.counts(queue), max(0.0, oldest_s or 0.0)  # negative after a clock was set back

    def delete_old_jobs(self, age_s: float) -> int:
        """Delete jobs that ended longer ago, except the last done one on each subject; return their number."""
        with self.table.transaction():
            rows = self._ask(FORGET, [{"age_s": age_s}])
            self._ask(DETACH_UNKNOWN, [{}])
            return len(rows)


def callback_name(id: int) -> str:
    # No name of a request begins so: `quote` writes %CA, never %ca.
    return f"%callback|{id}"


def _parse_job(row: Sequence[Any]) -> Job:
    id, kind, payload, *rest = row
    return Job(id, kind, json.loads(payload), *rest)
