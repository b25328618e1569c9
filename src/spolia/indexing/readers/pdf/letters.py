"""Single characters and where they stand: needed where a page has a table, and nowhere else."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, pairwise
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from spolia.indexing.readers.hyphenation import HYPHEN
from spolia.indexing.readers.pdf.geometry import Area, VisiblePage, boxes
from spolia.indexing.readers.pdf.lines import NO_TEXT


class Letter(NamedTuple):
    """A character that is no blank: its number on the page, and where it stands."""

    at: int
    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        """Of its height."""
        return (self.top + self.bottom) / 2


_letter = partial(tuple.__new__, Letter)
Row = list[Letter]
_left = itemgetter(2)


def letters_of(text_page: Any, text: str, stretches: Iterable[tuple[int, int]], sheet: VisiblePage) -> list[Letter]:
    """The characters of some stretches of a page, in the order of the file."""
    numbers = [
        at
        for start, end in stretches
        for at, character in enumerate(text[start:end], start)
        if character > " " and not character.isspace()
    ]
    if NO_TEXT.search(text):
        numbers = [at for at in numbers if not NO_TEXT.match(text[at])]
    sides, nowhere = boxes(text_page, numbers)
    said = [text[at] for at in numbers]
    letters = list(map(_letter, zip(numbers, said, *sheet.shown(sides).T.tolist(), strict=True)))
    return list(compress(letters, ~nowhere)) if nowhere.any() else letters


def area_of(letters: Iterable[Letter]) -> Area:
    """The smallest area around some letters."""
    _, _, lefts, tops, rights, bottoms = zip(*letters, strict=True)
    return Area(min(lefts), min(tops), max(rights), max(bottoms))


def rows_of(letters: Sequence[Letter]) -> list[Row]:
    """Letters that stand at one height, from top to bottom, each row from left to right; small ones join large ones."""
    if not letters:
        return []
    heights = [bottom - top for _, _, _, top, _, bottom in letters]
    middles = [(top + bottom) / 2 for _, _, _, top, _, bottom in letters]
    usual = 0.8 * median(heights)
    large, small = ([at for at, height in enumerate(heights) if (height < usual) is low] for low in (False, True))
    rows: list[Row] = []
    reach, starts = float("-inf"), list[float]()
    for number in sorted(large, key=middles.__getitem__):
        middle = middles[number]
        if middle > reach:
            rows.append([])
            starts.append(middle)
            reach = middle + 0.45 * min(heights[number], 20.0)
        rows[-1].append(letters[number])
    for number in small:
        middle = middles[number]
        rows[min(range(len(rows)), key=lambda row: abs(starts[row] - middle))].append(letters[number])
    return [sorted(row, key=_left) for row in rows]


def phrases_of(row: Row) -> Iterator[Row]:
    """What stands together in a row: letters with less than two blanks between them."""
    return _parted(row, 0.42)


def words_of(row: Row) -> Iterator[Row]:
    """The words of a row: letters with less than a blank between them."""
    return _parted(row, 0.15)


def _parted(row: Row, ems: float) -> Iterator[Row]:
    start, end = 0, float("inf")
    for number, (_, _, left, top, right, bottom) in enumerate(row):
        if left - end > 1.0 and left - end > ems * max(4.0, bottom - top):
            yield row[start:number]
            start = number
        end = right
    if row:
        yield row[start:]


def written(letters: Sequence[Letter], text: str) -> str:
    """What letters say, in the order of the file, with a blank where the file has one or goes on elsewhere."""
    ordered = sorted(letters)
    if ordered and ordered[-1].at - ordered[0].at == len(ordered) - 1:
        return text[ordered[0].at : ordered[-1].at + 1]
    pieces = [letter.text for letter in ordered[:1]]
    for before, after in pairwise(ordered):
        skipped = after.at - before.at - 1
        apart = skipped and before.text != HYPHEN and (skipped > 2 or text[before.at + 1 : after.at].isspace())
        pieces.append(" " + after.text if apart else after.text)
    return "".join(pieces)
