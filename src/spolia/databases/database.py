"""The interface to the user's databases."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from spolia.core.deprecation import RenamedAttribute
from spolia.core.run_context import check_cancelled
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import StatementError, WiringError
from spolia.types import Addressed, Query, Scalar, Value
from spolia.worker_process import WorkerDied, WorkerProcess, borrow_worker

SAMPLES = 3
"""Rows of each table that a model is shown."""


@runtime_checkable
class QueryableDatabase(Addressed, Protocol):
    """A database that runs statements in a language of its own, none of which can change it."""

    @property
    def language(self) -> str:
        """Return the language of statements, as people say it: `SQL of SQLite`, `Cypher`."""
        ...

    @property
    def place(self) -> str:
        """Return its address, for people and citations."""
        ...

    def described(self) -> str:
        """Describe tables, columns and some rows, or kinds of nodes and links. StoreError if it cannot be opened."""
        ...

    def ask(self, statement: str, limits: "QueryLimits") -> "QueryRows":
        """Run one reading statement, and return its rows.

        Raises:
            StatementError: it is not a single reading statement, names something unknown, or takes too long. The
                message helps the author of the statement.
            StoreError: it cannot be opened.
        """
        ...


def table_text(name: str, created: str, rows: "QueryRows") -> str:
    """Describe a table to a model: its CREATE statement, and its first rows."""
    return f"{created.strip().rstrip(';')};\n-- some rows of {name}:\n{rows.to_markdown()}"


def format_columns(tables: Mapping[str, Sequence[str]]) -> str:
    """Format tables and their columns on one line."""
    return "; ".join(f"{table}({', '.join(columns)})" for table, columns in tables.items())


_LONGEST = 2_000
"""Characters of one value that are kept."""


@dataclass(frozen=True)
class QueryLimits(Value):
    """Limits of one statement, enforced where it runs.

    Args:
        rows: at most; the rest is not fetched.
        characters: of all values together, at most.
        timeout_s: seconds until it is broken off.
        memory_mb: megabytes of the process that runs it, with the graph that it is about. Enforced on Linux.
    """

    rows: int = 100
    characters: int = 20_000
    timeout_s: float = 5.0
    memory_mb: int = 1_024

    def __post_init__(self) -> None:
        refuse_counts(self, "rows", "characters", "memory_mb")
        if not 0 < self.timeout_s < float("inf"):
            raise WiringError(f"timeout_s is {self.timeout_s}. Write seconds above 0.")


@dataclass(frozen=True)
class QueryRows(Value):
    """The rows of a statement.

    Args:
        columns: their names.
        rows: the values, row by row.
        statement: what was run.
        cut: there are more rows than these; the limits do not let them through.
        query: the question in words; None if there was no question.
        uri: of the database or graph that answered.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    statement: str = ""
    cut: bool = False
    query: Query | None = None
    uri: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def read(
        cls, columns: Sequence[str], rows: Iterable[Sequence[Any]], statement: str, limits: QueryLimits
    ) -> "QueryRows":
        """Read as many of the rows as the limits let through.

        >>> QueryRows.read(["n"], iter([(1,), (2,), (3,)]), "", QueryLimits(rows=2))
        QueryRows(columns=('n',), rows=((1,), (2,)), statement='', cut=True, query=None, uri='')
        """
        read_rows: list[tuple[Scalar, ...]] = []
        room = limits.characters
        for row in rows:
            values = tuple(map(_to_scalar, row))
            room -= sum(len(str(value)) for value in values)
            # one row more than is kept was fetched: it tells that there are more
            if len(read_rows) == limits.rows or room < 0:
                return cls(tuple(columns), tuple(read_rows), statement, cut=True)
            read_rows.append(values)
        return cls(tuple(columns), tuple(read_rows), statement)

    @property
    def plain(self) -> list[Any]:
        """Return the data that a worker sends."""
        return [self.columns, self.rows, self.cut]

    written = RenamedAttribute("to_markdown")

    def to_markdown(self) -> str:
        """Return a table in Markdown; a value with line breaks or bars stays in its cell.

        >>> print(QueryRows(("name", "age"), (("Ann|", 7), (None, 8))).to_markdown())
        | name | age |
        |---|---|
        | Ann\\| | 7 |
        |  | 8 |
        """
        lines = [self.columns, *self.rows]
        cells = ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]
        return "\n".join([cells[0], "|" + "---|" * len(self.columns), *cells[1:]])


def _to_scalar(value: Any) -> Scalar:
    """Convert a value of a database to a scalar: other kinds become texts, long ones are cut."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON, in which a worker replies, has no NaN
    if isinstance(value, (bytes, memoryview)):
        return f"({len(value)} bytes)"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _cell(value: Scalar) -> str:
    return "" if value is None else " ".join(str(value).split()).replace("|", "\\|")


@contextmanager
def statement_worker(limits: QueryLimits, serves: object = None) -> Iterator[WorkerProcess]:
    """Borrow a process to run a statement in. If it is killed, the error goes to the author of the statement."""
    try:
        with borrow_worker(limits.memory_mb, serves) as worker:
            yield worker
    except WorkerDied as died:
        check_cancelled()  # a cancelled run kills the worker too, and that is no fault of the statement
        raise StatementError(
            f"The statement {died}. Write one that reads less: with a condition, or without joining everything with "
            "everything; or allow more with QueryLimits(timeout_s=…, memory_mb=…)."
        ) from died


def ask_worker(
    ask: Callable[..., Any], *place: Any, statement: str, limits: QueryLimits, load: Sequence[Any], alone: bool = False
) -> QueryRows:
    """Run a statement in a worker, and return its rows.

    Args:
        ask: of the place, the statement, and limits of rows and characters: the `plain` rows.
        load: a function and its arguments, called before; its time is not the statement's.
        alone: the worker serves this place only.
    """
    with statement_worker(limits, place if alone else None) as worker:
        arguments = (*place, statement, limits.rows, limits.characters)
        columns, rows, is_cut = worker.call(ask, *arguments, seconds=limits.timeout_s, load=load)
    return QueryRows(tuple(columns), tuple(map(tuple, rows)), statement, is_cut)
