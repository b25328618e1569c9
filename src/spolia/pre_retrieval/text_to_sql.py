"""A question as a statement in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.asking import NOTHING
from spolia.pre_retrieval.statements import DESCRIBED, LIMITS, AsksInStatements, Statement
from spolia.stores.outside.database import Asked
from spolia.stores.outside.read_only import refuse_no_parser
from spolia.stores.outside.rows import Limits, Rows
from spolia.types import Query

WRITTEN: Role[str] = Role("spolia:pre_retrieval/prompts/text_to_sql.txt", Statement(), default=NOTHING)


@dataclass(frozen=True)
class TextToSQL(AsksInStatements):
    """Answer a question by one SELECT that a language model writes: q → rows.

    The model sees how the tables were created and their first rows. What it writes is run only if it is one reading
    query over these tables (`spolia.stores.outside.read_only`), and then by a connection that cannot write. What is
    refused, or fails in the database, is shown to the model with the reason, `tries` times. No row is an outcome like
    others; no statement, where the model says that the tables do not hold the answer, is no columns either.

    Args:
        llm: the language model.
        database: `SQLiteFile` or `PostgresDatabase`.
        tries: further statements after one that fails.
        limits: rows, characters and seconds that one statement may take.
        characters: of the description of the tables that are shown, at most.
        role: prompt, with the places `{{described}}` and `{{failed}}` too, reader and default (`AsksOfQuery`).
        max_tokens: longest statement.
        temperature: 0 for the most probable statement.

    Raises:
        StatementError: when it runs: no statement could be run. With `Guard` another way is taken then.
        StoreError: the database cannot be opened.
        MissingExtra: `spolia[text-to-sql]` is not installed.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, query
    construction.

    >>> import sqlite3, tempfile
    >>> path = tempfile.mkdtemp() + "/people.db"
    >>> with sqlite3.connect(path) as people:
    ...     _ = people.execute("CREATE TABLE person (name TEXT, born INT)")
    ...     _ = people.execute("INSERT INTO person VALUES ('Ann', 1968)")
    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.stores.outside.sqlite_file import SQLiteFile
    >>> from spolia.types import Query
    >>> model = ScriptedModel((("There is no column", "SELECT born FROM person"), ("", "SELECT year FROM person")))
    >>> found = TextToSQL(model, SQLiteFile(path))(Query("When was Ann born?"))
    >>> found.rows, found.statement
    (((1968,),), 'SELECT born FROM person')
    """

    llm: LanguageModel
    database: Asked
    tries: int = 2
    limits: Limits = LIMITS
    characters: int = DESCRIBED
    role: Role[str] = WRITTEN
    max_tokens: int = 512
    temperature: float = 0.0

    version: ClassVar[int] = 2

    @property
    def asked(self) -> Asked:
        return self.database

    def apply(self, value: Query, /) -> Rows:
        refuse_no_parser()
        return super().apply(value)
