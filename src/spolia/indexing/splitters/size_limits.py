"""How long a stretch of text may be: in tokens, where they can be counted, and always in characters."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spolia.stores.definition import Part
from spolia.types import Region, Span

Count = Callable[[str], int]


@dataclass(frozen=True)
class SizeBound:
    """How long a stretch of text may be.

    Args:
        tokens: at most; looked at only where they can be counted.
        characters: at most.
        count: counts the tokens of a text; None where only characters are counted.
    """

    tokens: int
    characters: int
    count: Count | None = None

    def counted(self, text: str) -> int:
        """Tokens of a text; 0 where they are not counted."""
        return 0 if self.count is None else self.count(text)

    def holds(self, text: str) -> bool:
        """Whether a text is not too long. No tokenizer makes more tokens than a text has bytes."""
        if len(text) > self.characters:
            return False
        return self.count is None or len(text.encode("utf-8", "replace")) < self.tokens or self._counts(text)

    def _counts(self, text: str) -> bool:
        return self.counted(text) <= self.tokens

    def measured(self, text: str, start: int, end: int) -> int | None:
        """Tokens of `text[start:end]`; None where it is too long, which takes no time for what is much too long."""
        if end - start > self.characters:
            return None
        tokens = self.counted(text[start:end]) if self.count is not None else 0
        return tokens if tokens <= self.tokens else None


NOTHING = SizeBound(0, 0)
"""Holds nothing: the overlap of windows that share nothing."""


def offset_of(part: Part) -> int | None:
    """Where the part begins in its document; None where it is no stretch of it."""
    if (offset := part.offset) is not None:
        return offset
    return 0 if part.node.text == part.document.text else None


def places_in(part: Part, places: Sequence[int]) -> list[int]:
    """Those places of the document that lie in the part, counted from the part's beginning."""
    offset = offset_of(part) if places else None
    if offset is None:
        return []
    first = bisect_left(places, offset)
    last = bisect_left(places, offset + len(part.node.text), first)
    return [place - offset for place in places[first:last]]


def regions_in(part: Part, kind: str) -> list[Region]:
    """The outermost regions of a kind that lie wholly in the part, counted from the part's beginning."""
    offset = offset_of(part) if part.document.regions else None
    found: list[Region] = []
    for region in part.document.regions if offset is not None else ():
        start, end = region.start - (offset or 0), region.end - (offset or 0)
        is_within = bool(found) and start < found[-1].end
        if region.kind == kind and 0 <= start <= end <= len(part.node.text) and not is_within:
            found.append(region.but(start=start, end=end))
    return found


def stretch(part: Part, start: int, end: int) -> Part:
    """A part of a part."""
    offset = offset_of(part)
    span = None if offset is None else Span(offset + start, offset + end)
    return part.but(node=part.node.but(text=part.node.text[start:end], span=span))
