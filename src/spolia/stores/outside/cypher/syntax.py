"""What a statement is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Literal:
    value: Any


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Property:
    """`of.key`"""

    of: Expression
    key: str


@dataclass(frozen=True)
class Item:
    """`of[index]`"""

    of: Expression
    index: Expression


@dataclass(frozen=True)
class ListOf:
    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Unary:
    """`not`, `-`, `is null`, `is not null`"""

    mark: str
    of: Expression


@dataclass(frozen=True)
class Binary:
    mark: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Call:
    """A function of arguments; `count(*)` has none."""

    name: str
    arguments: tuple[Expression, ...]
    distinct: bool = False


@dataclass(frozen=True)
class Exists:
    """Whether a pattern is there."""

    pattern: Pattern


Expression: TypeAlias = Literal | Variable | Property | Item | ListOf | Unary | Binary | Call | Exists
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


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions right below one."""
    match expression:
        case Property(of=of) | Unary(of=of):
            return (of,)
        case Item(of=of, index=index):
            return (of, index)
        case ListOf(items=items):
            return items
        case Binary(left=left, right=right):
            return (left, right)
        case Call(arguments=arguments):
            return arguments
        case _:
            return ()
