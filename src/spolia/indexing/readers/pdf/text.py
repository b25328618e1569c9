"""Writing the lines of pages as one text in which places are known: lines joined, words put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from spolia.indexing.readers.hyphenation import HYPHEN, Change, changed
from spolia.indexing.readers.pdf.lines import PageLine

_PLACE = np.dtype([("start", "<i4"), ("end", "<i4"), ("page", "<i4"), ("sides", "<f4", 4)])
"""As `Boxes` packs it."""


@dataclass(frozen=True)
class Written:
    """The text of a page, and where each of its lines starts, ends and stands."""

    text: str
    places: Any

    def after(self, changes: Sequence[Change]) -> Written:
        """The same after changes of the text."""
        if not changes:
            return self
        ends = np.array([end for _, end, _ in changes])
        shifts = np.cumsum([0, *(len(instead) - (end - start) for start, end, instead in changes)])
        places = self.places.copy()
        for side in ("start", "end"):
            places[side] += shifts[np.searchsorted(ends, places[side], "right")].astype("<i4")
        return Written(changed(self.text, changes), places)


def moved(place: int, changes: Sequence[Change]) -> int:
    """Where a place of a text is after changes."""
    return place + sum(len(instead) - (end - start) for start, end, instead in changes if end <= place)


def joined_lines(lines: Sequence[PageLine], number: int) -> Written:
    """A page from its lines; a word that goes on in the next line keeps its mark.

    Args:
        number: of the page, from 1.
    """
    gaps = [_gap(before, after) for before, after in pairwise(lines)]
    texts = [line.text for line in lines]
    for at, gap in enumerate((*gaps, "\n")):
        if gap == "\n" and lines and lines[at].broken:
            texts[at] = texts[at].rstrip(HYPHEN) + "-"
    starts = list(accumulate((len(text) + len(gap) for text, gap in zip(texts, gaps, strict=False)), initial=0))
    places = np.empty(len(texts), _PLACE)
    places["start"], places["page"] = starts[: len(texts)], number
    places["end"] = places["start"] + [len(text.rstrip(HYPHEN)) for text in texts]
    places["sides"] = np.fromiter(chain.from_iterable(line.area for line in lines), "<f4").reshape(-1, 4)
    return Written("".join(piece for pair in zip(texts, (*gaps, ""), strict=False) for piece in pair), places)


def _gap(before: PageLine, after: PageLine) -> str:
    """What stands between two lines: nothing where a word goes on, or where they are one line in two pieces."""
    here, there = before.area, after.area
    if before.table or after.table:
        return "\n"
    if before.broken:
        near = here.top - here.height < there.top < here.bottom + 2 * here.height
        return "" if near or after.text[0].islower() else "\n"
    if there.top >= here.bottom or there.left <= here.left or here.level(there) <= 0.4 or after.vertical:
        return "\n"
    height = max(min(here.height, there.height), 1.0)
    apart = there.left - here.right
    if -height < apart < height:
        return "" if apart < 0.15 * height else " "
    return "\n"
