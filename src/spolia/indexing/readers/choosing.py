"""Which reader reads a file: the one that knows its suffix."""

from __future__ import annotations

from collections.abc import Sequence

from spolia.indexing.readers.docx import DocxReader
from spolia.indexing.readers.html import HtmlReader
from spolia.indexing.readers.markdown import MarkdownReader
from spolia.indexing.readers.pdf import PdfReader
from spolia.indexing.readers.reading import Reader
from spolia.indexing.readers.text import TextReader

READERS: tuple[Reader, ...] = (TextReader(), MarkdownReader(), HtmlReader(), PdfReader(), DocxReader())


def by_suffix(readers: Sequence[Reader] = READERS) -> dict[str, Reader]:
    """The reader of each suffix; where two know one, the later one.

    >>> by_suffix()[".md"]
    MarkdownReader()
    """
    return {suffix: reader for reader in readers for suffix in reader.suffixes}


def reader_of(name: str, readers: dict[str, Reader]) -> Reader | None:
    """The reader for a file of this name; None where no reader knows its suffix.

    >>> reader_of("Thesis.PDF", by_suffix()), reader_of("photo.png", by_suffix())
    (PdfReader(), None)
    """
    dot = name.rfind(".")
    return readers.get(name[dot:].lower()) if dot > 0 else None


def versions(readers: Sequence[Reader] = READERS) -> str:
    """The readers as a manifest names them.

    >>> versions()
    'docx 1, html 1, markdown 1, pdf 1, text 1'
    """
    return ", ".join(sorted(f"{reader.name} {reader.version}" for reader in readers))
