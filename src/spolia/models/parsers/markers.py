"""Citation markers in a reply: `[1]`, `[1, 2]`, `[1][2]`, `[1-3]`, `【1】`, `［1］`, also while it streams in."""

from __future__ import annotations

import re

_OPEN, _CLOSE = r"\[［【", r"\]］】"
_LONGEST = 120  # characters within brackets; anything longer is no marker
_MARKER = re.compile(
    rf"(\s*)[{_OPEN}]{{1,2}}(?=[^{_OPEN}{_CLOSE}]{{1,{_LONGEST}}}[{_CLOSE}])\s*(?:(?:passages?|sources?|n[or]\.?)\s*)?"
    rf"(\d{{1,4}}(?:\s*(?:[-–—,，、;；&]|and|\s)\s*\d{{1,4}})*)\s*(?:†[^{_CLOSE}]*)?[{_CLOSE}]{{1,2}}",
    re.IGNORECASE,
)
_OPENED = re.compile(rf"\s*(?:[{_OPEN}]{{1,2}}[^{_OPEN}{_CLOSE}]{{0,{_LONGEST}}}[{_CLOSE}]?)?\Z")
_NUMBER = re.compile(r"(\d+)(?:\s*[-–—]\s*(\d+))?")


class Markers:
    """Brings the markers of a reply into one form, `[1][2]`, and takes out those that name no passage.

    The reply may be fed in any pieces: what could still become a marker is held back until it is known.

    Attributes:
        used: numbers of the passages that are cited, in the order of the reply.
        unknown: markers that were taken out.

    >>> markers = Markers(passages=2)
    >>> markers.feed("Paris [1,") + markers.feed(" 2]【7】, since 508 [9") + markers.feed("].") + markers.end()
    'Paris [1][2], since 508.'
    >>> markers.used, markers.unknown
    ([1, 2], ['【7】', '[9]'])
    """

    def __init__(self, passages: int) -> None:
        self.passages = passages
        self.used: list[int] = []
        self.unknown: list[str] = []
        self._held = ""
        self._begun = False

    def feed(self, piece: str) -> str:
        """The text that is settled by one more piece of the reply."""
        text = self._held + piece
        opened = _OPENED.search(text)
        cut = opened.start() if opened else len(text)
        self._held = text[cut:]
        return self._settled(text[:cut])

    def end(self) -> str:
        """The rest of the text."""
        text, self._held = self._held.rstrip(), ""
        return self._settled(text)

    def _settled(self, text: str) -> str:
        found = _MARKER.sub(self._resolved, text)
        found = found if self._begun else found.lstrip()
        self._begun = self._begun or bool(found)
        return found

    def _resolved(self, marker: re.Match[str]) -> str:
        numbers = _numbers(marker.group(2))
        known = [number for number in numbers if 1 <= number <= self.passages]
        if len(known) < len(numbers):
            self.unknown.append(marker.group().strip())
        self.used += [number for number in known if number not in self.used]
        return marker.group(1) + "".join(f"[{number}]" for number in known) if known else ""


def _numbers(text: str) -> list[int]:
    """The numbers of a marker, ranges written out.

    >>> _numbers("1, 3-5 and 9")
    [1, 3, 4, 5, 9]
    """
    found: list[int] = []
    for match in _NUMBER.finditer(text):
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        found += range(first, min(last, first + 99) + 1) if first <= last else (first, last)
    return list(dict.fromkeys(found))
