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


def resolve_hyphens(pages: Sequence[str]) -> list[list[Change]]:
    """Return the changes for the hyphen marks of each page, in the order of its text."""
    pages = [page.replace(_SOFT, HYPHEN) for page in pages]
    if not any(HYPHEN in page for page in pages):
        return [[] for _ in pages]
    words: set[str] = set()
    for page in pages:
        words.update(_words(page.casefold()))
    words.update(f"-{word.rpartition('-')[2]}" for word in tuple(words) if "-" in word)

    def change(mark: re.Match[str]) -> Change:
        page, start, end = mark.string, mark.start(), mark.end()
        # Turned round: the word before a place is the first one backwards.
        stem = _first_word(page[max(0, start - _LONGEST) : start][::-1])[::-1]
        ending = _first_word(page[end : end + _LONGEST])
        return start, end, "-" if stem and ending and _has_hyphen(stem, ending, words) else ""

    return [[change(mark) for mark in _MARK.finditer(page)] for page in pages]


def _words(text: str) -> set[str]:
    """Return the words of a text. Most stand between blanks; patterns take longer to find those."""
    tokens = set(text.split())
    words = {token for token in tokens if token.isalnum()}
    return words.union(_WORD.findall(" ".join(tokens - words)))


def apply_changes(text: str, changes: Sequence[Change]) -> str:
    """Apply changes, which are in the order of the text."""
    pieces: list[str] = []
    position = 0
    for start, end, replacement in changes:
        pieces += text[position:start], replacement
        position = end
    return "".join((*pieces, text[position:])) if changes else text


def _first_word(text: str) -> str:
    word = _LETTERS_OF_WORD.match(text)
    return word[0] if word else ""


def _has_hyphen(stem: str, ending: str, words: set[str]) -> bool:
    """Return whether the hyphen is the word's: it is written so elsewhere, others end so, or only its two parts are
    words."""
    a, b = stem.casefold(), ending.casefold()
    if a + b in words:
        return False
    if f"{a}-{b}" in words or (len(b) > 3 and f"-{b}" in words):
        return True
    if ending[0].isdigit() or (ending[0].isupper() and not (stem + ending).isupper()):
        return True
    return len(a) > 3 and len(b) > 3 and a in words and b in words


_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff"
_RUN = re.compile(f"[{_LETTERS}](?:[{_LETTERS} \u00a0]*[{_LETTERS}])?")


Middles = Callable[[Sequence[int]], Sequence[float]]


def turn_right_to_left(text: str, middles: Middles) -> str:
    """Turn each run of right-to-left letters that stands the wrong way round, in its place. `middles`: returns how far
    from the left characters of the page stand, by their numbers."""
    runs = [(run, _letter_numbers(run)) for run in _RUN.finditer(text)]
    if not runs:
        return text
    places = iter(middles([number for _, letters in runs for number in letters]))
    turned = iter([_turn_run(run[0], list(islice(places, len(letters)))) for run, letters in runs])
    return _RUN.sub(lambda _: next(turned), text)


def _letter_numbers(run: re.Match[str]) -> list[int]:
    return [
        number for number, letter in enumerate(run[0], run.start()) if not letter.isspace() and not combining(letter)
    ]


def _turn_run(text: str, places: Sequence[float]) -> str:
    rising = sum(1 if second > first else -1 for first, second in pairwise(places) if second != first)
    is_single_place = not rising and max(places, default=0.0) - min(places, default=0.0) < 0.01
    is_reversed = (
        rising > 0 or is_single_place
    )  # all at one place: given beside the letters, as they are read (`ActualText`)
    return text[::-1] if is_reversed and len(places) > 1 else text


NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\uffff]")
_VERTICAL = 3


@dataclass(frozen=True, eq=False)
class PageTable:
    """Table on a page. Every row has the same number of cells, and `letters` are the numbers of its characters."""

    rows: tuple[tuple[str, ...], ...]
    areas: tuple[Area, ...]
    letters: Any

    @property
    def area(self) -> Area:
        """Return the area of all rows."""
        return Area.from_areas(self.areas)


@dataclass(slots=True, eq=False)
class PageLine:
    """Line of a page: its text without blanks around, with a mark at its end if its last word goes on in the next."""

    text: str
    area: Area
    start: int = -1  # number of its first character on the page, for PDFium; -1 for what does not come from there
    end: int = -1  # number after its last character
    size: float = 0.0  # of its letters, in points; 0 where nobody asked
    bold: bool = False  # known only where it matters
    heading: bool = False  # its words may be those of a heading; known only where somebody looked
    table: PageTable | None = None  # that it is a row of

    @property
    def is_vertical(self) -> bool:
        """Return whether the line runs up or down the page, as stamps at the margin do."""
        left, top, right, bottom = self.area
        return bottom - top > _VERTICAL * (right - left) and len(self.text) > 4

    @property
    def is_broken(self) -> bool:
        """Return whether the last word goes on in the next line."""
        return self.text.endswith(HYPHEN)


_LINE = re.compile("[^\r\n\ufffe]*[^\r\n\ufffe \t][^\r\n\ufffe]*\ufffe*")

_NOWHERE = Area(0.0, 0.0, 0.0, 0.0)


def text_of(text_page: Any) -> str:
    """Return all characters of a page, one for each of PDFium's, so that places in it are places there."""
    text: str = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) != count:  # characters beyond 16 bits, and those without a meaning
        text = "".join([chr(code) if 0 < code < 0x110000 else "\x00" for code in codes(text_page, count)])
    return text


def lines_of(text_page: Any, text: str, sheet: VisiblePage) -> tuple[list[PageLine], Any]:
    """Return the lines in the order of the file, and where the pieces stand that they are drawn in: n × 4, left, top,
    right, bottom as shown. A line that holds no text is left out."""
    matches = list(_LINE.finditer(text))
    texts = [line[0].strip() for line in matches]
    if NO_TEXT.search(text):
        texts = [NO_TEXT.sub("", text).strip() for text in texts]
    sides, nowhere, pieces = rectangles(text_page, [(line.start(), line.end() - line.start()) for line in matches])
    areas = _areas(sides, nowhere, sheet)
    lines = [
        PageLine(words, area, *line.span()) for words, area, line in zip(texts, areas, matches, strict=True) if words
    ]
    return lines, sheet.shown_sides(pieces)


def areas_of(text_page: Any, spans: Sequence[tuple[int, int]], sheet: VisiblePage) -> list[Area]:
    """Return where stretches of a page stand; an empty area at the corner for those that stand nowhere. `spans`: the
    first character of each, and how many."""
    sides, nowhere, _ = rectangles(text_page, spans)
    return _areas(sides, nowhere, sheet)


def _areas(sides: Any, nowhere: Any, sheet: VisiblePage) -> list[Area]:
    areas = sheet.areas(sides)
    for number in nowhere.nonzero()[0]:
        areas[number] = _NOWHERE
    return areas


def order_columns(
    lines: Sequence[PageLine], gutters: Sequence[Gutter], text_page: Any, text: str, sheet: VisiblePage
) -> list[PageLine]:
    """Reorder the lines of columns that the file draws row by row: lines across a gutter are split, and each column
    stands together where it begins."""
    blocks: dict[tuple[int, ...], Block] = {}
    for line in lines:
        crossed = [gutter for gutter in gutters if gutter.crosses(line.area)]
        for piece in _split_line(range(line.start, line.end), crossed, text_page, text, sheet) if crossed else [line]:
            sides = tuple(gutter.side(piece.area) for gutter in gutters)
            blocks.setdefault(sides if any(sides) else (len(gutters), piece.start), []).append(piece)
    return [line for block in blocks.values() for line in block]


def _split_line(
    line: range, gutters: Sequence[Gutter], text_page: Any, text: str, sheet: VisiblePage
) -> Iterator[PageLine]:
    numbers = [number for number in line if not text[number].isspace()]
    sides = sheet.shown_sides(boxes(text_page, numbers)[0])
    columns = np.searchsorted(sorted(gutter.middle for gutter in gutters), (sides[:, 0] + sides[:, 2]) / 2)
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


def measure_lines(lines: Sequence[PageLine], text_page: Any) -> None:
    """Note the style of each line that may be a heading, and the size of each fourth line. The first letter decides."""
    for line in lines:
        line.heading = may_be_heading(line.text)
    measured_lines = [line for number, line in enumerate(lines) if line.heading or not number % _SAMPLED]
    for line, size in zip(measured_lines, sizes(text_page, [line.start for line in measured_lines]), strict=True):
        if not _USUAL[0] < size < _USUAL[1]:  # then the file writes with letters of 1 point, enlarged
            size *= _letter_scale(text_page, line.start)
        line.size = round(2 * size) / 2 if 0 < size < _LARGEST else 0.0
    headings = [line for line in measured_lines if line.heading]
    for line, name in zip(headings, fonts(text_page, [line.start for line in headings]), strict=True):
        line.bold = _is_bold(name)


def _letter_scale(text_page: Any, number: int) -> float:
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(text_page.raw, number, byref(matrix))
    return float(abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5)


@lru_cache(maxsize=1_024)
def _is_bold(font: bytes) -> bool:
    # Cached: a document has few fonts and many lines.
    return bool(_BOLD.search(font))


_GUTTER = 6.0
"""Points between columns, at least."""
_DEEPEST = 60  # each cut is a level of Python's stack
Block = list[PageLine]


def order_lines(lines: Sequence[PageLine]) -> list[PageLine]:
    """Return the lines in reading order.

    >>> head, low = PageLine("Head", Area(0, 0, 90, 10)), PageLine("Below", Area(0, 80, 90, 90))
    >>> [line.text for line in order_lines([low, head])]
    ['Head', 'Below']
    """
    upright = [line for line in lines if not line.is_vertical]
    # Most files draw in reading order; reordering those could only do harm.
    if not _goes_back(upright):
        return list(lines)
    stamps = [line for line in lines if line.is_vertical]
    head, body, foot = _split_furniture(upright)
    if not _goes_back(body, to_left=True):
        return [*head, *body, *foot, *stamps]
    return [line for block in _cut_blocks(_group_blocks(upright), _DEEPEST) for line in block] + stamps


def _split_furniture(lines: Sequence[PageLine]) -> tuple[list[PageLine], list[PageLine], list[PageLine]]:
    """Split off the running head and the foot: rows at the top and the bottom with a gap of a row's height. Files draw
    them at any time."""
    rows: list[list[PageLine]] = []
    row_bottom = float("-inf")
    for line in sorted(lines, key=lambda line: line.area.top):
        if line.area.top >= row_bottom:
            rows.append([])
        rows[-1].append(line)
        row_bottom = max(row_bottom, line.area.bottom)
    areas = [Area.from_areas(line.area for line in row) for row in rows]
    gaps = [lower.top - upper.bottom for upper, lower in pairwise(areas)] or [0.0]
    edges = (rows[0], gaps[0] >= areas[0].height), (rows[-1], gaps[-1] >= areas[-1].height)
    head, foot = (sorted(row, key=lambda line: line.area.left) if is_apart else [] for row, is_apart in edges)
    furniture_ids = {id(line) for line in (*head, *foot)}
    return head, [line for line in lines if id(line) not in furniture_ids], foot


def _goes_back(lines: Sequence[PageLine], *, to_left: bool = False) -> bool:
    """Return whether a line stands above the one before it, in the same column, by more than a note above a letter
    does. `to_left`: also in a column to its left."""
    areas = [line.area for line in lines]
    return any(
        following[3] < 3 * area[1] - 2 * area[3]
        and (area.horizontal_overlap(following) > 0.1 or (to_left and following[2] <= area[0]))
        for area, following in pairwise(areas)
    )


def _group_blocks(lines: Sequence[PageLine]) -> list[Block]:
    """Group lines that follow each other in the file, each close below the one before it or beside it."""
    blocks: list[Block] = []
    for line in lines:
        if blocks and _follows(blocks[-1][-1], line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return blocks


def _follows(previous: PageLine, line: PageLine) -> bool:
    if previous.table or line.table:
        return previous.table is line.table
    area, line_area = previous.area, line.area
    height = max(min(area.height, line_area.height), 1.0)
    if area.vertical_overlap(line_area) > 0.5:
        return -height < line_area.left - area.right < 3 * height
    return -0.5 * height <= line_area.top - area.bottom < 1.2 * height and area.horizontal_overlap(line_area) > 0.5


def _cut_blocks(blocks: list[Block], depth: int) -> Iterator[Block]:
    """Order blocks: left of the first gutter before right of it; without a gutter, above the widest gap before below
    it."""
    if len(blocks) < 2 or not depth:
        yield from sorted(blocks, key=lambda block: (block[0].area.top, block[0].area.left))
        return
    areas = [Area.from_areas(line.area for line in block) for block in blocks]
    gap_end = _widest_gap([(area.left, area.right) for area in areas], _GUTTER)
    sides = [area.left for area in areas]
    if gap_end is None:
        gap_end, sides = _widest_gap([(area.top, area.bottom) for area in areas], 0.0), [area.top for area in areas]
    if gap_end is None:
        yield from _cut_blocks(blocks, 0)
        return
    yield from _cut_blocks([block for block, side in zip(blocks, sides, strict=True) if side < gap_end], depth - 1)
    yield from _cut_blocks([block for block, side in zip(blocks, sides, strict=True) if side >= gap_end], depth - 1)


def _widest_gap(stretches: Sequence[tuple[float, float]], minimum: float) -> float | None:
    """Return where the widest gap between stretches ends, if it is wide enough."""
    widest, gap_end, end = minimum, None, float("-inf")
    for start, stop in sorted(stretches):
        if start - end > widest and end > float("-inf"):
            widest, gap_end = start - end, start
        end = max(end, stop)
    return gap_end


_PLACE = np.dtype([("start", "<i4"), ("end", "<i4"), ("page", "<i4"), ("sides", "<f4", 4)])
"""As `Boxes` packs it."""


@dataclass(frozen=True)
class PlacedText:
    """Text of a page, and where each of its lines starts, ends and stands."""

    text: str
    places: Any

    def apply(self, changes: Sequence[Change]) -> "PlacedText":
        """Return the text and its places after changes."""
        if not changes:
            return self
        ends = np.array([end for _, end, _ in changes])
        shifts = np.cumsum([0, *(len(replacement) - (end - start) for start, end, replacement in changes)])
        places = self.places.copy()
        for side in ("start", "end"):
            places[side] += shifts[np.searchsorted(ends, places[side], "right")].astype("<i4")
        return PlacedText(apply_changes(self.text, changes), places)


def shift_place(place: int, changes: Sequence[Change]) -> int:
    """Return the place in a text after changes."""
    return place + sum(len(replacement) - (end - start) for start, end, replacement in changes if end <= place)


def join_lines(lines: Sequence[PageLine], number: int) -> PlacedText:
    """Write a page from its lines. A word split between lines keeps its mark. `number`: the page's, from 1."""
    sides = np.fromiter(chain.from_iterable(line.area for line in lines), "<f4").reshape(-1, 4)
    gaps = ["\n"] * (len(lines) - 1)
    may_join = (sides[1:, 1] <= sides[:-1, 3]) & (sides[1:, 0] >= sides[:-1, 0])  # few are, which saves time
    texts = [line.text for line in lines]
    broken = [index for index, text in enumerate(texts) if text.endswith(HYPHEN)]
    for index in {*may_join.nonzero()[0].tolist(), *(index for index in broken if index < len(gaps))}:
        gaps[index] = _gap_between(lines[index], lines[index + 1])
    for index in broken:
        if index >= len(gaps) or gaps[index] == "\n":
            texts[index] = texts[index].rstrip(HYPHEN) + "-"
    starts = list(accumulate((len(text) + len(gap) for text, gap in zip(texts, gaps, strict=False)), initial=0))
    places = np.empty(len(texts), _PLACE)
    places["start"], places["page"] = starts[: len(texts)], number
    places["end"] = places["start"] + [len(text.rstrip(HYPHEN)) for text in texts]
    places["sides"] = sides
    return PlacedText("".join(piece for pair in zip(texts, (*gaps, ""), strict=False) for piece in pair), places)


def join_unplaced(lines: Sequence[PageLine]) -> PlacedText:
    """Write a page from the words of its lines, without their places."""
    return PlacedText("\n".join(line.text.rstrip(HYPHEN) for line in lines), np.empty(0, _PLACE))


def _gap_between(previous: PageLine, line: PageLine) -> str:
    """Return what stands between two lines: nothing if a word goes on, or if they are one line in two pieces."""
    area, line_area = previous.area, line.area
    if previous.table or line.table:
        return "\n"
    if previous.is_broken:
        is_near = area.top - area.height < line_area.top < area.bottom + 2 * area.height
        return "" if is_near or line.text[0].islower() else "\n"
    if (
        line_area.top >= area.bottom
        or line_area.left <= area.left
        or area.vertical_overlap(line_area) <= 0.4
        or line.is_vertical
    ):
        return "\n"
    height = max(min(area.height, line_area.height), 1.0)
    distance = line_area.left - area.right
    if -height < distance < height:
        return "" if distance < 0.15 * height else " "
    return "\n"
