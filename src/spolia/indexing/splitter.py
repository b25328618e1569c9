"""Cutting documents into nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from spolia.errors import SpoliaError
from spolia.indexing.lengths import Lengths, TokenCounter
from spolia.indexing.outline import Outline
from spolia.indexing.pieces import Bound, pieces
from spolia.indexing.windows import Windows
from spolia.types import Document, Node, Span, Value, kept


@runtime_checkable
class Splitter(Protocol):
    """Cuts documents into nodes."""

    @property
    def name(self) -> str:
        """Tells apart any two that cut differently; a manifest holds it."""
        ...

    def split(self, document: Document, group: str = "chunk") -> Iterator[Node]:
        """The nodes of a document, in the order of its text."""
        ...


@dataclass(frozen=True)
class SlidingWindow(Value):
    """Windows of whole sentences that never cross a heading, unless the section before it is tiny.

    A window is `document.text[start:end]`, without the blanks around it. Its context, which is indexed but not shown,
    is the document's title and the headings above it. All windows together cover every character but blanks.

    Args:
        size: tokens of a window at most. A sentence that is longer is cut after a word, or, where no blanks are
            written, between two characters as a reader sees them.
        overlap: tokens at most that a window shares with the one before, in whole sentences; not across headings.
        chars_per_token: a window has at most `size * chars_per_token` characters, whatever the tokens say: a tokenizer
            that does not know a script counts it wrongly.
        tokenizer: counts tokens, for example `WordPiece()`; None to measure by characters alone.
        covered: share of a text's characters that the tokenizer must know, if it can say so; text that is less covered,
            or that it spells letter by letter, is counted in characters, `chars_per_token` for a token
            (`spolia.indexing.lengths`).

    Raises:
        SpoliaError: for sizes that make no sense.

    >>> document = Document("d", "One is here. Two is there. Three is nowhere.")
    >>> [node.text for node in SlidingWindow(size=8, overlap=4).split(document)]
    ['One is here. Two is there.', 'Two is there. Three is nowhere.']
    """

    size: int = 200
    overlap: int = 20
    chars_per_token: int = 4
    tokenizer: TokenCounter | None = None
    covered: float = 0.95
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("overlap", 0), ("chars_per_token", 1)):
            if getattr(self, name) < least:
                raise SpoliaError(
                    f"SlidingWindow got {name}={getattr(self, name)}. Write a number of at least {least}."
                )
        if not 0 <= self.covered <= 1:
            raise SpoliaError(f"SlidingWindow got covered={self.covered}. Write a share from 0 to 1.")
        if self.overlap >= self.size:
            raise SpoliaError(
                f"SlidingWindow got overlap={self.overlap} with size={self.size}: windows would never move on. "
                f"Write an overlap below the size, for example overlap={self.size // 10}."
            )

    @property
    def name(self) -> str:
        """Its fields, and which tokenizer counts.

        >>> SlidingWindow().name
        'SlidingWindow 1 (size=200, overlap=20, chars_per_token=4, covered=0.95, tokenizer=none)'
        """
        counter = self.tokenizer.fingerprint() if self.tokenizer else "none"
        return (
            f"SlidingWindow {self.version} (size={self.size}, overlap={self.overlap}, "
            f"chars_per_token={self.chars_per_token}, covered={self.covered}, tokenizer={counter})"
        )

    def split(self, document: Document, group: str = "chunk") -> Iterator[Node]:
        """The windows over a document, one at a time, so that a long document needs no more memory than its text.

        Args:
            group: the node group's name.
        """
        outline, lines = Outline(document, self._bound.characters // 4), _Lines(document.text)
        for number, (start, end) in enumerate(self._windows(document)):
            pages = _pages(document.pages, start, end) if document.pages else None
            yield Node(
                id=f"{document.id}:{group}:{number}",
                text=document.text[start:end],
                document=document.id,
                group=group,
                span=Span(start, end, pages, None if pages else lines.of(start, end)),
                context=outline.above(start),
                uri=document.uri,
                meta=document.meta,
                readers=document.readers,
            )

    def _windows(self, document: Document) -> Iterator[tuple[int, int]]:
        text, sections = document.text, [heading.start for heading in document.headings]
        if not document.headings and len(text) <= self._bound.characters:
            body = text.strip()
            if not body:
                return
            if self._bound.holds(body):  # most passages: nothing has to be cut
                start = text.index(body[0])
                yield start, start + len(body)
                return
        yield from Windows(text, self._bound, self._shared).over(pieces(text, sections, self._bound))

    @kept
    def _bound(self) -> Bound:
        lengths = Lengths(self.tokenizer, self.chars_per_token, self.covered) if self.tokenizer else None
        return Bound(self.size, self.size * self.chars_per_token, lengths.of if lengths else None)

    @kept
    def _shared(self) -> Bound:
        return Bound(self.overlap, self.overlap * self.chars_per_token)


def _pages(starts: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """First and last page of a span, from 1."""
    return max(1, bisect_right(starts, start)), max(1, bisect_right(starts, end - 1))


class _Lines:
    """Line numbers of spans that come in order, from 1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = "\n" if "\n" in text or "\r" not in text else "\r"
        self._at, self._number = 0, 1

    def of(self, start: int, end: int) -> tuple[int, int]:
        self._number += self._text.count(self._end, self._at, start)
        self._at = start
        return self._number, self._number + self._text.count(self._end, start, end)
