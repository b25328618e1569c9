"""JSON as language models write it: commas missing or too many, other quotes, comments, Python's constants, cut off."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.models.parsers.parser import LONGEST, Parser, spoken

_DEPTH = 60
_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?(?:\*/|\Z)|#[^\n]*)*", re.DOTALL)
_WORD = re.compile(r"[^,:;=\"\]})\n，：]*")
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})(?:[eE][-+]?\d{1,3})?(?=\s*(?:[,;\]}):/#\n]|$|\s\d))"
)
_COLON = re.compile(r"\s*(?:=>|[:=：])")
_KEY = re.compile(
    r"\s*[,;，]?\s*(?:[\"'“„«「][^\"'”“»」:：\n]{1,120}[\"'”“»」]|[\"'“„«「]?[\w ]{1,60}[\"'”“»」]?)\s*(?:=>|[:=：])"
)
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None, "undefined": None, "nan": None}
_QUOTES = {'"': '"', "'": "'", "“": '”“"', "”": "”", "„": '“”"', "«": "»", "「": "」", "‘": "’"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


def loose(text: str, at: int) -> Any:
    """The value that begins at a bracket or brace of a text; ValueError if none does.

    >>> loose("{'a': [1, 2,], b: True", 0)
    {'a': [1, 2], 'b': True}
    """
    return _Loose(text, at).value(0)


class _Loose:
    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at

    def value(self, depth: int, within: str = "") -> Any:
        self._skip()
        first = self._peek()
        if depth > _DEPTH:
            raise ValueError("too deep")
        if first == "{":
            return self._object(depth)
        if first in ("[", "("):
            return self._list(depth)
        if first in _QUOTES:
            return self._string(within)
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        found: dict[str, Any] = {}
        while self._more("}"):
            key = self._key()
            colon = _COLON.match(self.text, self.at)
            if not key or colon is None:
                raise ValueError("a key without a value")
            self.at = colon.end()
            found[key] = self.value(depth + 1, "{")
        return found

    def _list(self, depth: int) -> list[Any]:
        closing = _CLOSING[self._peek()]
        self.at += 1
        found = []
        while self._more(closing):
            before = self.at
            found.append(self.value(depth + 1, "["))
            if self.at == before:
                raise ValueError("nothing where a value should be")
        return found

    def _more(self, closing: str) -> bool:
        """Whether another entry follows; goes past commas, and past the closing mark or whatever stands for it."""
        self._skip()
        while self._peek() in (",", ";", "，"):
            self.at += 1
            self._skip()
        first = self._peek()
        if first == closing:
            self.at += 1
            return False
        return first not in ("", "}", "]", ")")  # cut off, or closed by an outer mark

    def _key(self) -> str:
        self._skip()
        if self._peek() in _QUOTES:
            return str(self._string("key"))
        found = _WORD.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return found[0].strip()

    def _string(self, within: str) -> str:
        closing = _QUOTES[self._peek()]
        self.at += 1
        written: list[str] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "\\":
                written.append(self._escape())
                continue
            if character in closing and self._ends(within):
                self.at += 1
                return "".join(written)
            written.append(character)
            self.at += 1
        return "".join(written)

    def _ends(self, within: str) -> bool:
        """Whether a quote ends the text, or is one that should have been escaped."""
        rest = self.text[self.at + 1 : self.at + 140]
        if within == "key":
            return _COLON.match(rest) is not None
        follows = rest.lstrip()[:2]
        if not follows or follows[0] in "}])" or follows in ("//", "/*"):
            return True
        followed_by_key = _KEY.match(rest) is not None
        if follows[0] in ",;，":
            beyond = rest.lstrip()[1:].lstrip()[:1]
            return within == "[" or followed_by_key or beyond in ("", "}", ",", ";", "，", "/")
        if within == "[":
            return rest[:1].isspace() and follows[0] in _QUOTES
        return follows[0] == "#" or (rest[:1].isspace() and followed_by_key)

    def _escape(self) -> str:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "u" and (code := re.match(r"[0-9a-fA-F]{4}", self.text[self.at + 2 : self.at + 6])):
            self.at += 6
            return chr(int(code[0], 16))
        self.at += 2
        return _ESCAPES.get(following, "\\" + following)

    def _bare(self) -> Any:
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            digits = number[0]
            return float(digits) if re.search(r"[.eE]", digits) else int(digits)
        found = _WORD.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        word = found[0].strip()
        if not word.strip(".…"):
            raise ValueError("nothing where a value should be")
        return _CONSTANTS.get(word.lower(), word)

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]


_TRIED = 50
"""Braces at which an object may begin."""


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
        """The JSON schema of the reply, for servers that can enforce one."""
        return {"type": "object", "properties": {key: {} for key in self.keys}, "required": list(self.keys)}

    def parse(self, reply: str) -> dict[str, Any]:
        said = spoken(reply)[:LONGEST]
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
            written = rf"^[^\w\n]*(?:{re.escape(key)})[^\w\n:=>]*+\s*+[:=>]\**\s*+(.*)"
            line = re.search(written, said, re.IGNORECASE | re.MULTILINE)
            if line is None:
                return None
            found[key] = _value(re.sub(rf"</{re.escape(key)}>$", "", line[1].rstrip(), flags=re.IGNORECASE))
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
