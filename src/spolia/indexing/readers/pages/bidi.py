"""Text that runs from right to left, in the order in which it is read.

Some writers put the letters of Arabic and Hebrew words into a file from left to right, as they are seen. Where they
stand on the page says so: of a word that is in reading order, the first letter stands at the right.
"""

from __future__ import annotations

import re
from itertools import pairwise
from unicodedata import combining

from spolia.indexing.readers.pages.line import Line
from spolia.indexing.readers.pages.lines import Where

_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff"
_LETTER = re.compile(f"[{_LETTERS}]")
_RUN = re.compile(f"[{_LETTERS}](?:[{_LETTERS} \u00a0]*[{_LETTERS}])?")


def runs_left(text: str) -> bool:
    """Whether there are letters that are read from right to left."""
    return _LETTER.search(text) is not None


def turn(line: Line, where: Where) -> None:
    """Put the words of a line that are in the order in which they are seen into that in which they are read."""
    runs = list(_RUN.finditer(line.text))
    if not runs or line.at < 0:
        return
    pieces: list[str] = []
    at = 0
    for run in runs:
        pieces += line.text[at : run.start()], _turned(run, line.at, where)
        at = run.end()
    line.text = "".join((*pieces, line.text[at:]))


def _turned(run: re.Match[str], first: int, where: Where) -> str:
    text = run[0]
    places = [
        where.area(first + run.start() + number, 1).middle[0]
        for number, letter in enumerate(text)
        if not letter.isspace() and not combining(letter)
    ]
    rising = sum(1 if two > one else -1 for one, two in pairwise(places) if two != one)
    alike = max(places) - min(places) < 0.01  # given beside the letters, as `ActualText`, which PDFium turns wrongly
    if rising < 0 or (not rising and not alike):
        return text
    clusters = re.findall(r"\s|\S(?:(?=\W)[^\s\w])*", text)
    return "".join(reversed(clusters))
