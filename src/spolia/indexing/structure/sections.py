"""Sections between headings, also headings recognised only by their numbers: `1 Introduction`, `2.3. Results`, `Chapter
IV`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spolia.indexing.readers.markup.markdown import headings_of
from spolia.indexing.splitters.sized_splitter import require_minimums
from spolia.indexing.splitters.windows import strip_span
from spolia.stores.definition import Part, Piece, Splitter, places_in
from spolia.types import Heading

LONGEST = 100
"""Characters of a heading at most."""
DEEPEST = 6

_LINE = re.compile(
    r"^[ \t]*(?:(?P<word>chapter|section|part|appendix|article|kapitel|abschnitt|teil|chapitre|partie|"
    r"cap[ií]tulo|secci[oó]n|capitolo|sezione|hoofdstuk|глава|раздел|часть|§)[ \t]*)?"
    r"(?P<number>\d{1,3}(?:\.\d{1,3})*|[IVXLC]{1,7})\b(?P<mark>[.):])?(?P<title>[ \t]+\S[^\n]*)?$"
    r"|^[ \t]*第(?P<ordinal>[0-9]{1,3}|[一二三四五六七八九十百]{1,5})(?P<unit>[編部章節节条])(?P<said>[^\n]*)$",
    re.MULTILINE | re.IGNORECASE,
)
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_DIGITS = {digit: value for value, digit in enumerate("一二三四五六七八九", 1)}
_UNITS = {"編": 1, "部": 1, "章": 1, "節": 2, "节": 2, "条": 3}
_NO_END = tuple(".,;:!?。、；：！？")

Path = tuple[int, ...]


def numbered_headings(text: str) -> Iterator[Heading]:
    """Yield the numbered headings of a plain text, in order.

    A line is one if it begins with a number, or with a word like *chapter* and a number, follows an empty line or
    begins the text, is short, ends like no sentence, and goes on counting: after 2.1 there may come 2.1.1, 2.2 or 3.
    """
    last: dict[str, Path] = {}
    for line in _LINE.finditer(text):
        if (number := _parse_number(line)) is None or not _stands_alone(text, line):
            continue
        kind, path = number
        if _continues(last.get(kind, ()), path):
            last[kind] = path
            yield Heading(line.start(), min(len(path), DEEPEST), " ".join(line[0].split()))


def _parse_number(line: re.Match[str]) -> tuple[str, Path] | None:
    """Return the numbering that a line belongs to, and its place in it; None if it has no number."""
    if line["ordinal"]:
        level = _UNITS[line["unit"]]
        return line["unit"], (0,) * (level - 1) + (_chinese(line["ordinal"]),)
    if not line["word"] and not line["title"]:
        return None
    number = line["number"]
    if number[0].isdigit():
        path = tuple(map(int, number.split(".")))
    elif number.isupper() and (line["word"] or line["mark"]):  # else it may be a sentence in the first person
        path = (_roman(number),)
    else:
        return None
    return (line["word"] or "").lower() + ("" if number[0].isdigit() else "I"), path


def _continues(previous: Path, path: Path) -> bool:
    """Return whether a number follows the previous one; a numbering begins at 0 or 1."""
    if len(set(path[:-1])) == 1 and path[0] == 0:  # smaller units may begin at 1 again
        return path[-1] in (1, previous[-1] + 1 if previous else 1)
    if not previous:
        return set(path) <= {0, 1}
    if len(path) > len(previous):
        return path[: len(previous)] == previous and set(path[len(previous) :]) <= {0, 1}
    return path[:-1] == previous[: len(path) - 1] and path[-1] == previous[len(path) - 1] + 1


def _stands_alone(text: str, line: re.Match[str]) -> bool:
    line_text = line[0].strip()
    line_above = text[: line.start()].rpartition("\n")[0].rpartition("\n")[2] if line.start() else ""
    ends = line_text.endswith(_NO_END) and any(map(str.isspace, line_text))
    return len(line_text) <= LONGEST and not line_above.strip() and not ends


def _roman(number: str) -> int:
    values = [_VALUES[letter] for letter in number]
    return sum(-value if value < max(values[i:]) else value for i, value in enumerate(values))


def _chinese(number: str) -> int:
    """Parse a number up to 999, in digits or Chinese."""
    if number.isdecimal():
        return int(number)
    number_value = 0
    for unit, value in (("百", 100), ("十", 10)):
        if unit in number:
            multiplier, _, number = number.partition(unit)
            number_value += _DIGITS.get(multiplier, 1) * value
    return number_value + _DIGITS.get(number, 0)


@dataclass(frozen=True)
class Sections(Splitter):
    """One piece for each section, however long: from a heading to the next of its level or above.

    The headings are those that the document's reader has noted (Markdown, HTML, Word); where it has noted none, those
    of Markdown in the text, else numbered ones (`1 Introduction`, `2.3 Results`, `Chapter IV`). The text before the
    first is a piece too; without any heading all of it is one. Together the pieces cover every character but blanks.
    Cut them further with a group whose parent they are: sections of level 1, of these sections of level 2, of these
    chunks.

    Args:
        level: the deepest heading that begins a section, from 1.

    Raises:
        WiringError: for a level below 1.

    >>> from spolia.stores.definition import document_node
    >>> from spolia.types import Document
    >>> document = Document("d", "Preface.\\n\\n# Rome\\n\\nStone.\\n\\n## Roads\\n\\nLong.\\n\\n# Oslo\\n\\nWood.")
    >>> [piece.text.split("\\n")[0] for piece in Sections(level=1).pieces(Part(document_node(document), document))]
    ['Preface.', '# Rome', '# Oslo']
    """

    level: int = 1

    def __post_init__(self) -> None:
        require_minimums(self, level=1)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        for start, end in pairwise(dict.fromkeys((0, *self._places(part), len(text)))):
            if span := strip_span(text, start, end):
                yield Piece(text[slice(*span)], span[0])

    def _places(self, part: Part) -> Sequence[int]:
        if part.document.headings:
            return places_in(part, [h.start for h in part.document.headings if h.level <= self.level])
        text = part.node.text
        headings = list(headings_of(text)) or list(numbered_headings(text))
        return [heading.start for heading in headings if heading.level <= self.level]
