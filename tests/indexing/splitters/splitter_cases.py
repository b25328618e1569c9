"""Splitters of every class that there is, parts to cut, and what must hold of every piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from spolia.core.registry import Catalogue
from spolia.indexing.splitters.rows import TableAware
from spolia.indexing.splitters.sized_splitter import LONGEST, TokenWindow
from spolia.indexing.splitters.text_units import SemanticBreaks, Sentences
from spolia.indexing.splitters.windows import may_cut
from spolia.indexing.structure.regions import Regions
from spolia.indexing.structure.topics import Topics
from spolia.models.protocols import Kind
from spolia.stores.definition import Part, Piece, Splitter
from spolia.types import Document, Heading, Node, Span, Value

SIZE = 25


@dataclass(frozen=True)
class Letters(Value):
    """An embedder: how often each of 32 kinds of letters stands in a text."""

    @property
    def name(self) -> str:
        return "letters"

    @property
    def dimension(self) -> int:
        return 33

    @property
    def window(self) -> int:
        return 512

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: Kind) -> npt.NDArray[np.float32]:
        rows = [np.bincount([32, *(ord(letter) % 32 for letter in text)], minlength=33) for text in texts]
        vectors = np.array(rows, dtype=np.float32)
        unit: npt.NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


@dataclass(frozen=True)
class Token:
    start: int
    end: int


@dataclass(frozen=True)
class Threes(Value):
    """Counts and places tokens of three characters, blanks left out."""

    def pieces(self, text: str, /) -> list[Token]:
        return [
            Token(start, min(len(text), start + 3))
            for start in range(0, len(text), 3)
            if not text[start : start + 3].isspace()
        ]

    def count(self, texts: Iterable[str], /) -> list[int]:
        return [len(self.pieces(text)) for text in texts]

    def fingerprint(self) -> str:
        return "threes"


NEEDED: dict[type[Splitter], dict[str, Any]] = {
    SemanticBreaks: {"embedder": Letters(), "percentile": 60},
    TableAware: {"rest": Sentences(SIZE)},
    Topics: {"embedder": Letters(), "sentences": 3},
}
"""What a splitter that has no defaults for all its fields is made with here."""


def splitters() -> list[Splitter]:
    """One of each class of splitter in the catalogue, for short pieces; not the one that takes what readers noted."""
    return [_made(cls) for cls in Catalogue().operators() if issubclass(cls, Splitter) and cls is not Regions]


def _made(cls: type[Splitter]) -> Splitter:
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    short = {"size": SIZE, "overlap": 5}
    return cls(**NEEDED.get(cls, {}), **{name: value for name, value in short.items() if name in names})


def part_of(
    text: str, uri: str = "a.txt", headings: Sequence[int] = (), pages: Sequence[int] = (), offset: int = 0
) -> Part:
    """A part of a document, all of it unless it has an offset."""
    marked = tuple(Heading(start, 1 + start % 4, f"H{start}") for start in headings)
    document = Document("d", "." * offset + text, uri, headings=marked, pages=tuple(pages))
    node = Node("n" if offset else "d", text, "d", "g", span=Span(offset, offset + len(text)))
    return Part(node, document)


def cut_checked(splitter: Splitter, part: Part) -> tuple[Piece, ...]:
    """The pieces of a part, after everything was checked that holds of all splitters."""
    pieces = splitter.apply(part)
    text = part.node.text
    covered = bytearray(len(text))
    for piece in pieces:
        assert piece.start is not None
        assert text[piece.start : piece.start + len(piece.text)] == piece.text
        assert piece.text.strip()
        assert len(piece.text) <= longest_piece(splitter)
        assert "\n\n\n" not in piece.context
        covered[piece.start : piece.start + len(piece.text)] = b"\1" * len(piece.text)
    starts = [piece.start or 0 for piece in pieces]
    assert starts == sorted(starts)
    for piece, start in zip(pieces, starts, strict=True):
        for edge in (start, start + len(piece.text)):
            inside = 0 < edge < len(text) and covered[edge - 1] and covered[edge]
            blank = any(map(str.isspace, text[max(0, edge - 1) : edge + 1]))
            assert blank or not inside or may_cut(text, edge), (piece.text, text[edge - 2 : edge + 2])
    return pieces


def longest_piece(splitter: Splitter) -> int:
    """Characters that a piece may have."""
    size: int = getattr(splitter, "size", 1_000_000)  # one without a size, as the whole text, is not bounded
    return size * (2 * LONGEST if isinstance(splitter, TokenWindow) else 4)


def characters_left_out(text: str, pieces: Iterable[Piece]) -> str:
    """The characters but blanks that are in no piece."""
    characters = list(text)
    for piece in pieces:
        assert piece.start is not None
        characters[piece.start : piece.start + len(piece.text)] = [" "] * len(piece.text)
    return "".join("".join(characters).split())
