"""What a statement gives, and how much of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spolia.core.wiring import refuse_counts
from spolia.errors import WiringError
from spolia.types import Query, Scalar, Value

_LONGEST = 2_000
"""Characters of one value that are kept."""


@dataclass(frozen=True)
class Limits(Value):
    """What one statement may take; each is enforced where it is run.

    Args:
        rows: at most; further ones are not fetched.
        characters: of all values together, at most.
        timeout_s: seconds until it is broken off.
    """

    rows: int = 100
    characters: int = 20_000
    timeout_s: float = 5.0

    def __post_init__(self) -> None:
        refuse_counts(self, "rows", "characters")
        if not 0 < self.timeout_s < float("inf"):
            raise WiringError(f"timeout_s is {self.timeout_s}. Write seconds above 0.")


@dataclass(frozen=True)
class Rows(Value):
    """The rows that a statement gave.

    Args:
        columns: their names.
        rows: the values, row by row.
        statement: what was run.
        cut: there are more rows than these; the limits do not let them through.
        query: what was asked in words; None where nothing was.
        uri: of what was asked.
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
    def read(cls, columns: Sequence[str], rows: Iterable[Sequence[Any]], statement: str, limits: Limits) -> Rows:
        """As many of the rows as the limits let through.

        >>> Rows.read(["n"], iter([(1,), (2,), (3,)]), "", Limits(rows=2))
        Rows(columns=('n',), rows=((1,), (2,)), statement='', cut=True, query=None, uri='')
        """
        kept: list[tuple[Scalar, ...]] = []
        room = limits.characters
        for row in rows:
            values = tuple(map(_plain, row))
            room -= sum(len(str(value)) for value in values)
            if len(kept) == limits.rows or room < 0:
                return cls(tuple(columns), tuple(kept), statement, cut=True)
            kept.append(values)
        return cls(tuple(columns), tuple(kept), statement)

    def written(self) -> str:
        """A table in Markdown; a value with line breaks or bars stays in its cell.

        >>> print(Rows(("name", "age"), (("Ann|", 7), (None, 8))).written())
        | name | age |
        |---|---|
        | Ann\\| | 7 |
        |  | 8 |
        """
        lines = [self.columns, *self.rows]
        cells = ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]
        return "\n".join([cells[0], "|" + "---|" * len(self.columns), *cells[1:]])


def _plain(value: Any) -> Scalar:
    """A value of a database as metadata hold it: other kinds as texts, long ones cut."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, memoryview)):
        return f"({len(value)} bytes)"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _cell(value: Scalar) -> str:
    return "" if value is None else " ".join(str(value).split()).replace("|", "\\|")
