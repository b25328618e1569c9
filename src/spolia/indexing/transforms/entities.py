"""Entities: what a text speaks of, in a form in which two texts that speak of the same are linked."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spolia.stores.definition import Piece


@dataclass(frozen=True)
class Mention:
    """A stretch of a text that names something: where it begins, how it is written, of which kind it is."""

    start: int
    text: str
    kind: str


def normal(name: str) -> str:
    """The form in which equal names are equal: NFKC, without case, blanks collapsed.

    >>> normal("Ｎew \\u00a0 YORK"), normal("Straße")
    ('new york', 'strasse')
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def entities(mentions: Iterable[Mention]) -> Iterator[Piece]:
    """One piece for each distinct name, as it is first written; name and kind are its metadata.

    >>> [(piece.text, piece.start) for piece in entities([Mention(9, "PARIS", "name"), Mention(0, "Paris", "name")])]
    [('Paris', 0)]
    """
    seen: set[str] = set()
    for mention in sorted(mentions, key=lambda mention: mention.start):
        name = normal(mention.text)
        if name and name not in seen:
            seen.add(name)
            yield Piece(mention.text, mention.start, meta=(("entity", name), ("type", mention.kind)))
