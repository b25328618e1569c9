"""Finding one's way in JSON by its brackets, in one pass and without recursion, also where it is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from spolia.indexing.splitters.layers import Unit, by_line
from spolia.indexing.splitters.sized_splitter import Sized
from spolia.stores.definition import Part, Piece
from spolia.stores.groups.nodes import BETWEEN

_TOKEN = re.compile(r'"(?:[^"\\]++|\\[\s\S]?)*+"?|[\[\]{},]')
_KEY = re.compile(r'\s*"((?:[^"\\]++|\\[\s\S])*+)"\s*:')
_BESIDE = " \t\r\n,;"
"""Stands between values."""


def values(text: str) -> Iterator[Unit]:
    """Arrays and objects that are in no other, each alone, and the lines between them."""
    depth = start = at = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("{", "["):
            if depth == 0:
                start = token.start()
                yield from _lines(text, at, start)
            depth += 1
        elif mark in ("}", "]") and depth:
            depth -= 1
            if depth == 0:
                at = token.end()
                yield Unit(start, at, alone=True)
    if depth:  # the end is missing
        yield Unit(start, len(text), alone=True)
    else:
        yield from _lines(text, at, len(text))


def _lines(text: str, start: int, end: int) -> Iterator[Unit]:
    return (line for line in by_line(text, start, end) if text[line.start : line.end].strip(_BESIDE))


def members(text: str, start: int, end: int) -> Iterator[Unit]:
    """What the outermost brackets hold: members with their key as label; elements, alone if they have brackets."""
    opened, depth, at = "", 0, start
    for token in _TOKEN.finditer(text, start, end):
        mark = token[0]
        if mark in ("{", "["):
            depth += 1
            if depth == 1:
                opened, at = mark, token.end()
        elif mark == "," and depth == 1:
            yield from _member(text, at, token.start(), opened)
            at = token.end()
        elif mark in ("}", "]") and depth:
            depth -= 1
            if depth == 0:
                yield from _member(text, at, token.start(), opened)
                at = token.end()
    yield from _member(text, at, end, opened)


def _member(text: str, start: int, end: int, opened: str) -> Iterator[Unit]:
    body = text[start:end].strip(_BESIDE)
    if not body:
        return
    start = text.index(body[0], start)
    key = _KEY.match(text, start, end) if opened == "{" else None
    yield Unit(start, start + len(body), key[1] if key else "", opened == "[" and body[0] in "{[")


def parsed(text: str) -> Any:
    """The value of a text that is JSON, or some members or elements of it; None for what is not."""
    for whole in (text, f"{{{text}}}", f"[{text}]"):
        try:
            return json.loads(whole)
        except (ValueError, RecursionError):
            continue
    return None


def spelt(value: Any, above: str = "") -> str:
    """A line for every path to a scalar, in the order of the text.

    >>> print(spelt({"name": "Ann", "papers": [{"year": 1999}, {"year": 2001}], "tags": ["a", "b"]}))
    name: Ann
    papers.year: 1999
    papers.year: 2001
    tags: a, b
    """
    lines: list[str] = []
    todo: list[tuple[str, Any]] = [(above, value)]
    while todo:
        path, found = todo.pop()
        if isinstance(found, dict):
            todo += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(found.items())]
        elif isinstance(found, list) and any(isinstance(item, (dict, list)) for item in found):
            todo += [(path, item) for item in reversed(found)]
        elif found != []:
            said = ", ".join(map(_plain, found)) if isinstance(found, list) else _plain(found)
            lines.append(f"{path}: {said}" if path else said)
    return "\n".join(lines)


def _plain(scalar: Any) -> str:
    return scalar if isinstance(scalar, str) else json.dumps(scalar)


DEEPEST = 8
"""Levels of nesting that are looked into; what is too long below them is cut after words."""


@dataclass(frozen=True)
class JSONRows(Sized):
    """One piece for each record: the elements of an array, the lines of JSON Lines, or one object.

    A record that is too long is cut between its members, of which neighbours share a piece, and those between theirs;
    the keys above them are the context. The text is what the file has, without the commas and brackets between pieces.
    What is indexed is a line `path: value` for every scalar, so that neither brackets nor key order of other records
    matter. Broken JSON is cut all the same, by the brackets that it has, and indexed as it is.

    Args:
        size: tokens of a piece at most.

    >>> from spolia.types import Document, Node
    >>> text = '[{"name": "basalt", "of": {"age": 3}}, {"name": "marble"}]'
    >>> pieces = list(JSONRows().pieces(Part(Node("d", text), Document("d", text))))
    >>> [piece.text for piece in pieces]
    ['{"name": "basalt", "of": {"age": 3}}', '{"name": "marble"}']
    >>> print(pieces[0].search_text)
    name: basalt
    of.age: 3
    """

    size: int = 400

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        for piece in self.cut(text, _records(text), *[members] * DEEPEST):
            said = spelt(parsed(piece.text), ".".join(piece.context.split(BETWEEN)))
            fits = said and len(said) <= 2 * self.bound.characters
            yield piece.but(search_text=said) if fits else piece


def _records(text: str) -> Iterator[Unit]:
    found = values(text)
    first = list(islice(found, 2))
    if len(first) == 1 and text[first[0].start] == "[":
        return members(text, first[0].start, first[0].end)
    return chain(first, found)
