"""Packing pieces into windows: as many as fit, the last sentences again in the next window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from spolia.indexing.pieces import Bound, Piece

TINY = 8
"""A section shorter than this part of a window, in characters, may share a window with the next one."""


class Windows:
    """Windows over a text.

    Args:
        text: all of it.
        bound: of a window.
        overlap: of what the end of a window and the beginning of the next one share, in whole sentences.
    """

    def __init__(self, text: str, bound: Bound, overlap: Bound) -> None:
        self.text, self.bound, self.overlap = text, bound, overlap
        self.tiny = bound.characters // TINY
        self._held: deque[Piece] = deque()
        self._tokens = 0
        self._fresh = 0  # pieces held that are in no window yet: the last ones

    def over(self, pieces: Iterable[Piece]) -> Iterator[tuple[int, int]]:
        """(start, end) of each window, in order; no window is too long, and each begins later than the one before."""
        for piece in pieces:
            if self._held and piece.section != self._held[-1].section and not self._is_tiny():
                yield from self._closed()
                self._clear()
            while self._held and not self._has_room(piece):
                if self._fresh:
                    yield from self._closed()
                    self._keep_overlap()
                else:
                    self._drop_first()
            self._take(piece)
        yield from self._closed()

    def _has_room(self, piece: Piece) -> bool:
        return (
            piece.end - self._held[0].start <= self.bound.characters
            and self._tokens + piece.tokens <= self.bound.tokens
        )

    def _is_tiny(self) -> bool:
        return self._held[-1].end - self._held[0].start < self.tiny

    def _take(self, piece: Piece) -> None:
        self._held.append(piece)
        self._tokens += piece.tokens
        self._fresh += 1

    def _drop_first(self) -> None:
        self._tokens -= self._held.popleft().tokens

    def _clear(self) -> None:
        self._held.clear()
        self._tokens = self._fresh = 0

    def _closed(self) -> Iterator[tuple[int, int]]:
        """The window of what is held; several where it has more tokens than its pieces have one by one."""
        while self._fresh:
            fits = len(self._held)
            while fits > 1 and not self.bound.holds(self.text[self._held[0].start : self._held[fits - 1].end]):
                fits -= 1
            if fits <= len(self._held) - self._fresh:
                self._drop_first()  # there is room for the overlap only
                continue
            yield self._held[0].start, self._held[fits - 1].end
            self._fresh = len(self._held) - fits
            for _ in range(fits if self._fresh else 0):
                self._drop_first()

    def _keep_overlap(self) -> None:
        """Hold the last whole sentences only, as many as the overlap allows."""
        kept: deque[Piece] = deque()
        tokens = 0
        for piece in reversed(self._held):
            tokens += piece.tokens
            too_long = self._held[-1].end - piece.start > self.overlap.characters or tokens > self.overlap.tokens
            if too_long or not piece.whole:
                break
            kept.appendleft(piece)
        self._held = kept
        self._tokens = sum(piece.tokens for piece in kept)
