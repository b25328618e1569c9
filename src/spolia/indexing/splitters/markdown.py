"""Sections of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.readers.markup.markdown import headings_of
from spolia.indexing.splitters.layers import SectionLayer, Unit, by_line, by_sentence, sections_of
from spolia.indexing.splitters.paragraphs import by_paragraph
from spolia.indexing.splitters.sized_splitter import Sized, at_least
from spolia.stores.definition import Part, Piece

_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n?", re.MULTILINE)


@dataclass(frozen=True)
class MarkdownSections(Sized):
    """One piece for each section, down to headings of a level; a longer one is cut by what is inside it.

    First at the deeper headings, then between paragraphs, lists, tables and blocks of code, of which neighbours share a
    piece. A block of code is not cut unless it alone is too long, and then between lines, with its opening line as
    context. The headings above a piece stand in its context already, since the document knows them; in a document that
    has none noted, they are looked for in the text. Together the pieces cover every character but blanks.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, level=1)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        sections = sections_of(part, part.document.headings, self.level)
        if not part.document.headings:
            found = list(headings_of(text))
            sections = SectionLayer(
                *([h.start for h in found if (h.level > self.level) is deep] for deep in (False, True))
            )
        return self.cut(text, sections.units(text), sections.layer, by_block, within_block)


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
