"""The headings above a place in a document."""

from __future__ import annotations

from spolia.types import Document, Heading

BETWEEN = " > "


class Outline:
    """Tells the title and the headings above places that come in order.

    Args:
        document: with its headings.
        longest: characters of the answer at most; each of its parts is shortened alike.

    >>> headings = (Heading(0, 1, "Rome"), Heading(9, 2, "Arches"), Heading(40, 2, "Roads"))
    >>> outline = Outline(Document("d", "", title="Stones", headings=headings), 100)
    >>> outline.above(0), outline.above(9), outline.above(20), outline.above(41)
    ('Stones', 'Stones > Rome', 'Stones > Rome > Arches', 'Stones > Rome > Roads')
    """

    def __init__(self, document: Document, longest: int) -> None:
        self._title, self._headings, self._longest = document.title, document.headings, longest
        self._next = 0
        self._path: list[Heading] = []

    def above(self, start: int) -> str:
        """Title and headings; a heading that stands at `start` itself belongs to the text, not to what is above it."""
        if not self._headings:
            return self._title[: self._longest]
        while self._next < len(self._headings) and self._headings[self._next].start < start:
            heading = self._headings[self._next]
            self._close(heading.level)
            self._path.append(heading)
            self._next += 1
        if self._next < len(self._headings) and self._headings[self._next].start == start:
            self._close(self._headings[self._next].level)
        return self._joined()

    def _close(self, level: int) -> None:
        while self._path and self._path[-1].level >= level:
            self._path.pop()

    def _joined(self) -> str:
        parts = [self._title] if self._title else []
        parts += [heading.text for heading in self._path if heading.text != self._title]
        joined = BETWEEN.join(parts)
        if len(joined) <= self._longest:
            return joined
        each = max(1, self._longest // len(parts) - len(BETWEEN))
        return BETWEEN.join(part[:each].rstrip() for part in parts)[: self._longest]
