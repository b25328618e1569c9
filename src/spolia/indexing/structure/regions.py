"""Tables and pictures as nodes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.indexing.splitters.places import regions_in
from spolia.stores.definition import Part, Piece, Splitter
from spolia.types import Meta, Region

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

    >>> from spolia.stores.definition import whole
    >>> from spolia.types import Document
    >>> table = Region("table", 8, 24, (("stone", "t"), ("basalt", "3")), caption="Table 1: Stones")
    >>> document = Document("d", "We see: stone t\\nbasalt 3", regions=(table,))
    >>> [piece] = Regions("table", markdown=True)(Part(whole(document), document))
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
            start += len(text) - len(text.lstrip())
            if text := text.strip():
                yield Piece(text, start, region.caption, self._search_text(region), _meta(region))
            elif region.caption or (self.wordless and region.image):
                yield Piece(region.caption, None if region.caption else region.start, meta=_meta(region))

    def _search_text(self, region: Region) -> str:
        if not (self.markdown and region.rows):
            return ""
        return f"{region.caption}\n{as_markdown(region.rows)}".strip()


def as_markdown(rows: tuple[tuple[str, ...], ...]) -> str:
    """The cells of a table as Markdown, the first row as its head.

    >>> print(as_markdown((("a|b", "c"), ("1", "two\\nlines"))))
    | a\\|b | c |
    |---|---|
    | 1 | two lines |
    """
    lines = ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join((lines[0], "|" + "---|" * len(rows[0]), *lines[1:]))


def _meta(region: Region) -> Meta:
    return (("image", region.image),) if region.image else ()
