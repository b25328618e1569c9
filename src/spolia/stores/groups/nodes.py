"""Making nodes of the pieces that transforms give: ids, places in the document, contexts, lineage."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import count

from spolia.errors import GroupError
from spolia.stores.definition import CONTEXT_CHARACTERS, Part, Piece, Splitter, Transform, transform_for, whole
from spolia.types import Document, Heading, Meta, Node, Span

_HALF = re.compile("[\ud800-\udfff]")


class NodeFactory:
    """Makes the nodes of one document in one group.

    >>> document = Document("d", "Rome was not built in a day.", title="Stones")
    >>> from spolia.stores.definition import Whole, whole
    >>> (node,) = NodeFactory(document, "word", Whole()).nodes(Part(whole(document), document), [Piece("Rome", 0)])
    >>> node.id, node.parent, node.number, node.indexed_text, node.span
    ('d:word:1', 'd', 1, 'Stones\\nRome', Span(start=0, end=4, pages=None, lines=(1, 1)))
    """

    def __init__(self, document: Document, group: str, transform: Transform) -> None:
        self.document, self.group = document, group
        self._numbers = count(1)
        self._places = _Places(document)
        longest = transform.context_characters if isinstance(transform, Splitter) else CONTEXT_CHARACTERS
        self._above = _Above(document, longest)

    def nodes(self, part: Part, pieces: Iterable[Piece]) -> Iterator[Node]:
        """The nodes of a part's pieces, one at a time."""
        offset = part.offset
        own = tuple(pair for pair in part.node.meta if pair not in self.document.meta)
        for piece in pieces:
            number = next(self._numbers)
            self._refuse_unwritable(part, piece)
            span = self._span(part, piece, offset)
            above = self._above.at(span.start if span else offset or 0)
            yield Node(
                id=f"{self.document.id}:{self.group}:{number}",
                text=piece.text,
                document=self.document.id,
                group=self.group,
                span=span,
                context="\n".join(filter(None, (above, piece.context))),
                uri=self.document.uri,
                parent=part.node.id,
                meta=_joined(self.document.meta, own, piece.meta),
                readers=part.node.readers,
                number=number,
                search_text=piece.search_text,
            )

    def _refuse_unwritable(self, part: Part, piece: Piece) -> None:
        said = (piece.text, piece.context, piece.search_text, *(str(item) for pair in piece.meta for item in pair))
        for text in said:
            if not text.isascii() and (found := _HALF.search(text)):
                raise GroupError(
                    f"A transform of group {self.group!r} gave {found.group()!r} for {part.node.id!r}, which no "
                    "encoding of Unicode has. Have it give text.encode('utf-8', 'replace').decode()."
                )

    def _span(self, part: Part, piece: Piece, offset: int | None) -> Span | None:
        """Where a piece stands in the document; for one that was written, where the part stands."""
        if offset is None:
            return None
        if piece.start is None:
            return part.node.span if part.node.id != self.document.id else None
        end = piece.start + len(piece.text)
        if not part.node.text.startswith(piece.text, piece.start):
            raise GroupError(
                f"A transform of group {self.group!r} says that {piece.text[:40]!r} stands at {piece.start} of "
                f"{part.node.id!r}, where there is {part.node.text[piece.start : end][:40]!r}. "
                "Give the piece its true start, or None."
            )
        return self._places.span(offset + piece.start, offset + end)


def cut(document: Document, transform: Transform, group: str = "chunk") -> Iterator[Node]:
    """The nodes that a transform makes of a whole document.

    >>> from spolia.stores.definition import Whole
    >>> [node.text for node in cut(Document("d", "Stones."), Whole())]
    ['Stones.']
    """
    part, transform = Part(whole(document), document), transform_for(transform, document)
    pieces = transform.pieces(part) if isinstance(transform, Splitter) else transform(part)
    return NodeFactory(document, group, transform).nodes(part, pieces)


def _joined(inherited: Meta, own: Meta, fresh: Meta) -> Meta:
    return inherited + own + fresh if own or fresh else inherited


class _Above:
    """Title and headings above places in any order; fast for those that come in the order of the text."""

    def __init__(self, document: Document, longest: int) -> None:
        self._document, self._longest, self._at = document, longest, 0
        self._outline = Outline(document, longest)

    def at(self, start: int) -> str:
        if start < self._at:
            self._outline = Outline(self._document, self._longest)
        self._at = start
        return self._outline.above(start)


class _Places:
    """Pages and lines of stretches of a document, from 1."""

    def __init__(self, document: Document) -> None:
        self._text, self._pages = document.text, document.pages
        self._ends: list[int] | None = None

    def span(self, start: int, end: int) -> Span:
        if self._pages:
            pages = max(1, bisect_right(self._pages, start)), max(1, bisect_right(self._pages, end - 1))
            return Span(start, end, pages)
        if self._ends is None:
            mark = "\n" if "\n" in self._text or "\r" not in self._text else "\r"
            self._ends = [found.end() for found in re.finditer(mark, self._text)]
        return Span(start, end, None, (bisect_right(self._ends, start) + 1, bisect_right(self._ends, end - 1) + 1))


BETWEEN = " > "


class Outline:
    """Tells the title and the headings above places that come in order.

    >>> headings = (Heading(0, 1, "Rome"), Heading(9, 2, "Arches"), Heading(40, 2, "Roads"))
    >>> outline = Outline(Document("d", "", title="Stones", headings=headings), 100)
    >>> outline.above(0), outline.above(9), outline.above(20), outline.above(41)
    ('Stones', 'Stones > Rome', 'Stones > Rome > Arches', 'Stones > Rome > Roads')
    """

    def __init__(self, document: Document, longest: int) -> None:
        self._title, self._headings, self._longest = document.title, document.headings, longest
        self._next = 0
        self._path: list[Heading] = []

    def above(self, start: int) -> str:
        """Title and headings; a heading that stands at `start` itself belongs to the text, not to what is above it."""
        if not self._headings:
            return self._title[: self._longest]
        while self._next < len(self._headings) and self._headings[self._next].start < start:
            heading = self._headings[self._next]
            self._close(heading.level)
            self._path.append(heading)
            self._next += 1
        if self._next < len(self._headings) and self._headings[self._next].start == start:
            self._close(self._headings[self._next].level)
        return self._joined()

    def _close(self, level: int) -> None:
        while self._path and self._path[-1].level >= level:
            self._path.pop()

    def _joined(self) -> str:
        parts = [self._title] if self._title else []
        parts += [heading.text for heading in self._path if heading.text != self._title]
        joined = BETWEEN.join(parts)
        if len(joined) <= self._longest:
            return joined
        each = max(1, self._longest // len(parts) - len(BETWEEN))
        return BETWEEN.join(part[:each].rstrip() for part in parts)[: self._longest]
