"""The atoms that windows are packed from: sentences, and parts of what is longer than a window."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from spolia.indexing.graphemes import cut_before, may_cut
from spolia.indexing.splitters.bound import Bound
from spolia.sentences import each_sentence


class Atom(NamedTuple):
    """`text[start:end]`, the section that it belongs to, its length in tokens, whether it is whole, not a part."""

    start: int
    end: int
    section: object
    tokens: int
    whole: bool


def sentence_atoms(
    text: str, sections: Sequence[int], bound: Bound, tables: Sequence[tuple[int, int]] = ()
) -> Iterator[Atom]:
    """The text as sentences that are not too long, in order; every character but blanks is in exactly one.

    Args:
        text: all of it.
        sections: where new sections begin; no atom goes across.
        bound: of an atom.
        tables: stretches that are atoms as they are; where one is too long, its lines are.
    """
    at = 0
    for begin, stop in tables:
        yield from _atoms(text, ((at + start, at + end) for start, end in _sentences(text[at:begin])), sections, bound)
        yield from _atoms(text, _rows(text, begin, stop, bound), sections, bound)
        at = stop
    rest = text[at:] if at else text
    yield from _atoms(text, ((at + start, at + end) for start, end in _sentences(rest)), sections, bound)


def _rows(text: str, begin: int, stop: int, bound: Bound) -> Iterator[tuple[int, int]]:
    if stop - begin <= bound.characters and bound.holds(text[begin:stop]):
        yield begin, stop
        return
    for line in text[begin:stop].splitlines(keepends=True):
        yield begin, (begin := begin + len(line))


def _atoms(text: str, spans: Iterable[tuple[int, int]], sections: Sequence[int], bound: Bound) -> Iterator[Atom]:
    for start, end in spans:
        first = bisect_right(sections, start)
        inner = sections[first : bisect_right(sections, end - 1)]
        for number, (left, right) in enumerate(zip((start, *inner), (*inner, end), strict=True), first):
            if span := stripped(text, left, right):
                yield from parts(text, *span, number, bound)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Spans of the sentences, of which none begins inside what a reader sees as one character."""
    begin, last = 0, None
    for start, end in each_sentence(text):
        if last != start or may_cut(text, start):
            if last is not None:
                yield begin, last
            begin = start
        last = end
    if last is not None:
        yield begin, last


def parts(text: str, start: int, end: int, section: object, bound: Bound) -> Iterator[Atom]:
    """A stretch as it is, or cut after words, else between two characters as a reader sees them."""
    whole = True
    while end - start > bound.characters or (tokens := bound.counted(text[start:end])) > bound.tokens:
        cut = _cut(text, start, end, bound)
        if cut >= end:
            tokens = bound.counted(text[start:end])
            break
        whole = False
        left, right = stripped(text, start, cut) or (start, cut)
        yield Atom(left, right, section, bound.counted(text[left:right]), False)
        rest = stripped(text, cut, end)
        if rest is None:
            return
        start = rest[0]
    yield Atom(start, end, section, tokens, whole)


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


def stripped(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The span without the blanks at its ends; None if there is nothing else."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None
