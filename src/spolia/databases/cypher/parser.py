"""Parse a statement: its text into words and marks, these into clauses."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

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


T = TypeVar("T")
FARTHEST = 15
"""Relationships in a row, where a statement says no number."""
_DEEPEST = 60
_CONSTANTS = {"true": True, "false": False, "null": None}
_COMPARE = ("=", "<>", "<", "<=", ">", ">=")
_WRITES = frozenset(
    ("create", "merge", "delete", "detach", "set", "remove", "call", "load", "foreach", "drop", "use", "show", "alter",
     "grant", "start", "insert", "explain", "profile", "union")
)  # fmt: skip


def clauses_of(statement: str) -> tuple[Clause, ...]:
    """The clauses of a reading statement; the last one is RETURN.

    >>> match, give = clauses_of("MATCH (a:Person)-[:KNOWS]->(b) WHERE a.name = 'Ann' RETURN b.name AS name")
    >>> match.patterns[0].links[0].types, give.items
    (('KNOWS',), (('name', Operation(mark='[]', arguments=(Variable(name='b'), Literal(value='name')))),))
    """
    return _Parser(tokens_of(statement)).statement()


class _Parser:
    def __init__(self, tokens: list[CypherToken]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    # Clauses.

    def statement(self) -> tuple[Clause, ...]:
        found: list[Clause] = []
        while True:
            if self.word("return"):
                found.append(self.project(final=True))
                break
            found.append(self.clause())
        self.mark(";")
        if self.peek.kind != "end":
            raise StatementError(f"Behind RETURN stands {self.peek.text!r}. Write one statement, which ends in RETURN.")
        return tuple(found)

    def clause(self) -> Clause:
        if self.word("optional"):
            self.need_word("match")
            return self.match(optional=True)
        if self.word("match"):
            return self.match()
        if self.word("unwind"):
            of = self.expression()
            self.need_word("as")
            return Unwind(of, self.name())
        if self.word("with"):
            return self.project(final=False)
        if self.peek.text.lower() in _WRITES and self.peek.kind == "name":
            raise StatementError(
                f"{self.peek.text.upper()} may not be used: statements only read. Write MATCH … RETURN."
            )
        raise StatementError(f"No clause begins with {self.peek.text!r}. Write MATCH … RETURN.")

    def match(self, optional: bool = False) -> Match:
        patterns = self.several(self.pattern)
        return Match(patterns, self.expression() if self.word("where") else None, optional)

    def project(self, final: bool) -> Project:
        distinct = self.word("distinct")
        everything = self.mark("*")
        items = self.several(self.item) if not everything or self.mark(",") else ()
        order: tuple[tuple[Expression, bool], ...] = ()
        if self.word("order"):
            self.need_word("by")
            order = self.several(self.sorted_by)
        skip = self.expression() if self.word("skip") or self.word("offset") else None
        limit = self.expression() if self.word("limit") else None
        where = self.expression() if not final and self.word("where") else None
        return Project(items, everything, distinct, order, skip, limit, where)

    def item(self) -> tuple[str, Expression]:
        begin = self.at
        found = self.expression()
        if self.word("as"):
            return self.name(), found
        read = self.tokens[begin : self.at]
        return "".join(token.text if token.kind != "text" else f"'{token.text}'" for token in read), found

    def sorted_by(self) -> tuple[Expression, bool]:
        found = self.expression()
        down = self.word("desc") or self.word("descending")
        if not down and not self.word("asc"):
            self.word("ascending")
        return found, down

    # Patterns.

    def pattern(self) -> Pattern:
        nodes, links = [self.node()], list[LinkPattern]()
        while self.peek.text in ("-", "<") and self.peek.kind == "mark":
            links.append(self.link())
            nodes.append(self.node())
        return Pattern(tuple(nodes), tuple(links))

    def node(self) -> NodePattern:
        self.need("(")
        name = self.name() if self.peek.kind in ("name", "quoted") else ""
        labels: list[str] = []
        while self.mark(":") or (labels and self.mark("&")):
            labels.append(self.name())
        properties = self.properties()
        self.need(")")
        return NodePattern(name, tuple(labels), properties)

    def link(self) -> LinkPattern:
        left = self.mark("<")
        self.need("-")
        found = self.closed(self.within_link(), "]") if self.mark("[") else LinkPattern()
        self.need("-")
        return replace(found, direction=self.mark(">") - left)

    def within_link(self) -> LinkPattern:
        name = self.name() if self.peek.kind in ("name", "quoted") else ""
        types = self.types()
        lengths = self.lengths() if self.mark("*") else None
        return LinkPattern(name, types, lengths=lengths, properties=self.properties())

    def types(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.mark(":"):
            found.append(self.name())
            while self.mark("|"):
                self.mark(":")
                found.append(self.name())
        return tuple(found)

    def lengths(self) -> tuple[int, int]:
        least = int(self.take().text) if self.peek.kind == "number" and self.peek.text.isdigit() else None
        if not self.mark(".."):
            return (1, FARTHEST) if least is None else (least, least)
        most = int(self.take().text) if self.peek.kind == "number" and self.peek.text.isdigit() else FARTHEST
        return (1 if least is None else least), min(most, FARTHEST)

    def properties(self) -> Wanted:
        found: list[tuple[str, Expression]] = []
        if self.mark("{"):
            while not self.mark("}"):
                key = self.name()
                self.need(":")
                found.append((key, self.expression()))
                if not self.mark(","):
                    self.need("}")
                    break
        return tuple(found)

    # Expressions, what binds least first.

    def expression(self) -> Expression:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise StatementError("The statement is nested too deeply. Write a simpler one.")
        found = self.joined(("or",), lambda: self.joined(("xor",), lambda: self.joined(("and",), self.negated)))
        self.depth -= 1
        return found

    def joined(self, signs: tuple[str, ...], inner: Callable[[], Expression]) -> Expression:
        found = inner()
        while sign := next((sign for sign in signs if self.word(sign) or self.mark(sign)), ""):
            found = Operation(sign, (found, inner()))
        return found

    def negated(self) -> Expression:
        count = 0
        while self.word("not"):
            count += 1
        found = self.compared()
        return Operation("not", (found,)) if count % 2 else found

    def compared(self) -> Expression:
        found = self.summed()
        while True:
            if self.peek.kind == "mark" and self.peek.text in _COMPARE:
                found = Operation(self.take().text, (found, self.summed()))
            elif self.word("in") or self.word("contains"):
                found = Operation(self.before.lower(), (found, self.summed()))
            elif self.word("starts") or self.word("ends"):
                word = self.before.lower()
                self.need_word("with")
                found = Operation(word, (found, self.summed()))
            elif self.word("is"):
                negated = self.word("not")
                self.need_word("null")
                found = Operation("is not null" if negated else "is null", (found,))
            else:
                return found

    def summed(self) -> Expression:
        return self.joined(("+", "-"), lambda: self.joined(("*", "/", "%"), self.signed))

    def signed(self) -> Expression:
        return Operation("-", (self.followed(),)) if self.mark("-") else self.followed()

    def followed(self) -> Expression:
        found = self.simple()
        while True:
            if self.mark("."):
                found = Operation("[]", (found, Literal(self.name())))
            elif self.mark("["):
                found = Operation("[]", (found, self.closed(self.expression(), "]")))
            else:
                return found

    def simple(self) -> Expression:
        token = self.peek
        if token.kind == "number":
            return Literal(_number(self.take().text))
        if token.kind == "text":
            return Literal(self.take().text)
        if token.text == "(" and (pattern := self.tried(self.pattern)) is not None and pattern.links:
            return Exists(pattern)
        if self.mark("("):
            return self.closed(self.expression(), ")")
        if self.mark("["):
            items = () if self.peek.text == "]" else self.several(self.expression)
            return self.closed(Operation("list", items), "]")
        if token.kind == "name" and token.text.lower() in _CONSTANTS:
            return Literal(_CONSTANTS[self.take().text.lower()])
        name = self.name()
        return self.call(name) if self.mark("(") else Variable(name)

    def call(self, name: str) -> Expression:
        lower = name.lower()
        if lower == "exists" and (pattern := self.tried(self.pattern)) is not None and pattern.links:
            return self.closed(Exists(pattern), ")")
        if lower == "count" and self.mark("*"):
            return self.closed(FunctionCall(lower, ()), ")")
        distinct = self.word("distinct")
        arguments = () if self.peek.text == ")" else self.several(self.expression)
        return self.closed(FunctionCall(lower, arguments, distinct), ")")

    # Tokens.

    @property
    def peek(self) -> CypherToken:
        return self.tokens[self.at]

    @property
    def before(self) -> str:
        return self.tokens[self.at - 1].text

    def take(self) -> CypherToken:
        self.at += 1
        return self.tokens[self.at - 1]

    def tried(self, read: Callable[[], T]) -> T | None:
        """What is read here, if it can be; else nothing is taken, or what has no links is given back."""
        begin, depth = self.at, self.depth
        try:
            found = read()
        except StatementError:
            self.at, self.depth = begin, depth
            return None
        if isinstance(found, Pattern) and not found.links:
            self.at = begin
        return found

    def several(self, read: Callable[[], T]) -> tuple[T, ...]:
        found = [read()]
        while self.mark(","):
            found.append(read())
        return tuple(found)

    def closed(self, found: T, mark: str) -> T:
        self.need(mark)
        return found

    def mark(self, text: str) -> bool:
        return self._took(self.peek.kind == "mark" and self.peek.text == text)

    def word(self, text: str) -> bool:
        return self._took(self.peek.kind == "name" and self.peek.text.lower() == text)

    def _took(self, is_it: bool) -> bool:
        self.at += is_it
        return is_it

    def need(self, text: str) -> None:
        if not self.mark(text):
            raise StatementError(f"Expected {text!r}, found {self.peek.text!r}. Write one MATCH … RETURN.")

    def need_word(self, text: str) -> None:
        if not self.word(text):
            raise StatementError(f"Expected {text.upper()}, found {self.peek.text!r}.")

    def name(self) -> str:
        if self.peek.kind not in ("name", "quoted"):
            raise StatementError(f"Expected a name, found {self.peek.text!r}.")
        return self.take().text


def _number(text: str) -> int | float:
    if text.isdigit() and len(text) > 18:
        raise StatementError(f"{text[:30]} is larger than 64 bits. Write a smaller number.")
    return int(text) if text.isdigit() else float(text)
