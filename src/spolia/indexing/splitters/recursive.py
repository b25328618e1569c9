"""Cutting at the coarsest separator that makes pieces small enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.indexing.splitters.layers import Layer, Unit
from spolia.indexing.splitters.sized_splitter import Sized, moving_on
from spolia.stores.definition import Part, Piece


@dataclass(frozen=True)
class RecursiveCharacters(Sized):
    """Cuts at separators, tried in order: what is too long between two of one kind is cut at the next kind.

    Neighbours that fit share a piece. What no separator makes short enough is cut after words, else between two
    characters as a reader sees them, so that the empty separator need not be written. A separator stays at the end of
    what is before it. Together the pieces cover every character but blanks.

    Args:
        size: tokens of a piece at most.
        overlap: tokens at most that a piece shares with the one before, in whole stretches between separators.
        separators: from coarse to fine.

    Raises:
        WiringError: for sizes that make no sense, or an empty separator.

    >>> from spolia.types import Document, Node
    >>> text = "One two three. Four five.\\n\\nSix seven."
    >>> part = Part(Node("d", text), Document("d", text))
    >>> [piece.text for piece in RecursiveCharacters(size=4, overlap=0).pieces(part)]
    ['One two three.', 'Four five.', 'Six seven.']
    """

    size: int = 200
    overlap: int = 20
    separators: tuple[str, ...] = ("\n\n", "\n", ". ", " ")

    def __post_init__(self) -> None:
        super().__post_init__()
        moving_on(self, self.size, self.overlap)
        if "" in self.separators:
            raise WiringError(
                "RecursiveCharacters got an empty separator. Leave it out: what is too long between the others is cut "
                "between characters anyway."
            )

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        layers = map(after_each, self.separators)
        return self.cut(text, [Unit(0, len(text))], *layers, overlap=self.shared(self.overlap))


def after_each(separator: str) -> Layer:
    """A layer that cuts after each place where a separator stands."""

    def layer(text: str, start: int, end: int) -> Iterator[Unit]:
        while (found := text.find(separator, start, end)) >= 0:
            yield Unit(start, found + len(separator))
            start = found + len(separator)
        yield Unit(start, end)

    return layer
