"""Statements that a language model writes for a database or a graph, run and corrected."""

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from spolia.core.call_bounds import times
from spolia.core.run_context import note
from spolia.core.type_compatibility import refuse_counts
from spolia.databases.database import QueryableDatabase, QueryLimits, QueryRows
from spolia.databases.read_only_check import refuse_no_parser
from spolia.errors import StatementError
from spolia.models.parsers import NOTHING, JsonObject, Parser, says_nothing, strip_thoughts
from spolia.models.prompting.role import Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import QueryLLM
from spolia.types import Query

LIMITS = QueryLimits()
DESCRIPTION_CHARACTERS = 24_000  # characters of a database's description that are shown to a model, by default
_FENCED = re.compile(r"(?:```|~~~)[\w-]*[ \t]*\n(.*?)(?:\n[^\S\n]*+(?:```|~~~)|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<(sql|cypher|query|statement|answer)>(.*?)(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
_VERBS = (  # Also those that write: such a statement is found, so that its refusal can say why.
    "select|with|match|optional match|unwind|values|return|insert|update|delete|drop|create|alter|replace|pragma|"
    "attach|merge|call|copy|explain|truncate|begin|set"
)
_LABEL = (
    rf"(?!(?:{_VERBS})\b)[^\n:：=>]{{0,40}}(?:sql|cypher|query|statement|answer|答案|查询|クエリ|쿼리)"
    r"[^\n:：=>]{0,20}(?:[:：=]|->|→)[\s*_`\"']*"
)
_LABELLED = re.compile(_LABEL, re.IGNORECASE)
_BEGINS = re.compile(
    rf"^(?:[^\S\n]|[>*`\"'“•-])*+(?:\(?\d{{1,2}}[.)]\s+)?(?:{_LABEL})?((?:{_VERBS})\b.*)",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Statement(Parser[str]):
    """The statement in a reply, without fences, introduction and the semicolon after it; empty for `none`.

    Parsing does not check what it does: running it may raise, with a reason.

    >>> Statement().parse("Here it is:\\n```sql\\nSELECT name FROM person;\\n```\\nIt lists names.")
    'SELECT name FROM person'
    >>> Statement().parse("SQL: SELECT 1"), Statement().parse("none")
    ('SELECT 1', '')
    """

    def parse(self, reply: str) -> str:
        text = strip_thoughts(reply)
        if says_nothing(text):
            return ""
        fenced, tagged = _FENCED.search(text), _TAGGED.search(text)
        content = fenced[1] if fenced else tagged[2] if tagged else text
        content = _find_json_text(content.strip()) or content
        if says_nothing(_LABELLED.sub("", content.strip(), count=1)):
            return ""
        begun = None if fenced else _BEGINS.search(content)
        statement = _strip_statement(begun[1] if begun else content if fenced else "")
        if not statement:
            raise ValueError("it must be one statement, and nothing else")
        return statement


def _find_json_text(text: str) -> str:
    """Return the first text in a JSON object, if the reply is one."""
    if not text.startswith("{"):
        return ""
    try:
        values = JsonObject().parse(text).values()
    except ValueError:
        return ""
    return next((value for value in values if isinstance(value, str)), "")


def _strip_statement(statement: str) -> str:
    """Return a statement without the semicolon after it, and without marks around it."""
    text = statement.strip()
    for mark in ("**", "*", "``", "`", '"', "'", "”"):
        if text.endswith(mark) and text.count(mark) % 2:  # an even count is the statement's own, as in `name = "a"`
            text = text.removesuffix(mark).rstrip()
    while text.endswith(";"):
        text = text[:-1].rstrip()
    return text


class TextToQuery(QueryLLM[QueryRows]):
    """Base of operators that have a language model write a statement, run it, and have it corrected if it fails.

    The model is shown the question, what there is to ask for, and the statements that failed with their errors. A
    subclass is a frozen dataclass with these fields, and writes `target`.

    Args:
        tries: further statements after one that fails.
        limits: of what one statement may take.
        characters: of the description that are shown, at most.
    """

    tries: int
    limits: QueryLimits
    characters: int

    counts: ClassVar[tuple[str, ...]] = ("max_tokens", "characters")
    shows: ClassVar[tuple[str, ...]] = ("question", "described", "failed")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "tries", minimum=0)

    @property
    @abstractmethod
    def target(self) -> QueryableDatabase:
        """Return the database to query."""

    def apply(self, value: Query, /) -> QueryRows:
        described, failed = self._describe_target(), list[str]()
        for _ in range(1 + self.tries):
            statement = self.read_reply(
                value,
                described=described,
                language=Setting(self.target.language),
                limit=Setting(self.limits.rows),
                failed=tuple(failed),
            )
            if not statement:
                return QueryRows((), (), query=value, uri=self.target.place)
            try:
                return self.target.ask(statement, self.limits).but(query=value, uri=self.target.place)
            except StatementError as error:
                note(f"A statement failed: {statement[:200]!r}: {error}")
                failed.append(f"{statement}\n\n{error}")
        raise StatementError(f"None of {1 + self.tries} statements could be run. The last one:\n{failed[-1]}")

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(1 + self.tries, self.ask.calls())

    def _describe_target(self) -> str:
        description = self.target.described()
        if len(description) > self.characters:
            note(
                f"The description of {self.target.place} has {len(description)} characters; the model is shown the "
                f"first {self.characters}. Name the tables that matter, or write a larger characters."
            )
        return description[: self.characters]


WRITE_SQL: Role[str] = Role("spolia:pre_retrieval/prompts/text_to_sql.txt", Statement(), default=NOTHING)


@dataclass(frozen=True)
class TextToSQL(TextToQuery):
    """Answer a question by one SELECT that a language model writes: q → rows.

    The model sees how the tables were created and their first rows. Its statement runs only if it is a single query
    that reads these tables (`spolia.databases.read_only_check`), over a connection that cannot write. The model sees a
    rejected or failed query with the reason, up to `tries` times. A query may find no rows. If the model says that the
    tables do not hold the answer, there is no statement and the result has no columns.

    Args:
        database: `SQLiteFile` or `PostgresDatabase`.
        tries: further statements after one that fails.
        limits: rows, characters and seconds that one statement may take.
        characters: of the description of the tables that are shown, at most.
        max_tokens: longest statement.
        temperature: 0 for the most probable statement.
        role: prompt, with the places `{{described}}` and `{{failed}}` too, reader and default.
        llm: as for every `QueryLLM`.

    Raises:
        StatementError: when it runs: no statement could be run. With `Guard` another way is taken then.
        StoreError: the database cannot be opened.
        MissingExtra: `spolia[text-to-sql]` is not installed.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), query construction.

    >>> import sqlite3, tempfile
    >>> path = tempfile.mkdtemp() + "/people.db"
    >>> with sqlite3.connect(path) as people:
    ...     _ = people.execute("CREATE TABLE person (name TEXT, born INT)")
    ...     _ = people.execute("INSERT INTO person VALUES ('Ann', 1968)")
    >>> from spolia import Query, ScriptedModel
    >>> from spolia.databases.sqlite_file import SQLiteFile
    >>> model = ScriptedModel((("There is no column", "SELECT born FROM person"), ("", "SELECT year FROM person")))
    >>> found = TextToSQL(model, SQLiteFile(path))(Query("When was Ann born?"))
    >>> found.rows, found.statement
    (((1968,),), 'SELECT born FROM person')
    """

    llm: LanguageModel
    database: QueryableDatabase
    tries: int = 2
    limits: QueryLimits = LIMITS
    characters: int = DESCRIPTION_CHARACTERS
    role: Role[str] = WRITE_SQL
    max_tokens: int = 512
    temperature: float = 0.0

    version: ClassVar[int] = 2

    @property
    def target(self) -> QueryableDatabase:
        return self.database

    def apply(self, value: Query, /) -> QueryRows:
        refuse_no_parser()
        return super().apply(value)


WRITE_CYPHER: Role[str] = Role("spolia:pre_retrieval/prompts/text_to_cypher.txt", Statement(), default=NOTHING)


@dataclass(frozen=True)
class TextToCypher(TextToQuery):
    """Answer a question by one MATCH … RETURN that a language model writes: q → rows.

    The model sees which labels and properties there are, some names, and what links what. Its statement is run
    read-only, in a process that can open no file (`spolia.databases.cypher`). The model sees a rejected or failed
    statement with the reason, `tries` times.

    Args:
        graph: `GraphFile`.
        tries: further statements after one that fails.
        limits: rows, characters and seconds that one statement may take.
        characters: of the description of the graph that are shown, at most.
        max_tokens: longest statement.
        temperature: 0 for the most probable statement.
        role: prompt, with the places `{{described}}` and `{{failed}}` too, reader and default.
        llm: as for every `QueryLLM`.

    Raises:
        StatementError: when it runs: no statement could be run. With `Guard` another way is taken then.
        StoreError: the graph cannot be read.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), query construction; Francis et al., "Cypher: an evolving
    query language for property graphs", SIGMOD 2018.

    >>> import json, tempfile
    >>> path = tempfile.mkdtemp() + "/people.json"
    >>> nodes = [{"id": "o", "properties": {"name": "Olsen"}}, {"id": "n", "properties": {"name": "Nokia"}}]
    >>> links = [{"type": "WORKS_AT", "from": "o", "to": "n"}]
    >>> with open(path, "w") as file:
    ...     json.dump({"nodes": nodes, "relationships": links}, file)
    >>> from spolia import Query, ScriptedModel
    >>> from spolia.databases.graph_file import GraphFile
    >>> model = ScriptedModel(("MATCH ({name: 'Olsen'})-[:WORKS_AT]->(firm) RETURN firm.name AS firm",))
    >>> TextToCypher(model, GraphFile(path))(Query("Who employs Olsen?")).rows
    (('Nokia',),)
    """

    llm: LanguageModel
    graph: QueryableDatabase
    tries: int = 2
    limits: QueryLimits = LIMITS
    characters: int = DESCRIPTION_CHARACTERS
    role: Role[str] = WRITE_CYPHER
    max_tokens: int = 512
    temperature: float = 0.0

    version: ClassVar[int] = 2

    @property
    def target(self) -> QueryableDatabase:
        return self.graph
