"""Cutting documents into nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from spolia.indexing.outline import Outline
from spolia.indexing.splitters.sliding_window import SlidingWindow as SlidingWindow
from spolia.stores.definition import Part
from spolia.types import Document, Node, Span


@runtime_checkable
class Splitter(Protocol):
    """Cuts documents into nodes."""

    @property
    def name(self) -> str:
        """Tells apart any two that cut differently; a manifest holds it."""
        ...

    def split(self, document: Document, group: str = "chunk") -> Iterator[Node]:
        """The nodes of a document, in the order of its text."""
        ...


def nodes(splitter: SlidingWindow, document: Document, group: str) -> Iterator[Node]:
    """The windows over a document, one at a time, so that a long document needs no more memory than its text."""
    outline, lines = Outline(document, splitter.bound.characters // 4), _Lines(document.text)
    whole = Part(Node(document.id, document.text), document)
    for number, piece in enumerate(splitter.pieces(whole)):
        start = piece.start or 0
        end = start + len(piece.text)
        pages = _pages(document.pages, start, end) if document.pages else None
        yield Node(
            id=f"{document.id}:{group}:{number}",
            text=piece.text,
            document=document.id,
            group=group,
            span=Span(start, end, pages, None if pages else lines.of(start, end)),
            context=outline.above(start),
            uri=document.uri,
            meta=document.meta,
            readers=document.readers,
        )


def _pages(starts: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """First and last page of a span, from 1."""
    return max(1, bisect_right(starts, start)), max(1, bisect_right(starts, end - 1))


class _Lines:
    """Line numbers of spans that come in order, from 1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = "\n" if "\n" in text or "\r" not in text else "\r"
        self._at, self._number = 0, 1

    def of(self, start: int, end: int) -> tuple[int, int]:
        self._number += self._text.count(self._end, self._at, start)
        self._at = start
        return self._number, self._number + self._text.count(self._end, start, end)
