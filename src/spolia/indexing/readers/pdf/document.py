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
from typing import TYPE_CHECKING, Any

import numpy as np
from pypdfium2 import PdfDocument, PdfiumError, raw

from spolia.errors import DocumentError, EncryptedDocument, UnsafeDocument
from spolia.indexing.readers.pdf.drawings import png_of
from spolia.indexing.readers.pdf.headings import Found, by_style
from spolia.indexing.readers.pdf.lines import NO_TEXT, Change, Written, joints, moved, unplaced
from spolia.indexing.readers.pdf.page import PageText, PdfPage, Spot, leaf_of, page_of, plain_page
from spolia.indexing.readers.pictures.image import Ocr
from spolia.indexing.readers.reader import Blob, Reading, counted
from spolia.indexing.readers.unit_failures import Attempt, UnitFailures
from spolia.types import Box, Boxes, Heading, Region

if TYPE_CHECKING:
    from spolia.indexing.readers.pdf.reader import PdfReader


ONE_AT_A_TIME = threading.RLock()
"""PDFium may be used by one thread only."""
_PASSWORD = 4  # FPDF_ERR_PASSWORD


class PdfFile:
    """A PDF that is open, and what of it failed. `form` must be there before a page is, and is None without fields;
    PDFium numbers its `kind`, 0 for none."""

    def __init__(self, blob: Blob, passwords: tuple[tuple[str, str], ...]) -> None:
        self._blob, self._passwords = blob, passwords
        self.failures = UnitFailures()
        self.kind = 0
        self._open()

    def _open(self) -> None:
        with ONE_AT_A_TIME:
            self.pdf = _document(self._blob, self._passwords)
            self.form = self.failures.attempt("form", self._form, None)

    def _form(self) -> Any:
        self.kind = self.pdf.get_formtype()
        if self.kind:
            self.pdf.init_forms()
        return self.pdf.formenv.raw if self.kind else None

    def renew(self) -> None:
        """Open it again: PDFium keeps what it has read of each page until a document is closed."""
        self.close()
        self._open()

    def close(self) -> None:
        with ONE_AT_A_TIME:
            self.pdf.close()


@contextmanager
def opened(blob: Blob, passwords: tuple[tuple[str, str], ...] = ()) -> Iterator[PdfFile]:
    """The file, read from its path where it has one; what fails while it is open is a `DocumentError`. `passwords`:
    patterns of uris, each with the name of an environment variable; the first that fits counts."""
    if not blob.size:
        raise DocumentError(f"{blob.uri} is not a PDF: it has 0 bytes. Put the whole file there, or take it away.")
    try:
        with closing(PdfFile(blob, passwords)) as file:
            yield file
    except (PdfiumError, ValueError, OSError, OverflowError, RecursionError) as error:
        raise damaged(blob, error) from error


def _document(blob: Blob, passwords: tuple[tuple[str, str], ...]) -> Any:
    name = next((name for pattern, name in passwords if fnmatchcase(blob.uri, pattern)), "")
    try:
        return PdfDocument(_source(blob), password=os.environ.get(name) or None, autoclose=True)
    except PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD:
            raise _locked(blob, name) from error
        raise


def _source(blob: Blob) -> Any:
    """What PDFium opens: a path that it can encode, else a stream, so that a large file is not in memory."""
    if isinstance(blob.content, Path):
        try:
            str(blob.content).encode()
        except UnicodeEncodeError:
            return blob.open()
        return blob.content
    return blob.content


def _locked(blob: Blob, name: str) -> EncryptedDocument:
    if name and os.environ.get(name):
        tried = f"and the one in the environment variable {name} does not open it"
    elif name:
        tried = f"and the environment variable {name} is not set"
    else:
        tried = "and Spolia has no password for it"
    return EncryptedDocument(
        f"{blob.uri} is locked with a password, {tried}. Put the password into an environment variable and write "
        f"PdfReader(passwords=(({blob.uri!r}, 'NAME'),)), for the command line among READERS in a file that --known "
        "names, or write a copy without one, for example: "
        "qpdf --password=PASSWORD --decrypt OLD.pdf NEW.pdf"
    )


def damaged(blob: Blob, why: object) -> DocumentError:
    """The error for a damaged file, or one of another format."""
    with blob.open() as file:
        begin = file.read(8)
    reason = str(why).rstrip(".")
    return DocumentError(
        f"{blob.uri} is not a readable PDF: {reason}; it has {blob.size} bytes and begins with {begin!r}. "
        "Fetch it again, or mend it, for example: qpdf OLD.pdf NEW.pdf"
    )


_MOST_ATTACHED = 1_000
_LARGEST = 200_000_000
_SEPARATORS = re.compile(r"[/\\]+")


def attached(file: PdfFile, uri: str) -> Iterator[Blob]:
    """Each attached file that can be read, under the PDF's name; a name that is a path loses its folders."""
    used: set[str] = set()
    for number in _attachments(file):
        place = f"attachment {number + 1}"
        path = file.failures.attempt("name", partial(_name, file.pdf, number), "", place=place)
        name = _SEPARATORS.split(NO_TEXT.sub("", path).strip())[-1]
        if name in ("", ".", "..") or name in used:
            name = f"{number + 1}-{name}".rstrip(".-") or str(number + 1)
        used.add(name)
        data = file.failures.attempt("attachment", partial(_data, file.pdf, number), b"", place=place)
        if data:
            yield Blob(f"{uri}/{name}", data)


def _attachments(file: PdfFile) -> range:
    count = file.failures.attempt("list of attachments", file.pdf.count_attachments, 0)
    return range(min(count, _MOST_ATTACHED))


def _name(pdf: Any, number: int) -> str:
    return str(pdf.get_attachment(number).get_name())


def _data(pdf: Any, number: int) -> bytes:
    return bytes(pdf.get_attachment(number).get_data()) if _size(pdf, number) else b""


def _size(pdf: Any, number: int) -> int:
    """Bytes of an attachment. Raises DocumentError for one that is damaged or larger than a document may be."""
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
    """What the metadata say, unless that is a file name."""
    found = _folded(pdf.get_metadata_value("Title"))
    return "" if _NO_TITLE.search(found) else found


def bookmarks(pdf: Any, failures: UnitFailures) -> Iterator[Bookmark]:
    """The outline, in its order; PDFium leaves out those that lead back to themselves."""
    for item in islice(pdf.get_toc(max_depth=_DEEPEST), _MOST):
        if mark := failures.attempt("bookmark", partial(_bookmark, item, len(pdf)), None):
            yield mark


def _bookmark(item: Any, pages: int) -> Bookmark | None:
    target = item.get_dest()
    page = target.get_index() if target is not None else None
    title = _folded(item.get_title())
    return (page, item.level + 1, title) if page is not None and 0 <= page < pages and title else None


def outlined(marks: Sequence[Bookmark], pages: Sequence[str], starts: Sequence[int]) -> tuple[Heading, ...]:
    """The bookmarks whose title stands on a line of their page; a bookmark alone does not say where on the page."""
    found: dict[int, Heading] = {}
    for page, level, title in marks:
        words = r"\s+".join(re.escape(word) for word in title.split()[:40])
        for line in re.finditer(rf"(?mi)^[\dIVXA-Z.)§ \t]{{0,12}}{words}[ \t.:]*$", pages[page]):
            at = starts[page] + line.start()
            if at not in found:
                found[at] = Heading(at, level, title)
                break
    return tuple(found[at] for at in sorted(found))


def _folded(text: str) -> str:
    return " ".join(NO_TEXT.sub("", text).split())


_NO_CHARACTER = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")  # glyphs that the file gives no character for
_LEAST_SURE = 60.0
_SHOWN = 5
_GIVEN_UP = 1_000


@dataclass
class Noticed:
    """What is counted while the pages are read, with their numbers from 1."""

    unread: list[int] = field(default_factory=list)  # damaged pages
    recognised: dict[int, float] = field(default_factory=dict)  # and how sure that is, in percent
    unseen: dict[str, list[int]] = field(default_factory=dict)  # pages that need OCR and got none, by reason
    dropped: Counter[str] = field(default_factory=Counter)
    cut: int = 0  # page from which on none is read; 0 where all are
    _run: int = 0

    def damage(self, page: int) -> None:
        """Note a page that cannot be read. To go on makes no sense after a thousand in a row."""
        self._run = self._run + 1 if self.unread and page - 1 == self.unread[-1] else 1
        self.unread.append(page)
        if self._run == _GIVEN_UP:
            self.cut = page - _GIVEN_UP + 1

    def warnings(self, text: str, pages: int) -> Iterator[str]:
        """Sentences."""
        for why, numbers in self.unseen.items():
            yield f"{len(numbers)} of {pages} pages have no text ({_shown(numbers)}); they need OCR: {why}."
        if self.cut:
            yield f"Nothing was read from page {self.cut} on: {_GIVEN_UP} pages in a row cannot be read."
        if left := self.dropped["pages"]:
            yield (
                f"Only the first {pages:,} of {pages + left:,} pages were read. Split the file to read all, for "
                "example: qpdf --split-pages=10000 OLD.pdf NEW.pdf"
            )
        unsure = [number for number, sure in self.recognised.items() if sure < _LEAST_SURE]
        if unsure:
            yield f"The text recognised on {len(unsure)} pages may be wrong ({_shown(unsure)}): their picture is poor."
        lost = len(_NO_CHARACTER.findall(text))
        if lost * 20 > len(text):
            yield f"{lost} of {len(text)} characters are glyphs without a meaning; the pages may need OCR."


def _shown(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (" ..." if len(numbers) > _SHOWN else "")


@dataclass(frozen=True)
class BoundPages:
    """A whole document."""

    text: str  # of all pages, with a line end between them
    starts: tuple[int, ...]
    title: str  # the largest line of the first page, if it is clearly one and the file has no outline
    headings: tuple[Heading, ...]
    boxes: Boxes
    regions: tuple[Region, ...]  # tables and pictures
    images: tuple[Blob, ...]  # the pictures whose bytes were read, each once


def bound(
    leaves: Sequence[PageText], marks: Sequence[Bookmark], uri: str, failures: UnitFailures | None = None
) -> BoundPages:
    """The document of some pages and an outline."""
    failures = UnitFailures() if failures is None else failures
    unchanged = [(leaf.written, list[Change]()) for leaf in leaves]
    mended = failures.attempt("set of broken words", lambda: _mended(leaves), unchanged)
    pages = [page for page, _ in mended]
    starts = tuple(accumulate((len(page.text) + 1 for page in pages[:-1]), initial=0))

    def place(page: int, at: int) -> int:
        return starts[page] + moved(at, mended[page][1])

    def region(page: int, spot: Spot) -> Region:
        image = _blob(uri, page + 1, spot)
        name = images.setdefault(image.content_hash, image).content_hash if image else ""
        box = Box(page + 1, *spot.area)
        return Region(spot.kind, place(page, spot.start), place(page, spot.end), spot.rows, name, spot.caption, box)

    regions, images, sides = list[Region](), dict[str, Blob](), list[bytes]()
    for number, leaf in enumerate(leaves):
        attempt: Attempt = partial(failures.attempt, place=f"page {number + 1}")
        for spot in leaf.spots:
            kind = "picture" if spot.kind == "image" else spot.kind
            if made := attempt(kind, partial(region, number, spot), None):
                regions.append(made)
        sides.append(attempt("set of boxes", partial(_packed, pages[number], starts[number]), b""))
    no_headings: tuple[Heading, ...] = ()
    texts = [page.text for page in pages]
    headings, title = failures.attempt("outline", lambda: outlined(marks, texts, starts), no_headings), ""
    if not headings:
        unstyled: tuple[str, list[Found]] = ("", [])
        title, styled = failures.attempt("set of headings", lambda: _styled(leaves), unstyled)
        headings = tuple(Heading(place(page, at), level, words) for page, at, level, words in styled)
    boxes = Boxes(b"".join(sides))
    return BoundPages("\n".join(texts), starts, title, headings, boxes, tuple(regions), tuple(images.values()))


def _styled(leaves: Sequence[PageText]) -> tuple[str, list[Found]]:
    """The title and the headings by the letters of their lines."""
    sizes: Counter[float] = Counter()
    for leaf in leaves:
        sizes.update(leaf.sizes)
    styled = [line for leaf in leaves for line in leaf.styled]
    return by_style(styled, sizes, sum(len(leaf.written.places) for leaf in leaves))


def _mended(leaves: Sequence[PageText]) -> list[tuple[Written, list[Change]]]:
    """The pages with their broken words put together, and what changed on each."""
    changes = joints([leaf.written.text for leaf in leaves])
    return [(leaf.written.after(change), change) for leaf, change in zip(leaves, changes, strict=True)]


def _packed(page: Written, start: int) -> bytes:
    places: Any = page.places.copy()
    places["start"] += np.int32(start)
    places["end"] += np.int32(start)
    packed: bytes = places.tobytes()
    return packed


def _blob(uri: str, page: int, spot: Spot) -> Blob | None:
    picture = spot.picture
    if picture is None or not picture.data:
        return None
    left, top = (max(0, round(side)) for side in picture.area[:2])
    return Blob(f"{uri}/page-{page}-{left}-{top}{picture.suffix}", picture.data)


_POINTS = 72.0
_MOST_PIXELS = 50_000_000
_MOST_COLOURED = 16_000_000
"""Dots of a page in colour, as A4 at 350 dpi has: each takes 15 bytes and more while it is drawn and packed."""


def recognised(pdf: Any, number: int, page: PdfPage, ocr: Ocr | None, noticed: Noticed) -> PdfPage:
    """A page without text, with what Tesseract finds on it; number: from 0."""
    lacking = ocr.lacking() if ocr else "it was not asked for (ocr=None)"
    if ocr is None or lacking:
        noticed.unseen.setdefault(lacking, []).append(number + 1)
        return page
    pixels, dpi = _drawn(pdf, number, ocr.dpi)
    found = ocr.recognise(pixels, dpi)
    if found.why:
        noticed.unseen.setdefault(found.why, []).append(number + 1)
    elif found.lines:
        noticed.recognised[number + 1] = found.sure
    return replace(page, lines=found.lines)


def page_image(blob: Blob, passwords: tuple[tuple[str, str], ...], number: int, dpi: float) -> bytes:
    """A page as PNG; number: from 1.

    Raises:
        DocumentError: there are fewer pages.
    """
    with opened(blob, passwords) as file:
        with ONE_AT_A_TIME:
            count = len(file.pdf)
        if not 0 < number <= count:
            raise DocumentError(f"{blob.uri} has {count} pages. Write one of 1 to {count}.")
        return png_of(_drawn(file.pdf, number - 1, dpi, in_colour=True)[0])


def _drawn(pdf: Any, number: int, dpi: float, *, in_colour: bool = False) -> tuple[Any, float]:
    """A page, in grey or as red, green and blue, and its dots per inch, which are fewer for a page of absurd size."""
    with ONE_AT_A_TIME, closing(pdf[number]) as page:
        width, height = (min(max(side, 1.0), 1e6) for side in page.get_size())
        most = _MOST_COLOURED if in_colour else _MOST_PIXELS
        dpi = min(dpi, _POINTS * (most / (width * height)) ** 0.5)
        how = {"rev_byteorder": True, "prefer_bgrx": False} if in_colour else {"grayscale": True}
        with closing(page.render(scale=dpi / _POINTS, **how)) as bitmap:
            pixels = bitmap.to_numpy()
            if in_colour:
                return pixels[:, :, :3].copy(), dpi
            return (pixels[:, :, 0] if pixels.ndim == 3 else pixels).copy(), dpi


_MOST_CHARACTERS = 100_000_000
_MOST_PAGES = 20_000
"""Pages that are read: a small file may name one page any number of times."""
_RENEWED = 250
_XFA = (2, 3)  # FORMTYPE_XFA_FULL, FORMTYPE_XFA_FOREGROUND


def reading_of(reader: "PdfReader", blob: Blob) -> Reading:
    """The content of a PDF. A page, or a part of one, that fails is empty or plain text, and is reported."""
    noticed = Noticed()
    with opened(blob, reader.passwords) as file:
        failures = file.failures
        no_marks: list[Bookmark] = []
        with ONE_AT_A_TIME:
            title = failures.attempt("title", lambda: title_of(file.pdf), "")
            marks = failures.attempt("outline", lambda: list(bookmarks(file.pdf, failures)), no_marks)
            for number in _attachments(file):
                failures.attempt("attachment", partial(_size, file.pdf, number), 0, place=f"attachment {number + 1}")
        leaves = list(_leaves(reader, file, blob, noticed))
    if len(noticed.unread) >= len(leaves):
        raise damaged(blob, " ".join(["no page can be read.", *failures.warnings()]))
    noticed.dropped["XFA forms"] += file.kind in _XFA
    made = bound(leaves, marks, blob.uri, failures)
    document = blob.document(
        reader, made.text, title=title or made.title, pages=made.starts, headings=made.headings,
        regions=made.regions, boxes=made.boxes,
    )  # fmt: skip
    return Reading(
        document,
        empty_pages=tuple(number for number, leaf in enumerate(leaves, 1) if not leaf.written.text),
        ocr_pages=tuple(noticed.recognised),
        dropped=counted(noticed.dropped + Counter(failures.dropped())),
        images=made.images,
        warnings=(*failures.warnings(), *noticed.warnings(made.text, len(leaves))),
        lacks=reader.lacking() if noticed.unseen else "",
    )


def attached_to(blob: Blob, passwords: tuple[tuple[str, str], ...]) -> list[Blob]:
    """The attached files."""
    with opened(blob, passwords) as file, ONE_AT_A_TIME:
        return list(attached(file, blob.uri))


def _leaves(reader: "PdfReader", file: PdfFile, blob: Blob, noticed: Noticed) -> Iterator[PageText]:
    """The pages, one after the other; between them PDFium is free for other threads."""
    characters, count = 0, len(file.pdf)
    for number in range(min(count, _MOST_PAGES)):
        if number and number % _RENEWED == 0:
            file.renew()
        leaf = _leaf(reader, file, number, noticed)
        if noticed.cut:
            return
        characters += len(leaf.written.text)
        if characters > _MOST_CHARACTERS:
            raise UnsafeDocument(
                f"{blob.uri}: {number + 1} of its {count} pages hold more than {_MOST_CHARACTERS:,} characters, "
                "the most that a document may have. Split it, for example: qpdf --split-pages=1000 OLD.pdf NEW.pdf"
            )
        yield leaf
    noticed.dropped["pages"] += max(0, count - _MOST_PAGES)


_NO_PAGE = PdfPage()
_NO_TEXT = PageText(unplaced(()))


def _leaf(reader: "PdfReader", file: PdfFile, number: int, noticed: Noticed) -> PageText:
    """A page, written: as a person reads it, else its plain text, else nothing."""
    attempt: Attempt = partial(file.failures.attempt, place=f"page {number + 1}")

    def read() -> PdfPage:
        return page_of(file.pdf, number, file.form, attempt, tables=reader.tables, pictures=reader.images)

    with ONE_AT_A_TIME:
        page = attempt("page", read, _NO_PAGE, lambda: plain_page(file.pdf, number))
    if page is _NO_PAGE:
        noticed.damage(number + 1)
    elif not page.lines and not page.blank:
        page = attempt("scanned page", lambda: recognised(file.pdf, number, page, reader.ocr, noticed), page)
    noticed.dropped.update(page.dropped)
    written: PageText = attempt(
        "page", lambda: leaf_of(page, number + 1, attempt), _NO_TEXT, lambda: PageText(unplaced(page.lines))
    )
    return written
