"""Splitters for sections of Markdown and HTML."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from spolia.indexing.readers.html import HEADINGS, LINES, PARAGRAPHS, words_of
from spolia.indexing.readers.markup.markdown import headings_of
from spolia.indexing.splitters.sized_splitter import SizedSplitter
from spolia.indexing.splitters.text_units import by_paragraph
from spolia.indexing.splitters.windows import Layer, Unit, by_line, by_sentence, isolate, layer_at
from spolia.stores.definition import Part, Piece, places_in
from spolia.types import Heading

_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n?", re.MULTILINE)


def _section_units(part: Part, level: int, fallback: Iterable[Heading] = ()) -> tuple[Iterator[Unit], Layer]:
    """Return the sections of a part down to a level, each alone, and the layer that cuts them at deeper headings."""
    noted, text = part.document.headings, part.node.text
    headings = noted or list(fallback)
    coarse, fine = (
        [heading.start for heading in headings if (heading.level > level) is deep] for deep in (False, True)
    )
    if noted:
        coarse, fine = places_in(part, coarse), places_in(part, fine)
    return isolate(layer_at(coarse)(text, 0, len(text))), layer_at(fine)


@dataclass(frozen=True)
class MarkdownSections(SizedSplitter):
    """Splitter into sections, down to headings of a level; a longer section is cut by its inner structure.

    First at the deeper headings, then between paragraphs, lists, tables and blocks of code, of which neighbours share a
    piece. A block of code is not cut unless it alone is too long, and then between lines, with its opening line as
    context. A piece's context already has the headings above it, which the document notes; if it notes none, Spolia
    finds them in the text. Together the pieces cover every character but blanks.

    Args:
        level: the deepest heading that begins a piece of its own, from 1.
        size: tokens of a piece at most.

    Raises:
        WiringError: for a level below 1, or sizes that make no sense.

    >>> from spolia.types import Document, Node
    >>> text = "# Rome\\n\\nStone.\\n\\n## Roads\\n\\nLong.\\n\\n```\\n# no heading\\n```\\n"
    >>> [piece.text for piece in MarkdownSections(level=1).pieces(Part(Node("d", text), Document("d", text)))]
    ['# Rome\\n\\nStone.\\n\\n## Roads\\n\\nLong.\\n\\n```\\n# no heading\\n```']
    >>> [piece.text[:8] for piece in MarkdownSections().pieces(Part(Node("d", text), Document("d", text)))]
    ['# Rome\\n\\n', '## Roads']
    """

    level: int = 3

    _minimums: ClassVar[Mapping[str, int]] = {"level": 1}

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        sections, deeper = _section_units(part, self.level, headings_of(text))
        return self.cut(text, sections, deeper, by_block, within_block)


def by_block(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yield a unit for each paragraph and each fenced block of code, labelled with its opening line."""
    fence: re.Match[str] | None = None
    for mark in _FENCE.finditer(text, start, end):
        if fence is None:
            if mark["fence"][0] == "~" or "`" not in mark["info"]:
                yield from by_paragraph(text, start, mark.start())
                fence, start = mark, mark.start()
        elif mark["fence"].startswith(fence["fence"]) and not mark["info"].strip():
            yield Unit(start, mark.end(), fence[0])
            fence, start = None, mark.end()
    if fence is None:
        yield from by_paragraph(text, start, end)
    else:  # never closed
        yield Unit(start, end, fence[0])


def within_block(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yield a unit for each line of code or of a table, and for each sentence of other text."""
    layer = by_line if text.startswith(("```", "~~~", "|"), start) else by_sentence
    return layer(text, start, end)


_TAG = re.compile(r"<(?:(?P<comment>!--)|(?P<close>/?)(?P<name>[a-zA-Z][\w:-]{0,40})[^<>]*>|[!?][^<>]*>)")
_PAGE = re.compile(r"<(?:!doctype\s+html|html|body|h[1-6]|p|div|table|ul|ol|section|article|main)\b[^<>]*>", re.I)
_UNSEEN = {name: re.compile(rf"</{name}\b[^<>]*>", re.IGNORECASE) for name in ("script", "style")}


def is_page(text: str) -> bool:
    """Return whether a text is HTML source."""
    return _PAGE.search(text) is not None


TagIndex = tuple[list[int], list[int], list[int], list[tuple[int, int]]]
"""Where headings begin that begin a piece; where blocks begin or end; where any tag does; stretches without text."""


def index_tags(text: str, level: int, longest: int) -> TagIndex:
    """Index the tags of a page in one pass. `longest`: characters of a stretch without text that may be in a piece."""
    index: TagIndex = [], [], [], []
    (headings, blocks, ends, unseen), position = index, 0
    while tag := _TAG.search(text, position):
        start, position = tag.start(), _tag_end(text, tag)
        name = (tag["name"] or "").lower()
        if position - start > longest:
            unseen.append((start, position))
        elif HEADINGS.get(name, level + 1) <= level and not tag["close"]:
            headings.append(start)
        elif name in PARAGRAPHS or name in LINES:
            blocks.append(position if tag["close"] else start)
        if not ends or ends[-1] != start:
            ends.append(start)
        ends.append(position)
    return index


def _tag_end(text: str, tag: re.Match[str]) -> int:
    """Return where a tag ends, with its hidden content; an unclosed comment or script lasts to the end of the page."""
    if tag["comment"]:
        end = text.find("-->", tag.end())
        return end + 3 if end >= 0 else len(text)
    closing = _UNSEEN.get((tag["name"] or "").lower()) if not tag["close"] else None
    if closing is None:
        return tag.end()
    end_tag = closing.search(text, tag.end())
    return end_tag.end() if end_tag else len(text)


UNSEEN = 2
"""Scripts, styles, comments and tags longer than this part of a piece, in characters, are in none."""


@dataclass(frozen=True)
class HTMLSections(SizedSplitter):
    """Splitter of a page into sections, down to headings of a level; a longer section is cut between its blocks.

    Of a page that was read by `HtmlReader` it cuts the text, at the headings that the reader noted, and covers all of
    it. A page that was kept as it was written is cut between tags: a piece is then HTML, with its exact place in the
    file, and only its words are indexed. Scripts, styles and pieces without words are left out.

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

    _minimums: ClassVar[Mapping[str, int]] = {"level": 1}

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        if not part.document.headings and is_page(text):
            return self._cut_source(text)
        sections, deeper = _section_units(part, self.level)
        return self.cut(text, sections, deeper, by_paragraph, by_sentence)

    def _cut_source(self, text: str) -> Iterator[Piece]:
        headings, blocks, ends, unseen = index_tags(text, self.level, self.bound.characters // UNSEEN)
        by_section = layer_at(headings)
        visible_spans = zip((0, *(end for _, end in unseen)), (*(start for start, _ in unseen), len(text)), strict=True)
        sections = isolate(section for start, end in visible_spans for section in by_section(text, start, end))
        for piece in self.cut(text, sections, layer_at(blocks), layer_at(ends), by_sentence):
            if words := words_of(piece.text):
                yield piece.but(search_text=words)
