"""Headings by their letters, for files without an outline: larger than the text, or bold and numbered."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

_NUMBER = re.compile(r"(?P<number>\d{1,2}(?:\.\d{1,2}){0,4}|[A-Z](?:\.\d{1,2}){1,4}|[IVX]{1,5})[.)]?\s+(?=\D*\w)")
_SECTION = re.compile(rf"abstract\b|summary\b|zusammenfassung\b|r[ée]sum[ée]\b|{_NUMBER.pattern}", re.IGNORECASE)
_BEGINS, _ENDS = '§"“«¿¡(', ".,;:-\ufffe"
_WORD = re.compile(r"[^\W\d_]{2}")
_LONGEST = 120
_LARGER = 0.75
"""Points."""
_MOST_LINES = 3
_MOST_SHARE = 0.1
_DEEPEST = 6

Found = tuple[int, int, int, str]
"""A heading: its page from 0, where it starts in the page's text, its level from 1, its words."""


def may_be_heading(text: str) -> bool:
    """Whether the words of a line may be a heading, or the first or last line of one."""
    return len(text) <= _LONGEST and text[-1] not in _ENDS and (text[0].isalnum() or text[0] in _BEGINS)


class Styled(NamedTuple):
    """A line that may be a heading: its page, its number on the page, where it starts in the page's text."""

    page: int
    line: int
    start: int
    text: str
    size: float
    bold: bool


def by_style(lines: Sequence[Styled], sizes: Counter[float], count: int) -> tuple[str, list[Found]]:
    """The title on the first page, and the headings. `lines`: those that may be headings, in the order of the text.
    `sizes`: how many characters of each size the document has. `count`: of all its lines."""
    body = sizes.most_common(1)[0][0] if sizes else 0.0
    if body <= 0:
        return "", []
    found = [group for group in _groups(lines) if _is_heading(group, body)]
    if title := _title(found, body):
        found = list(_below(title, found))
    if sum(map(len, found)) > max(10.0, _MOST_SHARE * count):  # a catalogue, a poster: not text below headings
        found = []
    levels = _levels(found)
    headings = [(group[0].page, group[0].start, _level(group, levels), _said(group)) for group in found]
    return _said(title) if title else "", headings


def _groups(lines: Sequence[Styled]) -> Iterator[list[Styled]]:
    """Lines of one style that follow each other; one with a number or the word for a section begins a new group."""
    numbered = 0

    def kind(pair: tuple[int, Styled]) -> tuple[int, int, float, bool, int]:
        nonlocal numbered
        number, line = pair
        numbered += bool(_SECTION.match(line.text))
        return line.page, line.line - number, line.size, line.bold, numbered

    for _, group in groupby(enumerate(lines), kind):
        yield [line for _, line in group]


def _is_heading(group: list[Styled], body: float) -> bool:
    first = group[0]
    larger = first.size >= body + _LARGER
    numbered = first.bold and first.size >= body - 0.5 and bool(_NUMBER.match(first.text))
    return (larger or numbered) and len(group) <= _MOST_LINES and bool(_WORD.search(first.text))


def _title(found: list[list[Styled]], body: float) -> list[Styled] | None:
    """The largest lines of the first page, if they are clearly larger than all others there."""
    there = [group for group in found if group[0].page == 0]
    if not there:
        return None
    best = max(there, key=lambda group: group[0].size)
    same = sum(1 for group in found if group[0].size == best[0].size)
    return best if same == 1 and best[0].size >= 1.2 * body and not _NUMBER.match(best[0].text) else None


def _below(title: list[Styled], found: Sequence[list[Styled]]) -> Iterator[list[Styled]]:
    """The others, without those that repeat the title, and without the authors between it and the first section."""
    sections = [group[0].start for group in found if group[0].page == 0 and _SECTION.match(group[0].text)]
    first = min(sections, default=0)
    for group in found:
        authors = title[0].start < group[0].start < first
        if group is not title and not authors and _said(group) != _said(title):
            yield group


def _levels(found: Sequence[list[Styled]]) -> dict[tuple[float, bool], int]:
    """The level of each style: that of most of its numbered headings, else its place among all styles by size."""
    styles = sorted({(group[0].size, group[0].bold) for group in found}, reverse=True)
    levels = {style: min(rank, _DEEPEST) for rank, style in enumerate(styles, 1)}
    for style in styles:
        depths = Counter(
            depth for group in found if (group[0].size, group[0].bold) == style if (depth := _depth(group))
        )
        if depths:
            levels[style] = depths.most_common(1)[0][0]
    return levels


def _level(group: list[Styled], levels: dict[tuple[float, bool], int]) -> int:
    return _depth(group) or levels[group[0].size, group[0].bold]


def _depth(group: list[Styled]) -> int:
    """How many numbers a heading has: 2 for `3.1 Data`; 0 without."""
    number = _NUMBER.match(group[0].text)
    return number["number"].count(".") + 1 if number else 0


def _said(group: list[Styled]) -> str:
    return " ".join(" ".join(line.text for line in group).split())
