"""Base of splitters with a limit on the size of their pieces, and windows of whole sentences or of tokens."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from spolia.errors import WiringError
from spolia.indexing.splitters.windows import (
    NOTHING,
    Atom,
    Layer,
    SizeBound,
    Unit,
    Windows,
    cut_stretch,
    cut_units,
    last_cut,
    may_cut,
    sentence_atoms,
)
from spolia.stores.definition import Part, Piece, Splitter, places_in, regions_in
from spolia.stores.lexical.analysis import is_mostly_words
from spolia.types import Region, lazy_property
from spolia.types.value import unchecked_constructor

LETTERS_PER_TOKEN = 2
"""Characters of a word for each token at least, on average; one in scripts that put no blanks between words, and in
Korean. all-MiniLM-L6-v2 has 4.9 in English and 3.2 in Spanish, but 1.2 in Arabic and 0.7 in Korean: it spells them, and
what it counts are letters."""

_NOT_LATIN = re.compile("[^\0-\u036f\u1e00-\u206f]")
_WORD = re.compile(r"[^\W\d_]+")


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens as a model does: `spolia.models.onnx.tokenizer.WordPiece`, or any other."""

    def count(self, texts: Iterable[str], /) -> list[int]:
        """Length of each text in tokens, without special ones."""

    def fingerprint(self) -> str:
        """Return a text that identifies the way of counting."""


@runtime_checkable
class Covering(TokenCounter, Protocol):
    """Counter that can say how much of a text it knows; other counters are trusted in every script."""

    def covers(self, text: str, /) -> float:
        """Share of the characters that are in the vocabulary, from 0 to 1."""


class TokenPlaces(Protocol):
    """Token, by the characters `text[start:end]` that it covers."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


@runtime_checkable
class Placing(TokenCounter, Protocol):
    """Counter that also locates the tokens, as `WordPiece` does."""

    def pieces(self, text: str, /) -> Sequence[TokenPlaces]:
        """Return the tokens in the order of the text."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of texts, as windows count them.

    A text that the tokenizer does not cover counts a token for every `chars_per_token` characters, so that a window of
    it is as long as one of English: by tokens, windows of Korean would be 110 characters long and of Chinese 200. It is
    covered if the tokenizer knows this share of its characters, and more than the letters (`LETTERS_PER_TOKEN`).
    """

    tokenizer: TokenCounter
    chars_per_token: int
    covered: float

    def count(self, text: str) -> int:
        return self.tokenizer.count([text])[0] if self.is_covered(text) else -(-len(text) // self.chars_per_token)

    def is_covered(self, text: str) -> bool:
        """Return whether the tokenizer knows the text well enough for its count to mean something."""
        counter = self.tokenizer
        # Latin text is covered by every tokenizer, so most texts skip the rest.
        if not isinstance(counter, Covering) or _NOT_LATIN.search(text) is None:
            return True
        if counter.covers(text) < self.covered:
            return False
        words = " ".join(_WORD.findall(text))
        return len(words) >= (LETTERS_PER_TOKEN if is_mostly_words(text) else 1) * counter.count([words])[0]


@dataclass(frozen=True)
class SizedSplitter(Splitter):
    """Base of the splitters whose pieces have a limited size.

    Args:
        size: tokens of a piece at most. What is longer and has no finer structure is cut after a word, or, where no
            blanks are written, between two characters as a reader sees them.
        chars_per_token: a piece has at most `size * chars_per_token` characters, whatever the tokens say: a tokenizer
            that does not know a script counts it wrongly.
        tokenizer: counts tokens, for example `WordPiece()`; None to measure by characters alone.
        covered: share of a text's characters that the tokenizer must know, if it can say so; text that is less covered,
            or that it spells letter by letter, is counted in characters, `chars_per_token` for a token
            (`spolia.indexing.splitters.sized_splitter`).

    Raises:
        WiringError: for sizes that make no sense.
    """

    size: int = field(default=200, kw_only=True)
    chars_per_token: int = field(default=4, kw_only=True)
    tokenizer: TokenCounter | None = field(default=None, kw_only=True)
    covered: float = field(default=0.95, kw_only=True)

    _minimums: ClassVar[Mapping[str, int]] = {}
    """What other fields of a subclass are at least."""

    def __post_init__(self) -> None:
        require_minimums(self, size=1, chars_per_token=1, **self._minimums)
        if not 0 <= self.covered <= 1:
            raise WiringError(f"{type(self).__name__} got covered={self.covered}. Write a share from 0 to 1.")

    def cut(self, text: str, units: Iterable[Unit], *layers: Layer, overlap: SizeBound = NOTHING) -> Iterator[Piece]:
        """Cut a text into pieces that fit: units stay whole if they do, and layers cut the others."""
        atoms = cut_units(text, units, layers, self.bound)
        for start, end, section in Windows(text, self.bound, overlap).join_atoms(atoms):
            yield Piece(text[start:end], start, str(section))

    @lazy_property
    def bound(self) -> SizeBound:
        lengths = Lengths(self.tokenizer, self.chars_per_token, self.covered) if self.tokenizer else None
        return SizeBound(self.size, self.size * self.chars_per_token, lengths.count if lengths else None)

    @property
    def context_characters(self) -> int:
        """As many as the piece has tokens, so that the context is a quarter of it at most."""
        return self.bound.characters // 4

    def overlap_bound(self, overlap: int) -> SizeBound:
        return SizeBound(overlap, overlap * self.chars_per_token)


def require_minimums(splitter: object, **minimums: int) -> None:
    """Raise WiringError if a field is below its minimum."""
    for name, bound in minimums.items():
        if getattr(splitter, name) < bound:
            assignment = f"{name}={getattr(splitter, name)}"
            raise WiringError(f"{type(splitter).__name__} got {assignment}. Write a number of at least {bound}.")


def require_progress(splitter: Any) -> None:
    """Raise WiringError if the overlap leaves no room for anything new."""
    require_minimums(splitter, overlap=0)
    if splitter.overlap >= splitter.size:
        raise WiringError(
            f"{type(splitter).__name__} got overlap={splitter.overlap} with size={splitter.size}: windows would never "
            f"move on. Write an overlap below the size, for example overlap={splitter.size // 10}."
        )


TINY = 8
"""A section shorter than this part of a window, in characters, may share a window with the next one."""


@dataclass(frozen=True)
class SlidingWindow(SizedSplitter):
    """Windows of whole sentences that cross no heading, unless the section before it is tiny.

    A table that the document's reader has noted is not cut if it fits into a window, else between its rows; windows
    that begin below its first row have that row as context. All windows together cover every character but blanks.

    Args:
        size: tokens of a window at most.
        overlap: tokens at most that a window shares with the one before, in whole sentences; not across headings.

    Raises:
        WiringError: for sizes that make no sense.

    >>> from spolia import Document, Node
    >>> document = Document("d", "One is here. Two is there. Three is nowhere.")
    >>> part = Part(Node("d", document.text), document)
    >>> [piece.text for piece in SlidingWindow(size=8, overlap=4).pieces(part)]
    ['One is here. Two is there.', 'Two is there. Three is nowhere.']
    """

    version: ClassVar[int] = 2  # 2: a table that fits stays whole

    size: int = 200
    overlap: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require_progress(self)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        headings = places_in(part, [heading.start for heading in part.document.headings])
        body, bound = text.strip(), self.bound
        if not headings and len(text) <= bound.characters and (bound.count is None or bound.holds(body)):
            if body:  # most passages: nothing has to be cut
                yield _piece(body, text.index(body[0]))
            return
        regions = regions_in(part, "table")
        tables = [(region.start, region.end) for region in regions]
        windows = Windows(text, self.bound, self.overlap_bound(self.overlap), self.bound.characters // TINY)
        for start, end, _ in windows.join_atoms(sentence_atoms(text, headings, self.bound, tables)):
            yield _piece(text[start:end], start, table_head(text, regions, start, self.context_characters))


_piece = unchecked_constructor(Piece)
_AROUND_CELL = 4
"""Characters at most that a line of a table has for each cell beside its words."""


def table_head(text: str, regions: Sequence[Region], index: int, max_characters: int = 1_000) -> str:
    """Return the first row of the table that a piece continues; empty if it has more than `max_characters` characters,
    or the text lacks it, as in JSON, whose records name their fields themselves.

    >>> table = Region("table", 0, 22, (("stone", "t"), ("basalt", "3"), ("marble", "2")))
    >>> table_head("stone | t\\nbasalt | 3\\nmarble | 2", [table], 10)
    'stone | t'
    >>> table_head("stone | t\\nbasalt | 3\\nmarble | 2", [table], 10, max_characters=8)
    ''
    """
    last = bisect_right(regions, index, key=lambda region: region.start) - 1
    if last < 0 or not (region := regions[last]).rows or not region.start < index < region.end:
        return ""
    line = text[region.start : region.end].partition("\n")[0].strip()
    if len(line) > max_characters:  # before its cells are looked for: a wide table has thousands
        return ""
    cells = region.rows[0]
    is_row = len(line) <= sum(map(len, cells)) + _AROUND_CELL * len(cells) and all(cell in line for cell in cells)
    return line if is_row and region.start + len(line) < index else ""


LONGEST = 16
"""Characters of a token at most."""
BATCH_CHARACTERS = 100_000
"""Characters whose tokens are in memory at one time."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_BLANK = re.compile(r"\s(?=\S*\Z)")


@dataclass(frozen=True)
class TokenWindow(Splitter):
    """Windows of exactly `size` tokens, which overlap by exactly `overlap`.

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
        require_minimums(self, size=1, chars_per_token=1)
        require_progress(self)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        characters = 2 * LONGEST * self.size  # twice as many as the tokens have: for the blanks between them
        windows = Windows(text, SizeBound(self.size, characters), SizeBound(self.overlap, characters))
        for start, end, _ in windows.join_atoms(self._atoms(text)):
            yield Piece(text[start:end], start)

    def _atoms(self, text: str) -> Iterator[Atom]:
        """Yield the tokens as atoms; those inside one character stay together, long ones are cut."""
        begin, last, tokens = 0, -1, 0
        for start, end in self._tokens(text):
            if start == end:
                continue
            if last < 0 or (start >= last and (start > last or may_cut(text, start))):
                if last >= 0:
                    yield from self._split_long(text, begin, last, tokens)
                begin, last, tokens = start, end, 1
            else:
                last, tokens = max(last, end), tokens + (self.tokenizer is not None)
        if last >= 0:
            yield from self._split_long(text, begin, last, tokens)

    def _split_long(self, text: str, start: int, end: int, tokens: int) -> Iterator[Atom]:
        if end - start <= LONGEST and tokens <= self.size:
            yield Atom(start, end, None, tokens, True)
            return
        for part in cut_stretch(text, start, end, None, SizeBound(1, self.chars_per_token)):
            yield Atom(part.start, part.end, None, 1, True)

    def _tokens(self, text: str) -> Iterator[tuple[int, int]]:
        if self.tokenizer is None:
            yield from (word.span() for word in _TOKEN.finditer(text))
            return
        for start, end in _batches(text):
            for token in self.tokenizer.pieces(text[start:end]):
                yield start + token.start, start + token.end


def _batches(text: str) -> Iterator[tuple[int, int]]:
    """Yield the text in stretches that end after a blank, if there is one."""
    start = 0
    while start < len(text):
        end = min(len(text), start + BATCH_CHARACTERS)
        if end < len(text):
            # Only the end of a batch is searched, so that text without blanks takes no longer.
            blank = _BLANK.search(text, end - 1000, end)
            end = blank.end() if blank else last_cut(text, start, end)
        yield start, end
        start = end
