"""Spans: what each step of a run took, cost and gave."""

import json
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from spolia.journal.cache import Cache
from spolia.journal.database import JournalFile
from spolia.types import Answer, Failure, Generation, Query, Ranking, Usage, Value

INSERT = "INSERT OR REPLACE INTO spans VALUES "
ROW = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
AT_ONCE = 1000  # rows of one statement; SQLite takes 32766 values
COLUMNS = (
    "run, span, parent, lane, step, started, seconds, cached, calls, input_tokens, output_tokens, embedded, cost_usd, "
    "error, notes, result"
)


@dataclass(frozen=True)
class TraceSpan(Value):
    """One step of a run.

    Args:
        span: number of the span in the run, from 1.
        parent: number of the span that it ran in, 0 at the root.
        lane: number of the root span, one a question.
        started: seconds since the epoch.
        cached: whether the result was taken from the cache.
        usage: what it cost, inner steps and cached results included.
        error: why it failed; empty when it did not.
        notes: fallbacks and whatever else was out of order.
        result: a summary, JSON.
    """

    run: str
    span: int
    parent: int
    lane: int
    step: str
    started: float
    seconds: float
    cached: bool
    usage: Usage
    error: str
    notes: tuple[str, ...]
    result: str


class Journal:
    """Where spans go: steps append them to a list of `buffer` at most, and another thread writes them."""

    def __init__(self, database: JournalFile, *, buffer: int = 512) -> None:
        self.database, self.buffer = database, buffer
        self._rows: deque[tuple[Any, ...]] = deque()
        self._taking = threading.Lock()

    def record(self, row: tuple[Any, ...]) -> None:
        """Keep a span; its last field is the result itself, summarised by the writer thread."""
        self._rows.append(row)
        if len(self._rows) >= self.buffer:
            self.hand_over()

    def end_run(self) -> None:
        """A run has ended: its spans are written soon, together with those of other short runs."""
        if self._rows:
            self.database.soon(self.hand_over)

    def hand_over(self) -> None:
        """Give what is kept to the writer."""
        with self._taking:  # steps append meanwhile; what is here now is taken
            rows = [self._rows.popleft() for _ in range(len(self._rows))]
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            self.database.write(INSERT + ",".join([ROW] * len(part)), partial(_values, part), len(part))

    def flush(self) -> bool:
        """Hand everything over and wait until it is written."""
        self.hand_over()
        return self.database.flush()

    def prune(self, runs: int) -> None:
        """Drop all but the newest runs."""
        statement = """DELETE FROM spans WHERE run NOT IN (
            SELECT run FROM spans GROUP BY run ORDER BY min(started) DESC LIMIT ?)"""
        self.database.write(statement, lambda: [(runs,)])

    def runs(self, limit: int = 20) -> list[tuple[str, float, int]]:
        """The newest runs: id, start, number of questions."""
        rows = self.database.read(
            "SELECT run, min(started) AS began, count(DISTINCT lane) FROM spans "
            "GROUP BY run ORDER BY began DESC, run LIMIT ?",
            (limit,),
        )
        return [(run, began, lanes) for run, began, lanes in rows]

    def question(self, run: str) -> str:
        """The first question of a run; empty where none is told."""
        rows = self.database.read(
            "SELECT json_extract(result, '$.query') FROM spans WHERE run = ? AND result LIKE '{\"query\"%' "
            "ORDER BY span LIMIT 1",
            (run,),
        )
        return next((str(text) for (text,) in rows), "")

    def spans(self, run: str) -> list[TraceSpan]:
        """The spans of a run, in the order in which they began."""
        rows = self.database.read(f"SELECT {COLUMNS} FROM spans WHERE run = ? ORDER BY span", (run,))
        return [_span(row) for row in rows]


def _values(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """The values of all rows in a row: one statement for all lets other threads go on once, not once a row."""
    return [[value for row in rows for value in _columns(*row)]]


def _columns(*row: Any) -> tuple[Any, ...]:
    """A span as it is written. One that cannot be described must not take the others with it."""
    *rest, error, notes, out = row
    try:
        said = summary(out)
    except Exception as problem:
        said = json.dumps(f"{type(out).__name__}, which cannot be shown: {type(problem).__name__}")
    return (*rest, error and error.encode("utf-8", "replace").decode(), notes, said)


def _new_run_ids() -> None:
    global _run_ids
    _run_ids = count(int.from_bytes(os.urandom(6)))


_run_ids: Iterator[int]
_new_run_ids()
os.register_at_fork(after_in_child=_new_run_ids)


def new_run_id() -> str:
    """A random number in each process, counted up: what is written in order costs a database half."""
    return f"{next(_run_ids) % 2**48:012x}"


def _span(row: Sequence[Any]) -> TraceSpan:
    notes = tuple(json.loads(row[14])) if row[14] else ()
    run, span, parent, lane, step, started, seconds, cached = row[:8]
    usage = Usage(*row[8:13])
    return TraceSpan(run, span, parent, lane, step, started, seconds, bool(cached), usage, row[13], notes, row[15])


def summary(value: Any) -> str:
    """What a step gave, in short, as JSON.

    >>> summary(Query("why?"))
    '{"query": "why?"}'
    """
    if isinstance(value, Ranking):
        hits = ",".join(f"[{json.dumps(hit.node.id)},{hit.score:.6g}]" for hit in value.hits)
        return f'{{"query": {json.dumps(value.query.text[:1000])}, "hits": [{hits}]}}'
    if isinstance(value, Answer):
        cited = [citation.node for citation in value.citations]
        return json.dumps({"answer": value.text[:4000], "cited": cited, "stop_reason": value.stop_reason})
    if isinstance(value, Query):
        return json.dumps({"query": value.text[:1000]})
    if isinstance(value, Generation):
        return json.dumps({"text": value.text[:4000], "finish_reason": value.finish_reason})
    if isinstance(value, Failure):
        return json.dumps({"failure": value.kind, "message": value.message[:1000]})
    if isinstance(value, tuple):
        return f"[{', '.join(summary(item) for item in value[:20])}]"
    return json.dumps(repr(value)[:1000])


class Runs:
    """Open `runs.db`: its journal and its cache. Deleting the file loses nothing but them.

    Args:
        path: the file; made when it is not there.
        max_bytes: when more is in the file on closing, the older half of the cache's room and all but 1000 runs go.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Runs(Path(folder) / "runs.db") as runs:
    ...     runs.journal.runs()
    []
    """

    def __init__(self, path: str | Path, *, max_bytes: int = 1 << 30) -> None:
        self.database, self.max_bytes = JournalFile(Path(path)), max_bytes
        self.journal = Journal(self.database)
        self.cache = Cache(self.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is pending, drop what is old where the file has grown too large, and close it."""
        self.journal.hand_over()
        if self.database.size() > self.max_bytes:
            self.cache.prune(self.max_bytes // 2)
            self.journal.prune(1000)
        self.database.close()
