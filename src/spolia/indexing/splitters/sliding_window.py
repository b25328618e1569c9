"""Windows of whole sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.indexing.splitters.size_limits import places_in, regions_in
from spolia.indexing.splitters.sized_splitter import Sized, moving_on
from spolia.indexing.splitters.windows import Windows, sentence_atoms
from spolia.stores.definition import Part, Piece

TINY = 8
"""A section shorter than this part of a window, in characters, may share a window with the next one."""


@dataclass(frozen=True)
class SlidingWindow(Sized):
    """Windows of whole sentences that never cross a heading, unless the section before it is tiny.

    A table that the document's reader has noted is not cut if it fits into a window, else between its rows. All windows
    together cover every character but blanks.

    Args:
        size: tokens of a window at most.
        overlap: tokens at most that a window shares with the one before, in whole sentences; not across headings.

    Raises:
        WiringError: for sizes that make no sense.

    >>> from spolia.types import Document, Node
    >>> from spolia.types import Document, Node
    >>> document = Document("d", "One is here. Two is there. Three is nowhere.")
    >>> part = Part(Node("d", document.text), document)
    >>> [piece.text for piece in SlidingWindow(size=8, overlap=4).pieces(part)]
    ['One is here. Two is there.', 'Two is there. Three is nowhere.']
    """

    version: ClassVar[int] = 2

    size: int = 200
    overlap: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        moving_on(self, self.size, self.overlap)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        headings = places_in(part, [heading.start for heading in part.document.headings])
        tables = [(region.start, region.end) for region in regions_in(part, "table")]
        for start, end in self._windows(text, headings, tables):
            yield Piece(text[start:end], start)

    def _windows(
        self, text: str, headings: Sequence[int], tables: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        if not headings and len(text) <= self.bound.characters:
            body = text.strip()
            if not body:
                return
            if self.bound.holds(body):  # most passages: nothing has to be cut
                start = text.index(body[0])
                yield start, start + len(body)
                return
        windows = Windows(text, self.bound, self.shared(self.overlap), self.bound.characters // TINY)
        for start, end, _ in windows.over(sentence_atoms(text, headings, self.bound, tables)):
            yield start, end
