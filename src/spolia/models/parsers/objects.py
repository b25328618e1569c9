"""JSON objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.models.parsers.loose import loose
from spolia.models.parsers.parser import Parser, spoken

_TRIED = 50
"""Braces at which an object may begin."""
_LONGEST = 200_000
"""Characters that are looked at."""


@dataclass(frozen=True)
class JsonObject(Parser[dict[str, Any]]):
    """The first JSON object in the reply that has the keys, or else lines `key: value` with all of them.

    Texts and code fences around it do not matter, nor do the usual faults: commas too many or missing, other quotes,
    comments, Python's constants, an end that is missing. An object within another one is found too.

    >>> JsonObject(("need",)).parse('Sure: ```json\\n{"need": ["a"]}\\n```')
    {'need': ['a']}
    >>> JsonObject(("need",)).parse("{'need': None,")
    {'need': None}
    """

    keys: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of what is asked for, for servers that can be held to one."""
        return {"type": "object", "properties": {key: {} for key in self.keys}, "required": list(self.keys)}

    def parse(self, reply: str) -> dict[str, Any]:
        said = spoken(reply)[:_LONGEST]
        if '{\\"' in said:
            said = said.replace('\\"', '"')
        for found in _values(said):
            for inner in _objects(found, 0):
                if (named := self._named(inner)) is not None:
                    return named
        if self.keys and (lines := self._lines(said)) is not None:
            return lines
        keys = f" with the keys {', '.join(self.keys)}" if self.keys else ""
        raise ValueError(f"it must be one JSON object{keys}")

    def _named(self, found: dict[str, Any]) -> dict[str, Any] | None:
        """The object with its keys as they were asked for, whatever their case; None where one is missing."""
        asked = {key.casefold(): key for key in self.keys}
        named = {asked.get(key.strip().casefold(), key): value for key, value in found.items()}
        return named if named.keys() >= set(self.keys) else None

    def _lines(self, said: str) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        for key in self.keys:
            written = rf"^[^\w\n]*(?:{re.escape(key)})[^\w\n]*?\s*[:=>]\**\s*(.*?)\s*(?:</{re.escape(key)}>)?$"
            line = re.search(written, said, re.IGNORECASE | re.MULTILINE)
            if line is None:
                return None
            found[key] = _value(line[1])
        return found


def _value(written: str) -> Any:
    bare = written.strip().rstrip(",")
    if bare[:1] in ('"', "'", "[", "{") or re.fullmatch(r"-?\d+(?:\.\d+)?|true|false|null", bare, re.IGNORECASE):
        try:
            return loose(f"[{bare}]", 0)[0]
        except (ValueError, IndexError):
            return bare
    return bare


def _values(said: str) -> Iterator[Any]:
    """Every value that begins at a brace, as it should be written or else as it may be meant."""
    decoder = json.JSONDecoder()
    braces = [found.start() for found in re.finditer(r"\{", said)][:_TRIED]
    past = 0
    for brace in braces:
        if brace < past:
            continue
        try:
            found, past = decoder.raw_decode(said, brace)
            yield found
        except (ValueError, RecursionError):
            try:
                yield loose(said, brace)
            except ValueError:
                continue


def _objects(found: Any, depth: int) -> Iterator[dict[str, Any]]:
    """An object and those within it."""
    if depth > 20:
        return
    if isinstance(found, dict):
        yield found
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for value in inner:
        if isinstance(value, (dict, list)):
            yield from _objects(value, depth + 1)
