"""PDF through pypdfium2: text in reading order, with the places of its lines, tables, pictures, headings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import DocumentError
from spolia.indexing.readers.pages.attached import attached
from spolia.indexing.readers.pages.binding import bound
from spolia.indexing.readers.pages.file import ONE_AT_A_TIME, File, damaged, opened
from spolia.indexing.readers.pages.leaf import Leaf, leaf_of
from spolia.indexing.readers.pages.noticed import Noticed
from spolia.indexing.readers.pages.outline import bookmarks, title_of
from spolia.indexing.readers.pages.page import Page, Wanted, page_of
from spolia.indexing.readers.pages.scans import recognised
from spolia.indexing.readers.pictures.ocr import OCR, Ocr
from spolia.indexing.readers.reading import Blob, Reading
from spolia.types import Value

_MOST_CHARACTERS = 100_000_000
_RENEWED = 250
_XFA = (2, 3)  # FORMTYPE_XFA_FULL, FORMTYPE_XFA_FOREGROUND


@dataclass(frozen=True)
class PdfReader(Value):
    """Reads PDF. Pages are joined by a line end; a word broken at the end of a line is put together again.

    The order of the text is the file's, which for columns is nearly always that in which they are read; a page on which
    it jumps back is put into order by its white space. Headings are those of the outline that stand on their page; else
    lines that are larger than the text, or bold and numbered. Filled fields of forms and comments stand at the end of
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
    version = 2
    media_type = "application/pdf"
    suffixes = (".pdf",)
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        noticed = Noticed()
        with opened(blob, self.passwords) as file:
            with ONE_AT_A_TIME:
                title, marks = title_of(file.pdf), list(bookmarks(file.pdf))
            leaves = list(self._leaves(file, blob, noticed))
        if len(noticed.unread) >= len(leaves):
            raise damaged(blob, "; ".join(["no page can be read", *noticed.unread.values()][:2]))
        noticed.dropped["XFA forms"] += file.kind in _XFA
        made = bound(leaves, marks)
        folder = f"{blob.uri}/"
        document = blob.document(
            self, made.text, title=title or made.title, pages=made.starts, headings=made.headings,
            regions=made.regions(folder), boxes=made.boxes,
        )  # fmt: skip
        return Reading(
            document,
            empty_pages=tuple(number for number, leaf in enumerate(leaves, 1) if not leaf.written.text),
            ocr_pages=tuple(noticed.recognised),
            dropped=tuple(sorted((+noticed.dropped).items())),
            images=made.images(folder),
            warnings=tuple(noticed.warnings(made.text, len(leaves))),
            lacks=self.lacking() if noticed.unseen else "",
        )

    def lacking(self) -> str:
        """What is missing to read pages without text."""
        return self.ocr.lacking() if self.ocr else ""

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The attached files."""
        with opened(blob, self.passwords) as file, ONE_AT_A_TIME:
            found = list(attached(file.pdf, blob.uri))
        yield from found

    def _leaves(self, file: File, blob: Blob, noticed: Noticed) -> Iterator[Leaf]:
        """The pages, one after the other; between them PDFium is free for other threads."""
        characters, count = 0, len(file.pdf)
        for number in range(count):
            if number and number % _RENEWED == 0:
                file.renew()
            page = self._page(file, number, noticed)
            if noticed.cut:
                return
            leaf = leaf_of(page, number + 1)
            characters += len(leaf.written.text)
            if characters > _MOST_CHARACTERS:
                raise _too_long(blob, number + 1, count)
            yield leaf

    def _page(self, file: File, number: int, noticed: Noticed) -> Page:
        with ONE_AT_A_TIME:
            page = page_of(file.pdf, number, Wanted(self.tables, self.images, form=file.form))
        if page.why:
            noticed.damage(number + 1, page.why)
        elif not page.lines and not page.blank:
            page = recognised(file.pdf, number, page, self.ocr, noticed)
        noticed.dropped.update(page.dropped)
        return page


def _too_long(blob: Blob, pages: int, count: int) -> DocumentError:
    return DocumentError(
        f"{blob.uri}: {pages} of its {count} pages hold more than {_MOST_CHARACTERS:,} characters, the most that a "
        "document may have. Split it, for example: qpdf --split-pages=1000 OLD.pdf NEW.pdf"
    )
