"""Xberg (the successor of Kreuzberg): one library for more than ninety formats. https://pypi.org/project/xberg"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.adapters.markdown_output import reading_of
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value


@dataclass(frozen=True)
class XbergReader(Value):
    """Reads whatever Xberg reads, as Markdown; tables and code are regions.

    It is not among the built-in readers: `sync(..., readers={"*.doc": XbergReader(), "*.pages": XbergReader()})`.

    Args:
        suffixes: that it reads where it is in a list of readers.
        ocr: whether scans are read, with the Tesseract that it brings or finds.
        timeout_s: seconds for a file.
    """

    suffixes: tuple[str, ...] = (".doc", ".ppt", ".xlsb", ".pages", ".numbers", ".key", ".org", ".typ", ".fb2", ".hwp")
    ocr: bool = False
    timeout_s: int = 300

    name = "xberg"
    version = 1
    apart = True
    media_type = "text/markdown"

    def read(self, blob: Blob, /) -> Reading:
        found = self._extracted(blob)
        said = found.metadata
        pages = [page.content for page in found.pages or ()]
        return reading_of(
            self,
            blob,
            pages or [found.content],
            title=" ".join((said.title or "").split()),
            meta=fields(
                author=said.authors,
                date=said.created_at,
                modified=said.modified_at,
                subject=said.subject,
                keywords=said.keywords,
                language=said.language,
            ),
            warnings=tuple(f"Xberg: {warning.message}" for warning in found.processing_warnings),
            is_paged=bool(pages),
        )

    def _extracted(self, blob: Blob) -> Any:
        try:
            import xberg
        except ImportError as error:
            raise MissingExtra("xberg", "xberg", f"Reading {blob.uri}") from error
        how = xberg.ExtractionConfig(
            output_format="markdown",
            use_cache=False,
            disable_ocr=not self.ocr,
            extraction_timeout_secs=self.timeout_s,
            pages=xberg.PageConfig(extract_pages=True),
        )
        given = xberg.ExtractInput(kind="bytes", bytes=blob.data, filename=blob.uri.rpartition("/")[2])
        with ThreadPoolExecutor(1) as alone:  # the caller's thread may have a loop of its own
            try:
                result = alone.submit(asyncio.run, xberg.extract(given, how)).result()
            except Exception as error:  # it raises RuntimeError for most of what can go wrong
                raise _refused(blob, str(error)) from error
        if not result.results:
            raise _refused(blob, "; ".join(one.message for one in result.errors) or "it found no document")
        return result.results[0]


def _refused(blob: Blob, why: str) -> DocumentError:
    if "password" in why.lower() or "encrypted" in why.lower():
        return EncryptedDocument(
            f"{blob.uri} is locked with a password. Write a copy without one. Xberg says: {why:.300}"
        )
    return DocumentError(f"{blob.uri} could not be read by Xberg: {why:.300}. Fetch it again, or use another reader.")
