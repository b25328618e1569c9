"""Blocks of program text in any language, by how far their lines are indented."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spolia.indexing.splitters.layers import LABEL, Unit, by_line

_CLOSING = re.compile(r"[)\]}{]|(?:end|else|elif|elsif|except|rescue|finally|ensure|catch|then|fi|done|esac)\b")
_BEFORE = re.compile(r"//|/?\*|#|@|--|;|<!--|\"\"\"")
"""Comments and decorators: they belong to what is below them."""


def by_indentation(text: str, start: int, end: int) -> Iterator[Unit]:
    """A unit for each line of the least indentation together with the lines below it that are further in.

    The first line does not count: it is the head of what is cut. A unit's label is its first line that is no comment.
    """
    lines = [line for line in by_line(text, start, end) if not text[line.start : line.end].isspace()]
    depths = [_depth(text, line) for line in lines]
    least = min(depths[1:], default=0)
    begin, label, follows = start, "", True
    for line, depth in zip(lines, depths, strict=True):
        words = text[line.start : line.start + depth + LABEL].splitlines()[0].strip() if depth <= least else ""
        if depth > least or (_CLOSING.match(words) and not follows):
            follows = False
            continue
        if not follows:
            yield Unit(begin, line.start, label)
            begin, label = line.start, ""
        follows = _BEFORE.match(words) is not None
        label = label if follows or label else words.rstrip(" \t{:(")
    yield Unit(begin, end, label)


def _depth(text: str, line: Unit) -> int:
    """Characters before the first that is not blank, a tab counted as one."""
    words = text[line.start : line.end]
    return len(words) - len(words.lstrip())
