"""What is read out of replies about a question. Each parser reads `none` as nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spolia.models.parsers import Lines, Parser, Text, spoken

_NOTHING = re.compile(r"[\W_]*(?:none|n/a)[\W_]*", re.IGNORECASE)
_LABEL = re.compile(
    r"^\W*(?:(?:rewritten|search|new|abstract|step[- ]?back|general|better|改写后?的?)?\s*"
    r"(?:question|query|search|passage|问题|查询|質問|질문))[\s*_]*[:：][\s*_]*",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"""(?:\*\*|__)?(?:"([^"]+)"|“([^”]+)”|«([^»]+)»|「([^」]+)」|『([^』]+)』|`([^`]+)`|'([^']+)')(?:\*\*|__)?"""
)


@dataclass(frozen=True)
class Searches(Parser[tuple[str, ...]]):
    """Texts to search for, one a line: without numbers, bullets, blank lines, quotes and repetitions.

    >>> Searches().parse("Sure:\\n1. author of Emma\\n\\n2) author of Emma\\n3. who wrote 'Emma'")
    ('author of Emma', "who wrote 'Emma'")
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        if says_nothing(spoken(reply)):
            return ()
        lines = (_bare(line) for line in Lines(1000).parse(reply))
        found: dict[str, str] = {}
        for line in lines:
            if alike(line) and not line.endswith((":", "：")):
                found.setdefault(alike(line), line)
        if not found:
            raise ValueError("it must be what to search for, one a line")
        return tuple(found.values())


@dataclass(frozen=True)
class OneText(Parser[str]):
    """One text, without quotes, bold type or a label before it; empty where there is nothing to say.

    >>> OneText().parse('**Rewritten query:** "author of Emma"'), OneText().parse("None.")
    ('author of Emma', '')
    """

    def parse(self, reply: str) -> str:
        said = Text().parse(reply)
        return "" if says_nothing(said) else _bare(_LABEL.sub("", said))


def _bare(text: str) -> str:
    """A text on one line, without bold type and quotes around it."""
    line = " ".join(text.split()).strip("*_ ")
    quoted = _QUOTED.fullmatch(line)
    return next(filter(None, quoted.groups())) if quoted else line


def says_nothing(reply: str) -> bool:
    """Whether a reply is the word for nothing.

    >>> says_nothing("None."), says_nothing("None of it holds.")
    (True, False)
    """
    return _NOTHING.fullmatch(reply) is not None


def alike(text: str) -> str:
    """A text without case, blanks and punctuation: what is equal so says the same.

    >>> alike("Who wrote Emma?") == alike("who wrote «Emma»")
    True
    """
    return " ".join(re.findall(r"\w+", text.casefold()))
