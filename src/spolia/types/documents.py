"""What a reader got out of a source, and the nodes that it is cut into."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.types.places import NO_BOXES, Box, Boxes, Span
from spolia.types.value import Meta, Value


@dataclass(frozen=True)
class Heading(Value):
    """A heading of a document: where its line starts, its level from 1, its text."""

    start: int
    level: int
    text: str


@dataclass(frozen=True)
class Region(Value):
    """A stretch of a document that is not running text: it can be a node of its own, and no splitter should cut it.

    Args:
        kind: `table`, `image`, `code`, `formula`, or `segment`: what was said at a time of a recording.
        start: its first character in the document's text.
        end: one past its last one. The text between is what is indexed of it: the rows of a table, a picture's caption.
        rows: the cells of a table, row by row, the head first; empty for others.
        image: content hash of the picture; empty for others.
        caption: what the document says of it, where it does.
        box: where it stands; None where the format has no pages.
    """

    kind: str
    start: int
    end: int
    rows: tuple[tuple[str, ...], ...] = ()
    image: str = ""
    caption: str = ""
    box: Box | None = None


@dataclass(frozen=True)
class Document(Value):
    """The text that a reader got out of a source.

    Args:
        id: unique within a corpus; by default a hash of the source's bytes.
        text: all of it; every span counts characters in it.
        uri: where it came from: a path relative to the indexed folder, or the caller's own name.
        title: from the content, never from the file name; empty when there is none.
        media_type: for example `text/markdown`.
        pages: where each page starts in `text`; empty where the format has no pages.
        headings: in the order of the text.
        meta: fields of the caller, the reader and the file, in this precedence.
        readers: principals who may see it; empty means everybody.
        regions: tables, pictures, code, in the order of the text.
        boxes: where its lines stand on the pages.
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
    """A piece of a document in one node group.

    Args:
        id: unique within a corpus.
        text: what is shown, exactly `document.text[span.start:span.end]` for a chunk.
        document: the document's id.
        group: the node group's name.
        span: where it stands in the document.
        context: what is put before the text when it is indexed or embedded (title and headings), never shown as quote.
        uri: where the document came from.
        parent: id of the node that it was cut from; for those cut from the whole document the document's id.
        meta: inherited from the document and its own.
        readers: principals who may see it; empty means everybody.
        number: position among the document's nodes of the group, from 1; 0 where unknown.
        search_text: what is indexed and embedded in place of context and text; empty for these.
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
    def shown_text(self) -> str:
        """What a reader is shown: the context, then the text."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    @property
    def indexed_text(self) -> str:
        """What is indexed and embedded: what is shown, unless another text is to be."""
        return self.search_text or self.shown_text
