"""What a reader takes and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from spolia.types import Document, Heading, Value, kept


@dataclass(frozen=True)
class Source(Value):
    """The bytes of a file.

    Args:
        uri: its path relative to the indexed folder, or the caller's own name.
        data: all of it.
    """

    uri: str
    data: bytes = field(repr=False)

    @kept
    def content_hash(self) -> str:
        """32 hexadecimal digits of the bytes' BLAKE2b."""
        return blake2b(self.data, digest_size=16).hexdigest()

    def document(
        self,
        reader: Reader,
        text: str,
        *,
        title: str = "",
        pages: tuple[int, ...] = (),
        headings: tuple[Heading, ...] = (),
    ) -> Document:
        """The document that a reader makes of it: the same bytes read in the same way have the same id."""
        return Document(
            id=f"{self.content_hash}.{reader.name}",
            text=text,
            uri=self.uri,
            title=title,
            media_type=reader.media_type,
            pages=pages,
            headings=headings,
        )


@dataclass(frozen=True)
class Reading(Value):
    """What was got out of a source.

    Args:
        document: its text, with the starts of its pages and its headings.
        encoding: of its characters, where that had to be found out.
        empty_pages: numbers, from 1, of the pages without text.
        warnings: what a person should know, each a sentence.
    """

    document: Document
    encoding: str = ""
    empty_pages: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()


class Reader(Protocol):
    """Reads one format.

    Attributes:
        name: of the format; part of the ids of documents.
        version: count it up when the same bytes give another text; it is part of the manifest.
        media_type: what its documents are.
        suffixes: of file names, in lower case, with their dot.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def media_type(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    def read(self, source: Source, /) -> Reading:
        """The document in a source.

        Raises:
            DocumentError: it is not what its name says, damaged, too large or locked.
            MissingExtra: the package that reads this format is not installed.
        """
        ...
