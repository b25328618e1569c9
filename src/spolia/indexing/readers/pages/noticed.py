"""What a person should know of a PDF that was read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_NO_CHARACTER = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")  # glyphs that the file gives no character for
_LEAST_SURE = 60.0
_SHOWN = 5
_GIVEN_UP = 1_000


@dataclass
class Noticed:
    """What is counted while the pages are read, with their numbers from 1.

    Attributes:
        unread: damaged pages, and why.
        recognised: pages whose text was recognised, and how sure that is, in percent.
        unseen: pages that would have to be recognised and were not, by reason.
        dropped: what was seen and not read.
        cut: page from which on none is read; 0 where all are.
    """

    unread: dict[int, str] = field(default_factory=dict)
    recognised: dict[int, float] = field(default_factory=dict)
    unseen: dict[str, list[int]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    _run: int = 0

    def damage(self, page: int, why: str) -> None:
        """Note a page that cannot be read. To go on makes no sense after a thousand in a row."""
        self._run = self._run + 1 if page - 1 in self.unread else 1
        self.unread[page] = why
        if self._run == _GIVEN_UP:
            self.cut = page - _GIVEN_UP + 1

    def warnings(self, text: str, pages: int) -> Iterator[str]:
        """Sentences."""
        for why, numbers in self.unseen.items():
            yield f"{len(numbers)} of {pages} pages have no text ({_shown(numbers)}); they need OCR: {why}."
        for number, why in list(self.unread.items())[:_SHOWN]:
            yield f"Page {number} cannot be read: {why}"
        if len(self.unread) > _SHOWN:
            yield f"{len(self.unread)} of {pages} pages cannot be read ({_shown(list(self.unread))})."
        if self.cut:
            yield f"Nothing was read from page {self.cut} on: {_GIVEN_UP} pages in a row cannot be read."
        unsure = [number for number, sure in self.recognised.items() if sure < _LEAST_SURE]
        if unsure:
            yield f"The text recognised on {len(unsure)} pages may be wrong ({_shown(unsure)}): their picture is poor."
        lost = len(_NO_CHARACTER.findall(text))
        if lost * 20 > len(text):
            yield f"{lost} of {len(text)} characters are glyphs without a meaning; the pages may need OCR."


def _shown(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (" ..." if len(numbers) > _SHOWN else "")
