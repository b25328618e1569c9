"""What is kept of a page until the document is complete: its text, packed places, and little else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spolia.indexing.readers.hyphens import HYPHEN
from spolia.indexing.readers.pages.area import Area
from spolia.indexing.readers.pages.captions import caption_of
from spolia.indexing.readers.pages.headings import Styled
from spolia.indexing.readers.pages.line import Line
from spolia.indexing.readers.pages.writing import Written, written

if TYPE_CHECKING:
    from spolia.indexing.readers.pages.page import Page
    from spolia.indexing.readers.pages.pictures import Picture
    from spolia.indexing.readers.pages.tables import Table

_FEW = 20


@dataclass(frozen=True)
class Spot:
    """A table or a picture: its stretch of the page's text, its caption, where it stands."""

    kind: str
    start: int
    end: int
    area: Area
    rows: tuple[tuple[str, ...], ...] = ()
    caption: str = ""
    picture: Picture | None = None

    def at(self, start: int, end: int) -> Spot:
        """The same elsewhere."""
        return replace(self, start=start, end=end)


@dataclass(frozen=True)
class Leaf:
    """A page, written.

    Args:
        written: its text and the places of its lines.
        spots: tables and pictures, in the order of the text.
        styled: lines that may be headings.
        sizes: number of characters of each size.
    """

    written: Written
    spots: tuple[Spot, ...] = ()
    styled: tuple[Styled, ...] = ()
    sizes: Counter[float] = field(default_factory=Counter)


def leaf_of(page: Page, number: int) -> Leaf:
    """Write a page.

    Args:
        number: from 1.
    """
    text = written(page.lines, number)
    spots = [*_tables(page.lines, text), *_pictures(page, text)]
    sizes: Counter[float] = Counter()
    for line in page.lines:
        if line.size:
            sizes[line.size] += len(line.text)
    return Leaf(
        text, tuple(sorted(spots, key=lambda spot: spot.start)), tuple(_styled(page.lines, text, number, sizes)), sizes
    )


def _styled(lines: Sequence[Line], text: Written, number: int, sizes: Counter[float]) -> Iterator[Styled]:
    """The lines that may be headings: on a page with much text only those that are bold or larger than most of it."""
    usual = sizes.most_common(1)[0][0] if sizes and len(lines) > _FEW else 0.0
    for at, line in enumerate(lines):
        distinct = line.bold or line.size > usual
        if line.heading and line.size and distinct and not line.vertical and line.table is None:
            yield Styled(number - 1, at, int(text.places["start"][at]), line.text, line.size, line.bold)


def _tables(lines: Sequence[Line], text: Written) -> Iterator[Spot]:
    rows: dict[int, tuple[Table, list[int]]] = {}
    for at, line in enumerate(lines):
        if line.table is not None:
            rows.setdefault(id(line.table), (line.table, []))[1].append(at)
    for table, places in rows.values():
        start, end = text.places["start"][places[0]], text.places["end"][places[-1]]
        cells = tuple(tuple(cell.replace(HYPHEN, "") for cell in row) for row in table.rows)
        yield Spot("table", int(start), int(end), table.area, cells, _said(caption_of(table.area, "table", lines)))


def _pictures(page: Page, text: Written) -> Iterator[Spot]:
    """A picture's stretch is its caption; without one it is empty, after the last line above the picture."""
    places = {id(line): at for at, line in enumerate(page.lines)} if page.pictures else {}
    for picture in page.pictures:
        caption = caption_of(picture.area, "image", page.lines)
        if caption:
            start, end = (int(text.places[side][places[id(caption[at])]]) for side, at in (("start", 0), ("end", -1)))
        else:
            above = [at for at, line in enumerate(page.lines) if line.area.bottom <= picture.area.top + 2]
            start = end = int(text.places["end"][above[-1]]) if above else 0
        yield Spot("image", start, end, picture.area, caption=_said(caption), picture=picture)


def _said(lines: Sequence[Line]) -> str:
    """What lines say, as one; which words a mark breaks is decided with the whole document, here most are."""
    return " ".join(line.text for line in lines).replace(f"{HYPHEN} ", "").rstrip(HYPHEN)
