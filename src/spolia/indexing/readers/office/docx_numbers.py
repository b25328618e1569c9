"""Numbers of the headings and list items of a DOCX, which Word computes when it shows them (ECMA-376-1, 17.9)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MOST_LEVELS = 9
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
          (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
# Roman numerals and letters of larger numbers would be long texts.
_LARGEST = 100_000
BULLET = "-"


class _Level(NamedTuple):
    """Numbering of a level. `text` holds `%1` for the number of the first level."""

    start: int = 1
    kind: str = "decimal"
    text: str = ""
    is_legal: bool = False  # numbers of higher levels are shown as decimals


class Numbering:
    """Counter of the numbered paragraphs of a document: call `Numbering(numbering, styles).label(paragraph)` in their
    order.

    Args:
        numbering, styles: the elements of these parts, None where the document has none.
    """

    def __init__(self, numbering: Any, styles: Any) -> None:
        self._lists: dict[str, tuple[str, dict[int, _Level]]] = {}  # by number: what counts together, and its levels
        self._by_style: dict[str, tuple[str, int]] = {}
        self._counts: dict[str, list[int | None]] = {}
        self._restarted: set[tuple[str, int]] = set()
        self._overrides: dict[str, dict[int, int]] = {}
        if numbering is not None:
            self._read_definitions(numbering)
        if styles is not None:
            self._by_style = dict(_style_numbers(styles))

    def _read_definitions(self, numbering: Any) -> None:
        kinds: dict[str, dict[int, _Level]] = {}
        for kind in numbering.findall(f"{_W}abstractNum"):
            levels = {_int_attribute(level, "ilvl"): _level(level) for level in kind.findall(f"{_W}lvl")}
            kinds[kind.get(f"{_W}abstractNumId") or ""] = levels
        for number in numbering.findall(f"{_W}num"):
            id, abstract_id = number.get(f"{_W}numId") or "", _value(number.find(f"{_W}abstractNumId"))
            levels, starts = dict(kinds.get(abstract_id, {})), dict[int, int]()
            for override in number.findall(f"{_W}lvlOverride"):
                index = _int_attribute(override, "ilvl")
                if (level := override.find(f"{_W}lvl")) is not None:
                    levels[index] = _level(level)
                if (start := override.find(f"{_W}startOverride")) is not None:
                    starts[index] = _parse_number(_value(start), 1)
            self._lists[id], self._overrides[id] = (abstract_id, levels), starts

    def label(self, paragraph: Any) -> str:
        """Count a paragraph, and return its number as Word shows it: `BULLET` for an item without one; empty if it is
        in no list."""
        id, level = self._find_level(paragraph)
        if id in ("", "0"):
            return ""
        abstract_id, levels = self._lists.get(id, ("", {}))
        if level not in levels:
            return BULLET
        counts = self._counts.setdefault(abstract_id, [None] * _MOST_LEVELS)
        start = levels[level].start
        if level in self._overrides[id] and (id, level) not in self._restarted:
            self._restarted.add((id, level))
            start, counts[level] = self._overrides[id][level], None
        previous = counts[level]
        counts[level] = start if previous is None else previous + 1
        counts[level + 1 :] = [None] * (_MOST_LEVELS - level - 1)
        return self._format_label(levels, level, counts)

    def _format_label(self, levels: dict[int, _Level], level: int, counts: list[int | None]) -> str:
        definition = levels[level]
        if definition.kind == "bullet":
            return BULLET
        words = definition.text
        for index in range(level + 1):
            if f"%{index + 1}" in words:
                part = levels.get(index, _Level())
                count = counts[index]
                kind = "decimal" if definition.is_legal and index < level else part.kind
                words = words.replace(f"%{index + 1}", _format_number(part.start if count is None else count, kind))
        return words.strip()

    def _find_level(self, paragraph: Any) -> tuple[str, int]:
        """Return the list and the level of a paragraph: its own, else those of its style."""
        style = self._by_style.get(_value(paragraph.find(f"{_W}pPr/{_W}pStyle")), ("", 0))
        properties = paragraph.find(f"{_W}pPr/{_W}numPr")
        if properties is None:
            return style
        id, level = properties.find(f"{_W}numId"), properties.find(f"{_W}ilvl")
        number = _parse_number(_value(level), 0) if level is not None else style[1]
        return _value(id) if id is not None else style[0], min(max(number, 0), _MOST_LEVELS - 1)


def _style_numbers(styles: Any) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the list and level of each paragraph style, inherited ones included."""
    direct, parents = dict[str, tuple[str, int]](), dict[str, str]()
    for style in styles.findall(f"{_W}style"):
        id = style.get(f"{_W}styleId") or ""
        parents[id] = _value(style.find(f"{_W}basedOn"))
        if (number := style.find(f"{_W}pPr/{_W}numPr/{_W}numId")) is not None:
            level = _parse_number(_value(style.find(f"{_W}pPr/{_W}numPr/{_W}ilvl")), 0)
            direct[id] = _value(number), min(max(level, 0), _MOST_LEVELS - 1)
    for id in parents:
        ancestor, visited = id, set[str]()
        while ancestor and ancestor not in direct and ancestor not in visited:
            visited.add(ancestor)
            ancestor = parents.get(ancestor, "")
        if ancestor in direct:
            yield id, direct[ancestor]


def _level(element: Any) -> _Level:
    text, legal = element.find(f"{_W}lvlText"), element.find(f"{_W}isLgl")
    return _Level(
        _parse_number(_value(element.find(f"{_W}start")), 1),
        _value(element.find(f"{_W}numFmt")) or "decimal",
        _value(text),
        legal is not None and _value(legal) not in ("0", "false"),
    )


def _value(element: Any) -> str:
    return (element.get(f"{_W}val") or "") if element is not None else ""


def _int_attribute(element: Any, name: str) -> int:
    return _parse_number(element.get(f"{_W}{name}") or "", 0)


def _parse_number(text: str, default: int) -> int:
    # int() refuses very long numbers.
    return min(int(text), _LARGEST) if text.isdecimal() and len(text) < 9 else default


def _format_number(number: int, kind: str) -> str:
    """Format a number as its kind shows it.

    >>> [_format_number(4, kind) for kind in ("decimal", "upperRoman", "lowerLetter", "decimalZero", "none")]
    ['4', 'IV', 'd', '04', '']
    """
    if kind in ("lowerLetter", "upperLetter"):
        # After z, Word repeats the letter: aa, bb.
        letters = chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 9) if number else ""
        return letters.upper() if kind == "upperLetter" else letters
    if kind in ("lowerRoman", "upperRoman"):
        letters = ""
        for value, sign in _ROMAN:
            letters += sign * (number // value)
            number %= value
        return letters.upper() if kind == "upperRoman" else letters
    return "" if kind == "none" else f"{number:02}" if kind == "decimalZero" else str(number)
