"""What is read out of replies about a question. Each parser reads `none` as nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spolia.models.parsers import Lines, Parser, Text, spoken

_NOTHING = re.compile(r"[\W_]*(?:none|n/a)[\W_]*", re.IGNORECASE)
_LABEL = re.compile(
    r"^\W*+(?:(?:rewritten|search|new|abstract|step[- ]?back|general|better|改写后?的?)?\s*"
    r"(?:question|query|search|passage|问题|查询|質問|질문))[\s*_]*[:：][\s*_]*",
    re.IGNORECASE,
)
_STEP = re.compile(r"^[^\w\n]*+(?:(?:sub[- ]?)?question|step|q)?\s*#?(\d{1,2})\s*[.:)）：、]\**\s*(\S.*)$", re.I | re.M)
_ANSWER_OF = re.compile(r"#(\d{1,3})(?!\d)")
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
class Steps(Parser[tuple[str, ...]]):
    """Sub-questions, one a line; `#1` in one stands for the answer of the first. Numbers are as the lines are written.

    >>> Steps().parse("Sub-questions:\\n1: Who employs Olsen?\\n2: Who employs Olsen?\\n3: Where is #2?")
    ('Who employs Olsen?', 'Where is #1?')
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        said = spoken(reply)
        if says_nothing(said):
            return ()
        found = [(int(number), text) for number, text in _STEP.findall(said)]
        numbered = found or list(enumerate(Lines(1000).parse(reply), 1))
        places: dict[str, int] = {}
        moved: dict[int, int] = {}
        steps: list[str] = []
        for number, text in numbered:
            step = _ANSWER_OF.sub(lambda needed: f"#{_place(needed, moved)}", _bare(text))
            if alike(step) and alike(step) not in places:
                steps.append(step)
                places[alike(step)] = len(steps)
            moved[number] = places.get(alike(step), 0)
        if not steps:
            raise ValueError("it must be questions, one a line, with their numbers")
        return tuple(steps)


@dataclass(frozen=True)
class OneText(Parser[str]):
    """One text, without quotes, bold type or a label before it; empty where there is nothing to say.

    >>> OneText().parse('**Rewritten query:** "author of Emma"'), OneText().parse("None.")
    ('author of Emma', '')
    """

    def parse(self, reply: str) -> str:
        said = Text().parse(reply)
        return "" if says_nothing(said) else _bare(_LABEL.sub("", said))


def _place(needed: re.Match[str], moved: dict[int, int]) -> int:
    """Where the step stands whose answer is needed."""
    if not moved.get(int(needed[1])):
        raise ValueError(f"a line may use the answers of lines before it alone, and one uses {needed[0]}")
    return moved[int(needed[1])]


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
