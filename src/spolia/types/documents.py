"""Documents and their nodes, places in them, and who may read them."""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spolia.errors import StoreError
from spolia.types.value import Meta, Value, added_field


@dataclass(frozen=True)
class Span(Value):
    """Stretch of a document.

    Args:
        start: first character, an offset into the document's text, from 0.
        end: one past the last character.
        pages: first and last page, from 1; None where the format has no pages.
        lines: first and last line of the document's text, from 1; None where unknown.
        seconds: of a recording, when the speech begins and ends; None for others.
        page_starts: where each of its pages but the first begins, as offsets into the document's text.
    """

    start: int
    end: int
    pages: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None
    seconds: tuple[float, float] | None = added_field(None)
    page_starts: tuple[int, ...] = added_field(())

    def part(self, start: int, end: int, lines: tuple[int, int] | None = None) -> "Span":
        """Return a stretch within this one, on its own pages.

        >>> Span(0, 90, pages=(2, 4), page_starts=(30, 60)).part(61, 70).place
        'page 4'
        """
        pages, starts = self.pages, self.page_starts
        if pages and starts:
            # The last character counts: a part that ends where a page begins is not on that page.
            first, last = bisect_right(starts, start), bisect_right(starts, max(start, end - 1))
            pages, starts = (pages[0] + first, pages[0] + last), starts[first:last]
        return Span(start, end, pages, lines, self.seconds, starts)

    @property
    def place(self) -> str:
        """Return time, page or lines, for people; empty if none is known.

        >>> Span(0, 3, pages=(2, 3)).place, Span(0, 3, lines=(1, 1), seconds=(65.0, 72.5)).place
        ('pages 2-3', '0:01:05–0:01:12')
        """
        if self.seconds:
            first, last = map(format_clock, self.seconds)
            return first if first == last else f"{first}–{last}"
        name, ends = ("page", self.pages) if self.pages else ("line", self.lines)
        if ends is None:
            return ""
        return f"{name} {ends[0]}" if ends[0] == ends[1] else f"{name}s {ends[0]}-{ends[1]}"

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: getattr(self, name) for name in ("start", "end", "pages", "lines", "seconds")}


SENT_PREFIX = "doc://"
"""Prefix of the uris of documents that users send to a service; their names follow."""


def place_of(uri: str, span: Span | None) -> str:
    """Return a file or document with a place in it, for people.

    >>> place_of("a.pdf", None), place_of("doc://notes/a.pdf", Span(0, 3, pages=(2, 2)))
    ('a.pdf', 'notes/a.pdf, page 2')
    """
    source, place = uri.removeprefix(SENT_PREFIX), span.place if span else ""
    return f"{source}, {place}" if place else source


def format_clock(seconds: float) -> str:
    """Write seconds as hours, minutes and whole seconds.

    >>> format_clock(3725.9)
    '1:02:05'
    """
    total = max(0, int(seconds))
    return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02}"


@dataclass(frozen=True)
class Box(Value):
    """Rectangle on a page, in points (1/72 inch) from the upper left corner of the page as it is shown.

    Args:
        page: from 1.
        left, top, right, bottom: its sides; `left <= right`, `top <= bottom`.
    """

    page: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Boxes(Value):
    """Places of a document's lines on its pages, packed, since a long document has a hundred thousand of them.

    A node has no boxes of its own: those of its span are looked up here, so that they survive whatever a splitter or a
    merger does.

    Args:
        packed: for each line, in the order of the text, 28 bytes: start, end and page, then the four sides.

    >>> boxes = Boxes.from_lines([(0, 9, Box(1, 72.0, 72.0, 300.0, 84.0)), (10, 19, Box(1, 72.0, 86.0, 300.0, 98.0))])
    >>> [box.top for box in boxes.find_overlapping(4, 12)], len(boxes)
    ([72.0, 86.0], 2)
    """

    packed: bytes = b""

    @classmethod
    def from_lines(cls, lines: Iterable[tuple[int, int, Box]]) -> "Boxes":
        """Pack the boxes of lines, each with its start and end in the document's text, in this order."""
        return cls(b"".join(
            _BOX.pack(start, end, box.page, box.left, box.top, box.right, box.bottom) for start, end, box in lines
        ))  # fmt: skip

    def __len__(self) -> int:
        return len(self.packed) // _BOX.size

    def __iter__(self) -> Iterator[tuple[int, int, Box]]:
        for start, end, page, *sides in _BOX.iter_unpack(self.packed):
            yield start, end, Box(page, *sides)

    def find_overlapping(self, start: int, end: int) -> tuple[Box, ...]:
        """Return the boxes of lines that overlap a stretch of the text."""
        # Bisected over the packed bytes: to unpack a hundred thousand lines for one quote would take longer than the
        # quote.
        first = bisect_right(range(len(self)), start, key=lambda at: self._read_line(at)[1])
        boxes = []
        for index in range(first, len(self)):
            begin, _, page, *sides = self._read_line(index)
            if begin >= end:
                break
            boxes.append(Box(page, *sides))
        return tuple(boxes)

    def _read_line(self, index: int) -> tuple[Any, ...]:
        return _BOX.unpack_from(self.packed, index * _BOX.size)


_BOX = struct.Struct("<3i4f")
NO_BOXES = Boxes()


@dataclass(frozen=True)
class Heading(Value):
    """Heading of a document: where its line starts, its level from 1, its text."""

    start: int
    level: int
    text: str


@dataclass(frozen=True)
class Region(Value):
    """Stretch of a document that is not running text: it can be a node of its own, and no splitter should cut it.

    Args:
        kind: `table`, `image`, `code`, `formula`, or `segment`: speech at a time of a recording.
        start: its first character in the document's text.
        end: one past its last one. The text between is what is indexed of it: the rows of a table, a picture's caption.
        rows: the cells of a table, row by row, the head first; empty for others.
        image: content hash of the picture; empty for others.
        caption: what the document says of it, where it does.
        box: where it stands; None where the format has no pages.
        seconds: of a segment, its begin and end in the recording.
    """

    kind: str
    start: int
    end: int
    rows: tuple[tuple[str, ...], ...] = ()
    image: str = ""
    caption: str = ""
    box: Box | None = None
    seconds: tuple[float, float] | None = added_field(None)


@dataclass(frozen=True)
class Document(Value):
    """Text that a reader got out of a source.

    Args:
        id: unique within a corpus; by default a hash of the source's bytes.
        text: all of it; every span counts characters in it.
        uri: where it came from: a path relative to the indexed folder, or the caller's own name.
        title: from the content, never from the file name; empty without one.
        media_type: for example `text/markdown`.
        pages: where each page starts in `text`; empty where the format has no pages.
        headings: in the order of the text.
        meta: fields of the caller, the reader and the file, in this precedence.
        readers: principals who may see it; empty means everybody.
        regions: tables, pictures, code, in the order of the text.
        boxes: of its lines on the pages.
    """

    id: str
    text: str
    uri: str = ""
    title: str = ""
    media_type: str = "text/plain"
    pages: tuple[int, ...] = ()
    headings: tuple[Heading, ...] = ()
    meta: Meta = ()
    readers: tuple[str, ...] = ()
    regions: tuple[Region, ...] = ()
    boxes: Boxes = NO_BOXES


@dataclass(frozen=True)
class Node(Value):
    """Piece of a document in one node group.

    Args:
        id: unique within a corpus.
        text: shown to readers, exactly `document.text[span.start:span.end]` for a chunk.
        document: the document's id.
        group: the node group's name.
        span: its place in the document.
        context: what is put before the text when it is indexed or embedded (title and headings), never shown as quote.
        uri: where the document came from.
        parent: id of the node that it was cut from; for those cut from the whole document the document's id.
        meta: inherited from the document and its own.
        readers: principals who may see it; empty means everybody.
        number: position among the document's nodes of the group, from 1; 0 where unknown.
        search_text: is indexed and embedded in place of context and text; empty for these.
    """

    id: str
    text: str
    document: str = ""
    group: str = "chunk"
    span: Span | None = None
    context: str = ""
    uri: str = ""
    parent: str = ""
    meta: Meta = ()
    readers: tuple[str, ...] = ()
    number: int = 0
    search_text: str = ""

    @property
    def place(self) -> str:
        """Return file and time, page or lines, for people.

        >>> Node("n", "…", "d", span=Span(0, 1, pages=(2, 3)), uri="a.pdf").place
        'a.pdf, pages 2-3'
        """
        return place_of(self.uri or self.document, self.span)

    @property
    def shown_text(self) -> str:
        """Return the text that a reader is shown: the context, then the text."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    @property
    def indexed_text(self) -> str:
        """Return the text that is indexed and embedded: the shown text, unless `search_text` replaces it."""
        return self.search_text or self.shown_text

    def span_of(self, start: int, end: int) -> Span | None:
        """Return the span of a part of the text in the document; the whole span if the text is not the document's."""
        span, lines = self.span, None
        if span is None or span.end - span.start != len(self.text):
            return span
        if span.lines is not None:
            first = span.lines[0] + self.text.count("\n", 0, start)
            lines = (first, first + self.text.count("\n", start, end))
        return span.part(span.start + start, span.start + end, lines)


def check_principals(names: object, who_says: str) -> tuple[str, ...]:
    """Return a list of principals as it was given.

    A text is none: its letters would be taken for principals, and an empty one would be for everybody.

    Args:
        names: the list; empty for everybody.
        who_says: begins the message.

    Raises:
        StoreError: it is not a list of texts that are not empty.

    >>> check_principals(["ann", "staff"], "You gave")
    ('ann', 'staff')
    >>> check_principals("ann", "You gave")
    Traceback (most recent call last):
    spolia.errors.StoreError: You gave 'ann'. Give a list of principals, each a text that is not empty: ['ann'].
    """
    principals = tuple(names) if isinstance(names, Iterable) and not isinstance(names, (str, bytes)) else None
    if principals is None or not all(isinstance(name, str) and name for name in principals):
        raise StoreError(
            f"{who_says} {names!r:.80}. Give a list of principals, each a text that is not empty: ['ann']."
        )
    for name in principals:
        if not is_unicode(name):
            raise StoreError(
                f"{who_says} the principal {name!r}, which no encoding of Unicode has. Give it as it is written "
                "elsewhere."
            )
    return principals


def is_unicode(text: str) -> bool:
    """Return whether a text can be written down.

    >>> is_unicode("é"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
