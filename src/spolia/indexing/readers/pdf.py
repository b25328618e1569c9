"""PDF through pypdfium2: the text of each page in reading order, where the pages start, the outline as headings."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.hyphens import joined_words
from spolia.indexing.readers.reading import Blob, Reading
from spolia.types import Heading, Value

_PASSWORD = 4  # FPDF_ERR_PASSWORD
_one_at_a_time = threading.Lock()  # PDFium may be used by one thread only
_LINE_END = re.compile(r"[ \t]*(?:\r\n?|\n)")
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\uffff]")
_NO_CHARACTER = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")  # glyphs that the file gives no character for
_NO_TITLE = re.compile(
    r"untitled|anonymous|microsoft|\.(?:docx?|pdf|tex|dvi|indd|pptx?|odt|rtf|qxd)\b|^\S*[-_\d]\S*$", re.IGNORECASE
)
_SHOWN = 5
_OUTLINE_ITEMS = 10_000


@dataclass(frozen=True)
class PdfReader(Value):
    """Reads PDF. Pages are joined by a line end; a word broken at the end of a line is put together again.

    A title is what the file's metadata say, unless that is a file name.
    """

    name = "pdf"
    version = 1
    media_type = "application/pdf"
    suffixes = (".pdf",)

    def read(self, blob: Blob, /) -> Reading:
        with _one_at_a_time, closing(_opened(blob)) as pdf:
            try:
                pages = [_page_text(pdf, number) for number in range(len(pdf))]
                title, outline = _title(pdf), list(_outline(pdf))
            except _errors() as error:
                raise _damaged(blob, error) from error
        if not pages:
            raise _damaged(blob, "it has no pages")
        pages = joined_words(pages)
        starts = tuple(accumulate((len(page) + 1 for page in pages[:-1]), initial=0))
        headings = _headings(pages, starts, outline)
        document = blob.document(self, "\n".join(pages), title=title, pages=starts, headings=headings)
        empty = tuple(number for number, page in enumerate(pages, 1) if not page.strip())
        return Reading(document, empty_pages=empty, warnings=tuple(_warnings(document.text, empty, len(pages))))


def _opened(blob: Blob) -> Any:
    try:
        import pypdfium2
    except ImportError as error:
        raise MissingExtra("pdf", "pypdfium2", f"Reading {blob.uri}") from error
    if not blob.data:
        raise DocumentError(f"{blob.uri} is no PDF: it has 0 bytes. Put the whole file there, or take it away.")
    try:
        return pypdfium2.PdfDocument(blob.data)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD:
            raise EncryptedDocument(
                f"{blob.uri} is locked with a password. Write a copy without one, for example: "
                "qpdf --password=PASSWORD --decrypt OLD.pdf NEW.pdf"
            ) from error
        raise _damaged(blob, error) from error


def _errors() -> tuple[type[Exception], ...]:
    import pypdfium2

    return (pypdfium2.PdfiumError, ValueError, OSError)


def _damaged(blob: Blob, why: object) -> DocumentError:
    begin = blob.data[:8]
    return DocumentError(
        f"{blob.uri} is no PDF that can be read: {why}; it has {len(blob.data)} bytes and begins with {begin!r}. "
        "Fetch it again, or mend it, for example: qpdf OLD.pdf NEW.pdf"
    )


def _page_text(pdf: Any, number: int) -> str:
    """The text of a page; nothing of the page stays in memory."""
    with closing(pdf[number]) as page, closing(page.get_textpage()) as text:
        found = _NO_TEXT.sub("", _LINE_END.sub("\n", text.get_text_range()))
    return found.strip()


def _title(pdf: Any) -> str:
    found = " ".join(_NO_TEXT.sub("", pdf.get_metadata_value("Title")).split())
    return "" if _NO_TITLE.search(found) else found


def _outline(pdf: Any) -> Iterator[tuple[int, int, str]]:
    """Page from 0, level from 1 and title of each bookmark."""
    for number, item in enumerate(pdf.get_toc(max_depth=6)):
        if number == _OUTLINE_ITEMS:
            return
        target = item.get_dest()
        page = target.get_index() if target is not None else None
        title = " ".join(_NO_TEXT.sub("", item.get_title()).split())
        if page is not None and 0 <= page < len(pdf) and title:
            yield page, item.level + 1, title


def _headings(pages: list[str], starts: tuple[int, ...], outline: list[tuple[int, int, str]]) -> tuple[Heading, ...]:
    """The bookmarks whose title stands on a line of their page; a bookmark alone does not say where on the page."""
    found: dict[int, Heading] = {}
    for page, level, title in outline:
        words = r"\s+".join(re.escape(word) for word in title.split()[:40])
        for line in re.finditer(rf"(?mi)^[\dIVXA-Z.)§ \t]{{0,12}}{words}[ \t.:]*$", pages[page]):
            at = starts[page] + line.start()
            if at not in found:
                found[at] = Heading(at, level, title)
                break
    return tuple(found[at] for at in sorted(found))


def _warnings(text: str, empty: tuple[int, ...], pages: int) -> Iterator[str]:
    if empty:
        shown = ", ".join(map(str, empty[:_SHOWN])) + (" ..." if len(empty) > _SHOWN else "")
        yield f"{len(empty)} of {pages} pages have no text ({shown}); scanned pages need OCR first."
    lost = len(_NO_CHARACTER.findall(text))
    if lost * 20 > len(text):
        yield f"{lost} of {len(text)} characters are glyphs without a meaning; the pages may need OCR."
