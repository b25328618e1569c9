"""Splitters for sections of Markdown and HTML."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from spolia.indexing.readers.html import HEADINGS, LINES, PARAGRAPHS, words_of
from spolia.indexing.readers.markup.markdown import headings_of
from spolia.indexing.splitters.sized_splitter import Sized
from spolia.indexing.splitters.text_units import by_paragraph
from spolia.indexing.splitters.windows import Layer, Unit, alone, at_places, by_line, by_sentence
from spolia.stores.definition import Part, Piece, places_in
from spolia.types import Heading

_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n?", re.MULTILINE)


def _sections_of(part: Part, level: int, seen: Iterable[Heading] = ()) -> tuple[Iterator[Unit], Layer]:
    """The sections of a part, each alone, down to a level, and the layer that cuts them at deeper headings."""
    noted, text = part.document.headings, part.node.text
    found = noted or list(seen)
    coarse, fine = ([one.start for one in found if (one.level > level) is deep] for deep in (False, True))
    if noted:
        coarse, fine = places_in(part, coarse), places_in(part, fine)
    return alone(at_places(coarse)(text, 0, len(text))), at_places(fine)


@dataclass(frozen=True)
class MarkdownSections(Sized):
    """One piece for each section, down to headings of a level; a longer one is cut by what is inside it.

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

    _least: ClassVar[Mapping[str, int]] = {"level": 1}

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        sections, deeper = _sections_of(part, self.level, headings_of(text))
        return self.cut(text, sections, deeper, by_block, within_block)


def by_block(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each paragraph and each fenced block of code, whose opening line is its label."""
    opened: re.Match[str] | None = None
    for mark in _FENCE.finditer(text, start, end):
        if opened is None:
            if mark["fence"][0] == "~" or "`" not in mark["info"]:
                yield from by_paragraph(text, start, mark.start())
                opened, start = mark, mark.start()
        elif mark["fence"].startswith(opened["fence"]) and not mark["info"].strip():
            yield Unit(start, mark.end(), opened[0])
            opened, start = None, mark.end()
    if opened is None:
        yield from by_paragraph(text, start, end)
    else:  # never closed
        yield Unit(start, end, opened[0])


def within_block(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each line of code and of tables, for each sentence of anything else."""
    by = by_line if text.startswith(("```", "~~~", "|"), start) else by_sentence
    return by(text, start, end)


_TAG = re.compile(r"<(?:(?P<comment>!--)|(?P<close>/?)(?P<name>[a-zA-Z][\w:-]{0,40})[^<>]*>|[!?][^<>]*>)")
_PAGE = re.compile(r"<(?:!doctype\s+html|html|body|h[1-6]|p|div|table|ul|ol|section|article|main)\b[^<>]*>", re.I)
_UNSEEN = {name: re.compile(rf"</{name}\b[^<>]*>", re.IGNORECASE) for name in ("script", "style")}


def is_page(text: str) -> bool:
    """Whether a text is HTML as it was written."""
    return _PAGE.search(text) is not None


TagIndex = tuple[list[int], list[int], list[int], list[tuple[int, int]]]
"""Where headings begin that begin a piece; where blocks begin or end; where any tag does; stretches without text."""


def tags_of(text: str, level: int, longest: int) -> TagIndex:
    """The tags of a page, in one pass. `longest`: characters of a stretch without text that may be in a piece."""
    found: TagIndex = [], [], [], []
    (headings, blocks, ends, unseen), at = found, 0
    while tag := _TAG.search(text, at):
        start, at = tag.start(), _end(text, tag)
        name = (tag["name"] or "").lower()
        if at - start > longest:
            unseen.append((start, at))
        elif HEADINGS.get(name, level + 1) <= level and not tag["close"]:
            headings.append(start)
        elif name in PARAGRAPHS or name in LINES:
            blocks.append(at if tag["close"] else start)
        if not ends or ends[-1] != start:
            ends.append(start)
        ends.append(at)
    return found


def _end(text: str, tag: re.Match[str]) -> int:
    """Where a tag ends, together with what it hides; what is never closed goes to the end of the page."""
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
class HTMLSections(Sized):
    """One piece for each section of a page, down to headings of a level; a longer one is cut between its blocks.

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

    _least: ClassVar[Mapping[str, int]] = {"level": 1}

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        if not part.document.headings and is_page(text):
            return self._raw(text)
        sections, deeper = _sections_of(part, self.level)
        return self.cut(text, sections, deeper, by_paragraph, by_sentence)

    def _raw(self, text: str) -> Iterator[Piece]:
        headings, blocks, ends, unseen = tags_of(text, self.level, self.bound.characters // UNSEEN)
        by_section = at_places(headings)
        seen = zip((0, *(end for _, end in unseen)), (*(start for start, _ in unseen), len(text)), strict=True)
        sections = alone(section for start, end in seen for section in by_section(text, start, end))
        for piece in self.cut(text, sections, at_places(blocks), at_places(ends), by_sentence):
            if words := words_of(piece.text):
                yield piece.but(search_text=words)
