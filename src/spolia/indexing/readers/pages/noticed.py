"""What a person should know of a PDF that was read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_NO_CHARACTER = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")  # glyphs that the file gives no character for
_LEAST_SURE = 60.0
_SHOWN = 5


@dataclass
class Noticed:
    """What is counted while the pages are read, with their numbers from 1.

    Attributes:
        unread: damaged pages, and why.
        recognised: pages whose text was recognised, and how sure that is, in percent.
        unseen: pages that would have to be recognised and were not, by reason.
        dropped: what was seen and not read.
    """

    unread: dict[int, str] = field(default_factory=dict)
    recognised: dict[int, float] = field(default_factory=dict)
    unseen: dict[str, list[int]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def warnings(self, text: str, pages: int) -> Iterator[str]:
        """Sentences."""
        for why, numbers in self.unseen.items():
            yield f"{len(numbers)} of {pages} pages have no text ({_shown(numbers)}); they need OCR: {why}."
        for number, why in list(self.unread.items())[:_SHOWN]:
            yield f"Page {number} cannot be read: {why}"
        if len(self.unread) > _SHOWN:
            yield f"{len(self.unread)} of {pages} pages cannot be read ({_shown(list(self.unread))})."
        unsure = [number for number, sure in self.recognised.items() if sure < _LEAST_SURE]
        if unsure:
            yield f"The text recognised on {len(unsure)} pages may be wrong ({_shown(unsure)}): their picture is poor."
        lost = len(_NO_CHARACTER.findall(text))
        if lost * 20 > len(text):
            yield f"{lost} of {len(text)} characters are glyphs without a meaning; the pages may need OCR."


def _shown(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (" ..." if len(numbers) > _SHOWN else "")
