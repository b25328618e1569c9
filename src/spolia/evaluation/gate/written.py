"""Where two flows that are written otherwise differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

LONGEST = 160
"""Characters of each that are shown."""
_WORDS = re.compile(r"\w+|\W")
_OF_FIELD = re.compile(r"\w+|[='\"]")


def part_that_differs(before: str, now: str) -> str:
    """What stands between that with which both begin and that with which both end, and in which operator.

    >>> part_that_differs("BM25(group=g, top_k=10, filter=None)", "BM25(group=g, top_k=3, filter=None)")
    'BM25: top_k=10 then, top_k=3 now'
    >>> part_that_differs("BM25(top_k=10)", "BM25(top_k=10) >> Reorder()")
    'nothing then, >> Reorder() now'
    """
    then, is_ = _WORDS.findall(before), _WORDS.findall(now)
    start = _alike(then, is_)
    end = _alike(then[start:][::-1], is_[start:][::-1])
    while start and _OF_FIELD.fullmatch(then[start - 1]):  # its name belongs to its value
        start -= 1
    while end and then[-end] in "'\"":
        end -= 1
    old, new = ("".join(one[start : len(one) - end]).strip() for one in (then, is_))
    where = _operator("".join(then[:start]))
    return f"{where}{_short(old)} then, {_short(new)} now"


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """With how many words both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _operator(head: str) -> str:
    """The operator whose bracket is open at the end of a text."""
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[at], 0)
        if depth < 0:
            name = re.search(r"\w+$", head[:at])
            return f"{name[0]}: " if name else ""
    return ""


def _short(text: str) -> str:
    if not text:
        return "nothing"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
