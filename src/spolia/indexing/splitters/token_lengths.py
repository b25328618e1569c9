"""How long a text is: in tokens, or in characters where the tokenizer does not cover what it is written in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from spolia.stores.lexical.analysis import in_words

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
        ...

    def fingerprint(self) -> str:
        """Tells apart any two that count differently."""
        ...


@runtime_checkable
class Covering(TokenCounter, Protocol):
    """A counter that says how much of a text it knows; one that does not is believed in every script."""

    def covers(self, text: str, /) -> float:
        """Share of the characters that are in the vocabulary, from 0 to 1."""
        ...


@dataclass(frozen=True)
class Lengths:
    """Lengths of texts as a window counts them.

    A text that the tokenizer does not cover counts a token for every `chars_per_token` characters, so that a window of
    it is as long as one of English: by tokens, windows of Korean would be 110 characters long and of Chinese 200.

    Args:
        tokenizer: counts the tokens.
        chars_per_token: characters that count as a token in a text that is not covered.
        covered: share of a text's characters that the tokenizer must know; besides, it must know more than the letters
            (`SPELT`).
    """

    tokenizer: TokenCounter
    chars_per_token: int
    covered: float

    def of(self, text: str) -> int:
        """Length of a text in tokens."""
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
