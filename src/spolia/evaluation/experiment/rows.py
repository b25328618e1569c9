"""One question that one flow was asked: what came of it, as it is kept and shown."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spolia.errors import DataError, NotAStore, StoreBusy, StoreTooNew
from spolia.evaluation.experiment.flows import changes
from spolia.evaluation.measures.measure import Case, Seen
from spolia.run.lane import Lane
from spolia.types import Answer, Failure, Hit, Ranking, Usage, Value

SHOWN = 100
"""Hits that are kept of a result."""
READ = 10
"""Hits of which the text is kept."""
CHARACTERS = 240
LONGEST = 20_000
"""Characters of an answer that are kept."""


@dataclass(frozen=True)
class FoundPassage(Value):
    """A hit, with as much of its text as tells people what it is.

    Args:
        start, end: where it stands in its document; -1 where that is not known.
        uri: what its document is called.
    """

    node: str
    document: str
    score: float
    start: int = -1
    end: int = -1
    text: str = ""
    uri: str = ""


@dataclass(frozen=True)
class Retrieval(Value):
    """A call of a retriever: whom it asked, for what, and the ids of the nodes that it found."""

    source: str
    query: str
    found: tuple[str, ...]


@dataclass(frozen=True)
class QuestionRow(Value):
    """What a flow made of a question.

    Args:
        flow: its name.
        item: id of the question.
        seen: by measure that applies, what the question adds to it; None where that could not be determined.
        usage: what the flow needed, results from a cache included.
        spent: what it really spent.
        judging: what measures spent on judges.
        seconds: from question to result, judges not included.
        opening: seconds that opening stores took before it, where it is the first question of a process, which also
            waits for models to be loaded; None for all others.
        cached: whether a step's result came from the cache, so that the time says nothing.
        interrupted: whether a step or a judge failed for a reason that may pass, so that it is worth asking again.
        run, lane: where its steps are in the journal; lane 0 where they are not.
        failure: why there is no result.
        found: the passages of the result, or behind the answer.
        answer: what it answered.
        stop_reason: of the answer; empty where the flow gives a ranking.
        cited: documents that the answer cites.
        retrievals: calls of retrievers, in order.
    """

    flow: str
    item: str
    seen: tuple[tuple[str, Seen | None], ...]
    usage: Usage = field(default=Usage())
    spent: Usage = field(default=Usage())
    judging: Usage = field(default=Usage())
    seconds: float = 0.0
    opening: float | None = None
    cached: bool = False
    interrupted: bool = False
    run: str = ""
    lane: int = 0
    failure: Failure | None = None
    found: tuple[FoundPassage, ...] = ()
    answer: str = ""
    stop_reason: str = ""
    cited: tuple[str, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()

    @classmethod
    def of(cls, flow: str, case: Case, lane: Lane, **more: Any) -> Self:
        """The row of a case."""
        answer = case.result if isinstance(case.result, Answer) else None
        return cls(
            flow,
            case.item.id,
            usage=lane.usage,
            spent=lane.spent,
            cached=lane.cached,
            lane=lane.number,
            failure=case.result.but(error=None) if isinstance(case.result, Failure) else None,
            found=tuple(_found(hit, rank) for rank, hit in enumerate(_hits(case.result)[:SHOWN])),
            answer=answer.text[:LONGEST] if answer else "",
            stop_reason=answer.stop_reason if answer else "",
            cited=tuple(dict.fromkeys(one.document for one in answer.citations)) if answer else (),
            retrievals=tuple(
                Retrieval(call.source, call.query.text[:CHARACTERS], tuple(hit.node.id for hit in call.hits[:SHOWN]))
                for call in case.retrievals
            ),
            **more,
        )

    def text(self) -> str:
        """How it is written to a file, without flow and question."""
        rest = {name: getattr(self, name) for name in ROW}
        return json.dumps(rest | {name: _plain(rest[name]) for name in CLASSES}, ensure_ascii=False)

    @classmethod
    def read(cls, flow: str, item: str, text: str) -> QuestionRow:
        """What `text` has written."""
        rest = json.loads(text)
        for name, kind in CLASSES.items():
            rest[name] = _made(kind, rest[name])
        seen = tuple((name, None if one is None else tuple(one)) for name, one in rest.pop("seen"))
        return cls(flow, item, seen, **rest | {"cited": tuple(rest["cited"])})


CLASSES: dict[str, Any] = {
    "usage": Usage, "spent": Usage, "judging": Usage,
    "failure": Failure, "found": [FoundPassage], "retrievals": [Retrieval],
}  # fmt: skip
ROW = tuple(name for name in QuestionRow.__dataclass_fields__ if name not in ("flow", "item"))


def _plain(value: Any) -> Any:
    if isinstance(value, Failure):
        return (value.kind, value.message, value.step)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if value is None else astuple(value)


def _made(kind: Any, plain: Any) -> Any:
    if isinstance(kind, list):
        return tuple(_made(kind[0], one) for one in plain)
    return None if plain is None else kind(*(tuple(one) if isinstance(one, list) else one for one in plain))


def _hits(result: Ranking | Answer | Failure) -> Sequence[Hit]:
    if isinstance(result, Failure):
        return ()
    ranking = result.evidence if isinstance(result, Answer) else result
    return ranking.hits if ranking is not None else ()


def _found(hit: Hit, rank: int) -> FoundPassage:
    node, span = hit.node, hit.node.span
    start, end = (span.start, span.end) if span is not None else (-1, -1)
    text = node.text if len(node.text) <= CHARACTERS else f"{node.text[: CHARACTERS - 1]}…"
    return FoundPassage(node.id, node.document, hit.score, start, end, text if rank < READ else "", node.uri)


APPLICATION_ID = 0x53504A32
FORM = 1
SCHEMA = """
CREATE TABLE experiment (identity TEXT NOT NULL);
CREATE TABLE rows (flow TEXT NOT NULL, item TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (flow, item)) WITHOUT ROWID
"""


class RowFile:
    """What was asked so far. A killed process loses the questions that it was at, and no other.

    One process at a time: whoever opens the file has it until it is closed, or the process ends.

    Args:
        path: by habit `NAME.experiment`; None keeps the rows in memory.

    Raises:
        StoreBusy: another process has it open.
        NotAStore: the file is something else.
        StoreTooNew: it was written by a newer version.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection = _opened(path)
        try:
            found = self._connection.execute("SELECT flow, item, row FROM rows").fetchall()
            identities = self._connection.execute("SELECT identity FROM experiment").fetchall()
            self.rows = {(flow, item): QuestionRow.read(flow, item, row) for flow, item, row in found}
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            self._connection.close()
            raise NotAStore(f"{path} is damaged: {error}. Delete it and ask again.") from error
        self.identity: Mapping[str, Any] | None = json.loads(identities[0][0]) if identities else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def belong_to(self, identity: Mapping[str, Any]) -> None:
        """Take the rows for those of an experiment.

        Raises:
            DataError: they were made by another one; says what has changed.
        """
        if self.identity is None:
            with self._lock, self._connection:
                self._connection.execute("INSERT INTO experiment VALUES (?)", (json.dumps(identity),))
            self.identity = identity
        elif differences := changes(self.identity, identity):
            raise DataError(
                f"{self.path} holds another experiment: {'; '.join(differences)}. "
                "Name another file, or delete this one to ask everything again."
            )

    def forget(self) -> None:
        """Drop all rows."""
        self.drop(list(self.rows.values()))

    def drop(self, rows: Iterable[QuestionRow]) -> None:
        """Drop these rows."""
        keys = [(row.flow, row.item) for row in rows]
        with self._lock, self._connection:
            self._connection.executemany("DELETE FROM rows WHERE flow = ? AND item = ?", keys)
            for key in keys:
                del self.rows[key]

    def keep(self, row: QuestionRow) -> None:
        """Write a row; it is in the file when this returns."""
        with self._lock, self._connection:
            self._connection.execute("INSERT OR REPLACE INTO rows VALUES (?,?,?)", (row.flow, row.item, row.text()))
            self.rows[row.flow, row.item] = row


def _opened(path: str | Path | None) -> sqlite3.Connection:
    try:
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(":memory:" if path is None else path, timeout=0.2, check_same_thread=False)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with connection:
            connection.execute("BEGIN EXCLUSIVE")
            _claim(connection, path)
    except sqlite3.OperationalError as error:
        raise StoreBusy(
            f"{path} cannot be opened: {error}. If another process is at this experiment, wait for it; else look at "
            "the permissions, or name another file."
        ) from error
    except sqlite3.DatabaseError as error:
        raise NotAStore(f"{path} holds no experiment: {error}. Name another file.") from error
    return connection


def _claim(connection: sqlite3.Connection, path: str | Path | None) -> None:
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORM}")
    elif application != APPLICATION_ID:
        raise NotAStore(f"{path} is the database of something else. Name another file.")
    elif version > FORM:
        raise StoreTooNew(f"{path} has form {version}; this version knows {FORM}. Upgrade: pip install -U spolia")
