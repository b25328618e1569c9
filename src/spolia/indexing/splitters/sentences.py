"""One piece a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from spolia.indexing.splitters.size_limits import places_in
from spolia.indexing.splitters.sized_splitter import Sized
from spolia.indexing.splitters.windows import Atom, sentence_atoms
from spolia.stores.definition import Part, Piece

_NOTHING = re.compile(r"[\W_]*+(?:(?<=```)[\w+#.-]+)?")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class Sentences(Sized):
    """One piece for each sentence (`spolia.core.sentences`), so that a hit is exact; a longer one is cut after words.

    Together they cover every character but blanks, and none goes across the beginning of a heading. What has no letter
    and no digit, as a rule between two parts, and a fence around code, says nothing alone: it stands with the sentence
    before it, or where a paragraph or a section begins with it, with the next one, as far as the size allows it.

    >>> from spolia.types import Document, Node
    >>> text = "Rome was built of stone. Who carried it? 石头很重。"
    >>> part = Part(Node("d", text), Document("d", text))
    >>> [piece.text for piece in Sentences().pieces(part)]
    ['Rome was built of stone.', 'Who carried it?', '石头很重。']
    """

    size: int = 200

    version: ClassVar[int] = 2

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        headings = places_in(part, [heading.start for heading in part.document.headings])
        before: Atom | None = None
        for atom in sentence_atoms(text, headings, self.bound):
            if before is not None and self._belong_together(text, before, atom):
                before = before._replace(end=atom.end)
                continue
            if before is not None:
                yield Piece(text[before.start : before.end], before.start)
            before = atom
        if before is not None:
            yield Piece(text[before.start : before.end], before.start)

    def _belong_together(self, text: str, before: Atom, atom: Atom) -> bool:
        joined = text[before.start : atom.end]
        if before.section != atom.section or len(joined) > self.bound.characters or not self.bound.holds(joined):
            return False
        is_near = _BLANK_LINE.search(text, before.end, atom.start) is None
        return _says_nothing(text, before) or (is_near and _says_nothing(text, atom))


def _says_nothing(text: str, atom: Atom) -> bool:
    return _NOTHING.fullmatch(text, atom.start, atom.end) is not None
