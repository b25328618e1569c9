"""A statement as words and marks."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
class Token:
    """One of them: a `number`, a `text`, a `name`, a `quoted` name or a `mark`; `end` behind the last."""

    kind: str
    text: str


def tokens_of(statement: str) -> list[Token]:
    """The tokens of a statement, and one for its end.

    Raises:
        StatementError: something in it is none.

    >>> [token.text for token in tokens_of("MATCH (a) // all")]
    ['MATCH', '(', 'a', ')', '']
    """
    if len(statement) > LONGEST:
        raise StatementError(
            f"The statement has {len(statement)} characters, more than {LONGEST}. Write a shorter one."
        )
    found, at = list[Token](), 0
    while at < len(statement):
        token = _TOKEN.match(statement, at)
        if token is None:
            raise StatementError(f"{statement[at : at + 20]!r} cannot be read. Write one MATCH … RETURN.")
        at = token.end()
        kind = str(token.lastgroup)
        if kind == "text":
            found.append(Token(kind, re.sub(r"\\(.)", lambda mark: _ESCAPES.get(mark[1], mark[1]), token[0][1:-1])))
        elif kind != "space":
            found.append(Token(kind, token[0].strip("`") if kind == "quoted" else token[0]))
    return [*found, Token("end", "")]
