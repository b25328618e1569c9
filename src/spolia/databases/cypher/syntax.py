"""A statement as words and marks."""

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from spolia.errors import StatementError

LONGEST = 10_000
"""Characters of a statement."""
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>\d+\.\d+(?:[eE][-+]?\d+)?|\d+)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`[^`]+`)
    |(?P<name>[^\W\d]\w*)
    |(?P<mark><>|<=|>=|\.\.|[-+*/%=<>()\[\]{}:,.|&;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True)
class CypherToken:
    """One of them: a `number`, a `text`, a `name`, a `quoted` name or a `mark`; `end` behind the last."""

    kind: str
    text: str


def tokens_of(statement: str) -> list[CypherToken]:
    """The tokens of a statement, and one for its end.

    >>> [token.text for token in tokens_of("MATCH (a) // all")]
    ['MATCH', '(', 'a', ')', '']
    """
    if len(statement) > LONGEST:
        raise StatementError(
            f"The statement has {len(statement)} characters, more than {LONGEST}. Write a shorter one."
        )
    found, at = list[CypherToken](), 0
    while at < len(statement):
        token = _TOKEN.match(statement, at)
        if token is None:
            raise StatementError(f"{statement[at : at + 20]!r} cannot be read. Write one MATCH … RETURN.")
        at = token.end()
        kind = str(token.lastgroup)
        if kind == "text":
            found.append(
                CypherToken(kind, re.sub(r"\\(.)", lambda mark: _ESCAPES.get(mark[1], mark[1]), token[0][1:-1]))
            )
        elif kind != "space":
            found.append(CypherToken(kind, token[0].strip("`") if kind == "quoted" else token[0]))
    return [*found, CypherToken("end", "")]


@dataclass(frozen=True)
class Literal:
    value: Any


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Operation:
    """A mark or word between or before values: `=`, `and`, `not`, `is null`; `[]` for `of[index]` and `of.key`, and
    `list` for `[a, b]`."""

    mark: str
    arguments: "tuple[Expression, ...]"


@dataclass(frozen=True)
class FunctionCall:
    """A function of arguments; `count(*)` has none."""

    name: str
    arguments: "tuple[Expression, ...]"
    distinct: bool = False


@dataclass(frozen=True)
class Exists:
    """Whether a pattern is there."""

    pattern: "Pattern"


Expression: TypeAlias = Literal | Variable | Operation | FunctionCall | Exists
Wanted: TypeAlias = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class NodePattern:
    """`(name:Label {key: value})`"""

    name: str
    labels: tuple[str, ...] = ()
    properties: Wanted = ()


@dataclass(frozen=True)
class LinkPattern:
    """`-[name:TYPE|OTHER*least..most {key: value}]->`; direction 1, `<-[]-` -1, `-[]-` 0."""

    name: str = ""
    types: tuple[str, ...] = ()
    direction: int = 0
    lengths: tuple[int, int] | None = None
    properties: Wanted = ()


@dataclass(frozen=True)
class Pattern:
    """Nodes, and the links between one and the next."""

    nodes: tuple[NodePattern, ...]
    links: tuple[LinkPattern, ...] = ()


@dataclass(frozen=True)
class Match:
    patterns: tuple[Pattern, ...]
    where: Expression | None = None
    optional: bool = False


@dataclass(frozen=True)
class Unwind:
    of: Expression
    name: str


@dataclass(frozen=True)
class Project:
    """WITH, or RETURN: what goes on, under which names. No item at all: everything."""

    items: tuple[tuple[str, Expression], ...]
    everything: bool = False
    distinct: bool = False
    order: tuple[tuple[Expression, bool], ...] = ()
    skip: Expression | None = None
    limit: Expression | None = None
    where: Expression | None = None


Clause: TypeAlias = Match | Unwind | Project
