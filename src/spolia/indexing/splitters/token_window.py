"""Windows of so many tokens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from spolia.indexing.splitters.sized_splitter import TokenCounter, at_least, moving_on
from spolia.indexing.splitters.windows import Atom, SizeBound, Windows, cut_before, may_cut, parts
from spolia.stores.definition import Part, Piece, Splitter

LONGEST = 16
"""Characters of a token at most."""
BATCH = 100_000
"""Characters whose tokens are in memory at one time."""
_WORD = re.compile(r"\w+|[^\w\s]")
_BLANK = re.compile(r"\s(?=\S*\Z)")


class TokenPlaces(Protocol):
    """A token: the characters `text[start:end]` that it stands for."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


@runtime_checkable
class Placing(TokenCounter, Protocol):
    """A counter that also says where the tokens stand, as `WordPiece` does."""

    def pieces(self, text: str, /) -> Sequence[TokenPlaces]:
        """The tokens in the order of the text."""


@dataclass(frozen=True)
class TokenWindow(Splitter):
    """Windows of exactly `size` tokens, of which each shares exactly `overlap` with the one before.

    Every token is in a window; the last one may be shorter. A token is at most 16 characters long: what the tokenizer
    takes for a longer one, a word that it does not know or a run of letters without blanks, counts one for every
    `chars_per_token` characters. Where a character as a reader sees it has several tokens, they stay together, so that
    a window may be some tokens short. A run of blanks that is longer than a window ends one, and nothing is shared
    across it; so a window has at most `size * 32` characters.

    Args:
        size: tokens of a window.
        overlap: tokens that two neighbours share.
        tokenizer: places the tokens, for example `WordPiece()`; None for words and signs: runs of letters and digits,
            and every other character for itself.
        chars_per_token: characters that count as a token in what is too long for one.

    Raises:
        WiringError: for sizes that make no sense.

    >>> from spolia.types import Document, Node
    >>> text = "Stones carry arches, arches carry walls."
    >>> part = Part(Node("d", text), Document("d", text))
    >>> [piece.text for piece in TokenWindow(size=4, overlap=1).pieces(part)]
    ['Stones carry arches,', ', arches carry walls', 'walls.']
    """

    size: int = 256
    overlap: int = 25
    tokenizer: Placing | None = None
    chars_per_token: int = 4

    def __post_init__(self) -> None:
        at_least(self, size=1, chars_per_token=1)
        moving_on(self)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        characters = 2 * LONGEST * self.size
        windows = Windows(text, SizeBound(self.size, characters), SizeBound(self.overlap, characters))
        for start, end, _ in windows.over(self._atoms(text)):
            yield Piece(text[start:end], start)

    def _atoms(self, text: str) -> Iterator[Atom]:
        """The tokens; those inside one character together, those that are too long in parts."""
        begin, last, tokens = 0, -1, 0
        for start, end in self._tokens(text):
            if start == end:
                continue
            if last < 0 or (start >= last and (start > last or may_cut(text, start))):
                if last >= 0:
                    yield from self._short(text, begin, last, tokens)
                begin, last, tokens = start, end, 1
            else:
                last, tokens = max(last, end), tokens + (self.tokenizer is not None)
        if last >= 0:
            yield from self._short(text, begin, last, tokens)

    def _short(self, text: str, start: int, end: int, tokens: int) -> Iterator[Atom]:
        if end - start <= LONGEST and tokens <= self.size:
            yield Atom(start, end, None, tokens, True)
            return
        for part in parts(text, start, end, None, SizeBound(1, self.chars_per_token)):
            yield Atom(part.start, part.end, None, 1, True)

    def _tokens(self, text: str) -> Iterator[tuple[int, int]]:
        if self.tokenizer is None:
            yield from (word.span() for word in _WORD.finditer(text))
            return
        for start, end in _batches(text):
            for token in self.tokenizer.pieces(text[start:end]):
                yield start + token.start, start + token.end


def _batches(text: str) -> Iterator[tuple[int, int]]:
    """The text in stretches that end after a blank, where there is one."""
    start = 0
    while start < len(text):
        end = min(len(text), start + BATCH)
        if end < len(text):
            blank = _BLANK.search(text, end - 1000, end)
            end = blank.end() if blank else cut_before(text, start, end)
        yield start, end
        start = end
