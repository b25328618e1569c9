"""What a person should know of a PDF that was read."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from spolia.errors import DocumentError
from spolia.indexing.readers.hyphenation import joints
from spolia.indexing.readers.pdf.file import (
    ONE_AT_A_TIME,
    Bookmark,
    PdfFile,
    attached,
    bookmarks,
    damaged,
    opened,
    outlined,
    title_of,
)
from spolia.indexing.readers.pdf.headings import by_style
from spolia.indexing.readers.pdf.lines import Written, moved
from spolia.indexing.readers.pdf.page import PageText, PdfPage, Spot, leaf_of, page_of
from spolia.indexing.readers.pictures.ocr import Ocr
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Box, Boxes, Heading, Region

if TYPE_CHECKING:
    from spolia.indexing.readers.pdf.reader import PdfReader

_NO_CHARACTER = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")  # glyphs that the file gives no character for
_LEAST_SURE = 60.0
_SHOWN = 5
_GIVEN_UP = 1_000


@dataclass
class Noticed:
    """What is counted while the pages are read, with their numbers from 1.

    Attributes:
        unread: damaged pages, and why.
        recognised: pages whose text was recognised, and how sure that is, in percent.
        unseen: pages that would have to be recognised and were not, by reason.
        dropped: what was seen and not read.
        cut: page from which on none is read; 0 where all are.
    """

    unread: dict[int, str] = field(default_factory=dict)
    recognised: dict[int, float] = field(default_factory=dict)
    unseen: dict[str, list[int]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    _run: int = 0

    def damage(self, page: int, why: str) -> None:
        """Note a page that cannot be read. To go on makes no sense after a thousand in a row."""
        self._run = self._run + 1 if page - 1 in self.unread else 1
        self.unread[page] = why
        if self._run == _GIVEN_UP:
            self.cut = page - _GIVEN_UP + 1

    def warnings(self, text: str, pages: int) -> Iterator[str]:
        """Sentences."""
        for why, numbers in self.unseen.items():
            yield f"{len(numbers)} of {pages} pages have no text ({_shown(numbers)}); they need OCR: {why}."
        for number, why in list(self.unread.items())[:_SHOWN]:
            yield f"Page {number} cannot be read: {why}"
        if len(self.unread) > _SHOWN:
            yield f"{len(self.unread)} of {pages} pages cannot be read ({_shown(list(self.unread))})."
        if self.cut:
            yield f"Nothing was read from page {self.cut} on: {_GIVEN_UP} pages in a row cannot be read."
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
    """A whole document.

    Args:
        text: of all pages, with a line end between them.
        starts: where each page starts.
        title: the largest line of the first page, where it is clearly one; empty where the file has an outline.
        headings, boxes: as in `Document`.
        spots: page, from 1, with each table or picture on it; their places count in the text of the document.
    """

    text: str
    starts: tuple[int, ...]
    title: str
    headings: tuple[Heading, ...]
    boxes: Boxes
    spots: tuple[tuple[int, Spot], ...]

    def regions(self, folder: str) -> tuple[Region, ...]:
        """Tables and pictures; `folder` is what the uris of pictures begin with."""
        return tuple(
            Region(
                spot.kind,
                spot.start,
                spot.end,
                spot.rows,
                image=picture.content_hash if (picture := _blob(folder, page, spot)) else "",
                caption=spot.caption,
                box=Box(page, *spot.area),
            )
            for page, spot in self.spots
        )

    def images(self, folder: str) -> tuple[Blob, ...]:
        """The pictures whose bytes were read, each once."""
        found = [blob for page, spot in self.spots if (blob := _blob(folder, page, spot))]
        return tuple({blob.content_hash: blob for blob in reversed(found)}.values())[::-1]


def bound(leaves: Sequence[PageText], marks: Sequence[Bookmark]) -> BoundPages:
    """The document of some pages and an outline."""
    changes = joints([leaf.written.text for leaf in leaves])
    pages = [leaf.written.after(change) for leaf, change in zip(leaves, changes, strict=True)]
    starts = tuple(accumulate((len(page.text) + 1 for page in pages[:-1]), initial=0))

    def place(page: int, at: int) -> int:
        return starts[page] + moved(at, changes[page])

    spots = tuple(
        (number + 1, replace(spot, start=place(number, spot.start), end=place(number, spot.end)))
        for number, leaf in enumerate(leaves)
        for spot in leaf.spots
    )
    headings, title = outlined(marks, [page.text for page in pages], starts), ""
    if not headings:
        styled = [line for leaf in leaves for line in leaf.styled]
        sizes: Counter[float] = Counter()
        for leaf in leaves:
            sizes.update(leaf.sizes)
        title, found = by_style(styled, sizes, sum(len(page.places) for page in pages))
        headings = tuple(Heading(place(page, at), level, said) for page, at, level, said in found)
    text = "\n".join(page.text for page in pages)
    return BoundPages(text, starts, title, headings, Boxes(b"".join(_packed(pages, starts))), spots)


def _packed(pages: Sequence[Written], starts: Sequence[int]) -> Iterator[bytes]:
    for page, start in zip(pages, starts, strict=True):
        places: Any = page.places.copy()
        places["start"] += np.int32(start)
        places["end"] += np.int32(start)
        yield places.tobytes()


def _blob(folder: str, page: int, spot: Spot) -> Blob | None:
    picture = spot.picture
    if picture is None or not picture.data:
        return None
    left, top = (max(0, round(side)) for side in picture.area[:2])
    return Blob(f"{folder}page-{page}-{left}-{top}{picture.suffix}", picture.data)


_POINTS = 72.0
_MOST_PIXELS = 50_000_000


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


def _drawn(pdf: Any, number: int, dpi: float) -> tuple[Any, float]:
    """A page in grey and its dots per inch, which are fewer for a page of absurd size."""
    with ONE_AT_A_TIME, closing(pdf[number]) as page:
        width, height = (min(max(side, 1.0), 1e6) for side in page.get_size())
        dpi = min(dpi, _POINTS * (_MOST_PIXELS / (width * height)) ** 0.5)
        with closing(page.render(scale=dpi / _POINTS, grayscale=True)) as bitmap:
            pixels = bitmap.to_numpy()
            return (pixels[:, :, 0] if pixels.ndim == 3 else pixels).copy(), dpi


_MOST_CHARACTERS = 100_000_000
_RENEWED = 250
_XFA = (2, 3)  # FORMTYPE_XFA_FULL, FORMTYPE_XFA_FOREGROUND


def reading_of(reader: "PdfReader", blob: Blob) -> Reading:
    """What stands in a PDF."""
    noticed = Noticed()
    with opened(blob, reader.passwords) as file:
        with ONE_AT_A_TIME:
            title, marks = title_of(file.pdf), list(bookmarks(file.pdf))
        leaves = list(_leaves(reader, file, blob, noticed))
    if len(noticed.unread) >= len(leaves):
        raise damaged(blob, "; ".join(["no page can be read", *noticed.unread.values()][:2]))
    noticed.dropped["XFA forms"] += file.kind in _XFA
    made = bound(leaves, marks)
    folder = f"{blob.uri}/"
    document = blob.document(
        reader, made.text, title=title or made.title, pages=made.starts, headings=made.headings,
        regions=made.regions(folder), boxes=made.boxes,
    )  # fmt: skip
    return Reading(
        document,
        empty_pages=tuple(number for number, leaf in enumerate(leaves, 1) if not leaf.written.text),
        ocr_pages=tuple(noticed.recognised),
        dropped=tuple(sorted((+noticed.dropped).items())),
        images=made.images(folder),
        warnings=tuple(noticed.warnings(made.text, len(leaves))),
        lacks=reader.lacking() if noticed.unseen else "",
    )


def attached_to(blob: Blob, passwords: tuple[tuple[str, str], ...]) -> list[Blob]:
    """The attached files."""
    with opened(blob, passwords) as file, ONE_AT_A_TIME:
        return list(attached(file.pdf, blob.uri))


def _leaves(reader: "PdfReader", file: PdfFile, blob: Blob, noticed: Noticed) -> Iterator[PageText]:
    """The pages, one after the other; between them PDFium is free for other threads."""
    characters, count = 0, len(file.pdf)
    for number in range(count):
        if number and number % _RENEWED == 0:
            file.renew()
        page = _page(reader, file, number, noticed)
        if noticed.cut:
            return
        leaf = leaf_of(page, number + 1)
        characters += len(leaf.written.text)
        if characters > _MOST_CHARACTERS:
            raise DocumentError(
                f"{blob.uri}: {number + 1} of its {count} pages hold more than {_MOST_CHARACTERS:,} characters, "
                "the most that a document may have. Split it, for example: qpdf --split-pages=1000 OLD.pdf NEW.pdf"
            )
        yield leaf


def _page(reader: "PdfReader", file: PdfFile, number: int, noticed: Noticed) -> PdfPage:
    with ONE_AT_A_TIME:
        page = page_of(file.pdf, number, file.form, tables=reader.tables, pictures=reader.images)
    if page.why:
        noticed.damage(number + 1, page.why)
    elif not page.lines and not page.blank:
        page = recognised(file.pdf, number, page, reader.ocr, noticed)
    noticed.dropped.update(page.dropped)
    return page
