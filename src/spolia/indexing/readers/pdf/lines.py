"""The lines of a page, the words that are broken at their ends, and the text that they make.

PDFium marks the place of a broken word with U+FFFE and takes the line end away, other writers leave a soft hyphen. The
mark does not tell a word that was broken (`effi-cient`) from one that has a hyphen anyway (`dual-encoder`); the rest of
the document does.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, islice, pairwise
from typing import Any
from unicodedata import combining

import numpy as np
from pypdfium2 import raw

from spolia.indexing.readers.pdf.columns import Gutter
from spolia.indexing.readers.pdf.geometry import Area, VisiblePage, boxes, codes, fonts, rectangles, sizes
from spolia.indexing.readers.pdf.headings import may_be_heading

HYPHEN = "\ufffe"
_SOFT = "\u00ad"
_MARK = re.compile("\ufffe+[ \t]*+\n?[ \t]*+")
_LETTERS_OF_WORD = re.compile(r"\w*")
_LONGEST = 40
_WORD = re.compile("[-\\w\ufffe]+")
Change = tuple[int, int, str]
"""Start and end of what goes, and what comes in its place."""


def joints(pages: Sequence[str]) -> list[list[Change]]:
    """What becomes of the marks on each page, in the order of its text."""
    pages = [page.replace(_SOFT, HYPHEN) for page in pages]
    if not any(HYPHEN in page for page in pages):
        return [[] for _ in pages]
    words: set[str] = set()
    for page in pages:
        words.update(_words(page.casefold()))
    words.update(f"-{word.rpartition('-')[2]}" for word in tuple(words) if "-" in word)

    def change(mark: re.Match[str]) -> Change:
        page, start, end = mark.string, mark.start(), mark.end()
        left = _first_word(page[max(0, start - _LONGEST) : start][::-1])[::-1]
        right = _first_word(page[end : end + _LONGEST])
        return start, end, "-" if left and right and _has_hyphen(left, right, words) else ""

    return [[change(mark) for mark in _MARK.finditer(page)] for page in pages]


def _words(text: str) -> set[str]:
    """Return the words of a text. Most stand between blanks; patterns take longer to find those."""
    tokens = set(text.split())
    words = {token for token in tokens if token.isalnum()}
    return words.union(_WORD.findall(" ".join(tokens - words)))


def changed(text: str, changes: Sequence[Change]) -> str:
    """The text after changes, which are in its order."""
    pieces: list[str] = []
    at = 0
    for start, end, instead in changes:
        pieces += text[at:start], instead
        at = end
    return "".join((*pieces, text[at:])) if changes else text


def _first_word(text: str) -> str:
    found = _LETTERS_OF_WORD.match(text)
    return found[0] if found else ""


def _has_hyphen(left: str, right: str, words: set[str]) -> bool:
    """Whether the hyphen is the word's: it is written so elsewhere, others end so, or only its two parts are words."""
    a, b = left.casefold(), right.casefold()
    if a + b in words:
        return False
    if f"{a}-{b}" in words or (len(b) > 3 and f"-{b}" in words):
        return True
    if right[0].isdigit() or (right[0].isupper() and not (left + right).isupper()):
        return True
    return len(a) > 3 and len(b) > 3 and a in words and b in words


_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff"
_RUN = re.compile(f"[{_LETTERS}](?:[{_LETTERS} \u00a0]*[{_LETTERS}])?")


Middles = Callable[[Sequence[int]], Sequence[float]]


def read_from_the_right(text: str, middles: Middles) -> str:
    """The characters of a page; each run of letters that stands the wrong way round is turned, in its place. `middles`:
    how far from the left characters of the page stand, by their numbers."""
    runs = [(run, _letters(run)) for run in _RUN.finditer(text)]
    if not runs:
        return text
    places = iter(middles([at for _, letters in runs for at in letters]))
    turned = iter([_turned(run[0], list(islice(places, len(letters)))) for run, letters in runs])
    return _RUN.sub(lambda _: next(turned), text)


def _letters(run: re.Match[str]) -> list[int]:
    return [at for at, letter in enumerate(run[0], run.start()) if not letter.isspace() and not combining(letter)]


def _turned(text: str, places: Sequence[float]) -> str:
    rising = sum(1 if two > one else -1 for one, two in pairwise(places) if two != one)
    alike = not rising and max(places, default=0.0) - min(places, default=0.0) < 0.01
    wrong = rising > 0 or alike  # all at one place: given beside the letters, as they are read (`ActualText`)
    return text[::-1] if wrong and len(places) > 1 else text


NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\uffff]")
_VERTICAL = 3


@dataclass(frozen=True, eq=False)
class PageTable:
    """A table on a page; every row has the same number of cells, and `letters` are the numbers of its characters."""

    rows: tuple[tuple[str, ...], ...]
    areas: tuple[Area, ...]
    letters: Any

    @property
    def area(self) -> Area:
        """All of it."""
        return Area.around(self.areas)


@dataclass(slots=True, eq=False)
class PageLine:
    """A line: what it says, without blanks around; a mark at its end where a word goes on in the next."""

    text: str
    area: Area
    at: int = -1  # number of its first character on the page, for PDFium; -1 for what does not come from there
    end: int = -1  # number after its last character
    size: float = 0.0  # of its letters, in points; 0 where nobody asked
    bold: bool = False  # known only where it matters
    heading: bool = False  # its words may be those of a heading; known only where somebody looked
    table: PageTable | None = None  # that it is a row of

    @property
    def vertical(self) -> bool:
        """Whether it runs up or down the page, as stamps at the margin do."""
        left, top, right, bottom = self.area
        return bottom - top > _VERTICAL * (right - left) and len(self.text) > 4

    @property
    def broken(self) -> bool:
        """Whether its last word goes on in the next line."""
        return self.text.endswith(HYPHEN)


_LINE = re.compile("[^\r\n\ufffe]*[^\r\n\ufffe \t][^\r\n\ufffe]*\ufffe*")

_NOWHERE = Area(0.0, 0.0, 0.0, 0.0)


def text_of(text_page: Any) -> str:
    """All characters of a page, one for each of PDFium's, so that places in it are places there."""
    text: str = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) != count:  # characters beyond 16 bits, and those without a meaning
        text = "".join([chr(code) if 0 < code < 0x110000 else "\x00" for code in codes(text_page, count)])
    return text


def lines_of(text_page: Any, text: str, sheet: VisiblePage) -> tuple[list[PageLine], Any]:
    """The lines in the order of the file, and where the pieces stand that they are drawn in: n × 4, left, top, right,
    bottom as shown. A line that holds no text is left out."""
    found = list(_LINE.finditer(text))
    texts = [line[0].strip() for line in found]
    if NO_TEXT.search(text):
        texts = [NO_TEXT.sub("", text).strip() for text in texts]
    sides, nowhere, pieces = rectangles(text_page, [(line.start(), line.end() - line.start()) for line in found])
    areas = _areas(sides, nowhere, sheet)
    lines = [
        PageLine(words, area, *line.span()) for words, area, line in zip(texts, areas, found, strict=True) if words
    ]
    return lines, sheet.shown(pieces)


def areas_of(text_page: Any, spans: Sequence[tuple[int, int]], sheet: VisiblePage) -> list[Area]:
    """Where stretches of a page stand; nothing at the corner for those that stand nowhere. `spans`: the first character
    of each, and how many."""
    sides, nowhere, _ = rectangles(text_page, spans)
    return _areas(sides, nowhere, sheet)


def _areas(sides: Any, nowhere: Any, sheet: VisiblePage) -> list[Area]:
    areas = sheet.areas(sides)
    for number in nowhere.nonzero()[0]:
        areas[number] = _NOWHERE
    return areas


def by_columns(
    lines: Sequence[PageLine], gutters: Sequence[Gutter], text_page: Any, text: str, sheet: VisiblePage
) -> list[PageLine]:
    """The lines of columns that the file draws row by row: those across a gutter in pieces, each column together where
    it begins."""
    blocks: dict[tuple[int, ...], Block] = {}
    for line in lines:
        crossed = [gutter for gutter in gutters if gutter.crosses(line.area)]
        for piece in _pieces(range(line.at, line.end), crossed, text_page, text, sheet) if crossed else [line]:
            sides = tuple(gutter.side(piece.area) for gutter in gutters)
            blocks.setdefault(sides if any(sides) else (len(gutters), piece.at), []).append(piece)
    return [line for block in blocks.values() for line in block]


def _pieces(
    line: range, gutters: Sequence[Gutter], text_page: Any, text: str, sheet: VisiblePage
) -> Iterator[PageLine]:
    numbers = [at for at in line if not text[at].isspace()]
    shown = sheet.shown(boxes(text_page, numbers)[0])
    columns = np.searchsorted(sorted(gutter.middle for gutter in gutters), (shown[:, 0] + shown[:, 2]) / 2)
    turns = (np.diff(columns) != 0).nonzero()[0] + 1
    starts = [line.start, *(numbers[turn] for turn in turns.tolist())]
    spans = [(start, end - start) for start, end in pairwise([*starts, line.stop])]
    for (start, count), area in zip(spans, areas_of(text_page, spans, sheet), strict=True):
        if words := NO_TEXT.sub("", text[start : start + count]).strip():
            yield PageLine(words, area, start, start + count)


_BOLD = re.compile(rb"bold|black|heavy|[-,]?medi\b|cmbx|[-_,]b[di]?\b", re.IGNORECASE)
_SAMPLED = 4
_LARGEST = 1000.0
_USUAL = 4.0, 40.0


def measure(lines: Sequence[PageLine], text_page: Any) -> None:
    """Note the style of each line that may be a heading, and the size of every fourth one; the first letter decides."""
    for line in lines:
        line.heading = may_be_heading(line.text)
    asked = [line for number, line in enumerate(lines) if line.heading or not number % _SAMPLED]
    for line, size in zip(asked, sizes(text_page, [line.at for line in asked]), strict=True):
        if not _USUAL[0] < size < _USUAL[1]:  # then the file writes with letters of 1 point, enlarged
            size *= _enlarged(text_page, line.at)
        line.size = round(2 * size) / 2 if 0 < size < _LARGEST else 0.0
    headings = [line for line in asked if line.heading]
    for line, name in zip(headings, fonts(text_page, [line.at for line in headings]), strict=True):
        line.bold = _is_bold(name)


def _enlarged(text_page: Any, at: int) -> float:
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(text_page.raw, at, byref(matrix))
    return float(abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5)


@lru_cache(maxsize=1_024)
def _is_bold(font: bytes) -> bool:
    return bool(_BOLD.search(font))


_GUTTER = 6.0
"""Points between columns, at least."""
_DEEPEST = 60
Block = list[PageLine]


def in_order(lines: Sequence[PageLine]) -> list[PageLine]:
    """The lines as a person reads them.

    >>> head, low = PageLine("Head", Area(0, 0, 90, 10)), PageLine("Below", Area(0, 80, 90, 90))
    >>> [line.text for line in in_order([low, head])]
    ['Head', 'Below']
    """
    upright = [line for line in lines if not line.vertical]
    if not _goes_back(upright):
        return list(lines)
    stamps = [line for line in lines if line.vertical]
    head, body, foot = _furniture(upright)
    if not _goes_back(body, to_left=True):
        return [*head, *body, *foot, *stamps]
    return [line for block in _cut(_blocks(upright), _DEEPEST) for line in block] + stamps


def _furniture(lines: Sequence[PageLine]) -> tuple[list[PageLine], list[PageLine], list[PageLine]]:
    """The running head, the text, and the foot: rows at the top and the bottom, apart from all else by a row's height.
    Files draw them at any time."""
    rows: list[list[PageLine]] = []
    reach = float("-inf")
    for line in sorted(lines, key=lambda line: line.area.top):
        if line.area.top >= reach:
            rows.append([])
        rows[-1].append(line)
        reach = max(reach, line.area.bottom)
    areas = [Area.around(line.area for line in row) for row in rows]
    gaps = [below.top - above.bottom for above, below in pairwise(areas)] or [0.0]
    edges = (rows[0], gaps[0] >= areas[0].height), (rows[-1], gaps[-1] >= areas[-1].height)
    head, foot = (sorted(row, key=lambda line: line.area.left) if is_apart else [] for row, is_apart in edges)
    apart = {id(line) for line in (*head, *foot)}
    return head, [line for line in lines if id(line) not in apart], foot


def _goes_back(lines: Sequence[PageLine], *, to_left: bool = False) -> bool:
    """Whether a line stands above the one before it, in the same column, more than a note above a letter does.
    `to_left`: also in a column to its left."""
    areas = [line.area for line in lines]
    return any(
        there[3] < 3 * here[1] - 2 * here[3] and (here.beside(there) > 0.1 or (to_left and there[2] <= here[0]))
        for here, there in pairwise(areas)
    )


def _blocks(lines: Sequence[PageLine]) -> list[Block]:
    """Lines that follow each other in the file, each close below the one before it or beside it, stay together."""
    found: list[Block] = []
    for line in lines:
        if found and _follows(found[-1][-1], line):
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _follows(before: PageLine, after: PageLine) -> bool:
    if before.table or after.table:
        return before.table is after.table
    here, there = before.area, after.area
    height = max(min(here.height, there.height), 1.0)
    if here.level(there) > 0.5:
        return -height < there.left - here.right < 3 * height
    return -0.5 * height <= there.top - here.bottom < 1.2 * height and here.beside(there) > 0.5


def _cut(blocks: list[Block], depth: int) -> Iterator[Block]:
    """Left of the first gutter before right of it; without a gutter above the widest gap before below it."""
    if len(blocks) < 2 or not depth:
        yield from sorted(blocks, key=lambda block: (block[0].area.top, block[0].area.left))
        return
    areas = [Area.around(line.area for line in block) for block in blocks]
    at = _gap([(area.left, area.right) for area in areas], _GUTTER)
    sides = [area.left for area in areas]
    if at is None:
        at, sides = _gap([(area.top, area.bottom) for area in areas], 0.0), [area.top for area in areas]
    if at is None:
        yield from _cut(blocks, 0)
        return
    yield from _cut([block for block, side in zip(blocks, sides, strict=True) if side < at], depth - 1)
    yield from _cut([block for block, side in zip(blocks, sides, strict=True) if side >= at], depth - 1)


def _gap(stretches: Sequence[tuple[float, float]], least: float) -> float | None:
    """Where the widest gap between stretches ends, if it is wide enough."""
    widest, found, end = least, None, float("-inf")
    for start, stop in sorted(stretches):
        if start - end > widest and end > float("-inf"):
            widest, found = start - end, start
        end = max(end, stop)
    return found


_PLACE = np.dtype([("start", "<i4"), ("end", "<i4"), ("page", "<i4"), ("sides", "<f4", 4)])
"""As `Boxes` packs it."""


@dataclass(frozen=True)
class Written:
    """The text of a page, and where each of its lines starts, ends and stands."""

    text: str
    places: Any

    def after(self, changes: Sequence[Change]) -> "Written":
        """The same after changes of the text."""
        if not changes:
            return self
        ends = np.array([end for _, end, _ in changes])
        shifts = np.cumsum([0, *(len(instead) - (end - start) for start, end, instead in changes)])
        places = self.places.copy()
        for side in ("start", "end"):
            places[side] += shifts[np.searchsorted(ends, places[side], "right")].astype("<i4")
        return Written(changed(self.text, changes), places)


def moved(place: int, changes: Sequence[Change]) -> int:
    """Where a place of a text is after changes."""
    return place + sum(len(instead) - (end - start) for start, end, instead in changes if end <= place)


def joined_lines(lines: Sequence[PageLine], number: int) -> Written:
    """A page from its lines; a word that goes on in the next line keeps its mark. `number`: of the page, from 1."""
    sides = np.fromiter(chain.from_iterable(line.area for line in lines), "<f4").reshape(-1, 4)
    gaps = ["\n"] * (len(lines) - 1)
    beside = (sides[1:, 1] <= sides[:-1, 3]) & (sides[1:, 0] >= sides[:-1, 0])  # few are, which saves time
    texts = [line.text for line in lines]
    broken = [at for at, text in enumerate(texts) if text.endswith(HYPHEN)]
    for at in {*beside.nonzero()[0].tolist(), *(at for at in broken if at < len(gaps))}:
        gaps[at] = _gap_between(lines[at], lines[at + 1])
    for at in broken:
        if at >= len(gaps) or gaps[at] == "\n":
            texts[at] = texts[at].rstrip(HYPHEN) + "-"
    starts = list(accumulate((len(text) + len(gap) for text, gap in zip(texts, gaps, strict=False)), initial=0))
    places = np.empty(len(texts), _PLACE)
    places["start"], places["page"] = starts[: len(texts)], number
    places["end"] = places["start"] + [len(text.rstrip(HYPHEN)) for text in texts]
    places["sides"] = sides
    return Written("".join(piece for pair in zip(texts, (*gaps, ""), strict=False) for piece in pair), places)


def unplaced(lines: Sequence[PageLine]) -> Written:
    """A page from the words of its lines, without the places where they stand."""
    return Written("\n".join(line.text.rstrip(HYPHEN) for line in lines), np.empty(0, _PLACE))


def _gap_between(before: PageLine, after: PageLine) -> str:
    """What stands between two lines: nothing where a word goes on, or where they are one line in two pieces."""
    here, there = before.area, after.area
    if before.table or after.table:
        return "\n"
    if before.broken:
        near = here.top - here.height < there.top < here.bottom + 2 * here.height
        return "" if near or after.text[0].islower() else "\n"
    if there.top >= here.bottom or there.left <= here.left or here.level(there) <= 0.4 or after.vertical:
        return "\n"
    height = max(min(here.height, there.height), 1.0)
    apart = there.left - here.right
    if -height < apart < height:
        return "" if apart < 0.15 * height else " "
    return "\n"
