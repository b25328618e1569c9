"""Blocks of program text in any language, by how far their lines are indented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from spolia.indexing.splitters.layers import LABEL, Unit, by_line

_CLOSING = re.compile(r"[)\]}{]|(?:end|else|elif|elsif|except|rescue|finally|ensure|catch|then|fi|done|esac)\b")
_BEFORE = re.compile(r"//|/?\*|#|@|--|;|<!--|\"\"\"")
"""Comments and decorators: they belong to what is below them."""


class _Line(NamedTuple):
    """Where it starts, how far it is indented (a tab counts one), how its words begin."""

    start: int
    depth: int
    words: str

    @property
    def closes(self) -> bool:
        return _CLOSING.match(self.words) is not None

    @property
    def goes_on(self) -> bool:
        return _BEFORE.match(self.words) is not None


def by_indentation(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each line of the least indentation below the head, with the lines after it that are further in.

    The head is what stands above that: the first line that is no comment. It is the label of its unit.
    """
    lines = [_line(text, line) for line in by_line(text, start, end) if not text[line.start : line.end].isspace()]
    below = next((number for number, line in enumerate(lines, 1) if not line.goes_on), len(lines))
    least = min((line.depth for line in lines[below:] if not line.closes), default=0)
    begin, label, head = start, "", True
    for line in lines:
        if line.depth > least:
            continue
        if not head and not line.closes:
            yield Unit(begin, line.start, label)
            begin, label = line.start, ""
        head = line.goes_on
        label = label if head or label else _label(line)
    yield Unit(begin, end, label if begin > start else "")  # a single unit is what is being cut, which has its label


def whole(text: str) -> Unit:
    """All of a text; its label is its head, if it is a single block."""
    lines = [_line(text, line) for line in by_line(text, 0, len(text)) if not text[line.start : line.end].isspace()]
    below = next((number for number, line in enumerate(lines, 1) if not line.goes_on), 0)
    head = lines[below - 1] if below else None
    single = head and below < len(lines) and all(line.depth > head.depth or line.closes for line in lines[below:])
    return Unit(0, len(text), _label(head) if head and single else "")


def _label(line: _Line) -> str:
    return line.words.rstrip(" \t{:(")


def _line(text: str, line: Unit) -> _Line:
    words = text[line.start : line.end]
    body = words.lstrip()
    return _Line(line.start, len(words) - len(body), body[:LABEL].rstrip())
