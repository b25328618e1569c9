"""What splitters share that keep to a size, which is nearly all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spolia.errors import WiringError
from spolia.indexing.splitters.layers import Layer, Layered, Unit
from spolia.indexing.splitters.size_limits import NOTHING, SizeBound
from spolia.indexing.splitters.token_lengths import Lengths, TokenCounter
from spolia.indexing.splitters.windows import Windows
from spolia.stores.definition import Piece, Splitter
from spolia.types import kept


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
            (`spolia.indexing.splitters.token_lengths`).

    Raises:
        WiringError: for sizes that make no sense.
    """

    size: int = field(default=200, kw_only=True)
    chars_per_token: int = field(default=4, kw_only=True)
    tokenizer: TokenCounter | None = field(default=None, kw_only=True)
    covered: float = field(default=0.95, kw_only=True)

    def __post_init__(self) -> None:
        at_least(self, size=1, chars_per_token=1)
        if not 0 <= self.covered <= 1:
            raise WiringError(f"{type(self).__name__} got covered={self.covered}. Write a share from 0 to 1.")

    def cut(self, text: str, units: Iterable[Unit], *layers: Layer, overlap: SizeBound = NOTHING) -> Iterator[Piece]:
        """The text as pieces that are not too long: units that fit, and what the layers cut the others into."""
        atoms = Layered(text, layers, self.bound).atoms(units)
        for start, end, section in Windows(text, self.bound, overlap).over(atoms):
            yield Piece(text[start:end], start, str(section))

    @kept
    def bound(self) -> SizeBound:
        """Of a piece."""
        lengths = Lengths(self.tokenizer, self.chars_per_token, self.covered) if self.tokenizer else None
        return SizeBound(self.size, self.size * self.chars_per_token, lengths.of if lengths else None)

    @property
    def context_characters(self) -> int:
        """As many as the piece has tokens, so that the context is a quarter of it at most."""
        return self.bound.characters // 4

    def shared(self, overlap: int) -> SizeBound:
        """Of what two neighbours share."""
        return SizeBound(overlap, overlap * self.chars_per_token)


def at_least(splitter: Splitter, **least: int) -> None:
    """Refuse fields that are smaller than that."""
    for name, bound in least.items():
        if getattr(splitter, name) < bound:
            given = f"{name}={getattr(splitter, name)}"
            raise WiringError(f"{type(splitter).__name__} got {given}. Write a number of at least {bound}.")


def moving_on(splitter: Splitter, size: int, overlap: int) -> None:
    """Refuse an overlap that leaves no room for anything new."""
    at_least(splitter, overlap=0)
    if overlap >= size:
        raise WiringError(
            f"{type(splitter).__name__} got overlap={overlap} with size={size}: windows would never move on. "
            f"Write an overlap below the size, for example overlap={size // 10}."
        )
