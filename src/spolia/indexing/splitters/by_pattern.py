"""Another splitter for another kind of file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from spolia.errors import WiringError
from spolia.indexing.splitters.sliding_window import SlidingWindow
from spolia.stores.definition import Part, Piece, Splitter


@dataclass(frozen=True)
class ByPattern(Splitter):
    """Cuts each document with the first splitter whose pattern its address matches.

    No document is lost: one that matches nothing is cut by `otherwise`. Small and capital letters are the same, on
    every system, and `*` stands for any characters, `/` too, so that `*.py` matches in every folder.

    Args:
        splitters: patterns (`*`, `?`, `[abc]`) with their splitters, tried in order.
        otherwise: for documents that match no pattern.

    Raises:
        WiringError: for a pattern that is never reached, since it stands after `*` or a second time; for what is no
            splitter.

    >>> from spolia.types import Document, Node
    >>> from spolia.indexing.splitters.sentence_pieces import Sentences
    >>> splitter = ByPattern((("*.txt", Sentences()),))
    >>> def cut(uri, text="One. Two."):
    ...     return [piece.text for piece in splitter.pieces(Part(Node("d", text), Document("d", text, uri)))]
    >>> cut("notes/A.TXT"), cut("a.md")
    (['One.', 'Two.'], ['One. Two.'])
    """

    splitters: tuple[tuple[str, Splitter], ...]
    otherwise: Splitter = field(default_factory=SlidingWindow)

    def __post_init__(self) -> None:
        for splitter in (*(splitter for _, splitter in self.splitters), self.otherwise):
            if not isinstance(splitter, Splitter):
                raise WiringError(
                    f"ByPattern chooses between splitters; {splitter!r} is none. Make it a group of its own."
                )
        before: set[str] = set()
        for pattern, _ in self.splitters:
            if pattern in before or "*" in before:
                raise WiringError(
                    f"ByPattern never reaches the pattern {pattern!r}: one before it matches all that it does. "
                    "Write each pattern once, and '*' last."
                )
            before.add(pattern)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        return self.splitter_for(part.document.uri).pieces(part)

    def splitter_for(self, uri: str) -> Splitter:
        """The splitter of a document at this address."""
        name = uri.casefold()
        found = (splitter for pattern, splitter in self.splitters if fnmatchcase(name, pattern.casefold()))
        return next(found, self.otherwise)
