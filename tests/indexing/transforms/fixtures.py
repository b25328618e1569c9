"""Parts for the tests of transforms."""

from __future__ import annotations

from collections.abc import Sequence

from spolia.stores.definition import Part, Piece
from spolia.types import Document, Heading, Meta, Node, Span


def whole_part(text: str, *, id: str = "d", uri: str = "notes/d.txt", title: str = "", meta: Meta = ()) -> Part:
    """A whole document."""
    return Part(Node(id, text, id, span=Span(0, len(text)), uri=uri, meta=meta), Document(id, text, uri, title))


def cut_part(text: str, start: int, end: int, *refs: str) -> Part:
    """A stretch of a document, with nodes that were made from it."""
    headings = (Heading(0, 1, "Top"),) if text.startswith("# Top") else ()
    document = Document("d", text, "notes/d.txt", headings=headings)
    node = Node("d:chunk:0", text[start:end], "d", span=Span(start, end), context="Top", uri=document.uri)
    return Part(node, document, tuple(Node(f"r{number}", ref, "d") for number, ref in enumerate(refs)))


def texts_and_starts(pieces: Sequence[Piece]) -> list[tuple[str, int | None]]:
    """Text and place of each piece."""
    return [(piece.text, piece.start) for piece in pieces]
