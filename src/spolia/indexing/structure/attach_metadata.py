"""Metadata in what is indexed."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.filters import FILE_FIELDS
from spolia.operator import Operator
from spolia.stores.definition import CONTEXT_CHARACTERS, Naming, Part, Piece, Pieces
from spolia.stores.groups.outline import Outline
from spolia.stores.reading.described import described


@dataclass(frozen=True)
class AttachMetadata(Naming):
    """Put metadata above the texts that another transform gives, a line `name: value` for each field.

    It is indexed, embedded and shown to readers, and never quoted. `ShowMetadata` shows it without indexing it. Fields
    that come from a file's name or times are no metadata of a node, so that a moved file is not embedded again.

    Args:
        transform: gives the pieces.
        fields: which, in this order; one that a piece does not have is left out, one that no document has is refused.
        shown: also to readers; else it is indexed only.

    Raises:
        WiringError: no field is named, or one that every file has.

    >>> from spolia.stores.definition import Whole, whole
    >>> from spolia.types import Document
    >>> document = Document("d", "Stones were reused.", meta=(("year", 1999), ("author", "Ann")))
    >>> AttachMetadata(Whole(), ("author", "year"))(Part(whole(document), document))[0].context
    'author: Ann\\nyear: 1999'
    """

    transform: Operator[Part, Pieces]
    fields: tuple[str, ...]
    shown: bool = True

    def __post_init__(self) -> None:
        if not self.fields or isinstance(self.fields, str):
            raise WiringError(f"AttachMetadata has fields={self.fields!r}. Write their names: ('author', 'year').")
        if files := [name for name in self.fields if name in {field.name for field in FILE_FIELDS}]:
            raise WiringError(
                f"AttachMetadata cannot attach {', '.join(files)}: name and times of a file are no metadata of its "
                "nodes, or a moved file would be embedded again. Filter by them, or give them as metadata of another "
                "name: sync(..., metadata=lambda uri: {'path': uri})."
            )

    def apply(self, value: Part, /) -> Pieces:
        return tuple(self._with(piece, value) for piece in self.transform(value))

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.transform.calls(rows)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.transform.fanout(rows)

    def _with(self, piece: Piece, part: Part) -> Piece:
        said = described((*part.node.meta, *piece.meta), self.fields)
        if not said:
            return piece
        if self.shown and not piece.search_text:
            return piece.but(context=_lines(said, piece.context))
        searched = piece.search_text or _lines(_above(piece, part), piece.context, piece.text)
        context = _lines(said, piece.context) if self.shown else piece.context
        return piece.but(context=context, search_text=_lines(said, searched))


def _above(piece: Piece, part: Part) -> str:
    """Title and headings, as they are put above what is indexed."""
    at = (part.offset or 0) + (piece.start or 0)
    return Outline(part.document, CONTEXT_CHARACTERS).above(at)


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))
