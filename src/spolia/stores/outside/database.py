"""What is asked of a database that is not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from spolia.stores.outside.rows import Limits, Rows
from spolia.types import Addressed

SAMPLES = 3
"""Rows of each table that a model is shown."""


@runtime_checkable
class Asked(Addressed, Protocol):
    """Something that statements in a language of its own are run on, and that none of them can change."""

    @property
    def language(self) -> str:
        """What statements are written in, as people say it: `SQL of SQLite`, `Cypher`."""
        ...

    @property
    def place(self) -> str:
        """Where it is, for people and citations."""
        ...

    def described(self) -> str:
        """What there is to ask for: tables, columns and some rows; kinds of nodes and relationships.

        Raises:
            StoreError: it cannot be opened.
        """
        ...

    def ask(self, statement: str, limits: Limits) -> Rows:
        """The rows that one reading statement gives.

        Raises:
            StatementError: it is no single reading statement, names what is not there, or takes too long. What it says
                is of use to whoever wrote the statement.
            StoreError: it cannot be opened.
        """
        ...


def table_text(name: str, created: str, rows: Rows) -> str:
    """A table as a model is shown it: how it was created, and its first rows."""
    return f"{created.strip().rstrip(';')};\n-- some rows of {name}:\n{rows.written()}"


def named(tables: Mapping[str, Sequence[str]]) -> str:
    """Tables and their columns on one line."""
    return "; ".join(f"{table}({', '.join(columns)})" for table, columns in tables.items())
