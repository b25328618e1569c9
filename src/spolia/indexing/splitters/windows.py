"""Cuts of a text along its structure, and windows of limited size over the results.

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


def may_cut(text: str, index: int) -> bool:
    """Return whether a cut at `index` leaves whole characters, as a reader sees them."""
    if index <= 0 or index >= len(text):
        return True
    left, right = text[index - 1], text[index]
    # Below the first combining character only a line break has two parts; this answers for most text.
    if left < "\u0300" and right < "\u0300":
        return not (left == "\r" and right == "\n")
    if right in _CLINGING or left in _LEADING or unicodedata.category(right) in _MARKS:
        return False
    if "\U0001f3fb" <= right <= "\U0001f3ff" or "\U000e0020" <= right <= "\U000e007f":
        return False  # skin tones, and the tags of the flags of regions
    if left == _JOINER:
        return right.isalnum()
    if _is_flag(left) and _is_flag(right):
        # Two letters make a flag, so an even number of them stands before a cut; a longer run is no text.
        flags = text[max(0, index - 256) : index]
        return (len(flags) - len(flags.rstrip(_FLAGS))) % 2 == 0
    if unicodedata.combining(left) == _VIRAMA and unicodedata.category(right) == "Lo":
        return False
    return not _is_syllable(_jamo(left), _jamo(right))


def last_cut(text: str, low: int, high: int) -> int:
    """Return the last place in (low, high] where the text may be cut; `high` without such a place."""
    return next((index for index in range(high, low, -1) if may_cut(text, index)), high)


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _jamo(character: str) -> str:
    """Return L, V or T for a part of a Hangul syllable, LV or LVT for a whole one, else nothing."""
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


def _is_syllable(left: str, right: str) -> bool:
    """Return whether two Hangul parts belong to one syllable."""
    if left == "L":
        return right in ("L", "V", "LV", "LVT")
    if left in ("V", "LV"):
        return right in ("V", "T")
    return left in ("T", "LVT") and right == "T"


@dataclass(frozen=True)
class SizeBound:
    """Largest size of a stretch of text. Without `count` (tokens of a text), only characters are limited."""

    tokens: int
    characters: int
    count: Callable[[str], int] | None = None

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text; 0 without a counter."""
        return 0 if self.count is None else self.count(text)

    def holds(self, text: str) -> bool:
        """Return whether a text is short enough."""
        if len(text) > self.characters or self.count is None:
            return len(text) <= self.characters
        # No tokenizer makes more tokens than a text has bytes, so short texts need no count.
        return len(text.encode("utf-8", "replace")) < self.tokens or self.count(text) <= self.tokens

    def measure(self, text: str, start: int, end: int) -> int | None:
        """Count the tokens of `text[start:end]`; None if it is too long, uncounted for too many characters."""
        if end - start > self.characters:
            return None
        tokens = self.count_tokens(text[start:end])
        return tokens if tokens <= self.tokens else None


NOTHING = SizeBound(0, 0)
"""Holds nothing: the overlap of windows that share nothing."""


class Atom(NamedTuple):
    """Stretch `text[start:end]` with its section and its length in tokens; `whole` unless part of a longer one."""

    start: int
    end: int
    section: object
    tokens: int
    whole: bool


LABEL = 80
"""Characters of a label at most."""


class Unit(NamedTuple):
    """Stretch `text[start:end]`; `label` names what its parts belong to; an `alone` unit shares no window."""

    start: int
    end: int
    label: str = ""
    alone: bool = False


Layer = Callable[[str, int, int], Iterable[Unit]]


@dataclass(eq=False)
class Section:
    """Group of atoms that may share a window; its text is the labels above them."""

    labels: str

    def __str__(self) -> str:
        return self.labels


def cut_units(
    text: str, units: Iterable[Unit], layers: Sequence[Layer], bound: SizeBound, labels: str = ""
) -> Iterator[Atom]:
    """Yield the units in order; long ones are cut by the layers, from coarse to fine, then after words."""
    section = Section(labels)
    for unit in _align_units(text, units):
        if (span := strip_span(text, unit.start, unit.end)) is None:
            continue
        tokens = bound.measure(text, *span)
        if tokens is None:
            inner_labels = BETWEEN.join(filter(None, (labels, unit.label[:LABEL].strip())))[: bound.characters // 4]
            if layers:
                yield from cut_units(text, layers[0](text, span[0], unit.end), layers[1:], bound, inner_labels)
            else:
                yield from cut_stretch(text, *span, Section(inner_labels), bound)
        elif unit.alone:
            yield Atom(*span, Section(labels), tokens, True)
        else:
            yield Atom(*span, section, tokens, True)
            continue
        section = Section(labels)


def _align_units(text: str, units: Iterable[Unit]) -> Iterator[Unit]:
    """Yield units that begin between characters; a unit that begins inside one is joined to the previous unit."""
    pending: Unit | None = None
    for unit in units:
        if pending is None or unit.start != pending.end or may_cut(text, unit.start):
            if pending is not None:
                yield pending
            pending = unit
        else:
            pending = pending._replace(end=unit.end)
    if pending is not None:
        yield pending


def by_sentence(text: str, start: int, end: int) -> Iterator[Unit]:
    for left, right in each_sentence(text[start:end]):
        yield Unit(start + left, start + right)


def by_line(text: str, start: int, end: int) -> Iterator[Unit]:
    while start < end:
        line_end = text.find("\n", start, end) + 1 or end
        yield Unit(start, line_end)
        start = line_end


def layer_at(places: Sequence[int], labels: Mapping[int, str] | None = None) -> Layer:
    """Return a layer that cuts at these places. `places`: in order. `labels`: of the units that end there."""
    unit_labels = labels or {}

    def layer(text: str, start: int, end: int) -> Iterator[Unit]:
        for number in range(bisect_right(places, start), len(places)):
            place = places[number]
            if place >= end:
                break
            yield Unit(start, place, unit_labels.get(place, ""))
            start = place
        yield Unit(start, end, unit_labels.get(end, ""))

    return layer


def isolate(units: Iterable[Unit]) -> Iterator[Unit]:
    """Yield the same units, each alone."""
    return (unit._replace(alone=True) for unit in units)


def sentence_atoms(
    text: str, sections: Sequence[int], bound: SizeBound, tables: Sequence[tuple[int, int]] = ()
) -> Iterator[Atom]:
    """Yield the sentences of a text, long ones in parts; every character but blanks is in exactly one atom.

    No atom goes across the beginning of one of the `sections`; `tables` are atoms as they are, or line by line.
    """
    for unit in _sentences_and_tables(text, bound, tables):
        first = bisect_right(sections, unit.start)
        is_cut = first < len(sections) and sections[first] < unit.end
        for number, piece in enumerate(layer_at(sections)(text, unit.start, unit.end) if is_cut else (unit,), first):
            if span := strip_span(text, piece.start, piece.end):
                yield from cut_stretch(text, *span, number, bound)


def _sentences_and_tables(text: str, bound: SizeBound, tables: Sequence[tuple[int, int]]) -> Iterator[Unit]:
    position = 0
    for begin, stop in tables:
        yield from sentence_units(text, position, begin)
        position = stop
        if stop - begin <= bound.characters and bound.holds(text[begin:stop]):
            yield Unit(begin, stop)
            continue
        for line in text[begin:stop].splitlines(keepends=True):
            yield Unit(begin, begin := begin + len(line))
    yield from sentence_units(text, position, len(text))


def sentence_units(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yield a unit for each sentence; none begins inside a character as a reader sees it."""
    return _align_units(text, by_sentence(text, start, end))


def cut_stretch(text: str, start: int, end: int, section: object, bound: SizeBound) -> Iterator[Atom]:
    """Yield a stretch as it is if it fits, else cut after words or between characters as a reader sees them."""
    is_whole = True
    while end - start > bound.characters or (tokens := bound.count_tokens(text[start:end])) > bound.tokens:
        cut = _first_cut(text, start, end, bound)
        if cut >= end:
            tokens = bound.count_tokens(text[start:end])
            break
        is_whole = False
        left, right = strip_span(text, start, cut) or (start, cut)
        yield Atom(left, right, section, bound.count_tokens(text[left:right]), False)
        rest = strip_span(text, cut, end)
        if rest is None:
            return
        start = rest[0]
    yield Atom(start, end, section, tokens, is_whole)


def _first_cut(text: str, start: int, end: int, bound: SizeBound) -> int:
    """Return the end of the first part of a long sentence: after a word, else between visible characters."""
    high = min(end, start + bound.characters)
    while True:
        while (tokens := bound.count_tokens(text[start:high])) > bound.tokens and high - start > 1:
            # Shortened in proportion, by one character at least: a few counts in place of one for each character.
            high = start + max(1, min(high - start - 1, (high - start) * bound.tokens // tokens))
        cut = _cut_place(text, start, high, end)
        if cut - start <= 1 or bound.count_tokens(text[start:cut]) <= bound.tokens:
            return max(cut, start + 1)
        high = cut - 1


def _cut_place(text: str, start: int, high: int, end: int) -> int:
    if high >= end or text[high].isspace():
        return high
    # A word is not looked for in the first half, or the parts would be too short.
    middle = start + (high - start) // 2
    blank = next((index for index in range(high, middle, -1) if text[index - 1].isspace()), 0)
    return blank or last_cut(text, start, high)


def strip_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the span without the blanks at its ends; None if it is blank."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


class Windows:
    """Windows over a text with an `overlap` between neighbours; a section shorter than `tiny` may share a window."""

    def __init__(self, text: str, bound: SizeBound, overlap: SizeBound, tiny: int = 0) -> None:
        self.text, self.bound, self.overlap, self.tiny = text, bound, overlap, tiny
        self._atoms: deque[Atom] = deque()
        self._tokens = 0
        self._fresh = 0  # atoms held that are in no window yet: the last ones

    def join_atoms(self, atoms: Iterable[Atom]) -> Iterator[tuple[int, int, object]]:
        """Yield start, end and first section of each window, in order."""
        for atom in atoms:
            if self._atoms and atom.section != self._atoms[-1].section and self._length(self._atoms[-1]) >= self.tiny:
                yield from self._close()
                self._atoms.clear()
                self._tokens = self._fresh = 0
            while self._atoms and (
                self._length(atom) > self.bound.characters or self._tokens + atom.tokens > self.bound.tokens
            ):
                if self._fresh:
                    yield from self._close()
                    self._keep_overlap()
                else:
                    self._drop_first()
            self._atoms.append(atom)
            self._tokens += atom.tokens
            self._fresh += 1
        yield from self._close()

    def _length(self, last: Atom) -> int:
        """Return the characters from the first atom held to the end of another."""
        return last.end - self._atoms[0].start

    def _drop_first(self) -> None:
        self._tokens -= self._atoms.popleft().tokens

    def _close(self) -> Iterator[tuple[int, int, object]]:
        """Yield the window of the atoms held; several if the joined text has more tokens than its atoms have."""
        while self._fresh:
            fits = len(self._atoms)
            while fits > 1 and not self.bound.holds(self.text[self._atoms[0].start : self._atoms[fits - 1].end]):
                fits -= 1
            if fits <= len(self._atoms) - self._fresh:
                self._drop_first()  # there is room for the overlap only
                continue
            yield self._atoms[0].start, self._atoms[fits - 1].end, self._atoms[0].section
            self._fresh = len(self._atoms) - fits
            for _ in range(fits if self._fresh else 0):
                self._drop_first()

    def _keep_overlap(self) -> None:
        """Hold only the last whole atoms, as many as the overlap allows."""
        overlap: deque[Atom] = deque()
        tokens = 0
        for atom in reversed(self._atoms):
            tokens += atom.tokens
            too_long = self._atoms[-1].end - atom.start > self.overlap.characters or tokens > self.overlap.tokens
            if too_long or not atom.whole:
                break
            overlap.appendleft(atom)
        self._atoms = overlap
        self._tokens = sum(atom.tokens for atom in overlap)
