"""Cutting a text along its structure, and windows over what it is cut into that are not too long.

A layer cuts a stretch of text into units. A unit that fits stays whole and shares a window with its neighbours; one
that does not is cut by the next layer, and its parts share windows with each other only. Each layer reads what it cuts
once, and there are few layers, so that the time is linear however deep a text is nested.
"""

import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spolia.core.sentences import each_sentence
from spolia.stores.groups.nodes import BETWEEN

_JOINER = "\u200d"
_MARKS = frozenset(["Mn", "Mc", "Me"])
_CLINGING = frozenset("\u200d\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3\uff9e\uff9f")
_LEADING = frozenset("\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4\u06dd\u070f\u08e2")
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_VIRAMA = 9  # canonical combining class


def may_cut(text: str, at: int) -> bool:
    """Whether `text[:at]` and `text[at:]` are whole characters to a reader."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    if after in _CLINGING or before in _LEADING or unicodedata.category(after) in _MARKS:
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return False  # skin tones, and the tags of the flags of regions
    if before == _JOINER:
        return after.isalnum()
    if _is_flag(before) and _is_flag(after):
        flags = text[max(0, at - 256) : at]
        return (len(flags) - len(flags.rstrip(_FLAGS))) % 2 == 0
    if unicodedata.combining(before) == _VIRAMA and unicodedata.category(after) == "Lo":
        return False
    return not _is_syllable(_jamo(before), _jamo(after))


def cut_before(text: str, low: int, high: int) -> int:
    """The last place in (low, high] where the text may be cut; else `high`."""
    return next((at for at in range(high, low, -1) if may_cut(text, at)), high)


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _jamo(character: str) -> str:
    """L, V or T for a part of a Hangul syllable, LV or LVT for a whole one, else nothing."""
    code = ord(character)
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C:
        return "L"
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return "V"
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return "T"
    if 0xAC00 <= code <= 0xD7A3:
        return "LVT" if (code - 0xAC00) % 28 else "LV"
    return ""


def _is_syllable(before: str, after: str) -> bool:
    """Whether two parts belong to one syllable."""
    if before == "L":
        return after in ("L", "V", "LV", "LVT")
    if before in ("V", "LV"):
        return after in ("V", "T")
    return before in ("T", "LVT") and after == "T"


@dataclass(frozen=True)
class SizeBound:
    """How long a stretch of text may be. Without `count` (tokens of a text), only characters are counted."""

    tokens: int
    characters: int
    count: Callable[[str], int] | None = None

    def counted(self, text: str) -> int:
        """Tokens of a text; 0 where they are not counted."""
        return 0 if self.count is None else self.count(text)

    def holds(self, text: str) -> bool:
        """Whether a text is not too long. No tokenizer makes more tokens than a text has bytes."""
        if len(text) > self.characters or self.count is None:
            return len(text) <= self.characters
        return len(text.encode("utf-8", "replace")) < self.tokens or self.count(text) <= self.tokens

    def measured(self, text: str, start: int, end: int) -> int | None:
        """Tokens of `text[start:end]`; None where it is too long, which takes no time for what is much too long."""
        if end - start > self.characters:
            return None
        tokens = self.counted(text[start:end])
        return tokens if tokens <= self.tokens else None


NOTHING = SizeBound(0, 0)
"""Holds nothing: the overlap of windows that share nothing."""


class Atom(NamedTuple):
    """`text[start:end]`, the section that it belongs to, its length in tokens, whether it is whole, not a part."""

    start: int
    end: int
    section: object
    tokens: int
    whole: bool


LABEL = 80
"""Characters of a label at most."""


class Unit(NamedTuple):
    """A stretch `text[start:end]`; `label` names what its parts belong to; one that is `alone` shares no window."""

    start: int
    end: int
    label: str = ""
    alone: bool = False


Layer = Callable[[str, int, int], Iterable[Unit]]


@dataclass(eq=False)
class Section:
    """Atoms that may share a window; its text is the labels of what they are parts of."""

    labels: str

    def __str__(self) -> str:
        return self.labels


def layered(
    text: str, units: Iterable[Unit], layers: Sequence[Layer], bound: SizeBound, labels: str = ""
) -> Iterator[Atom]:
    """The units in order, long ones cut by the layers, from coarse to fine, then after words."""
    section = Section(labels)
    for unit in _whole(text, units):
        if (span := stripped(text, unit.start, unit.end)) is None:
            continue
        tokens = bound.measured(text, *span)
        if tokens is None:
            below = BETWEEN.join(filter(None, (labels, unit.label[:LABEL].strip())))[: bound.characters // 4]
            if layers:
                yield from layered(text, layers[0](text, span[0], unit.end), layers[1:], bound, below)
            else:
                yield from parts(text, *span, Section(below), bound)
        elif unit.alone:
            yield Atom(*span, Section(labels), tokens, True)
        else:
            yield Atom(*span, section, tokens, True)
            continue
        section = Section(labels)


def _whole(text: str, units: Iterable[Unit]) -> Iterator[Unit]:
    """Units of which none begins inside what a reader sees as one character: there it goes on with the one before."""
    held: Unit | None = None
    for unit in units:
        if held is None or unit.start != held.end or may_cut(text, unit.start):
            if held is not None:
                yield held
            held = unit
        else:
            held = held._replace(end=unit.end)
    if held is not None:
        yield held


def by_sentence(text: str, start: int, end: int) -> Iterator[Unit]:
    for left, right in each_sentence(text[start:end]):
        yield Unit(start + left, start + right)


def by_line(text: str, start: int, end: int) -> Iterator[Unit]:
    while start < end:
        after = text.find("\n", start, end) + 1 or end
        yield Unit(start, after)
        start = after


def at_places(places: Sequence[int], labels: Mapping[int, str] | None = None) -> Layer:
    """A layer that cuts at these places. `places`: in order. `labels`: of the units that end there."""
    said = labels or {}

    def layer(text: str, start: int, end: int) -> Iterator[Unit]:
        for number in range(bisect_right(places, start), len(places)):
            place = places[number]
            if place >= end:
                break
            yield Unit(start, place, said.get(place, ""))
            start = place
        yield Unit(start, end, said.get(end, ""))

    return layer


def alone(units: Iterable[Unit]) -> Iterator[Unit]:
    """The same units, each for itself."""
    return (unit._replace(alone=True) for unit in units)


def sentence_atoms(
    text: str, sections: Sequence[int], bound: SizeBound, tables: Sequence[tuple[int, int]] = ()
) -> Iterator[Atom]:
    """The text as sentences that are not too long, in order; every character but blanks is in exactly one.

    No atom goes across the beginning of one of the `sections`; `tables` are atoms as they are, or line by line.
    """
    for unit in _stretches(text, bound, tables):
        first = bisect_right(sections, unit.start)
        is_cut = first < len(sections) and sections[first] < unit.end
        for number, piece in enumerate(at_places(sections)(text, unit.start, unit.end) if is_cut else (unit,), first):
            if span := stripped(text, piece.start, piece.end):
                yield from parts(text, *span, number, bound)


def _stretches(text: str, bound: SizeBound, tables: Sequence[tuple[int, int]]) -> Iterator[Unit]:
    at = 0
    for begin, stop in tables:
        yield from sentence_units(text, at, begin)
        at = stop
        if stop - begin <= bound.characters and bound.holds(text[begin:stop]):
            yield Unit(begin, stop)
            continue
        for line in text[begin:stop].splitlines(keepends=True):
            yield Unit(begin, begin := begin + len(line))
    yield from sentence_units(text, at, len(text))


def sentence_units(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each sentence, of which none begins inside what a reader sees as one character."""
    return _whole(text, by_sentence(text, start, end))


def parts(text: str, start: int, end: int, section: object, bound: SizeBound) -> Iterator[Atom]:
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


def _cut(text: str, start: int, end: int, bound: SizeBound) -> int:
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
    """The span without the blanks at its ends; None if it is blank."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


class Windows:
    """Windows over a text: `overlap` is of what neighbours share; a section below `tiny` may share a window."""

    def __init__(self, text: str, bound: SizeBound, overlap: SizeBound, tiny: int = 0) -> None:
        self.text, self.bound, self.overlap, self.tiny = text, bound, overlap, tiny
        self._held: deque[Atom] = deque()
        self._tokens = 0
        self._fresh = 0  # atoms held that are in no window yet: the last ones

    def over(self, atoms: Iterable[Atom]) -> Iterator[tuple[int, int, object]]:
        """Start, end and the section of the first atom of each window, in order."""
        for atom in atoms:
            if self._held and atom.section != self._held[-1].section and self._length(self._held[-1]) >= self.tiny:
                yield from self._closed()
                self._held.clear()
                self._tokens = self._fresh = 0
            while self._held and (
                self._length(atom) > self.bound.characters or self._tokens + atom.tokens > self.bound.tokens
            ):
                if self._fresh:
                    yield from self._closed()
                    self._keep_overlap()
                else:
                    self._drop_first()
            self._held.append(atom)
            self._tokens += atom.tokens
            self._fresh += 1
        yield from self._closed()

    def _length(self, last: Atom) -> int:
        """Characters from the first atom held to the end of another."""
        return last.end - self._held[0].start

    def _drop_first(self) -> None:
        self._tokens -= self._held.popleft().tokens

    def _closed(self) -> Iterator[tuple[int, int, object]]:
        """The window of what is held; several where it has more tokens than its atoms have one by one."""
        while self._fresh:
            fits = len(self._held)
            while fits > 1 and not self.bound.holds(self.text[self._held[0].start : self._held[fits - 1].end]):
                fits -= 1
            if fits <= len(self._held) - self._fresh:
                self._drop_first()  # there is room for the overlap only
                continue
            yield self._held[0].start, self._held[fits - 1].end, self._held[0].section
            self._fresh = len(self._held) - fits
            for _ in range(fits if self._fresh else 0):
                self._drop_first()

    def _keep_overlap(self) -> None:
        """Hold the last whole atoms only, as many as the overlap allows."""
        kept: deque[Atom] = deque()
        tokens = 0
        for atom in reversed(self._held):
            tokens += atom.tokens
            too_long = self._held[-1].end - atom.start > self.overlap.characters or tokens > self.overlap.tokens
            if too_long or not atom.whole:
                break
            kept.appendleft(atom)
        self._held = kept
        self._tokens = sum(atom.tokens for atom in kept)
