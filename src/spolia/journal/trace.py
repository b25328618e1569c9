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
from spolia.journal.database import REMEDY, VALUES, JournalFile, split_statements
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
    make_secret_redaction,
    redact_json,
    redact_text,
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
    """Destination of spans: steps append them to a list of at most `buffer`, and another thread writes them.

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
        # steps append without a lock, which a deque allows
        self._rows: deque[tuple[tuple[Any, ...], Detail | None]] = deque()
        self._askers: deque[tuple[str, frozenset[str]]] = deque()
        self._handing_over = threading.Lock()
        self._memory: KnownHashes | None = None
        self._dropped = 0

    def record(self, row: tuple[Any, ...], detail: Detail | None = None) -> None:
        """Keep a span: its fields in the order of `COLUMNS`, with the operator and the result themselves, which the
        writer thread names and summarises."""
        self._rows.append((row, detail))
        if len(self._rows) >= self.buffer:
            self.hand_over()

    def end_run(self) -> None:
        """End a run: its spans are written soon, together with those of other short runs."""
        if self._rows or self._askers:
            self.database.schedule(self.hand_over)

    def hand_over(self) -> None:
        """Hand the collected spans to the writer."""
        with self._handing_over:  # steps append meanwhile; what is here now is taken
            self._hand_over_askers()  # before the spans, which others may not see
            rows = [self._rows.popleft() for _ in range(len(self._rows))]
        redact = self.redaction()
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            spans = partial(_flatten_rows, [row for row, _ in part], redact=redact)
            is_queued = self.database.write(INSERT + ",".join([ROW] * len(part)), spans, len(part))
            if is_queued and (details := [(row, detail) for row, detail in part if detail is not None]):
                self._hand_over_details(details, redact)

    def redaction(self) -> Redaction | None:
        """Return what changes texts before they are written; None for nothing."""
        return self.redact or make_secret_redaction()

    def record_askers(self, run: str, principals: frozenset[str]) -> None:
        """Keep for whom a run is asked, so that it is not shown to others."""
        self._askers.append((run, principals))

    def _hand_over_askers(self) -> None:
        if askers := [self._askers.popleft() for _ in range(len(self._askers))]:
            self._make_tables()
            self.database.write(PUT_RUN, lambda: [(run, json.dumps(sorted(names))) for run, names in askers], 0)

    def _make_tables(self) -> None:
        """Make the tables of values, which older files lack."""
        for statement in split_statements(VALUES):
            self.database.write(statement, lambda: [()], 0)

    def _hand_over_details(self, spans: list[tuple[tuple[Any, ...], Detail]], redact: Redaction | None) -> None:
        """Hand over the details of spans."""
        memory = self._memory
        if memory is None or self.database.dropped != self._dropped:  # what was thought to be written may not be
            self._memory, self._dropped = (memory := KnownHashes()), self.database.dropped
            self._make_tables()
        batch = DetailRows(spans, memory, redact, self.max_value_bytes)
        # Counted as 0 rows, so that details of spans that were taken are not refused.
        self.database.write(PUT_VALUE, batch.values, 0)
        self.database.write(PUT_DETAIL, lambda: batch.details, 0)
        self.database.write(PUT_RUN, batch.runs, 0)
        # Not after every write, since the oldest are found by adding up all sizes.
        if memory.bytes > self.max_bytes // 8:
            memory.bytes = 0
            memory.hashes.clear()  # what is dropped now has to be written when it comes again
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
            # to a half, so that not every close has to drop some
            self.database.write(PRUNE_VALUES, lambda: [(self.max_bytes // 2,)])

    def _has_values(self) -> bool:
        """Return whether the file has the tables of values, which older files lack."""
        return bool(self._read("SELECT 1 FROM sqlite_master WHERE name = 'trace_runs'"))

    def runs(
        self, limit: int = 20, may_see: Callable[[frozenset[str]], bool] | None = None
    ) -> list[tuple[str, float, int]]:
        """Return the newest runs: id, start, number of questions.

        Args:
            may_see: decides by the principals of a run; empty where it has none.
        """
        visible = (run for run in self._newest_runs() if may_see is None or may_see(frozenset(self.askers(run) or ())))
        rows = [
            (run, *self._read("SELECT min(started), count(DISTINCT lane) FROM spans WHERE run = ?", (run,))[0])
            for run in islice(visible, limit)
        ]
        return sorted(rows, key=lambda row: -row[1])

    def _newest_runs(self) -> Iterator[str]:
        """Yield runs, newest last step first; steps are read only as far as runs are asked for."""
        run_ids, last = set[str](), (inf, "", 0)
        while rows := self._read(
            # Goes on behind the last row; an OFFSET would read all rows before it again.
            "SELECT started, run, span FROM spans WHERE (started, run, span) < (?, ?, ?) "
            "ORDER BY started DESC, run DESC, span DESC LIMIT ?",
            (*last, STEPS_AT_ONCE),
        ):
            last = rows[-1]
            fresh = dict.fromkeys(run for _, run, _ in rows if run not in run_ids)
            run_ids |= fresh.keys()
            yield from fresh

    def questions(self, run: str, limit: int = -1) -> dict[int, str]:
        """Return the questions of a run by lane: the input of the outermost step. Lanes without stored inputs are
        missing."""
        if not self._has_values():
            return {}
        rows = self._read(
            "SELECT lane, input FROM spans JOIN trace_details USING (run, span) WHERE run = ? AND parent = 0 "
            "ORDER BY span LIMIT ?",
            (run, limit),
        )
        values, questions = ValueReader(self.database), dict[int, str]()
        for lane, input_hash in rows:
            with suppress(ValueLost):
                if text := _find_question(values.read_plain(input_hash), values):
                    questions[lane] = text
        return questions

    def first_search(self, run: str) -> str:
        """Return the first query that a step of a run gave or searched for, perhaps a rewritten one; else empty."""
        rows = self._read(
            # The beginning tells which results to parse.
            "SELECT json_extract(result, '$.query') FROM spans WHERE run = ? AND result LIKE '{\"query\"%' "
            "ORDER BY span LIMIT 1",
            (run,),
        )
        return next((str(text) for (text,) in rows), "")

    def answer(self, run: str) -> str:
        """Return the text of the answer of a run, at most 4,000 characters; empty if it has none."""
        rows = self._read(
            "SELECT json_extract(result, '$.answer') FROM spans WHERE run = ? AND result LIKE '{\"answer\"%' "
            "ORDER BY span LIMIT 1",
            (run,),
        )
        return next((str(text) for (text,) in rows), "")

    def spans(self, run: str) -> list[TraceSpan]:
        """Return the spans of a run, in the order in which they began."""
        rows = self._read(f"SELECT {COLUMNS} FROM spans WHERE run = ? ORDER BY span", (run,))
        with self._translate_errors():
            return [_read_span(row) for row in rows]

    def details(self, run: str) -> dict[int, SpanDetail]:
        """Return the details stored beside the spans of a run, by span number; empty for a run without values."""
        if not self._has_values():
            return {}
        rows = self._read("SELECT span, operator, input, output, exchanges FROM trace_details WHERE run = ?", (run,))
        principals = self.askers(run)
        return {
            span: SpanDetail(span, operator, input_hash, output_hash, exchanges, principals or ())
            for span, operator, input_hash, output_hash, exchanges in rows
            if principals is not None
        }

    def askers(self, run: str) -> tuple[str, ...] | None:
        """Return for whom a run was asked; None if that is not kept."""
        if not self._has_values():
            return None
        rows = self._read("SELECT principals FROM trace_runs WHERE run = ?", (run,))
        with self._translate_errors():
            return tuple(json.loads(rows[0][0])) if rows else None

    def find_exchanges(self, operator: str, input: str, principals: frozenset[str]) -> str:
        """Return the hash of the exchanges with models when an equal step was computed by an asker whose runs these
        principals may read; empty if that is not kept."""
        if not self._has_values():
            return ""
        rows = self._read(
            "SELECT exchanges, principals FROM trace_details JOIN trace_runs USING (run) "
            "WHERE operator = ? AND input = ? AND exchanges != ''",
            (operator, input),
        )
        return next((exchanges for exchanges, askers in rows if principals.issuperset(json.loads(askers))), "")

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._translate_errors():
            return self.database.read(statement, values)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
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

    def record_askers(self, run: str, principals: frozenset[str]) -> None:
        if self.journal is not None:
            self.journal.record_askers(run, principals)

    def end_run(self) -> None:
        if self.journal is not None:
            self.journal.end_run()


def _flatten_rows(rows: Sequence[tuple[Any, ...]], redact: Redaction | None = None) -> list[list[Any]]:
    """Put the values of all rows in one row: one statement for all lets other threads go on once, not once a row."""
    hits: dict[int, str] = {}  # by id, which stays theirs as long as the rows hold them
    return [[value for row in rows for value in _span_columns(redact, hits, *row)]]


def _span_columns(redact: Redaction | None, hits: dict[int, str], *row: Any) -> tuple[Any, ...]:
    """Return a span as it is written. One that cannot be described must not take the others with it."""
    run, span, parent, lane, op, *rest, error, notes, out = row
    try:
        result = summarise(out, hits)
    except Exception as problem:
        result = json.dumps(f"{type(out).__name__}, which cannot be shown: {type(problem).__name__}")
    if redact is not None:
        error = redact_text(error, redact)
        notes, result = redact_json(notes, redact), redact_json(result, redact)
    error_text = error and error.encode("utf-8", "replace").decode()  # SQLite takes no half of a character
    return (run, span, parent, lane, step_type_name(op), *rest, error_text, notes, result)


def step_type_name(op: Operator[Any, Any]) -> str:
    """Return the name of a step in spans: the id of its operator."""
    return _type_id(type(op))


@cache
def _type_id(cls: type[Operator[Any, Any]]) -> str:
    return cls.type_id()


def _new_run_ids() -> None:
    global _run_ids
    _run_ids = count(int.from_bytes(os.urandom(6)))


_run_ids: Iterator[int]
_new_run_ids()
os.register_at_fork(after_in_child=_new_run_ids)  # or a child would count on with its parent's numbers


def new_run_id() -> str:
    """Return a number that is random in each process and counts up: writing in order costs a database half."""
    return f"{next(_run_ids) % 2**48:012x}"


def _read_span(row: Sequence[Any]) -> TraceSpan:
    notes = tuple(json.loads(row[14])) if row[14] else ()
    run, span, parent, lane, step, started, seconds, cached = row[:8]
    usage = Usage(*row[8:13])
    return TraceSpan(run, span, parent, lane, step, started, seconds, bool(cached), usage, row[13], notes, row[15])


def _format_hit(hit: Hit) -> str:
    return f"[{quoted(hit.node.id)},{hit.score:.6g}]"


def _find_question(plain: Any, values: ValueReader) -> str:
    """Return the question in a stored input, be it a text, a query, or passages with theirs; else empty."""
    while isinstance(plain, dict):
        if set(plain) == {"use"}:
            plain = values.read_plain(str(plain["use"]))
        elif isinstance(ranking := plain.get("Ranking"), dict):
            plain = ranking.get("query")
        else:
            query = plain.get("Query")
            plain = (query.get("question") or query.get("text")) if isinstance(query, dict) else None
    return plain if isinstance(plain, str) else ""


def summarise(value: Any, hit_texts: dict[int, str] | None = None) -> str:
    """Sum up what a step gave, as JSON. A value may define this itself: `traced()` gives plain data.

    Args:
        hit_texts: what hits look like, by their ids: most pass through several steps.

    >>> summarise(Query("why?"))
    '{"query": "why?"}'
    """
    if isinstance(value, Ranking):
        texts = {} if hit_texts is None else hit_texts
        hits = [texts.get(id(hit)) or texts.setdefault(id(hit), _format_hit(hit)) for hit in value.hits]
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
        return f"[{', '.join(summarise(item, hit_texts) for item in value[:20])}]"
    if callable(traced := getattr(value, "traced", None)):
        return json.dumps(traced())
    return json.dumps(repr(value)[:1000])


class Runs:
    """Journal and cache in one file, `runs.db`. Deleting the file loses nothing but them.

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
        value_bytes = min(MOST_BYTES, max_bytes // 4)
        self.journal = Journal(self.database, values=values, redact=redact, max_bytes=value_bytes)
        self.cache = Cache(self.database, entries=entries, redact=redact)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is pending, drop what is old where the file has grown too large, and close it."""
        self.journal.hand_over()
        if self.database.size() > self.max_bytes:
            self.cache.prune(self.max_bytes // 2)  # to a half, so that not every close has to drop some
            self.journal.prune(1000)
        self.database.close()
