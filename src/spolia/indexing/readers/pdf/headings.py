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

PageHeading = tuple[int, int, int, str]
"""A heading: its page from 0, where it starts in the page's text, its level from 1, its words."""


def may_be_heading(text: str) -> bool:
    """Return whether the words of a line may be a heading, or the first or last line of one."""
    return len(text) <= _LONGEST and text[-1] not in _ENDS and (text[0].isalnum() or text[0] in _BEGINS)


class HeadingCandidate(NamedTuple):
    """Line that may be a heading: its page, its number on the page, where it starts in the page's text."""

    page: int
    line: int
    start: int
    text: str
    size: float
    bold: bool


def find_headings(
    lines: Sequence[HeadingCandidate], sizes: Counter[float], count: int
) -> tuple[str, list[PageHeading]]:
    """Find the title on the first page, and the headings. `lines`: those that may be headings, in the order of the
    text. `sizes`: how many characters of each size the document has. `count`: of all its lines."""
    body = sizes.most_common(1)[0][0] if sizes else 0.0
    if body <= 0:
        return "", []
    groups = [group for group in _group_lines(lines) if _is_heading(group, body)]
    if title := _find_title(groups, body):
        groups = list(_drop_front_matter(title, groups))
    if sum(map(len, groups)) > max(10.0, _MOST_SHARE * count):  # a catalogue, a poster: not text below headings
        groups = []
    levels = _levels(groups)
    headings = [(group[0].page, group[0].start, _level(group, levels), _group_text(group)) for group in groups]
    return _group_text(title) if title else "", headings


def _group_lines(lines: Sequence[HeadingCandidate]) -> Iterator[list[HeadingCandidate]]:
    """Group successive lines of one style. One with a number or a word for a section begins a new group."""
    section_count = 0

    def kind(pair: tuple[int, HeadingCandidate]) -> tuple[int, int, float, bool, int]:
        nonlocal section_count
        number, line = pair
        section_count += bool(_SECTION.match(line.text))
        return line.page, line.line - number, line.size, line.bold, section_count

    for _, group in groupby(enumerate(lines), kind):
        yield [line for _, line in group]


def _is_heading(group: list[HeadingCandidate], body: float) -> bool:
    first = group[0]
    is_larger = first.size >= body + _LARGER
    is_numbered = first.bold and first.size >= body - 0.5 and bool(_NUMBER.match(first.text))
    return (is_larger or is_numbered) and len(group) <= _MOST_LINES and bool(_WORD.search(first.text))


def _find_title(groups: list[list[HeadingCandidate]], body: float) -> list[HeadingCandidate] | None:
    """Return the largest lines of the first page, if they are clearly larger than all others there."""
    first_page = [group for group in groups if group[0].page == 0]
    if not first_page:
        return None
    best = max(first_page, key=lambda group: group[0].size)
    same_size = sum(1 for group in groups if group[0].size == best[0].size)
    return best if same_size == 1 and best[0].size >= 1.2 * body and not _NUMBER.match(best[0].text) else None


def _drop_front_matter(
    title: list[HeadingCandidate], groups: Sequence[list[HeadingCandidate]]
) -> Iterator[list[HeadingCandidate]]:
    """Yield the headings that neither repeat the title nor are authors between it and the first section."""
    sections = [group[0].start for group in groups if group[0].page == 0 and _SECTION.match(group[0].text)]
    first = min(sections, default=0)
    for group in groups:
        authors = title[0].start < group[0].start < first
        if group is not title and not authors and _group_text(group) != _group_text(title):
            yield group


def _levels(groups: Sequence[list[HeadingCandidate]]) -> dict[tuple[float, bool], int]:
    """Return each style's level: that of most of its numbered headings, else its rank by size among all styles."""
    styles = sorted({(group[0].size, group[0].bold) for group in groups}, reverse=True)
    levels = {style: min(rank, _DEEPEST) for rank, style in enumerate(styles, 1)}
    for style in styles:
        depths = Counter(
            depth for group in groups if (group[0].size, group[0].bold) == style if (depth := _depth(group))
        )
        if depths:
            levels[style] = depths.most_common(1)[0][0]
    return levels


def _level(group: list[HeadingCandidate], levels: dict[tuple[float, bool], int]) -> int:
    return _depth(group) or levels[group[0].size, group[0].bold]


def _depth(group: list[HeadingCandidate]) -> int:
    """Return how many numbers a heading has: 2 for `3.1 Data`; 0 without."""
    number = _NUMBER.match(group[0].text)
    return number["number"].count(".") + 1 if number else 0


def _group_text(group: list[HeadingCandidate]) -> str:
    return " ".join(" ".join(line.text for line in group).split())
