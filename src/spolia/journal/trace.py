"""Spans: what each step of a run took, cost and gave."""

import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from json.encoder import encode_basestring_ascii as quoted
from math import inf
from pathlib import Path
from typing import Any, Self

from spolia.core.operator import Operator
from spolia.errors import StoreError
from spolia.journal.cache import Cache
from spolia.journal.database import REMEDY, VALUES, JournalFile, statements
from spolia.journal.values import (
    MOST_BYTES,
    MOST_VALUE_BYTES,
    PRUNE_VALUES,
    PUT_DETAIL,
    PUT_RUN,
    PUT_VALUE,
    Detail,
    DetailRows,
    KnownHashes,
    Redaction,
    ValueLost,
    ValueReader,
    redacted,
    redacted_json,
    secrets,
)
from spolia.types import Answer, Failure, Generation, Hit, Query, Ranking, Usage, Value

STEPS_AT_ONCE = 1_000
"""Steps that are read together to find the newest runs."""
ROW = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
AT_ONCE = 1000  # rows of one statement; SQLite takes 32766 values
COLUMNS = (
    "run, span, parent, lane, step, started, seconds, cached, calls, input_tokens, output_tokens, embedded, cost_usd, "
    "error, notes, result"
)
INSERT = f"INSERT OR REPLACE INTO spans ({COLUMNS}) VALUES "


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


@dataclass(frozen=True)
class SpanDetail(Value):
    """Details stored beside a span, by hash (`spolia.journal.values.ValueReader`); empty if not stored.

    Args:
        operator: the step with its fields.
        exchanges: what language models were sent and replied in it.
        principals: who asked in the run. An asker who acts for all of them may read what the step read.
    """

    span: int
    operator: str
    input: str
    output: str
    exchanges: str
    principals: tuple[str, ...]


class Journal:
    """Where spans go: steps append them to a list of `buffer` at most, and another thread writes them.

    Args:
        values: keep what every step took and gave, the step itself and what models were sent and replied. Each value is
            stored once. These are texts of your documents.
        redact: changes each text before it is written; by default the values of environment variables whose names end
            in KEY, TOKEN, SECRET, PASSWORD or CREDENTIALS are replaced by those names.
        max_value_bytes: of a longer value only the beginning is kept.
        max_bytes: of all values; the oldest are dropped.
    """

    def __init__(
        self,
        database: JournalFile,
        *,
        buffer: int = 512,
        values: bool = False,
        redact: Redaction | None = None,
        max_value_bytes: int = MOST_VALUE_BYTES,
        max_bytes: int = MOST_BYTES,
    ) -> None:
        self.database, self.buffer, self.values, self.redact = database, buffer, values, redact
        self.max_value_bytes, self.max_bytes = max_value_bytes, max_bytes
        self._rows: deque[tuple[tuple[Any, ...], Detail | None]] = deque()
        self._askers: deque[tuple[str, frozenset[str]]] = deque()
        self._taking = threading.Lock()
        self._memory: KnownHashes | None = None
        self._dropped = 0

    def record(self, row: tuple[Any, ...], detail: Detail | None = None) -> None:
        """Keep a span: its fields in the order of `COLUMNS`. The step is the operator itself, and the result the value;
        the writer thread names the one and summarises the other."""
        self._rows.append((row, detail))
        if len(self._rows) >= self.buffer:
            self.hand_over()

    def end_run(self) -> None:
        """A run has ended: its spans are written soon, together with those of other short runs."""
        if self._rows or self._askers:
            self.database.soon(self.hand_over)

    def hand_over(self) -> None:
        """Hand the collected spans to the writer."""
        with self._taking:  # steps append meanwhile; what is here now is taken
            self._hand_over_askers()  # before the spans, which others may not see
            rows = [self._rows.popleft() for _ in range(len(self._rows))]
        redact = self.redaction()
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            spans = partial(_values, [row for row, _ in part], redact=redact)
            is_queued = self.database.write(INSERT + ",".join([ROW] * len(part)), spans, len(part))
            if is_queued and (kept := [(row, detail) for row, detail in part if detail is not None]):
                self._keep(kept, redact)

    def redaction(self) -> Redaction | None:
        """What changes texts before they are written; None for nothing."""
        return self.redact or secrets()

    def asked_by(self, run: str, principals: frozenset[str]) -> None:
        """Keep for whom a run is asked, so that it is not shown to others."""
        self._askers.append((run, principals))

    def _hand_over_askers(self) -> None:
        if askers := [self._askers.popleft() for _ in range(len(self._askers))]:
            self._make_tables()
            self.database.write(PUT_RUN, lambda: [(run, json.dumps(sorted(names))) for run, names in askers], 0)

    def _make_tables(self) -> None:
        """Make the tables of values, which older files lack."""
        for statement in statements(VALUES):
            self.database.write(statement, lambda: [()], 0)

    def _keep(self, spans: list[tuple[tuple[Any, ...], Detail]], redact: Redaction | None) -> None:
        """Hand over the details of spans."""
        memory = self._memory
        if memory is None or self.database.dropped != self._dropped:  # what was thought to be written may not be
            self._memory, self._dropped = (memory := KnownHashes()), self.database.dropped
            self._make_tables()
        batch = DetailRows(spans, memory, redact, self.max_value_bytes)
        self.database.write(PUT_VALUE, batch.values, 0)
        self.database.write(PUT_DETAIL, lambda: batch.details, 0)
        self.database.write(PUT_RUN, batch.runs, 0)
        if memory.bytes > self.max_bytes // 8:
            memory.bytes = 0
            memory.written.clear()
            memory.operators.clear()
            self.database.write(PRUNE_VALUES, lambda: [(self.max_bytes,)], 0)

    def flush(self) -> bool:
        """Hand everything over and wait until it is written."""
        self.hand_over()
        return self.database.flush()

    def prune(self, runs: int) -> None:
        """Drop all but the newest runs."""
        statement = """DELETE FROM spans WHERE run NOT IN (
            SELECT run FROM spans GROUP BY run ORDER BY min(started) DESC LIMIT ?)"""
        self.database.write(statement, lambda: [(runs,)])
        if self._has_values():
            for table in ("trace_details", "trace_runs"):
                self.database.write(f"DELETE FROM {table} WHERE run NOT IN (SELECT run FROM spans)", lambda: [()])
            self.database.write(PRUNE_VALUES, lambda: [(self.max_bytes // 2,)])

    def _has_values(self) -> bool:
        """Whether the file has the tables of values; files of before have none."""
        return bool(self._read("SELECT 1 FROM sqlite_master WHERE name = 'trace_runs'"))

    def runs(
        self, limit: int = 20, may_see: Callable[[frozenset[str]], bool] | None = None
    ) -> list[tuple[str, float, int]]:
        """The newest runs: id, start, number of questions.

        Args:
            may_see: decides by the principals of a run; empty where it has none.
        """
        seen = (run for run in self._newest() if may_see is None or may_see(frozenset(self.askers(run) or ())))
        found = [
            (run, *self._read("SELECT min(started), count(DISTINCT lane) FROM spans WHERE run = ?", (run,))[0])
            for run in islice(seen, limit)
        ]
        return sorted(found, key=lambda row: -row[1])

    def _newest(self) -> Iterator[str]:
        """Runs, those whose last step began last first; steps are read as far as they are asked for."""
        seen, last = set[str](), (inf, "", 0)
        while rows := self._read(
            "SELECT started, run, span FROM spans WHERE (started, run, span) < (?, ?, ?) "
            "ORDER BY started DESC, run DESC, span DESC LIMIT ?",
            (*last, STEPS_AT_ONCE),
        ):
            last = rows[-1]
            fresh = dict.fromkeys(run for _, run, _ in rows if run not in seen)
            seen |= fresh.keys()
            yield from fresh

    def questions(self, run: str, limit: int = -1) -> dict[int, str]:
        """The questions of a run, by lane: the input of the outermost step. Lanes without stored inputs are missing."""
        if not self._has_values():
            return {}
        rows = self._read(
            "SELECT lane, input FROM spans JOIN trace_details USING (run, span) WHERE run = ? AND parent = 0 "
            "ORDER BY span LIMIT ?",
            (run, limit),
        )
        values, found = ValueReader(self.database), dict[int, str]()
        for lane, taken in rows:
            with suppress(ValueLost):
                if text := _question_in(values.plain(taken), values):
                    found[lane] = text
        return found

    def first_search(self, run: str) -> str:
        """The first query that a step of a run gave or searched for, which may be a rewritten one; else empty."""
        rows = self._read(
            "SELECT json_extract(result, '$.query') FROM spans WHERE run = ? AND result LIKE '{\"query\"%' "
            "ORDER BY span LIMIT 1",
            (run,),
        )
        return next((str(text) for (text,) in rows), "")

    def answer(self, run: str) -> str:
        """The text of the answer of a run, at most 4,000 characters; empty if it has none."""
        rows = self._read(
            "SELECT json_extract(result, '$.answer') FROM spans WHERE run = ? AND result LIKE '{\"answer\"%' "
            "ORDER BY span LIMIT 1",
            (run,),
        )
        return next((str(text) for (text,) in rows), "")

    def spans(self, run: str) -> list[TraceSpan]:
        """The spans of a run, in the order in which they began."""
        rows = self._read(f"SELECT {COLUMNS} FROM spans WHERE run = ? ORDER BY span", (run,))
        with self._readable():
            return [_span(row) for row in rows]

    def details(self, run: str) -> dict[int, SpanDetail]:
        """Details stored beside the spans of a run, by their numbers; empty for a run without values."""
        if not self._has_values():
            return {}
        rows = self._read("SELECT span, operator, input, output, exchanges FROM trace_details WHERE run = ?", (run,))
        principals = self.askers(run)
        return {
            span: SpanDetail(span, operator, given, out, exchanges, principals or ())
            for span, operator, given, out, exchanges in rows
            if principals is not None
        }

    def askers(self, run: str) -> tuple[str, ...] | None:
        """For whom a run was asked; None where that is not kept."""
        if not self._has_values():
            return None
        who = self._read("SELECT principals FROM trace_runs WHERE run = ?", (run,))
        with self._readable():
            return tuple(json.loads(who[0][0])) if who else None

    def exchanges_of(self, operator: str, input: str, principals: frozenset[str]) -> str:
        """The hash of what models were sent and replied when an equal step was computed, by one of whom all may be
        read by these principals; empty if that is not kept."""
        if not self._has_values():
            return ""
        rows = self._read(
            "SELECT exchanges, principals FROM trace_details JOIN trace_runs USING (run) "
            "WHERE operator = ? AND input = ? AND exchanges != ''",
            (operator, input),
        )
        return next((found for found, who in rows if principals.issuperset(json.loads(who))), "")

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._readable():
            return self.database.read(statement, values)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise StoreError(f"The journal {self.database.path} is damaged: {error}. {REMEDY}") from error


class ForwardingJournal(Journal):
    """Base of journals that do something with spans and hand them on.

    Args:
        journal: the next one; None for none.
    """

    def __init__(self, journal: Journal | None) -> None:
        self.journal, self.values = journal, journal is not None and journal.values

    def record(self, row: tuple[Any, ...], detail: Detail | None = None) -> None:
        if self.journal is not None:
            self.journal.record(row, detail)

    def asked_by(self, run: str, principals: frozenset[str]) -> None:
        if self.journal is not None:
            self.journal.asked_by(run, principals)

    def end_run(self) -> None:
        if self.journal is not None:
            self.journal.end_run()


def _values(rows: Sequence[tuple[Any, ...]], redact: Redaction | None = None) -> list[list[Any]]:
    """The values of all rows in a row: one statement for all lets other threads go on once, not once a row."""
    hits: dict[int, str] = {}
    return [[value for row in rows for value in _columns(redact, hits, *row)]]


def _columns(redact: Redaction | None, hits: dict[int, str], *row: Any) -> tuple[Any, ...]:
    """A span as it is written. One that cannot be described must not take the others with it."""
    run, span, parent, lane, op, *rest, error, notes, out = row
    try:
        said = summary(out, hits)
    except Exception as problem:
        said = json.dumps(f"{type(out).__name__}, which cannot be shown: {type(problem).__name__}")
    if redact is not None:
        error = redacted(error, redact)
        notes, said = redacted_json(notes, redact), redacted_json(said, redact)
    said_error = error and error.encode("utf-8", "replace").decode()
    return (run, span, parent, lane, step_name(op), *rest, said_error, notes, said)


def step_name(op: Operator[Any, Any]) -> str:
    """What a step is called in spans: the id of its operator."""
    return _type_id(type(op))


@cache
def _type_id(cls: type[Operator[Any, Any]]) -> str:
    return cls.type_id()


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


def _hit(hit: Hit) -> str:
    return f"[{quoted(hit.node.id)},{hit.score:.6g}]"


def _question_in(plain: Any, values: ValueReader) -> str:
    """The question in what a step took, as it is kept: a text, a query, or passages with theirs; else empty."""
    while isinstance(plain, dict):
        if set(plain) == {"use"}:
            plain = values.plain(str(plain["use"]))
        elif isinstance(ranking := plain.get("Ranking"), dict):
            plain = ranking.get("query")
        else:
            query = plain.get("Query")
            plain = (query.get("question") or query.get("text")) if isinstance(query, dict) else None
    return plain if isinstance(plain, str) else ""


def summary(value: Any, known: dict[int, str] | None = None) -> str:
    """Sum up what a step gave, as JSON. A value may define this itself: `traced()` gives plain data.

    Args:
        known: what hits look like, by their ids: most pass through several steps.

    >>> summary(Query("why?"))
    '{"query": "why?"}'
    """
    if isinstance(value, Ranking):
        seen = {} if known is None else known
        hits = [seen.get(id(hit)) or seen.setdefault(id(hit), _hit(hit)) for hit in value.hits]
        return f'{{"query": {quoted(value.query.text[:1000])}, "hits": [{",".join(hits)}]}}'
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
        return f"[{', '.join(summary(item, known) for item in value[:20])}]"
    if callable(traced := getattr(value, "traced", None)):
        return json.dumps(traced())
    return json.dumps(repr(value)[:1000])


class Runs:
    """Open `runs.db`: its journal and its cache. Deleting the file loses nothing but them.

    Args:
        path: the file; made when it is not there.
        max_bytes: when more is in the file on closing, the older half of the cache's room and all but 1000 runs go.
        values: keep what steps took and gave too; see `Journal`, as for `redact`.
        entries: cached results that are held in memory too.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Runs(Path(folder) / "runs.db") as runs:
    ...     runs.journal.runs()
    []
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_bytes: int = 1 << 30,
        values: bool = False,
        redact: Redaction | None = None,
        entries: int = 10_000,
    ) -> None:
        self.database, self.max_bytes = JournalFile(Path(path)), max_bytes
        most = min(MOST_BYTES, max_bytes // 4)
        self.journal = Journal(self.database, values=values, redact=redact, max_bytes=most)
        self.cache = Cache(self.database, entries=entries, redact=redact)

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
