"""Graphs in Neo4j, queried in Cypher."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import record_access
from spolia.databases.database import QueryLimits, QueryRows, ask_worker
from spolia.deferred import neo4j
from spolia.errors import StatementError, StoreError, StoreUnavailable, require
from spolia.types import Value

if TYPE_CHECKING:
    from neo4j import Session, Transaction

_CONNECT_S = 10
_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|`(?:[^`]|``)*+`|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/""", re.DOTALL
)
# Not behind a dot or colon, where they are names of properties and labels. `CALL {` is a subquery, not a procedure.
_BEYOND = re.compile(
    r"(?<![.:\w])(?:CALL(?!\s*[{(])|LOAD\s+CSV|CREATE|MERGE|DELETE|SET|REMOVE|DROP|FOREACH|USE|TERMINATE|ALTER|GRANT)\b",
    re.I,
)
_KINDS = 100  # labels, and links, that a model is shown: a prompt has no room for thousands


@dataclass(frozen=True)
class Neo4jDatabase(Value):
    """A graph in Neo4j, or another server of the Bolt protocol, which is queried and never written.

    Each statement runs in a transaction of its own for reading, with a time-out that the server keeps; it is rolled
    back, and it fetches only the rows that the limits allow. A statement that writes, calls a procedure or loads a file
    raises before it is sent. Give it a user who may read these nodes and nothing else.

    Args:
        url: `bolt://host:7687`, `neo4j://host` or `neo4j+s://host`, without a user or password.
        database: its name; empty for the user's own.
        user_env, password_env: the variables that hold who asks, and the password; empty for a server without users.

    Raises:
        StoreError: the address is of another kind, or holds a user or a password.

    >>> Neo4jDatabase("neo4j+s://graph.example").language
    'Cypher'
    """

    url: str
    database: str = ""
    user_env: str = "NEO4J_USERNAME"
    password_env: str = "NEO4J_PASSWORD"

    scoped: ClassVar[bool] = False
    language: ClassVar[str] = "Cypher"

    def __post_init__(self) -> None:
        # The address is stored with the flow, and must hold no password.
        if not re.match(r"(?:bolt|neo4j)(?:\+s|\+ssc)?://[^/@]", self.url) or "@" in self.url:
            raise StoreError(
                "The address of a graph is bolt://host:7687 or neo4j+s://host, without a user or password. Put these "
                "into NEO4J_USERNAME and NEO4J_PASSWORD."
            )

    @property
    def place(self) -> str:
        return self.url

    def fingerprint(self) -> None:
        """Return None: nobody knows when its nodes change."""

    def described(self) -> str:
        """Describe labels and types with their properties, and which labels a type links, by the server's schema."""
        statements = (
            "CALL db.schema.nodeTypeProperties() YIELD nodeLabels, propertyName RETURN nodeLabels, propertyName",
            "CALL db.schema.relTypeProperties() YIELD relType, propertyName RETURN relType, propertyName",
            # a sample: a large graph has millions
            "MATCH (a)-[r]->(b) WITH a, r, b LIMIT 10000 RETURN DISTINCT labels(a), type(r), labels(b)",
        )
        limits = QueryLimits()
        with self._begin_reading(limits) as transaction:
            nodes, kinds, links = (
                [tuple(row.values()) for row in transaction.run(statement)] for statement in statements
            )
        labels, types = dict[str, list[str]](), dict[str, list[str]]()
        for names, name in nodes:
            labels.setdefault(":".join(names), []).extend([name] if name else [])
        for kind, name in kinds:
            types.setdefault(str(kind).removeprefix(":").strip("`"), []).extend([name] if name else [])
        lines = [f"(:{label}{_format_names(names_of_label)})" for label, names_of_label in sorted(labels.items())]
        linked = sorted({(":".join(a), str(kind), ":".join(b)) for a, kind, b in links})
        lines += [f"(:{a})-[:{kind}{_format_names(types.get(kind, []))}]->(:{b})" for a, kind, b in linked]
        return "\n".join(lines[: 2 * _KINDS])

    def ask(self, statement: str, limits: QueryLimits) -> QueryRows:
        record_access(self)
        refuse_other_than_reading(statement)
        require(neo4j, "Asking a graph in Neo4j")
        env = {name: os.environ[name] for name in (self.user_env, self.password_env) if name in os.environ}
        killed = limits.but(timeout_s=2 * limits.timeout_s + _CONNECT_S)  # the server ends a statement before
        place = (self.url, self.database, self.user_env, self.password_env, env, limits.timeout_s)
        return ask_worker(_ask, *place, statement=statement, limits=killed, load=(_load,))

    def _run(self, statement: str, limits: QueryLimits) -> QueryRows:
        with self._begin_reading(limits) as transaction:
            result = transaction.run(statement)
            rows = ([_to_plain(value) for value in row.values()] for row in result)
            return QueryRows.read(result.keys(), rows, statement, limits)

    @contextmanager
    def _begin_reading(self, limits: QueryLimits) -> "Iterator[Transaction]":
        """Begin a read-only transaction, and roll it back at the end."""
        record_access(self)
        require(neo4j, "Asking a graph in Neo4j")
        user, password = (os.environ.get(name, "") for name in (self.user_env, self.password_env))
        # One row more than the limit tells that the result was cut; 1000 is the driver's own default.
        session_options: dict[str, Any] = {"database": self.database or None, "fetch_size": min(limits.rows + 1, 1000)}
        try:
            with (
                neo4j.GraphDatabase.driver(
                    self.url,
                    auth=(user, password) if user else None,
                    connection_timeout=_CONNECT_S,
                    connection_acquisition_timeout=_CONNECT_S,
                ) as driver,
                driver.session(default_access_mode=neo4j.READ_ACCESS, **session_options) as session,
                _begin(session, limits.timeout_s) as transaction,
            ):
                yield transaction
        except (neo4j.exceptions.ClientError, neo4j.exceptions.TransientError) as error:
            code, message = str(error.code), " ".join(str(error.message).split())[:300]
            if "TransactionTimedOut" in code:
                raise StatementError(
                    f"The statement took longer than {limits.timeout_s:g} s. Write one that reads less: with a "
                    "condition, or a shorter path."
                ) from error
            if ".Security." in code:  # no fault of the statement: its author cannot help it
                raise StoreError(
                    f"{self.url} lets nobody in as {user or 'nobody'!r}: {message}. Put the user into {self.user_env}, "
                    f"the password into {self.password_env}."
                ) from error
            raise StatementError(f"Neo4j says: {message}. Write one statement that reads.") from error
        except (neo4j.exceptions.DriverError, neo4j.exceptions.Neo4jError) as error:
            message = " ".join(str(error).split())[:300]
            raise StoreUnavailable(
                f"{self.url} could not be asked: {message}. Check the address, and repeat."
            ) from error


@contextmanager
def _begin(session: "Session", timeout_s: float) -> "Iterator[Transaction]":
    transaction = session.begin_transaction(timeout=timeout_s)
    try:
        yield transaction
        transaction.rollback()
    finally:
        transaction.close()


def refuse_other_than_reading(statement: str) -> None:
    """Raise for a statement that writes, calls a procedure or loads a file; quotes and comments are ignored.

    Raises:
        StatementError: which word it is, and what to write.

    >>> refuse_other_than_reading("MATCH (n) WHERE n.name = 'DELETE' RETURN n")
    >>> refuse_other_than_reading("MATCH (n) DETACH DELETE n")
    Traceback (most recent call last):
    spolia.errors.StatementError: The statement has DELETE in it, and may only read. Write MATCH … RETURN.
    """
    if match := _BEYOND.search(_QUOTED.sub("''", statement)):
        raise StatementError(f"The statement has {match[0].upper()} in it, and may only read. Write MATCH … RETURN.")


def _to_plain(value: Any) -> Any:
    """Return a node's name or title, else its properties; lists as texts; other values as they are."""
    if hasattr(value, "labels") or hasattr(value, "nodes"):
        properties = dict(value)
        return str(properties.get("name") or properties.get("title") or properties)
    return ", ".join(str(_to_plain(item)) for item in value) if isinstance(value, list) else value


def _format_names(names: list[str]) -> str:
    return f" {{{', '.join(names)}}}" if names else ""


def _load() -> None:
    require(neo4j, "Asking a graph in Neo4j")


def _ask(
    url: str,
    database: str,
    user_env: str,
    password_env: str,
    env: Mapping[str, str],
    timeout_s: float,
    statement: str,
    rows: int,
    characters: int,
) -> list[Any]:
    for name in {user_env, password_env} - {""}:
        os.environ.pop(name, None)  # a worker is reused, and must not keep the password of a former call
    os.environ.update(env)
    graph_database = Neo4jDatabase(url, database, user_env, password_env)
    return graph_database._run(statement, QueryLimits(rows, characters, timeout_s)).plain
