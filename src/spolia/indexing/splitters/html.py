"""Sections of a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spolia.indexing.readers.html import words_of
from spolia.indexing.splitters.html_tags import is_page, tags_of
from spolia.indexing.splitters.layers import at_places, by_sentence
from spolia.indexing.splitters.paragraphs import by_paragraph
from spolia.indexing.splitters.sections import sections_of
from spolia.indexing.splitters.sized import Sized, at_least
from spolia.stores.definition import Part, Piece

UNSEEN = 2
"""Scripts, styles, comments and tags longer than this part of a piece, in characters, are in none."""


@dataclass(frozen=True)
class HTMLSections(Sized):
    """One piece for each section of a page, down to headings of a level; a longer one is cut between its blocks.

    Of a page that was read by `HtmlReader` it cuts the text, at the headings that the reader noted, and covers all of
    it. A page that was kept as it was written is cut between tags: a piece is then HTML, found in the file where it
    says, and what is indexed of it are its words. Scripts, styles and pieces without words are left out.

    Args:
        level: the deepest heading that begins a piece of its own, 1 to 6.
        size: tokens of a piece at most; of raw HTML, the tags are counted too.

    Raises:
        WiringError: for a level below 1, or sizes that make no sense.

    >>> from spolia.types import Document, Node
    >>> text = "<body><h1>Rome</h1><p>Built of <b>stone</b>.<script>x()</script><h2>Roads</h2><p>Long.</body>"
    >>> for piece in HTMLSections().pieces(Part(Node("d", text), Document("d", text))):
    ...     print(repr(piece.text), repr(piece.search_text))
    '<h1>Rome</h1><p>Built of <b>stone</b>.<script>x()</script>' 'Rome\\n\\nBuilt of stone.'
    '<h2>Roads</h2><p>Long.</body>' 'Roads\\n\\nLong.'
    """

    level: int = 6
    size: int = field(default=400, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, level=1)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        if not part.document.headings and is_page(text):
            return self._raw(text)
        sections = sections_of(part, part.document.headings, self.level)
        return self.cut(text, sections.units(text), sections.layer, by_paragraph, by_sentence)

    def _raw(self, text: str) -> Iterator[Piece]:
        tags = tags_of(text, self.level, self.bound.characters // UNSEEN)
        by_section = at_places(tags.headings)
        sections = (
            section._replace(alone=True)
            for stretch in tags.seen(len(text))
            for section in by_section(text, stretch.start, stretch.end)
        )
        for piece in self.cut(text, sections, at_places(tags.blocks), at_places(tags.ends), by_sentence):
            if words := words_of(piece.text):
                yield piece.but(search_text=words)
