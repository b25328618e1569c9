"""Packing atoms into windows: as many as fit, the last ones again in the next window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from spolia.indexing.splitters.atoms import Atom
from spolia.indexing.splitters.bound import Bound


class Window(NamedTuple):
    """`text[start:end]` and the section of its first atom."""

    start: int
    end: int
    section: object


class Windows:
    """Windows over a text.

    Args:
        text: all of it.
        bound: of a window.
        overlap: of what the end of a window and the beginning of the next one share, in whole atoms.
        tiny: characters of a section below which it may share a window with the next one.
    """

    def __init__(self, text: str, bound: Bound, overlap: Bound, tiny: int = 0) -> None:
        self.text, self.bound, self.overlap, self.tiny = text, bound, overlap, tiny
        self._held: deque[Atom] = deque()
        self._tokens = 0
        self._fresh = 0  # atoms held that are in no window yet: the last ones

    def over(self, atoms: Iterable[Atom]) -> Iterator[Window]:
        """Each window, in order; no window is too long, and each begins later than the one before."""
        for atom in atoms:
            if self._held and atom.section != self._held[-1].section and not self._is_tiny():
                yield from self._closed()
                self._clear()
            while self._held and not self._has_room(atom):
                if self._fresh:
                    yield from self._closed()
                    self._keep_overlap()
                else:
                    self._drop_first()
            self._take(atom)
        yield from self._closed()

    def _has_room(self, atom: Atom) -> bool:
        return (
            atom.end - self._held[0].start <= self.bound.characters and self._tokens + atom.tokens <= self.bound.tokens
        )

    def _is_tiny(self) -> bool:
        return self._held[-1].end - self._held[0].start < self.tiny

    def _take(self, atom: Atom) -> None:
        self._held.append(atom)
        self._tokens += atom.tokens
        self._fresh += 1

    def _drop_first(self) -> None:
        self._tokens -= self._held.popleft().tokens

    def _clear(self) -> None:
        self._held.clear()
        self._tokens = self._fresh = 0

    def _closed(self) -> Iterator[Window]:
        """The window of what is held; several where it has more tokens than its atoms have one by one."""
        while self._fresh:
            fits = len(self._held)
            while fits > 1 and not self.bound.holds(self.text[self._held[0].start : self._held[fits - 1].end]):
                fits -= 1
            if fits <= len(self._held) - self._fresh:
                self._drop_first()  # there is room for the overlap only
                continue
            yield Window(self._held[0].start, self._held[fits - 1].end, self._held[0].section)
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
