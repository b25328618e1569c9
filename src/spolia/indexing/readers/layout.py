"""Writer of a document's text: folds blanks, separates paragraphs, notes headings and regions."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spolia.indexing.readers.pictures.linked_images import LinkedPictures
from spolia.indexing.readers.reader import Blob, FileReader, Reading, nonzero_counts
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Heading, Meta, Region

SPACE, LINE, BLANK_LINE = 1, 2, 3
_GAPS = ("", " ", "\n", "\n\n")
_BLANKS = re.compile(r"[ \t\n\r\f\v\u00a0\u200b]+")
# No text, and no store takes half of a surrogate pair.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_UNSET = -1


class Mark:
    """Place in the text where the next written part begins; unset until something is written."""

    def __init__(self, pieces: int) -> None:
        self.pieces, self.start = pieces, _UNSET


# Spans multiply: a short page could state a table of gigabytes.
_REPEATED_LIMIT = 100_000
_WIDEST, _TALLEST = 1_000, 65_534  # HTML, 4.9.11


class LayoutTable:
    """Table whose cells are written one by one. A cell that spans rows or columns is repeated in each, so that every
    row is complete. `is_plain` is False if it holds another table: then it only arranges the page and is no region."""

    def __init__(self, layout: "Layout") -> None:
        self.layout, self.in_cell, self.is_plain, self.caption = layout, False, True, ""
        self.columns: list[str] = []  # their names, where the cells say from which to which they span
        self._rows: list[list[str]] = []
        self._mark = layout.mark()
        self._cell = self._mark
        self._span = (1, 1)
        self._spanning: dict[int, tuple[int, str]] = {}  # by column: for how many more rows the cell above counts
        self._repeated = 0

    def enter(self, part: str, rows: int = 1, columns: int = 1) -> None:
        if part == "row" or not self._rows:
            self.layout.gap(LINE)
            self._rows.append([])
        if part == "cell":
            self._repeat_spanning()
            self.in_cell = True
            self._span = min(max(rows, 1), _TALLEST), min(max(columns, 1), _WIDEST)
            if self._rows[-1]:
                self.layout.write(" | ")
            self._cell = self.layout.mark()

    def leave(self, part: str) -> None:
        if part == "cell" and self.in_cell:
            self.in_cell = False
            words = self.layout.text_since(self._cell) if self.is_plain else ""
            column, (rows, columns) = len(self._rows[-1]), self._span
            self._rows[-1].append(words)
            for _ in range(columns - 1 if self.is_plain else 0):
                self._repeat(words)
            if rows > 1 and self.is_plain:
                self._spanning |= dict.fromkeys(range(column, len(self._rows[-1])), (rows - 1, words))
        elif part == "row":
            self._repeat_spanning()
            self.layout.gap(LINE)

    def _repeat_spanning(self) -> None:
        """Repeat the cells of rows above that reach into this row and come next."""
        while (spanning_cell := self._spanning.pop(len(self._rows[-1]), None)) is not None:
            rows, words = spanning_cell
            if rows > 1:
                self._spanning[len(self._rows[-1])] = rows - 1, words
            self._repeat(words)

    def _repeat(self, words: str) -> None:
        self._repeated += len(words)
        words = words if self._repeated <= _REPEATED_LIMIT else ""
        if self._rows[-1]:
            self.layout.write(" | ")
        self.layout.write(words)
        self._rows[-1].append(words)

    def close(self) -> None:
        """End the table. It becomes a region if a row has two columns."""
        if self.is_plain and any(len(row) > 1 for row in self._rows):
            rows = [row for row in self._rows if any(row)]
            self.layout.add_region("table", self._mark, rows=rows, caption=self.caption)
        self.layout.gap(BLANK_LINE)


def span(value: str | None, default: int = 1) -> int:
    """Parse the number of rows or columns that a cell spans.

    >>> span("2"), span("many"), span(None)
    (2, 1, 1)
    """
    value = (value or "").strip()
    # A longer number is no span, and int() refuses very long ones.
    return int(value) if value.isdecimal() and len(value) < 9 else default


class Layout:
    """Text under construction. While `exact` is above 0, blanks are kept.

    >>> layout = Layout()
    >>> layout.write("One "), layout.write(" two"), layout.gap(BLANK_LINE), layout.write(" three ")
    (None, None, None, None)
    >>> layout.text()
    'One two\\n\\nthree'
    """

    def __init__(self, failures: UnitFailures | None = None) -> None:
        self.failures = UnitFailures() if failures is None else failures  # an empty one is False
        self.headings: list[Heading] = []
        self.regions: list[Region] = []
        self.images: dict[str, Blob] = {}
        self.exact = 0
        self._pieces: list[str] = []
        self._length = 0
        self._gap = 0
        self._heading: Mark | None = None
        self._waiting: list[Mark] = []
        self._notes: list[str] = []
        self._numbers = 0

    def __len__(self) -> int:
        return self._length

    def text(self) -> str:
        return "".join(self._pieces)

    def gap(self, size: int) -> None:
        """Leave at least this much space before the next part."""
        self._gap = max(self._gap, size)

    def write(self, text: str, *, is_exact: bool = False) -> None:
        """Add text. Blanks are folded into one, except in preformatted parts."""
        text = _NO_TEXT.sub("", text)
        if self.exact or is_exact:
            self._add(text.replace("\r\n", "\n"))
            return
        words = _BLANKS.sub(" ", text)
        if words.startswith(" "):
            self.gap(SPACE)
        if words := words.strip(" "):
            self._add(words)
            if text[-1] != words[-1]:
                self.gap(SPACE)

    def _add(self, text: str) -> None:
        if not text:
            return
        separator = _GAPS[self._gap] if self._length else ""
        if separator == " " and self._pieces[-1].endswith((" ", "\n")):  # exact text may end with a blank of its own
            separator = ""
        for mark in self._waiting:
            mark.start = self._length + len(separator)
        self._waiting.clear()
        self._pieces.append(separator + text)
        self._length += len(separator) + len(text)
        self._gap = 0

    def attempt(
        self, unit: str, write: Callable[[], object], plain: Callable[[], str] | None = None, *, place: str = ""
    ) -> None:
        """Write a unit of the file. If that fails, only its plain text remains, and the failure is reported.

        >>> layout = Layout()
        >>> layout.attempt("shape", lambda: (layout.write("half"), 1 // 0), lambda: "plain")
        >>> layout.text()
        'plain'
        """
        state = self._state()

        def write_plain() -> bool:
            text = plain() if plain else ""
            self.gap(BLANK_LINE)
            for line in text.splitlines():
                self.gap(LINE if line.strip() else BLANK_LINE)
                self.write(line)
            self.gap(BLANK_LINE)
            return bool(text.strip())

        self.failures.attempt(
            unit, lambda: bool(write()), False, write_plain, place=place, undo=lambda: self._restore(state)
        )

    def _state(self) -> tuple[Any, ...]:
        lengths = tuple(map(len, self._lists()))
        pictures = len(self.images)
        return (
            lengths,
            pictures,
            self._length,
            self._gap,
            self.exact,
            self._heading,
            tuple(self._waiting),
            self._numbers,
        )

    def _lists(self) -> tuple[list[Any], ...]:
        return self.headings, self.regions, self._pieces, self._notes

    def _restore(self, state: tuple[Any, ...]) -> None:
        lengths, pictures, self._length, self._gap, self.exact, self._heading, waiting, self._numbers = state
        for entries, length in zip(self._lists(), lengths, strict=True):
            del entries[length:]
        for name in [*self.images][pictures:]:
            del self.images[name]
        self._waiting[:] = waiting
        for mark in waiting:
            mark.start = _UNSET

    def mark(self) -> Mark:
        """Return a mark for the place where the next text begins."""
        mark = Mark(len(self._pieces))
        self._waiting.append(mark)
        return mark

    def text_since(self, mark: Mark) -> str:
        """Return the text since a mark, on one line."""
        return " ".join("".join(self._pieces[mark.pieces :]).split())

    def open_heading(self) -> None:
        """Begin a heading."""
        self._heading = self.mark()

    def close_heading(self, level: int) -> None:
        """End the heading; one without words is dropped."""
        if self._heading is None:
            return
        mark, self._heading = self._heading, None
        if words := self.text_since(mark):
            self.headings.append(Heading(mark.start, level, words))

    def write_heading(self, text: str, level: int) -> None:
        """Write a heading in a paragraph of its own."""
        self.gap(BLANK_LINE)
        self.open_heading()
        self.write(text)
        self.close_heading(level)
        self.gap(BLANK_LINE)

    def write_paragraph(self, text: str) -> None:
        """Write text in a paragraph of its own."""
        self.gap(BLANK_LINE)
        self.write(text)
        self.gap(BLANK_LINE)

    def write_picture(self, image: Blob, description: str) -> None:
        """Write a picture's description as an image region in a paragraph of its own."""
        self.images.setdefault(image.content_hash, image)
        self.gap(BLANK_LINE)
        mark = self.mark()
        self.write(description)
        self.add_region("image", mark, image=image.content_hash, caption=" ".join(description.split()))
        self.gap(BLANK_LINE)

    def resolve_pictures(self, pictures: LinkedPictures) -> None:
        """Replace the names of a page's pictures by the pictures."""
        self.regions, self.images = list(pictures.resolve_regions(self.sorted_regions())), pictures.images

    def add_note(self, note: str) -> str:
        """Keep a note for `write_notes`, and return its reference."""
        self._numbers += 1
        self._notes.append(f"[{self._numbers}] {' '.join(note.split())}")
        return f" [{self._numbers}]"

    def write_notes(self) -> None:
        """Write the notes kept so far, each in a paragraph of its own."""
        for note in self._notes:
            self.write_paragraph(note)
        self._notes.clear()

    def add_region(
        self,
        kind: str,
        mark: Mark,
        *,
        rows: Iterable[Sequence[str]] = (),
        image: str = "",
        caption: str = "",
        seconds: tuple[float, float] | None = None,
    ) -> None:
        """Make the text since a mark a region. Only an image may be without text."""
        start = mark.start if mark.start != _UNSET else self._length
        table_rows = tuple(tuple(row) for row in rows)
        if start < self._length or image:
            self.regions.append(Region(kind, start, self._length, table_rows, image, caption, seconds=seconds))

    def write_table(self, rows: Iterable[Sequence[str]], caption: str = "") -> None:
        """Write a table of given cells, with a line for each row.

        >>> layout = Layout()
        >>> layout.write_table([("stone", "t"), ("basalt", "3.0")])
        >>> layout.text(), layout.regions[0].rows
        ('stone | t\\nbasalt | 3.0', (('stone', 't'), ('basalt', '3.0')))
        """
        self.gap(BLANK_LINE)
        mark = self.mark()
        table_rows = []
        for row in rows:
            cells = tuple(" ".join(_NO_TEXT.sub("", cell).split()) for cell in row)
            self.gap(LINE)
            self.write(" | ".join(cells).strip())
            table_rows.append(cells)
        self.add_region("table", mark, rows=table_rows, caption=caption)
        self.gap(BLANK_LINE)

    @property
    def title(self) -> str:
        """Return the first heading of level 1; empty without one."""
        return next((heading.text for heading in self.headings if heading.level == 1), "")

    def build_reading(
        self,
        reader: FileReader,
        blob: Blob,
        *,
        title: str = "",
        pages: Iterable[int] = (),
        meta: Meta = (),
        encoding: str = "",
        empty_pages: Iterable[int] = (),
        dropped: Mapping[str, int] | None = None,
        warnings: tuple[str, ...] = (),
        linked_images: tuple[tuple[int, str], ...] = (),
    ) -> Reading:
        """Build the reading of a blob with this text. Raises DocumentError if every unit failed."""
        if self.failures and not self.text().strip():
            self.failures.raise_any(blob.uri)
        document = blob.document(
            reader,
            self.text(),
            title=title,
            pages=pages,
            headings=self.headings,
            regions=self.sorted_regions(),
            meta=meta,
        )
        return Reading(
            document,
            encoding,
            empty_pages=tuple(empty_pages),
            dropped=nonzero_counts(Counter(dropped or {}) + Counter(self.failures.dropped())),
            images=tuple(self.images.values()),
            warnings=warnings + self.failures.warnings(),
            linked_images=linked_images,
        )

    def append(self, layout: "Layout") -> None:
        """Append another layout, in paragraphs of its own."""
        self.insert(layout.text(), layout.headings, layout.regions)
        # A layout that shares the failures has reported them already.
        if layout.failures is not self.failures:
            self.failures.include(layout.failures)

    def insert(self, text: str, headings: Iterable[Heading], regions: Iterable[Region]) -> None:
        """Insert a text unchanged, in paragraphs of its own, with its headings and regions."""
        self.gap(BLANK_LINE)
        mark = self.mark()
        self._add(text)
        start = max(mark.start, 0)  # without a text the mark is unset
        self.headings += [heading.but(start=start + heading.start) for heading in headings]
        self.regions += [region.but(start=start + region.start, end=start + region.end) for region in regions]
        self.gap(BLANK_LINE)

    def sorted_regions(self) -> tuple[Region, ...]:
        """Return the regions in the order of the text, outer ones first."""
        return tuple(sorted(self.regions, key=lambda region: (region.start, -region.end)))
