"""Docling: layout and tables of PDF by neural models, which it fetches itself. https://github.com/docling-project/docling"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.adapters.markdown_output import reading_of
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value


@dataclass(frozen=True)
class DoclingReader(Value):
    """Reads what Docling reads, as Markdown; tables and code are regions, pages are those of the file.

    It is not among the built-in readers: `sync(..., readers={"*.pdf": DoclingReader()})`. For PDF and pictures it
    fetches models when it is first used, and needs torch.

    Args:
        suffixes: that it reads where it is in a list of readers.
        most_pages: a longer document is refused.
    """

    suffixes: tuple[str, ...] = (".pdf",)
    most_pages: int = 5000

    name = "docling"
    version = 1
    media_type = "text/markdown"

    def read(self, blob: Blob, /) -> Reading:
        try:
            from docling.datamodel.base_models import DocumentStream
            from docling.document_converter import DocumentConverter
        except ImportError as error:
            raise MissingExtra("docling", "docling", f"Reading {blob.uri}") from error
        stream = DocumentStream(name=blob.uri.rpartition("/")[2], stream=BytesIO(blob.data))
        try:
            result = DocumentConverter().convert(stream, raises_on_error=True, max_num_pages=self.most_pages)
            document = result.document
            numbers = sorted(document.pages)
            pages = [document.export_to_markdown(page_no=number) for number in numbers]
            pages = pages or [document.export_to_markdown()]
        except Exception as error:  # it raises ConversionError, and whatever its back ends and models do
            raise _refused(blob, error) from error
        warnings = tuple(f"Docling: {one.error_message}" for one in result.errors)
        return reading_of(self, blob, pages, warnings=warnings, is_paged=bool(numbers))


def _refused(blob: Blob, error: Any) -> DocumentError:
    why = f"{type(error).__name__}: {error}"
    if "password" in why.lower():
        return EncryptedDocument(
            f"{blob.uri} is locked with a password. Write a copy without one. Docling says: {why:.300}"
        )
    return DocumentError(f"{blob.uri} could not be read by Docling: {why:.300}. Use another reader for it.")
