"""Writing the text of a formatted document: blanks folded, paragraphs apart, headings and regions noted."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spolia.indexing.readers.pictures.linked_images import Linked
from spolia.indexing.readers.reader import Blob, FileReader, Reading, counted
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Heading, Meta, Region

SPACE, LINE, BLANK_LINE = 1, 2, 3
_GAPS = ("", " ", "\n", "\n\n")
_BLANKS = re.compile(r"[ \t\n\r\f\v\u00a0\u200b]+")
# No text, and no store takes half of a surrogate pair.
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NOWHERE = -1


class Mark:
    """A place in the text: where what is written next begins; before that, nowhere."""

    def __init__(self, pieces: int) -> None:
        self.pieces, self.start = pieces, _NOWHERE


_MOST_REPEATED = 100_000
_WIDEST, _TALLEST = 1_000, 65_534  # HTML, 4.9.11


class LayoutTable:
    """A table whose cells are written one after the other. A cell that spans rows or columns is repeated in each, so
    that every row stands for itself. `is_plain` is False if it holds another table: then it only arranges the page and
    is no region."""

    def __init__(self, layout: "Layout") -> None:
        self.layout, self.in_cell, self.is_plain, self.caption = layout, False, True, ""
        self.columns: list[str] = []  # their names, where the cells say from which to which they span
        self._rows: list[list[str]] = []
        self._mark = layout.mark()
        self._cell = self._mark
        self._span = (1, 1)
        self._below: dict[int, tuple[int, str]] = {}  # by column: for how many more rows the cell above counts
        self._repeated = 0

    def enter(self, what: str, rows: int = 1, columns: int = 1) -> None:
        if what == "row" or not self._rows:
            self.layout.gap(LINE)
            self._rows.append([])
        if what == "cell":
            self._from_above()
            self.in_cell = True
            self._span = min(max(rows, 1), _TALLEST), min(max(columns, 1), _WIDEST)
            if self._rows[-1]:
                self.layout.write(" | ")
            self._cell = self.layout.mark()

    def leave(self, what: str) -> None:
        if what == "cell" and self.in_cell:
            self.in_cell = False
            words = self.layout.words(self._cell) if self.is_plain else ""
            at, (rows, columns) = len(self._rows[-1]), self._span
            self._rows[-1].append(words)
            for _ in range(columns - 1 if self.is_plain else 0):
                self._repeat(words)
            if rows > 1 and self.is_plain:
                self._below |= dict.fromkeys(range(at, len(self._rows[-1])), (rows - 1, words))
        elif what == "row":
            self._from_above()
            self.layout.gap(LINE)

    def _from_above(self) -> None:
        """Repeat the cells of rows above that come next in this row."""
        while (above := self._below.pop(len(self._rows[-1]), None)) is not None:
            rows, words = above
            if rows > 1:
                self._below[len(self._rows[-1])] = rows - 1, words
            self._repeat(words)

    def _repeat(self, words: str) -> None:
        self._repeated += len(words)
        words = words if self._repeated <= _MOST_REPEATED else ""
        if self._rows[-1]:
            self.layout.write(" | ")
        self.layout.write(words)
        self._rows[-1].append(words)

    def close(self) -> None:
        """The table ends: a region, if it has two columns."""
        if self.is_plain and any(len(row) > 1 for row in self._rows):
            rows = [row for row in self._rows if any(row)]
            self.layout.region("table", self._mark, rows=rows, caption=self.caption)
        self.layout.gap(BLANK_LINE)


def span(value: str | None, default: int = 1) -> int:
    """For how many rows or columns a cell counts, by its attribute.

    >>> span("2"), span("many"), span(None)
    (2, 1, 1)
    """
    value = (value or "").strip()
    return int(value) if value.isdecimal() and len(value) < 9 else default


class Layout:
    """A text that grows; while `exact` is above 0, blanks are kept as they are.

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

    def write(self, text: str, *, exactly: bool = False) -> None:
        """Add text; outside of preformatted parts, blanks are folded into one."""
        text = _REFUSED.sub("", text)
        if self.exact or exactly:
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
        before = _GAPS[self._gap] if self._length else ""
        if before == " " and self._pieces[-1].endswith((" ", "\n")):
            before = ""
        for mark in self._waiting:
            mark.start = self._length + len(before)
        self._waiting.clear()
        self._pieces.append(before + text)
        self._length += len(before) + len(text)
        self._gap = 0

    def attempt(
        self, unit: str, write: Callable[[], object], plain: Callable[[], str] | None = None, *, place: str = ""
    ) -> None:
        """Write a unit of the file. One that fails leaves nothing behind but its plain text, and is reported.

        >>> layout = Layout()
        >>> layout.attempt("shape", lambda: (layout.write("half"), 1 // 0), lambda: "plain")
        >>> layout.text()
        'plain'
        """
        before = self._state()

        def write_plain() -> bool:
            text = plain() if plain else ""
            self.gap(BLANK_LINE)
            for line in text.splitlines():
                self.gap(LINE if line.strip() else BLANK_LINE)
                self.write(line)
            self.gap(BLANK_LINE)
            return bool(text.strip())

        self.failures.attempt(
            unit, lambda: bool(write()), False, write_plain, place=place, undo=lambda: self._restore(before)
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
        for kept, length in zip(self._lists(), lengths, strict=True):
            del kept[length:]
        for name in [*self.images][pictures:]:
            del self.images[name]
        self._waiting[:] = waiting
        for mark in waiting:
            mark.start = _NOWHERE

    def mark(self) -> Mark:
        """The place where what is written next will begin."""
        mark = Mark(len(self._pieces))
        self._waiting.append(mark)
        return mark

    def words(self, mark: Mark) -> str:
        """What was written since a mark, on one line."""
        return " ".join("".join(self._pieces[mark.pieces :]).split())

    def open_heading(self) -> None:
        """What is written from here on is a heading."""
        self._heading = self.mark()

    def close_heading(self, level: int) -> None:
        """The heading ends here; one without words is none."""
        if self._heading is None:
            return
        mark, self._heading = self._heading, None
        if words := self.words(mark):
            self.headings.append(Heading(mark.start, level, words))

    def heading(self, text: str, level: int) -> None:
        """A heading in a paragraph of its own."""
        self.gap(BLANK_LINE)
        self.open_heading()
        self.write(text)
        self.close_heading(level)
        self.gap(BLANK_LINE)

    def paragraph(self, text: str) -> None:
        """Text in a paragraph of its own."""
        self.gap(BLANK_LINE)
        self.write(text)
        self.gap(BLANK_LINE)

    def picture(self, image: Blob, said: str) -> None:
        """A picture and its description, as a region in a paragraph of its own."""
        self.images.setdefault(image.content_hash, image)
        self.gap(BLANK_LINE)
        mark = self.mark()
        self.write(said)
        self.region("image", mark, image=image.content_hash, caption=" ".join(said.split()))
        self.gap(BLANK_LINE)

    def show(self, pictures: Linked) -> None:
        """Put the pictures of a page in the place of what it calls them."""
        self.regions, self.images = list(pictures.shown(self.in_order())), pictures.images

    def refer(self, note: str) -> str:
        """The sign for a note that is to stand below."""
        self._numbers += 1
        self._notes.append(f"[{self._numbers}] {' '.join(note.split())}")
        return f" [{self._numbers}]"

    def write_notes(self) -> None:
        """The notes that were referred to, in paragraphs of their own."""
        for note in self._notes:
            self.paragraph(note)
        self._notes.clear()

    def region(
        self,
        kind: str,
        mark: Mark,
        *,
        rows: Iterable[Sequence[str]] = (),
        image: str = "",
        caption: str = "",
        seconds: tuple[float, float] | None = None,
    ) -> None:
        """What was written since a mark is a region; one of a picture may be without words."""
        start = mark.start if mark.start != _NOWHERE else self._length
        kept = tuple(tuple(row) for row in rows)
        if start < self._length or image:
            self.regions.append(Region(kind, start, self._length, kept, image, caption, seconds=seconds))

    def table(self, rows: Iterable[Sequence[str]], caption: str = "") -> None:
        """A table whose cells are known: a line for each row.

        >>> layout = Layout()
        >>> layout.table([("stone", "t"), ("basalt", "3.0")])
        >>> layout.text(), layout.regions[0].rows
        ('stone | t\\nbasalt | 3.0', (('stone', 't'), ('basalt', '3.0')))
        """
        self.gap(BLANK_LINE)
        mark = self.mark()
        kept = []
        for row in rows:
            cells = tuple(" ".join(_REFUSED.sub("", cell).split()) for cell in row)
            self.gap(LINE)
            self.write(" | ".join(cells).strip())
            kept.append(cells)
        self.region("table", mark, rows=kept, caption=caption)
        self.gap(BLANK_LINE)

    @property
    def title(self) -> str:
        """The first heading of level 1; empty without one."""
        return next((heading.text for heading in self.headings if heading.level == 1), "")

    def reading(
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
        beside: tuple[tuple[int, str], ...] = (),
    ) -> Reading:
        """What a reader gives of a blob with this text. Raises DocumentError if all that could be read failed."""
        if self.failures and not self.text().strip():
            self.failures.raise_any(blob.uri)
        document = blob.document(
            reader, self.text(), title=title, pages=pages, headings=self.headings, regions=self.in_order(), meta=meta
        )
        return Reading(
            document,
            encoding,
            empty_pages=tuple(empty_pages),
            dropped=counted(Counter(dropped or {}) + Counter(self.failures.dropped())),
            images=tuple(self.images.values()),
            warnings=warnings + self.failures.warnings(),
            beside=beside,
        )

    def append(self, other: "Layout") -> None:
        """All of another one, in paragraphs of its own."""
        self.insert(other.text(), other.headings, other.regions)
        if other.failures is not self.failures:
            self.failures.include(other.failures)

    def insert(self, text: str, headings: Iterable[Heading], regions: Iterable[Region]) -> None:
        """A text as it is, in paragraphs of its own, with its headings and regions."""
        self.gap(BLANK_LINE)
        mark = self.mark()
        self._add(text)
        start = max(mark.start, 0)
        self.headings += [heading.but(start=start + heading.start) for heading in headings]
        self.regions += [one.but(start=start + one.start, end=start + one.end) for one in regions]
        self.gap(BLANK_LINE)

    def in_order(self) -> tuple[Region, ...]:
        """The regions in the order of the text, those around others before them."""
        return tuple(sorted(self.regions, key=lambda region: (region.start, -region.end)))
