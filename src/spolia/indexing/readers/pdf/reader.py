"""The reader of PDF. What opens files needs an extra, so it is loaded with the first file."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from spolia.errors import require_extra
from spolia.indexing.readers import pdf
from spolia.indexing.readers.pictures.ocr import OCR, Ocr
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value


@dataclass(frozen=True)
class PdfReader(Value):
    """Reader of PDF. Pages are joined by a line end; a word broken at the end of a line is put together again.

    The order of the text is the file's, which for columns is nearly always that in which they are read; a page on which
    it jumps back is put into order by its white space. Headings are those of the outline that stand on their page; else
    lines that are larger than the text, or bold and numbered. Filled form fields and comments follow at the end of
    their page. Attached files are parts.

    Args:
        passwords: pairs of a pattern of uris and the name of the environment variable with their password:
            `(("contracts/*", "CONTRACTS_PASSWORD"),)`. The first pattern that fits counts.
        tables: whether tables between rules are read cell by cell.
        images: whether the bytes of pictures are kept.
        ocr: how pages without text are recognised, if Tesseract is installed; None for not at all.
    """

    passwords: tuple[tuple[str, str], ...] = ()
    tables: bool = True
    images: bool = False
    ocr: Ocr | None = OCR

    name = "pdf"
    version = 3
    media_type = "application/pdf"
    suffixes = (".pdf",)
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        reading: Reading = _load_document_module(blob).reading_of(self, blob)
        return reading

    def lacking(self) -> str:
        """Return what is missing to read pages without text."""
        return self.ocr.lacking() if self.ocr else ""

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the attached files."""
        yield from _load_document_module(blob).attached_to(blob, self.passwords)


@dataclass(frozen=True)
class PageImage(Value):
    """Container whose one part is the PNG of a page of a PDF. So the worker that opens what others have sent can draw
    it.

    Args:
        page: from 1.
        dpi: dots per inch; boxes of citations are in points, 72 per inch. A page of more than 16 million dots is
            drawn with fewer per inch.
    """

    passwords: tuple[tuple[str, str], ...]
    page: int
    dpi: float

    name = "pages"
    suffixes = (".pdf",)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        image = _load_document_module(blob).page_image(blob, self.passwords, self.page, self.dpi)
        yield Blob(f"{blob.uri}/page-{self.page}.png", image)


def _load_document_module(blob: Blob) -> ModuleType:
    with require_extra("pdf", "pypdfium2", f"Reading {blob.uri}"):
        return pdf.document
