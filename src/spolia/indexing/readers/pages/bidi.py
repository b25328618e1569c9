"""Text that runs from right to left, in the order in which it is read.

Some writers put the letters of Arabic and Hebrew words into a file from left to right, as they are seen, others as they
are read; PDFium takes them for the former. Where the letters stand on the page says whether it was right to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from unicodedata import combining

from spolia.indexing.readers.pages.area import Area

_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff"
_RUN = re.compile(f"[{_LETTERS}](?:[{_LETTERS} \u00a0]*[{_LETTERS}])?")


Areas = Callable[[Sequence[int]], Sequence[Area]]


def read_from_the_right(text: str, areas: Areas) -> str:
    """The characters of a page; each run of letters that stands the wrong way round is turned, in its place.

    Args:
        areas: where characters of the page stand, by their numbers.
    """
    return _RUN.sub(lambda run: _turned(run, areas), text)


def _turned(run: re.Match[str], areas: Areas) -> str:
    text = run[0]
    letters = [at for at, letter in enumerate(text, run.start()) if not letter.isspace() and not combining(letter)]
    places = [area.middle[0] for area in areas(letters)]
    rising = sum(1 if two > one else -1 for one, two in pairwise(places) if two != one)
    alike = not rising and max(places, default=0.0) - min(places, default=0.0) < 0.01
    wrong = rising > 0 or alike  # all at one place: given beside the letters, as they are read (`ActualText`)
    return text[::-1] if wrong and len(places) > 1 else text
