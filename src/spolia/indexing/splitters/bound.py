"""How long a stretch of text may be: in tokens, where they can be counted, and always in characters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Count = Callable[[str], int]


@dataclass(frozen=True)
class Bound:
    """How long a stretch of text may be.

    Args:
        tokens: at most; looked at only where they can be counted.
        characters: at most.
        count: counts the tokens of a text; None where only characters are counted.
    """

    tokens: int
    characters: int
    count: Count | None = None

    def counted(self, text: str) -> int:
        """Tokens of a text; 0 where they are not counted."""
        return 0 if self.count is None else self.count(text)

    def holds(self, text: str) -> bool:
        """Whether a text is not too long. No tokenizer makes more tokens than a text has bytes."""
        if len(text) > self.characters:
            return False
        return self.count is None or len(text.encode("utf-8", "replace")) < self.tokens or self._counts(text)

    def _counts(self, text: str) -> bool:
        return self.counted(text) <= self.tokens

    def measured(self, text: str, start: int, end: int) -> int | None:
        """Tokens of `text[start:end]`; None where it is too long, which takes no time for what is much too long."""
        if end - start > self.characters:
            return None
        tokens = self.counted(text[start:end]) if self.count is not None else 0
        return tokens if tokens <= self.tokens else None


NOTHING = Bound(0, 0)
"""Holds nothing: the overlap of windows that share nothing."""
