"""Records of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from spolia.indexing.splitters.json_text import members, parsed, spelt, values
from spolia.indexing.splitters.layers import Unit
from spolia.indexing.splitters.sized import Sized
from spolia.stores.definition import Part, Piece
from spolia.stores.groups.outline import BETWEEN

DEEPEST = 8
"""Levels of nesting that are looked into; what is too long below them is cut after words."""


@dataclass(frozen=True)
class JSONRows(Sized):
    """One piece for each record: the elements of an array, the lines of JSON Lines, or one object.

    A record that is too long is cut between its members, of which neighbours share a piece, and those between theirs;
    the keys above them are the context. The text is what the file has, without the commas and brackets between pieces.
    What is indexed is a line `path: value` for every scalar, so that neither brackets nor key order of other records
    matter. Broken JSON is cut all the same, by the brackets that it has, and indexed as it is.

    Args:
        size: tokens of a piece at most.

    >>> from spolia.types import Document, Node
    >>> text = '[{"name": "basalt", "of": {"age": 3}}, {"name": "marble"}]'
    >>> pieces = list(JSONRows().pieces(Part(Node("d", text), Document("d", text))))
    >>> [piece.text for piece in pieces]
    ['{"name": "basalt", "of": {"age": 3}}', '{"name": "marble"}']
    >>> print(pieces[0].search_text)
    name: basalt
    of.age: 3
    """

    size: int = 400

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        for piece in self.cut(text, _records(text), *[members] * DEEPEST):
            said = spelt(parsed(piece.text), ".".join(piece.context.split(BETWEEN)))
            fits = said and len(said) <= 2 * self.bound.characters
            yield piece.but(search_text=said) if fits else piece


def _records(text: str) -> Iterator[Unit]:
    found = values(text)
    first = list(islice(found, 2))
    if len(first) == 1 and text[first[0].start] == "[":
        return members(text, first[0].start, first[0].end)
    return chain(first, found)
