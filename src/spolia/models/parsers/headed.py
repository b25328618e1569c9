"""Replies in sections, each under its heading: `Thought: ...`, `## Answer`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.models.parsers.parser import Parser, spoken
from spolia.models.parsers.tags import bare

_LONGEST = 200_000
"""Characters that are looked at."""
_BEFORE = (
    r"^[ \t>]*+(?:[-+•*][ \t]++)?(?:\(?\d{1,2}[.)、][ \t]*+)?(?:#{1,6}[ \t]*+)?(?:\d{1,2}[.)、][ \t]*+)?"
    r"[*_\[【「<\"'`]{0,4}[ \t]*+"
)
_MARKS = r"[ \t]*+[*_\]】」>\"'`]{0,4}[ \t]*+"
_AFTER = rf"{_MARKS}(?:[:：=]|-{{1,2}}>|→|[-–—](?=[ \t]))[ \t]*+(?:(?:\*\*|__|`|\*)(?=\s))?"
_ALONE = rf"{_MARKS}[:：]?[ \t]*+[*_]{{0,3}}[ \t]*+$"


@dataclass(frozen=True)
class Headed(Parser[dict[str, str]]):
    """The text of each of some sections, the last where one comes several times.

    A section begins at a line that begins with its name, with a colon, an arrow or a dash after it, or with nothing but
    the name; heading marks, numbers, bullets, bold type, brackets and case do not matter. It ends where the next of
    these begins, or with the reply. What stands before the first is passed over. Texts are without blanks around them.

    Args:
        names: of the sections, all of which have to be there.
        optional: of sections that may be there.

    >>> Headed(("thought", "answer")).parse("Sure.\\n**Thought:** It was Nokia.\\n### Answer\\nNokia")
    {'thought': 'It was Nokia.', 'answer': 'Nokia'}
    """

    names: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names or not all(re.search(r"\w", name) for name in (*self.names, *self.optional)):
            raise WiringError(f"Headed has names={self.names!r:.80}. Write names of letters: ('answer',).")

    def parse(self, reply: str) -> dict[str, str]:
        every = (*self.names, *self.optional)
        found = dict(_texts(spoken(reply)[:_LONGEST], every))
        if missing := [name for name in self.names if name not in found]:
            written = " ".join(f"{name.capitalize()}: ..." for name in self.names)
            raise ValueError(f"it must have a section {missing[0]}, each on lines of its own, written: {written}")
        return {name: found[name] for name in every if name in found}


def _texts(said: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Name and text of each section, in order."""
    ways = {_plain(name): name for name in names}
    written = "|".join(
        r"[ _-]?".join(map(re.escape, re.split(r"[\s_-]+", name))) for name in sorted(names, key=len)[::-1]
    )
    heading = re.compile(rf"{_BEFORE}({written})(?:{_AFTER}|{_ALONE})", re.IGNORECASE | re.MULTILINE)
    shown = "".join(_narrow(letter) for letter in said)
    headings = list(heading.finditer(shown))
    for at, mark in enumerate(headings):
        end = headings[at + 1].start() if at + 1 < len(headings) else len(said)
        yield ways[_plain(mark[1])], bare(_without_rule(said[mark.end() : end]))


def _narrow(letter: str) -> str:
    """A full-width letter, digit or mark in its usual form, which is one character too."""
    return unicodedata.normalize("NFKC", letter) if "\uff01" <= letter <= "\uff5e" else letter


def _without_rule(text: str) -> str:
    """A section without a line that parts it from others."""
    return re.sub(r"\A[ \t]*\n?(?:[-=_*]{3,}[ \t]*\n)|\n[ \t]*(?:[-=_*]{3,}|```)[ \t]*\s*\Z", "", text)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()
