"""The base of splitters whose pieces have a size at most, and windows: of whole sentences by default, and of tokens."""

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
    cut_before,
    layered,
    may_cut,
    parts,
    sentence_atoms,
)
from spolia.stores.definition import Part, Piece, Splitter, places_in, regions_in
from spolia.stores.lexical.analysis import in_words
from spolia.types import Region, kept
from spolia.types.value import maker

SPELT = 2
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
        """Identifies the way of counting."""


@runtime_checkable
class Covering(TokenCounter, Protocol):
    """A counter that says how much of a text it knows; one that does not is believed in every script."""

    def covers(self, text: str, /) -> float:
        """Share of the characters that are in the vocabulary, from 0 to 1."""


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
class Lengths:
    """Lengths of texts as a window counts them.

    A text that the tokenizer does not cover counts a token for every `chars_per_token` characters, so that a window of
    it is as long as one of English: by tokens, windows of Korean would be 110 characters long and of Chinese 200. It is
    covered if the tokenizer knows this share of its characters, and more than the letters (`SPELT`).
    """

    tokenizer: TokenCounter
    chars_per_token: int
    covered: float

    def of(self, text: str) -> int:
        return self.tokenizer.count([text])[0] if self.is_covered(text) else -(-len(text) // self.chars_per_token)

    def is_covered(self, text: str) -> bool:
        """Whether the text's length in tokens says something."""
        counter = self.tokenizer
        if not isinstance(counter, Covering) or _NOT_LATIN.search(text) is None:
            return True
        if counter.covers(text) < self.covered:
            return False
        words = " ".join(_WORD.findall(text))
        return len(words) >= (SPELT if in_words(text) else 1) * counter.count([words])[0]


@dataclass(frozen=True)
class Sized(Splitter):
    """Base of the splitters whose pieces have a size at most.

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

    _least: ClassVar[Mapping[str, int]] = {}
    """What other fields of a subclass are at least."""

    def __post_init__(self) -> None:
        at_least(self, size=1, chars_per_token=1, **self._least)
        if not 0 <= self.covered <= 1:
            raise WiringError(f"{type(self).__name__} got covered={self.covered}. Write a share from 0 to 1.")

    def cut(self, text: str, units: Iterable[Unit], *layers: Layer, overlap: SizeBound = NOTHING) -> Iterator[Piece]:
        """The text as pieces that are not too long: units that fit, and what the layers cut the others into."""
        atoms = layered(text, units, layers, self.bound)
        for start, end, section in Windows(text, self.bound, overlap).over(atoms):
            yield Piece(text[start:end], start, str(section))

    @kept
    def bound(self) -> SizeBound:
        lengths = Lengths(self.tokenizer, self.chars_per_token, self.covered) if self.tokenizer else None
        return SizeBound(self.size, self.size * self.chars_per_token, lengths.of if lengths else None)

    @property
    def context_characters(self) -> int:
        """As many as the piece has tokens, so that the context is a quarter of it at most."""
        return self.bound.characters // 4

    def shared(self, overlap: int) -> SizeBound:
        return SizeBound(overlap, overlap * self.chars_per_token)


def at_least(splitter: object, **least: int) -> None:
    """Refuse fields that are smaller than that."""
    for name, bound in least.items():
        if getattr(splitter, name) < bound:
            given = f"{name}={getattr(splitter, name)}"
            raise WiringError(f"{type(splitter).__name__} got {given}. Write a number of at least {bound}.")


def moving_on(splitter: Any) -> None:
    """Refuse an overlap that leaves no room for anything new."""
    at_least(splitter, overlap=0)
    if splitter.overlap >= splitter.size:
        raise WiringError(
            f"{type(splitter).__name__} got overlap={splitter.overlap} with size={splitter.size}: windows would never "
            f"move on. Write an overlap below the size, for example overlap={splitter.size // 10}."
        )


TINY = 8
"""A section shorter than this part of a window, in characters, may share a window with the next one."""


@dataclass(frozen=True)
class SlidingWindow(Sized):
    """Windows of whole sentences that never cross a heading, unless the section before it is tiny.

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

    version: ClassVar[int] = 2

    size: int = 200
    overlap: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        moving_on(self)

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
        windows = Windows(text, self.bound, self.shared(self.overlap), self.bound.characters // TINY)
        for start, end, _ in windows.over(sentence_atoms(text, headings, self.bound, tables)):
            yield _piece(text[start:end], start, table_head(text, regions, start, self.context_characters))


_piece = maker(Piece)
_AROUND_CELL = 4
"""Characters at most that a line of a table has for each cell beside its words."""


def table_head(text: str, regions: Sequence[Region], at: int, most: int = 1_000) -> str:
    """Return the first row of the table that a piece continues; empty if it has more than `most` characters, or the
    text lacks it, as in JSON, whose records name their fields themselves.

    >>> table = Region("table", 0, 22, (("stone", "t"), ("basalt", "3"), ("marble", "2")))
    >>> table_head("stone | t\\nbasalt | 3\\nmarble | 2", [table], 10)
    'stone | t'
    >>> table_head("stone | t\\nbasalt | 3\\nmarble | 2", [table], 10, most=8)
    ''
    """
    last = bisect_right(regions, at, key=lambda region: region.start) - 1
    if last < 0 or not (region := regions[last]).rows or not region.start < at < region.end:
        return ""
    line = text[region.start : region.end].partition("\n")[0].strip()
    if len(line) > most:  # before its cells are looked for: a wide table has thousands
        return ""
    cells = region.rows[0]
    is_row = len(line) <= sum(map(len, cells)) + _AROUND_CELL * len(cells) and all(cell in line for cell in cells)
    return line if is_row and region.start + len(line) < at else ""


LONGEST = 16
"""Characters of a token at most."""
READ_AT_ONCE = 100_000
"""Characters whose tokens are in memory at one time."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_BLANK = re.compile(r"\s(?=\S*\Z)")


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
        """The tokens; tokens inside one character together, long ones in parts."""
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
            yield from (word.span() for word in _TOKEN.finditer(text))
            return
        for start, end in _batches(text):
            for token in self.tokenizer.pieces(text[start:end]):
                yield start + token.start, start + token.end


def _batches(text: str) -> Iterator[tuple[int, int]]:
    """The text in stretches that end after a blank, where there is one."""
    start = 0
    while start < len(text):
        end = min(len(text), start + READ_AT_ONCE)
        if end < len(text):
            blank = _BLANK.search(text, end - 1000, end)
            end = blank.end() if blank else cut_before(text, start, end)
        yield start, end
        start = end
