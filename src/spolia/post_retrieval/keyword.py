"""Keeping what holds all of some words, and none of others."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.stores.lexical.phrases import holds, words
from spolia.types import Node, Ranking


@dataclass(frozen=True)
class KeywordFilter(Operator[Ranking, Ranking]):
    """The hits whose text, or title and headings above it, hold every required keyword and no excluded one.

    A keyword is a word, or several in a row. Whole words are compared, in any case and with accents or without, but not
    stemmed: `art` is neither in `artist` nor in `arts`. Order and scores stay; nothing may be left.

    Args:
        required: all of them have to be there.
        excluded: none of them may be.

    Raises:
        WiringError: for a keyword without a letter or digit, which no text can hold.

    Source: `KeywordFilter` of LazyLLM.

    >>> from spolia.types import Hit, Query
    >>> texts = ("apple pie", "banana split", "apple and banana")
    >>> found = Ranking(Query("dessert"), tuple(Hit(Node(text, text), 1.0) for text in texts))
    >>> [hit.node.text for hit in KeywordFilter(("apple", "banana"))(found)]
    ['apple and banana']
    >>> [hit.node.text for hit in KeywordFilter(excluded=("Apple",))(found)]
    ['banana split']
    """

    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for keyword in (*self.required, *self.excluded):
            if not words(keyword):
                raise WiringError(f"The keyword {keyword!r} has neither letters nor digits. Write a word, or several.")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(hit for hit in value.hits if self._keeps(hit.node)))

    def _keeps(self, node: Node) -> bool:
        text = node.shown_text
        return all(holds(text, word) for word in self.required) and not any(holds(text, w) for w in self.excluded)
