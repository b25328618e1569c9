"""One piece a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.splitters.atoms import sentence_atoms
from spolia.indexing.splitters.places import places_in
from spolia.indexing.splitters.sized import Sized
from spolia.stores.definition import Part, Piece


@dataclass(frozen=True)
class Sentences(Sized):
    """One piece for each sentence (`spolia.sentences`), so that a hit is exact; a longer one is cut after words.

    Together they cover every character but blanks, and none goes across the beginning of a heading.

    >>> from spolia.types import Document, Node
    >>> text = "Rome was built of stone. Who carried it? 石头很重。"
    >>> part = Part(Node("d", text), Document("d", text))
    >>> [piece.text for piece in Sentences().pieces(part)]
    ['Rome was built of stone.', 'Who carried it?', '石头很重。']
    """

    size: int = 200

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        headings = places_in(part, [heading.start for heading in part.document.headings])
        for atom in sentence_atoms(text, headings, self.bound):
            yield Piece(text[atom.start : atom.end], atom.start)
