"""A PDF: opened, read page by page, and what a person should know of it."""

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from ctypes import byref, c_ulong
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pypdfium2 import PdfDocument, PdfiumError, raw

from spolia.errors import DocumentError, EncryptedDocument, UnsafeDocument
from spolia.indexing.readers.pdf.drawings import png_of
from spolia.indexing.readers.pdf.headings import PageHeading, find_headings
from spolia.indexing.readers.pdf.lines import NO_TEXT, Change, PlacedText, join_unplaced, resolve_hyphens, shift_place
from spolia.indexing.readers.pdf.page import PageRegion, PageText, PdfPage, layout_page, read_page, read_plain_page
from spolia.indexing.readers.pictures.ocr import Ocr
from spolia.indexing.readers.reader import Blob, FileReader, ProgramReader, Reading, nonzero_counts
from spolia.indexing.readers.unit_failures import Attempt, UnitFailures
from spolia.types import Box, Boxes, Heading, Region

ONE_AT_A_TIME = threading.RLock()
"""PDFium may be used by one thread only."""
_PASSWORD = 4  # FPDF_ERR_PASSWORD


class PdfFile:
    """Open PDF, and its failures. `form` must be loaded before a page is, and is None without fields; PDFium numbers
    its `kind`, 0 for none."""

    def __init__(self, blob: Blob, passwords: tuple[tuple[str, str], ...]) -> None:
        self._blob, self._passwords = blob, passwords
        self.failures = UnitFailures()
        self.kind = 0
        self._open()

    def _open(self) -> None:
        with ONE_AT_A_TIME:
            self.pdf = _load_document(self._blob, self._passwords)
            self.form = self.failures.attempt("form", self._form, None)

    def _form(self) -> Any:
        self.kind = self.pdf.get_formtype()
        if self.kind:
            self.pdf.init_forms()
        return self.pdf.formenv.raw if self.kind else None

    def renew(self) -> None:
        """Open the file again: PDFium keeps what it has read of each page until a document is closed."""
        self.close()
        self._open()

    def close(self) -> None:
        with ONE_AT_A_TIME:
            self.pdf.close()


@contextmanager
def open_pdf(blob: Blob, passwords: tuple[tuple[str, str], ...] = ()) -> Iterator[PdfFile]:
    """Open a file, from its path if it has one; what fails while it is open becomes a `DocumentError`. `passwords`:
    patterns of uris, each with the name of an environment variable; the first that fits counts."""
    if not blob.size:
        raise DocumentError(f"{blob.uri} is not a PDF: it has 0 bytes. Put the whole file there, or take it away.")
    try:
        with closing(PdfFile(blob, passwords)) as file:
            yield file
    except (PdfiumError, ValueError, OSError, OverflowError, RecursionError) as error:
        raise damage_error(blob, error) from error


def _load_document(blob: Blob, passwords: tuple[tuple[str, str], ...]) -> Any:
    name = next((name for pattern, name in passwords if fnmatchcase(blob.uri, pattern)), "")
    try:
        return PdfDocument(_source(blob), password=os.environ.get(name) or None, autoclose=True)
    except PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD:
            raise _locked_error(blob, name) from error
        raise


def _source(blob: Blob) -> Any:
    """Return what PDFium opens: a path that it can encode, else a stream, so that a large file is not in memory."""
    if isinstance(blob.content, Path):
        try:
            str(blob.content).encode()
        except UnicodeEncodeError:
            return blob.open()
        return blob.content
    return blob.content


def _locked_error(blob: Blob, name: str) -> EncryptedDocument:
    if name and os.environ.get(name):
        attempt_text = f"and the one in the environment variable {name} does not open it"
    elif name:
        attempt_text = f"and the environment variable {name} is not set"
    else:
        attempt_text = "and Spolia has no password for it"
    return EncryptedDocument(
        f"{blob.uri} is locked with a password, {attempt_text}. Put the password into an environment variable and "
        f"write PdfReader(passwords=(({blob.uri!r}, 'NAME'),)), for the command line among READERS in a file that "
        "--known names, or write a copy without one, for example: "
        "qpdf --password=PASSWORD --decrypt OLD.pdf NEW.pdf"
    )


def damage_error(blob: Blob, problem: object) -> DocumentError:
    """Return the error for a damaged file, or one of another format."""
    with blob.open() as file:
        begin = file.read(8)
    reason = str(problem).rstrip(".")
    return DocumentError(
        f"{blob.uri} is not a readable PDF: {reason}; it has {blob.size} bytes and begins with {begin!r}. "
        "Fetch it again, or mend it, for example: qpdf OLD.pdf NEW.pdf"
    )


_MOST_ATTACHED = 1_000
_LARGEST = 200_000_000  # bytes of an attached file
_SEPARATORS = re.compile(r"[/\\]+")


def read_attachments(file: PdfFile, uri: str) -> Iterator[Blob]:
    """Yield each attached file that can be read, under the PDF's name. A name that is a path loses its folders."""
    used_names: set[str] = set()
    for number in _attachment_numbers(file):
        place = f"attachment {number + 1}"
        path = file.failures.attempt("name", partial(_attachment_name, file.pdf, number), "", place=place)
        name = _SEPARATORS.split(NO_TEXT.sub("", path).strip())[-1]
        if name in ("", ".", "..") or name in used_names:
            name = f"{number + 1}-{name}".rstrip(".-") or str(number + 1)
        used_names.add(name)
        data = file.failures.attempt("attachment", partial(_attachment_data, file.pdf, number), b"", place=place)
        if data:
            yield Blob(f"{uri}/{name}", data)


def _attachment_numbers(file: PdfFile) -> range:
    count = file.failures.attempt("list of attachments", file.pdf.count_attachments, 0)
    return range(min(count, _MOST_ATTACHED))


def _attachment_name(pdf: Any, number: int) -> str:
    return str(pdf.get_attachment(number).get_name())


def _attachment_data(pdf: Any, number: int) -> bytes:
    return bytes(pdf.get_attachment(number).get_data()) if _attachment_size(pdf, number) else b""


def _attachment_size(pdf: Any, number: int) -> int:
    """Return the size of an attachment. Raises DocumentError for one damaged, or larger than a document may be."""
    size = c_ulong()
    if not raw.FPDFAttachment_GetFile(pdf.get_attachment(number), None, 0, byref(size)):
        raise DocumentError("it has no content")
    if size.value > _LARGEST:
        raise DocumentError(f"it has {size.value:,} bytes, and {_LARGEST:,} are the most that are read")
    return size.value


_NO_TITLE = re.compile(
    r"untitled|anonymous|microsoft|\.(?:docx?|pdf|tex|dvi|indd|pptx?|odt|rtf|qxd)\b|^\S*[-_\d]\S*$", re.IGNORECASE
)
_MOST = 10_000
_DEEPEST = 6


Bookmark = tuple[int, int, str]
"""Page from 0, level from 1 and title."""


def title_of(pdf: Any) -> str:
    """Return the title in the metadata, unless it is a file name."""
    title = _fold_blanks(pdf.get_metadata_value("Title"))
    return "" if _NO_TITLE.search(title) else title


def read_bookmarks(pdf: Any, failures: UnitFailures) -> Iterator[Bookmark]:
    """Yield the outline, in its order. PDFium leaves out bookmarks that lead back to themselves."""
    for item in islice(pdf.get_toc(max_depth=_DEEPEST), _MOST):
        if mark := failures.attempt("bookmark", partial(_bookmark, item, len(pdf)), None):
            yield mark


def _bookmark(item: Any, pages: int) -> Bookmark | None:
    target = item.get_dest()
    page = target.get_index() if target is not None else None
    title = _fold_blanks(item.get_title())
    return (page, item.level + 1, title) if page is not None and 0 <= page < pages and title else None


def locate_bookmarks(marks: Sequence[Bookmark], pages: Sequence[str], starts: Sequence[int]) -> tuple[Heading, ...]:
    """Return the bookmarks whose title stands on a line of their page; a bookmark alone does not say where."""
    headings: dict[int, Heading] = {}
    for page, level, title in marks:
        # A title of any length would make a pattern as long.
        words = r"\s+".join(re.escape(word) for word in title.split()[:40])
        for line in re.finditer(rf"(?mi)^[\dIVXA-Z.)§ \t]{{0,12}}{words}[ \t.:]*$", pages[page]):
            position = starts[page] + line.start()
            if position not in headings:
                headings[position] = Heading(position, level, title)
                break
    return tuple(headings[position] for position in sorted(headings))


def _fold_blanks(text: str) -> str:
    return " ".join(NO_TEXT.sub("", text).split())


_NO_CHARACTER = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")  # glyphs that the file gives no character for
_MINIMUM_CONFIDENCE = 60.0
_MOST_LISTED_PAGES = 5
_MOST_DAMAGED_RUN = 1_000


@dataclass
class ReadingLog:
    """Events while the pages are read, with page numbers from 1."""

    damaged_pages: list[int] = field(default_factory=list)  # damaged pages
    confidences: dict[int, float] = field(default_factory=dict)  # and how sure that is, in percent
    pages_without_ocr: dict[str, list[int]] = field(default_factory=dict)  # pages that need OCR and got none, by reason
    dropped: Counter[str] = field(default_factory=Counter)
    cut_page: int = 0  # page from which on none is read; 0 where all are
    _damaged_run: int = 0

    def note_damage(self, page: int) -> None:
        """Note a page that cannot be read. After a thousand in a row, reading further makes no sense."""
        self._damaged_run = self._damaged_run + 1 if self.damaged_pages and page - 1 == self.damaged_pages[-1] else 1
        self.damaged_pages.append(page)
        if self._damaged_run == _MOST_DAMAGED_RUN:
            self.cut_page = page - _MOST_DAMAGED_RUN + 1

    def warnings(self, text: str, pages: int) -> Iterator[str]:
        """Yield a sentence for each problem."""
        for reason, numbers in self.pages_without_ocr.items():
            yield f"{len(numbers)} of {pages} pages have no text ({_list_pages(numbers)}); they need OCR: {reason}."
        if self.cut_page:
            yield f"Nothing was read from page {self.cut_page} on: {_MOST_DAMAGED_RUN} pages in a row cannot be read."
        if unread_pages := self.dropped["pages"]:
            yield (
                f"Only the first {pages:,} of {pages + unread_pages:,} pages were read. Split the file to read all, "
                "for example: qpdf --split-pages=10000 OLD.pdf NEW.pdf"
            )
        unsure = [number for number, sure in self.confidences.items() if sure < _MINIMUM_CONFIDENCE]
        if unsure:
            yield (
                f"The text recognised on {len(unsure)} pages may be wrong ({_list_pages(unsure)}): "
                "their picture is poor."
            )
        lost = len(_NO_CHARACTER.findall(text))
        if lost * 20 > len(text):
            yield f"{lost} of {len(text)} characters are glyphs without a meaning; the pages may need OCR."


def _list_pages(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_MOST_LISTED_PAGES])) + (" ..." if len(numbers) > _MOST_LISTED_PAGES else "")


@dataclass(frozen=True)
class DocumentContent:
    """Content of a whole document."""

    text: str  # of all pages, with a line end between them
    starts: tuple[int, ...]
    title: str  # the largest line of the first page, if it is clearly one and the file has no outline
    headings: tuple[Heading, ...]
    boxes: Boxes
    regions: tuple[Region, ...]  # tables and pictures
    images: tuple[Blob, ...]  # the pictures whose bytes were read, each once


def assemble_document(
    leaves: Sequence[PageText], bookmarks: Sequence[Bookmark], uri: str, failures: UnitFailures | None = None
) -> DocumentContent:
    """Assemble the document from its pages and its outline."""
    failures = UnitFailures() if failures is None else failures
    unchanged = [(leaf.placed_text, list[Change]()) for leaf in leaves]
    mended = failures.attempt("set of broken words", lambda: _join_broken_words(leaves), unchanged)
    pages = [page for page, _ in mended]
    starts = tuple(accumulate((len(page.text) + 1 for page in pages[:-1]), initial=0))

    def place(page: int, position: int) -> int:
        return starts[page] + shift_place(position, mended[page][1])

    def region(page: int, page_region: PageRegion) -> Region:
        image = _picture_blob(uri, page + 1, page_region)
        name = images.setdefault(image.content_hash, image).content_hash if image else ""
        box = Box(page + 1, *page_region.area)
        return Region(
            page_region.kind,
            place(page, page_region.start),
            place(page, page_region.end),
            page_region.rows,
            name,
            page_region.caption,
            box,
        )

    regions, images, sides = list[Region](), dict[str, Blob](), list[bytes]()
    for number, leaf in enumerate(leaves):
        attempt: Attempt = partial(failures.attempt, place=f"page {number + 1}")
        for spot in leaf.regions:
            kind = "picture" if spot.kind == "image" else spot.kind
            if document_region := attempt(kind, partial(region, number, spot), None):
                regions.append(document_region)
        sides.append(attempt("set of boxes", partial(_pack_places, pages[number], starts[number]), b""))
    no_headings: tuple[Heading, ...] = ()
    texts = [page.text for page in pages]
    headings, title = failures.attempt("outline", lambda: locate_bookmarks(bookmarks, texts, starts), no_headings), ""
    if not headings:
        unstyled: tuple[str, list[PageHeading]] = ("", [])
        title, styled = failures.attempt("set of headings", lambda: _find_headings(leaves), unstyled)
        headings = tuple(Heading(place(page, start), level, words) for page, start, level, words in styled)
    boxes = Boxes(b"".join(sides))
    return DocumentContent("\n".join(texts), starts, title, headings, boxes, tuple(regions), tuple(images.values()))


def _find_headings(leaves: Sequence[PageText]) -> tuple[str, list[PageHeading]]:
    """Find the title and the headings by the letters of their lines."""
    sizes: Counter[float] = Counter()
    for leaf in leaves:
        sizes.update(leaf.sizes)
    styled = [line for leaf in leaves for line in leaf.styled]
    return find_headings(styled, sizes, sum(len(leaf.placed_text.places) for leaf in leaves))


def _join_broken_words(leaves: Sequence[PageText]) -> list[tuple[PlacedText, list[Change]]]:
    """Return the pages with their broken words put together, and what changed on each."""
    changes = resolve_hyphens([leaf.placed_text.text for leaf in leaves])
    return [(leaf.placed_text.apply(change), change) for leaf, change in zip(leaves, changes, strict=True)]


def _pack_places(page: PlacedText, start: int) -> bytes:
    places: Any = page.places.copy()
    places["start"] += np.int32(start)
    places["end"] += np.int32(start)
    packed: bytes = places.tobytes()
    return packed


def _picture_blob(uri: str, page: int, page_region: PageRegion) -> Blob | None:
    picture = page_region.picture
    if picture is None or not picture.data:
        return None
    left, top = (max(0, round(side)) for side in picture.area[:2])
    return Blob(f"{uri}/page-{page}-{left}-{top}{picture.suffix}", picture.data)


_POINTS = 72.0
# A page of absurd size is drawn coarsely instead of filling the memory.
_MOST_PIXELS = 50_000_000
_MOST_COLOURED_PIXELS = 16_000_000
"""Dots of a page in colour, as A4 at 350 dpi has: each takes 15 bytes and more while it is drawn and packed."""


def recognise_page(pdf: Any, number: int, page: PdfPage, ocr: Ocr | None, log: ReadingLog) -> PdfPage:
    """Add what Tesseract finds to a page without text. `number`: from 0."""
    reason = ocr.lacking() if ocr else "it was not asked for (ocr=None)"
    if ocr is None or reason:
        log.pages_without_ocr.setdefault(reason, []).append(number + 1)
        return page
    pixels, dpi = _render_page(pdf, number, ocr.dpi)
    recognition = ocr.recognise(pixels, dpi)
    if recognition.failure:
        log.pages_without_ocr.setdefault(recognition.failure, []).append(number + 1)
    elif recognition.lines:
        log.confidences[number + 1] = recognition.confidence
    return replace(page, lines=recognition.lines)


def page_image(blob: Blob, passwords: tuple[tuple[str, str], ...], number: int, dpi: float) -> bytes:
    """Draw a page as PNG. `number`: from 1.

    Raises:
        DocumentError: there are fewer pages.
    """
    with open_pdf(blob, passwords) as file:
        with ONE_AT_A_TIME:
            count = len(file.pdf)
        if not 0 < number <= count:
            raise DocumentError(f"{blob.uri} has {count} pages. Write one of 1 to {count}.")
        return png_of(_render_page(file.pdf, number - 1, dpi, in_colour=True)[0])


def _render_page(pdf: Any, number: int, dpi: float, *, in_colour: bool = False) -> tuple[Any, float]:
    """Draw a page, in grey or as red, green and blue. Also return its dots per inch, which are fewer for a page of
    absurd size."""
    with ONE_AT_A_TIME, closing(pdf[number]) as page:
        # A broken file may state a side of 0, or one without end.
        width, height = (min(max(side, 1.0), 1e6) for side in page.get_size())
        most_pixels = _MOST_COLOURED_PIXELS if in_colour else _MOST_PIXELS
        dpi = min(dpi, _POINTS * (most_pixels / (width * height)) ** 0.5)
        options = {"rev_byteorder": True, "prefer_bgrx": False} if in_colour else {"grayscale": True}
        with closing(page.render(scale=dpi / _POINTS, **options)) as bitmap:
            pixels = bitmap.to_numpy()
            if in_colour:
                return pixels[:, :, :3].copy(), dpi  # a copy: the bitmap's memory goes when it is closed
            return (pixels[:, :, 0] if pixels.ndim == 3 else pixels).copy(), dpi


_MOST_CHARACTERS = 100_000_000
_MOST_PAGES = 20_000
"""Pages that are read: a small file may name one page any number of times."""
_PAGES_UNTIL_RENEWAL = 250
_XFA = (2, 3)  # FORMTYPE_XFA_FULL, FORMTYPE_XFA_FOREGROUND


class PageReader(FileReader, ProgramReader, Protocol):
    """Reader with the settings that a PDF is read by."""

    @property
    def passwords(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def tables(self) -> bool: ...
    @property
    def images(self) -> bool: ...
    @property
    def ocr(self) -> Ocr | None: ...


def reading_of(reader: PageReader, blob: Blob) -> Reading:
    """Read a PDF. A page, or a part of one, that fails is empty or plain text, and is reported."""
    log = ReadingLog()
    with open_pdf(blob, reader.passwords) as file:
        failures = file.failures
        no_marks: list[Bookmark] = []
        with ONE_AT_A_TIME:
            title = failures.attempt("title", lambda: title_of(file.pdf), "")
            marks = failures.attempt("outline", lambda: list(read_bookmarks(file.pdf, failures)), no_marks)
            for number in _attachment_numbers(file):
                failures.attempt(
                    "attachment", partial(_attachment_size, file.pdf, number), 0, place=f"attachment {number + 1}"
                )
        leaves = list(_read_pages(reader, file, blob, log))
    if len(log.damaged_pages) >= len(leaves):
        raise damage_error(blob, " ".join(["no page can be read.", *failures.warnings()]))
    log.dropped["XFA forms"] += file.kind in _XFA
    content = assemble_document(leaves, marks, blob.uri, failures)
    document = blob.document(
        reader, content.text, title=title or content.title, pages=content.starts, headings=content.headings,
        regions=content.regions, boxes=content.boxes,
    )  # fmt: skip
    return Reading(
        document,
        empty_pages=tuple(number for number, leaf in enumerate(leaves, 1) if not leaf.placed_text.text),
        ocr_pages=tuple(log.confidences),
        dropped=nonzero_counts(log.dropped + Counter(failures.dropped())),
        images=content.images,
        warnings=(*failures.warnings(), *log.warnings(content.text, len(leaves))),
        lacks=reader.lacking() if log.pages_without_ocr else "",
    )


def attached_to(blob: Blob, passwords: tuple[tuple[str, str], ...]) -> list[Blob]:
    """Return the attached files."""
    with open_pdf(blob, passwords) as file, ONE_AT_A_TIME:
        return list(read_attachments(file, blob.uri))


def _read_pages(reader: PageReader, file: PdfFile, blob: Blob, log: ReadingLog) -> Iterator[PageText]:
    """Yield the pages one by one; between them PDFium is free for other threads."""
    characters, count = 0, len(file.pdf)
    for number in range(min(count, _MOST_PAGES)):
        if number and number % _PAGES_UNTIL_RENEWAL == 0:
            # PDFium's memory grows with each page read until the document is closed.
            file.renew()
        leaf = _read_page(reader, file, number, log)
        if log.cut_page:
            return
        characters += len(leaf.placed_text.text)
        if characters > _MOST_CHARACTERS:
            raise UnsafeDocument(
                f"{blob.uri}: {number + 1} of its {count} pages hold more than {_MOST_CHARACTERS:,} characters, "
                "the most that a document may have. Split it, for example: qpdf --split-pages=1000 OLD.pdf NEW.pdf"
            )
        yield leaf
    log.dropped["pages"] += max(0, count - _MOST_PAGES)


_NO_PAGE = PdfPage()
_NO_TEXT = PageText(join_unplaced(()))


def _read_page(reader: PageReader, file: PdfFile, number: int, log: ReadingLog) -> PageText:
    """Read and write a page: in reading order, else as plain text, else as an empty page."""
    attempt: Attempt = partial(file.failures.attempt, place=f"page {number + 1}")

    def read() -> PdfPage:
        return read_page(file.pdf, number, file.form, attempt, tables=reader.tables, pictures=reader.images)

    with ONE_AT_A_TIME:
        page = attempt("page", read, _NO_PAGE, lambda: read_plain_page(file.pdf, number))
    if page is _NO_PAGE:
        log.note_damage(number + 1)
    elif not page.lines and not page.blank:
        # Outside of the lock: Tesseract takes seconds, in which others may use PDFium.
        page = attempt("scanned page", lambda: recognise_page(file.pdf, number, page, reader.ocr, log), page)
    log.dropped.update(page.dropped)
    page_text: PageText = attempt(
        "page", lambda: layout_page(page, number + 1, attempt), _NO_TEXT, lambda: PageText(join_unplaced(page.lines))
    )
    return page_text
