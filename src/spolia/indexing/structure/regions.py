"""Metadata put into indexed texts, and tables, pictures and other regions as pieces."""

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.filters import FILE_FIELDS
from spolia.stores.definition import CONTEXT_CHARACTERS, FieldTransform, Part, Piece, Pieces, Splitter, regions_in
from spolia.stores.groups.nodes import Outline
from spolia.stores.snapshot.records import metadata_text
from spolia.types import Meta, Region


@dataclass(frozen=True)
class AttachMetadata(FieldTransform):
    """Put metadata above the texts of another transform, one line `name: value` for each field.

    It is indexed, embedded and shown to readers, and never quoted. `ShowMetadata` shows it without indexing it. Fields
    that come from a file's name or times never belong to a node, so that a moved file is not embedded again.

    Args:
        transform: gives the pieces.
        fields: which, in this order; one that a piece lacks is left out, one that no document has raises.
        shown: also to readers; else it is indexed only.

    Raises:
        WiringError: no field is named, or one that every file has.

    >>> from spolia.stores.definition import Whole, document_node
    >>> from spolia.types import Document
    >>> document = Document("d", "Stones were reused.", meta=(("year", 1999), ("author", "Ann")))
    >>> AttachMetadata(Whole(), ("author", "year"))(Part(document_node(document), document))[0].context
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
                f"AttachMetadata cannot attach {', '.join(files)}: name and times of a file do not belong to its "
                "nodes, or a moved file would be embedded again. Filter by them, or give them as metadata of another "
                "name: sync(..., metadata=lambda uri: {'path': uri})."
            )

    def apply(self, value: Part, /) -> Pieces:
        return tuple(self._add_metadata(piece, value) for piece in self.transform(value))

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.transform.calls(rows)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.transform.fanout(rows)

    def _add_metadata(self, piece: Piece, part: Part) -> Piece:
        metadata = metadata_text((*part.node.meta, *piece.meta), self.fields)
        if not metadata:
            return piece
        if self.shown and not piece.search_text:
            return piece.but(context=_join_lines(metadata, piece.context))
        offset = (part.offset or 0) + (piece.start or 0)
        headings = Outline(part.document, CONTEXT_CHARACTERS).heading_path(offset)  # title and headings
        search_text = piece.search_text or _join_lines(headings, piece.context, piece.text)
        context = _join_lines(metadata, piece.context) if self.shown else piece.context
        return piece.but(context=context, search_text=_join_lines(metadata, search_text))


def _join_lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))


KINDS = ("table", "image", "code", "formula", "segment")


@dataclass(frozen=True)
class Regions(Splitter):
    """One piece for each table, picture, block of code or formula that the document's reader has noted, however long.

    The text of a table is that of its rows as the document has them, that of a picture its description and what was
    recognised in it. The caption is put before it when it is indexed; a picture without any other words has it as its
    text. A piece of a picture has the field `image`, by which `Snapshot.image` gives the picture itself.

    Args:
        kind: `table`, `image`, `code`, `formula` or `segment`, a stretch of a recording.
        markdown: index and embed the cells of a table as Markdown, in the place of the document's text.
        wordless: also pictures without any words, as pieces of an empty text: for an embedder of pictures
            (`spolia.models.protocols.ImageEmbedder`), since no word finds them.

    Raises:
        WiringError: for another kind.

    >>> from spolia.stores.definition import document_node
    >>> from spolia.types import Document
    >>> table = Region("table", 8, 24, (("stone", "t"), ("basalt", "3")), caption="Table 1: Stones")
    >>> document = Document("d", "We see: stone t\\nbasalt 3", regions=(table,))
    >>> [piece] = Regions("table", markdown=True)(Part(document_node(document), document))
    >>> piece.text, piece.context
    ('stone t\\nbasalt 3', 'Table 1: Stones')
    >>> print(piece.search_text)
    Table 1: Stones
    | stone | t |
    |---|---|
    | basalt | 3 |
    """

    kind: str = "table"
    markdown: bool = False
    wordless: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise WiringError(f"Regions got kind={self.kind!r}. Write one of: {', '.join(KINDS)}.")

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        for region in regions_in(part, self.kind):
            text, start = part.node.text[region.start : region.end], region.start
            # `start` follows the stripping, so that the piece still quotes its exact place.
            start += len(text) - len(text.lstrip())
            if text := text.strip():
                cells = f"{region.caption}\n{as_markdown(region.rows)}".strip() if self.markdown and region.rows else ""
                yield Piece(text, start, region.caption, cells, _meta(region))
            elif region.caption or (self.wordless and region.image):
                yield Piece(region.caption, None if region.caption else region.start, meta=_meta(region))


def as_markdown(rows: tuple[tuple[str, ...], ...]) -> str:
    """Format the cells of a table as Markdown, with the first row as its head."""
    lines = ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join((lines[0], "|" + "---|" * len(rows[0]), *lines[1:]))


def _meta(region: Region) -> Meta:
    return (("image", region.image),) if region.image else ()
