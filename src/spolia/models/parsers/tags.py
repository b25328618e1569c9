"""Texts in tags: `<answer>Nokia</answer>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.models.parsers.parser import Parser, spoken

_FENCE = re.compile(r"^[^\S\n]*+(?:```|~~~)\w*[^\S\n]*+$", re.MULTILINE)
_LONGEST = 200_000
"""Characters that are looked at."""
_EMPHASIS = ("**", "__", "`", "*")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "「": "」"}


@dataclass(frozen=True)
class Tags(Parser[dict[str, str]]):
    """The text within each of some tags, the last where one comes several times.

    Case, blanks, full-width letters and what servers escape in tags do not matter, nor fences and emphasis around the
    texts; square brackets and braces may stand for angle brackets. A tag that is not closed ends where the next one of
    these begins, or with the reply. Texts are without blanks around them, and may be empty.

    Args:
        names: of the tags, all of which have to be there.
        optional: of tags that may be there.

    >>> Tags(("thought", "answer")).parse("Sure! <Thought>It was Nokia.</thought>\\n**<answer>Nokia</answer>**")
    {'thought': 'It was Nokia.', 'answer': 'Nokia'}
    """

    names: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names or not all(re.fullmatch(r"\w[\w -]*", name) for name in (*self.names, *self.optional)):
            raise WiringError(f"Tags has names={self.names!r:.80}. Write names of letters: ('answer',).")

    def parse(self, reply: str) -> dict[str, str]:
        every = (*self.names, *self.optional)
        shown = _shown(reply, every)[:_LONGEST]
        found = dict(_texts(shown, every))
        if missing := [name for name in self.names if name not in found]:
            written = " ".join(f"<{name}>...</{name}>" for name in self.names)
            raise ValueError(f"it must have {missing[0]} in a tag, written: {written}")
        return {name: found[name] for name in every if name in found}


def _shown(reply: str, names: tuple[str, ...]) -> str:
    """What was said, with tags in one form; thoughts are left out unless they are one of the tags."""
    said = (
        reply if any(_plain(name) in ("think", "thinking", "thought", "reasoning") for name in names) else spoken(reply)
    )
    if "<" not in said and "＜" not in said:
        said = said.replace("&lt;", "<").replace("&gt;", ">")
    return said.replace("＜", "<").replace("＞", ">").replace("／", "/").replace("\\<", "<").replace("\\>", ">")


def _texts(said: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Name and text of each tag, in order."""
    ways = {_plain(name): name for name in names}
    marks = list(_mark(names).finditer(said))
    open_ = ""
    for at, mark in enumerate(marks):
        name, closes = ways[_plain(mark[2])], bool(mark[1])
        text = bare(said[mark.end() : marks[at + 1].start() if at + 1 < len(marks) else len(said)])
        if closes or (open_ == name and (mark[3] or not text)):  # `<answer>Nokia<answer>`: its slash was forgotten
            open_ = ""
            continue
        open_ = "" if mark[3] else name
        yield name, "" if mark[3] else text


def _mark(names: tuple[str, ...]) -> re.Pattern[str]:
    """An opening tag, a closing one (group 1), or one that is both (group 3)."""
    longest_first = sorted(names, key=len, reverse=True)
    written = "|".join(r"[\s_-]?".join(map(re.escape, re.split(r"[\s_-]+", name))) for name in longest_first)
    opens, closes = r"[<\[{]{1,2}\s{0,3}(/|\\/)?\s{0,3}", r"\s{0,3}:?\s{0,3}(/)?[>\]}]{1,2}"
    return re.compile(rf"{opens}({written})(?:\s[^<>\]}}\n/]{{0,100}})?{closes}", re.IGNORECASE)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def bare(text: str) -> str:
    """A text without blanks, fences, and emphasis or quotes around all of it.

    >>> bare(' ```text\\n**"Nokia"**\\n``` ')
    'Nokia'
    """
    text = _FENCE.sub("", text).strip()
    for mark in ("**", "__", "`"):  # one half of what surrounds more than this text
        if text.count(mark) == 1:
            text = text.removeprefix(mark).removesuffix(mark).strip()
    for _ in range(3):
        text = _inner(text)
    return text


def _inner(text: str) -> str:
    """A text without one pair of marks around it, where there is one."""
    for mark in _EMPHASIS:
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and text.count(mark) == 2:
            return text[len(mark) : -len(mark)].strip()
    inside = text[1:-1]
    if inside and _QUOTES.get(text[0]) == text[-1] and text[0] not in inside and text[-1] not in inside:
        return inside.strip()
    return text
