"""The lines of a text that is marked up line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spolia.types import Region

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|[\r\n]|\Z)")
_BAR = re.compile(r"(?<!\\)\|")


class SourceLine(NamedTuple):
    """A line without its end: where it starts, and its characters without blanks at the end."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def indent(self) -> int:
        """Blanks at the beginning; a tab counts one."""
        return len(self.text) - len(self.text.lstrip())


def lines_of(text: str) -> list[SourceLine]:
    """All lines.

    >>> lines_of("One \\r\\n\\r\\ntwo")
    [SourceLine(start=0, text='One'), SourceLine(start=6, text=''), SourceLine(start=8, text='two')]
    """
    found = [SourceLine(line.start(), line[1].rstrip()) for line in _LINE.finditer(text)]
    return found[:-1] if found and found[-1].start == len(text) else found


def cells(row: str) -> tuple[str, ...]:
    """The cells of a row with bars between them.

    >>> cells("| stone | 3 \\\\| 4 |")
    ('stone', '3 | 4')
    """
    row = row.strip().removeprefix("|")
    row = row[:-1] if row.endswith("|") and not row.endswith("\\|") else row
    return tuple(cell.strip().replace("\\|", "|") for cell in _BAR.split(row))


def region(
    kind: str, lines: Sequence[SourceLine], rows: Sequence[Sequence[str]] = (), caption: str = ""
) -> Iterator[Region]:
    """The region that some lines make, without the empty ones around them; none for none."""
    filled = [line for line in lines if line.text]
    if filled:
        yield Region(kind, filled[0].start, filled[-1].end, tuple(map(tuple, rows)), "", caption)
