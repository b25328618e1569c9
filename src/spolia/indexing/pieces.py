"""The pieces that windows are packed from: sentences, and parts of those that are longer than a window."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spolia.indexing.graphemes import cut_before
from spolia.sentences import each_sentence

Count = Callable[[str], int]


class Piece(NamedTuple):
    """`text[start:end]`, the number of its section, its length in tokens, whether it is a whole sentence."""

    start: int
    end: int
    section: int
    tokens: int
    whole: bool


@dataclass(frozen=True)
class Bound:
    """How long a piece of text may be.

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


def pieces(text: str, sections: Sequence[int], bound: Bound) -> Iterator[Piece]:
    """The text as pieces that are not too long, in order; every character but blanks is in exactly one.

    Args:
        text: all of it.
        sections: where new sections begin; no piece goes across.
        bound: of a piece.
    """
    for start, end in each_sentence(text):
        first = bisect_right(sections, start)
        inner = sections[first : bisect_right(sections, end - 1)]
        for number, (left, right) in enumerate(zip((start, *inner), (*inner, end), strict=True), first):
            if span := _stripped(text, left, right):
                yield from _parts(text, *span, number, bound)


def _parts(text: str, start: int, end: int, section: int, bound: Bound) -> Iterator[Piece]:
    whole = True
    while end - start > bound.characters or (tokens := bound.counted(text[start:end])) > bound.tokens:
        cut = _cut(text, start, end, bound)
        if cut >= end:
            tokens = bound.counted(text[start:end])
            break
        whole = False
        left, right = _stripped(text, start, cut) or (start, cut)
        yield Piece(left, right, section, bound.counted(text[left:right]), False)
        rest = _stripped(text, cut, end)
        if rest is None:
            return
        start = rest[0]
    yield Piece(start, end, section, tokens, whole)


def _cut(text: str, start: int, end: int, bound: Bound) -> int:
    """Where the first part of a long sentence ends: after a word, else between two characters as a reader sees them."""
    high = min(end, start + bound.characters)
    while True:
        while (tokens := bound.counted(text[start:high])) > bound.tokens and high - start > 1:
            high = start + max(1, min(high - start - 1, (high - start) * bound.tokens // tokens))
        cut = _place(text, start, high, end)
        if cut - start <= 1 or bound.counted(text[start:cut]) <= bound.tokens:
            return max(cut, start + 1)
        high = cut - 1


def _place(text: str, start: int, high: int, end: int) -> int:
    if high >= end or text[high].isspace():
        return high
    middle = start + (high - start) // 2
    blank = next((at for at in range(high, middle, -1) if text[at - 1].isspace()), 0)
    return blank or cut_before(text, start, high)


def _stripped(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The span without the blanks at its ends; None if there is nothing else."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None
