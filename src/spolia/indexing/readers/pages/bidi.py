"""Text that runs from right to left, in the order in which it is read.

Some writers put the letters of Arabic and Hebrew words into a file from left to right, as they are seen, others as they
are read; PDFium takes them for the former. Where the letters stand on the page says whether it was right to.
"""

from __future__ import annotations

import re
from itertools import pairwise
from unicodedata import combining

from spolia.indexing.readers.pages.lines import Where

_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff"
_RUN = re.compile(f"[{_LETTERS}](?:[{_LETTERS} \u00a0]*[{_LETTERS}])?")


def read_from_the_right(text: str, where: Where) -> str:
    """The characters of a page; each run of letters that stands the wrong way round is turned, in its place."""
    return _RUN.sub(lambda run: _turned(run, where), text)


def _turned(run: re.Match[str], where: Where) -> str:
    text = run[0]
    places = [
        where.area(run.start() + number, 1).middle[0]
        for number, letter in enumerate(text)
        if not letter.isspace() and not combining(letter)
    ]
    rising = sum(1 if two > one else -1 for one, two in pairwise(places) if two != one)
    alike = not rising and max(places, default=0.0) - min(places, default=0.0) < 0.01
    wrong = rising > 0 or alike  # all at one place: given beside the letters, as they are read (`ActualText`)
    return text[::-1] if wrong and len(places) > 1 else text
