"""Statements that a language model writes for a database or a graph, run and corrected."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from spolia.bounds import times
from spolia.errors import StatementError
from spolia.models.delimiters import Setting
from spolia.models.parsers import Parser, spoken
from spolia.pre_retrieval.asking import AsksOfQuery
from spolia.pre_retrieval.parsers import says_nothing
from spolia.stores.outside.database import Asked
from spolia.stores.outside.rows import Limits, Rows
from spolia.surrounding import note
from spolia.types import Query
from spolia.wiring import refuse_counts

LIMITS = Limits()
DESCRIBED = 24_000
"""Characters of a database's description that are shown to a model, by default."""
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:\n[^\S\n]*+```|\Z)", re.DOTALL)
_VERBS = (
    "select|with|match|optional match|unwind|values|return|insert|update|delete|drop|create|alter|replace|pragma|"
    "attach|merge|call|copy|explain|truncate|begin|set"
)
_BEGINS = re.compile(
    rf"^(?:[^\S\n]|[>*])*+(?:(?:sql|cypher|query|statement)\w*\s*[:：]\s*)?((?:{_VERBS})\b.*)",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Statement(Parser[str]):
    """The statement in a reply, without fences, introduction and the semicolon after it; empty for `none`.

    What it does is not looked at: it is refused, with a reason, where it is run.

    >>> Statement().parse("Here it is:\\n```sql\\nSELECT name FROM person;\\n```\\nIt lists names.")
    'SELECT name FROM person'
    >>> Statement().parse("SQL: SELECT 1"), Statement().parse("none")
    ('SELECT 1', '')
    """

    def parse(self, reply: str) -> str:
        said = spoken(reply)
        if says_nothing(said):
            return ""
        found = _FENCED.search(said) or _BEGINS.search(said)
        statement = found[1].strip().rstrip(";").strip() if found else ""
        if not statement:
            raise ValueError("it must be one statement, and nothing else")
        return statement


class AsksInStatements(AsksOfQuery[Rows]):
    """Base of what has a language model write a statement, runs it, and has it corrected where it fails.

    The model is shown the question, what there is to ask for, and the statements that failed with what was said of
    them. A subclass is a frozen dataclass with these fields, and writes `asked`.

    Fields:
        tries: further statements after one that fails.
        limits: of what one statement may take.
        characters: of the description that are shown, at most.
    """

    tries: int
    limits: Limits
    characters: int

    counts: ClassVar[tuple[str, ...]] = ("max_tokens", "characters")
    shows: ClassVar[tuple[str, ...]] = ("question", "described", "failed")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "tries", least=0)

    @property
    @abstractmethod
    def asked(self) -> Asked:
        """What is asked."""

    def apply(self, value: Query, /) -> Rows:
        described, failed = self._described(), list[str]()
        for _ in range(1 + self.tries):
            statement = self.said(
                value,
                described=described,
                language=Setting(self.asked.language),
                limit=Setting(self.limits.rows),
                failed=tuple(failed),
            )
            if not statement:
                return Rows((), (), query=value, uri=self.asked.place)
            try:
                return self.asked.ask(statement, self.limits).but(query=value, uri=self.asked.place)
            except StatementError as error:
                note(f"A statement failed: {statement[:200]!r}: {error}")
                failed.append(f"{statement}\n\n{error}")
        raise StatementError(f"None of {1 + self.tries} statements could be run. The last one:\n{failed[-1]}")

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(1 + self.tries, self.ask.calls())

    def _described(self) -> str:
        found = self.asked.described()
        if len(found) > self.characters:
            note(
                f"The description of {self.asked.place} has {len(found)} characters; the model is shown the first "
                f"{self.characters}. Name the tables that matter, or write a larger characters."
            )
        return found[: self.characters]
