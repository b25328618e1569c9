"""JSON as language models write it: commas missing or too many, other quotes, comments, Python's constants, cut off."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.models.parsers.parser import LONGEST, Parser, strip_thoughts

_DEPTH = 60
_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?(?:\*/|\Z)|#[^\n]*)*", re.DOTALL)
_WORD = re.compile(r"[^,:;=\"\]})\n，：]*")
_NUMBER = (
    re.compile(  # At most 300 digits: a float overflows at 309, and Python refuses to read an int of more than 4,300.
        r"[-+]?(?:\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})(?:[eE][-+]?\d{1,3})?(?=\s*(?:[,;\]}):/#\n]|$|\s\d))"
    )
)
_COLON = re.compile(r"\s*(?:=>|[:=：])")
_KEY = re.compile(
    r"\s*[,;，]?\s*(?:[\"'“„«「][^\"'”“»」:：\n]{1,120}[\"'”“»」]|[\"'“„«「]?[\w ]{1,60}[\"'”“»」]?)\s*(?:=>|[:=：])"
)
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None, "undefined": None, "nan": None}
_QUOTES = {'"': '"', "'": "'", "“": '”“"', "”": "”", "„": '“”"', "«": "»", "「": "」", "‘": "’"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


def parse_loose(text: str, start: int) -> Any:
    """Parse the value that begins at a bracket or brace of a text; ValueError if none does.

    >>> parse_loose("{'a': [1, 2,], b: True", 0)
    {'a': [1, 2], 'b': True}
    """
    return _LooseParser(text, start).value(0)


class _LooseParser:
    def __init__(self, text: str, start: int) -> None:
        self.text, self.position = text, start

    def value(self, depth: int, container: str = "") -> Any:
        self._skip()
        first = self._peek()
        # A reply of many brackets must not exhaust Python's stack.
        if depth > _DEPTH:
            raise ValueError("too deep")
        if first == "{":
            return self._object(depth)
        if first in ("[", "("):
            return self._list(depth)
        if first in _QUOTES:
            return self._string(container)
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        self.position += 1
        values: dict[str, Any] = {}
        while self._has_more("}"):
            key = self._key()
            colon = _COLON.match(self.text, self.position)
            if not key or colon is None:
                raise ValueError("a key without a value")
            self.position = colon.end()
            values[key] = self.value(depth + 1, "{")
        return values

    def _list(self, depth: int) -> list[Any]:
        closing = _CLOSING[self._peek()]
        self.position += 1
        values = []
        while self._has_more(closing):
            start = self.position
            values.append(self.value(depth + 1, "["))
            # Without progress the loop would never end.
            if self.position == start:
                raise ValueError("nothing where a value should be")
        return values

    def _has_more(self, closing: str) -> bool:
        """Return whether another entry follows; go past commas, and past the closing mark or whatever stands for it."""
        self._skip()
        while self._peek() in (",", ";", "，"):
            self.position += 1
            self._skip()
        first = self._peek()
        if first == closing:
            self.position += 1
            return False
        return first not in ("", "}", "]", ")")  # cut off, or closed by an outer mark

    def _key(self) -> str:
        self._skip()
        if self._peek() in _QUOTES:
            return str(self._string("key"))
        match = _WORD.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        return match[0].strip()

    def _string(self, container: str) -> str:
        closing = _QUOTES[self._peek()]
        self.position += 1
        characters: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == "\\":
                characters.append(self._escape())
                continue
            if character in closing and self._is_closing(container):
                self.position += 1
                return "".join(characters)
            characters.append(character)
            self.position += 1
        return "".join(characters)

    def _is_closing(self, container: str) -> bool:
        """Return whether a quote ends the text, or should have been escaped."""
        # A key has at most 120 characters (`_KEY`): no need to look further.
        rest = self.text[self.position + 1 : self.position + 140]
        if container == "key":
            return _COLON.match(rest) is not None
        follows = rest.lstrip()[:2]
        if not follows or follows[0] in "}])" or follows in ("//", "/*"):
            return True
        followed_by_key = _KEY.match(rest) is not None
        if follows[0] in ",;，":
            next_character = rest.lstrip()[1:].lstrip()[:1]
            return container == "[" or followed_by_key or next_character in ("", "}", ",", ";", "，", "/")
        if container == "[":
            return rest[:1].isspace() and follows[0] in _QUOTES
        return follows[0] == "#" or (rest[:1].isspace() and followed_by_key)

    def _escape(self) -> str:
        following = self.text[self.position + 1 : self.position + 2]
        if following == "u" and (code := re.match(r"[0-9a-fA-F]{4}", self.text[self.position + 2 : self.position + 6])):
            self.position += 6
            return chr(int(code[0], 16))
        self.position += 2
        return _ESCAPES.get(following, "\\" + following)

    def _bare(self) -> Any:
        if number := _NUMBER.match(self.text, self.position):
            self.position = number.end()
            digits = number[0]
            return float(digits) if re.search(r"[.eE]", digits) else int(digits)
        match = _WORD.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        word = match[0].strip()
        if not word.strip(".…"):
            raise ValueError("nothing where a value should be")
        return _CONSTANTS.get(word.lower(), word)

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]


_MOST_BRACES = 50
"""Braces at which an object may begin."""


@dataclass(frozen=True)
class JsonObject(Parser[dict[str, Any]]):
    """First JSON object in the reply that has the keys, or else lines `key: value` with all of them.

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
        """Return the JSON schema of the reply, for servers that can enforce one."""
        return {"type": "object", "properties": {key: {} for key in self.keys}, "required": list(self.keys)}

    def parse(self, reply: str) -> dict[str, Any]:
        text = strip_thoughts(reply)[:LONGEST]
        # Some models escape the whole object, as if it stood within a text.
        if '{\\"' in text:
            text = text.replace('\\"', '"')
        for value in _values(text):
            for inner in _objects(value, 0):
                if (matched := self._match_keys(inner)) is not None:
                    return matched
        if self.keys and (lines := self._parse_lines(text)) is not None:
            return lines
        keys = f" with the keys {', '.join(self.keys)}" if self.keys else ""
        raise ValueError(f"it must be one JSON object{keys}")

    def _match_keys(self, candidate: dict[str, Any]) -> dict[str, Any] | None:
        """Return the object with the requested spelling of its keys, whatever their case; None if one is missing."""
        keys_by_fold = {key.casefold(): key for key in self.keys}
        renamed = {keys_by_fold.get(key.strip().casefold(), key): value for key, value in candidate.items()}
        return renamed if renamed.keys() >= set(self.keys) else None

    def _parse_lines(self, text: str) -> dict[str, Any] | None:
        values: dict[str, Any] = {}
        for key in self.keys:
            line_pattern = rf"^[^\w\n]*(?:{re.escape(key)})[^\w\n:=>]*+\s*+[:=>]\**\s*+(.*)"
            line = re.search(line_pattern, text, re.IGNORECASE | re.MULTILINE)
            if line is None:
                return None
            values[key] = _parse_line_value(re.sub(rf"</{re.escape(key)}>$", "", line[1].rstrip(), flags=re.IGNORECASE))
        return values


def _parse_line_value(text: str) -> Any:
    bare = text.strip().rstrip(",")
    if bare[:1] in ('"', "'", "[", "{") or re.fullmatch(r"-?\d+(?:\.\d+)?|true|false|null", bare, re.IGNORECASE):
        try:
            return parse_loose(f"[{bare}]", 0)[0]
        except (ValueError, IndexError):
            return bare
    return bare


def _values(text: str) -> Iterator[Any]:
    """Yield every value that begins at a brace, parsed strictly or else loosely."""
    decoder = json.JSONDecoder()
    braces = [match.start() for match in re.finditer(r"\{", text)][:_MOST_BRACES]
    past = 0
    for brace in braces:
        if brace < past:  # within a value that was given already, where `_objects` looks for it
            continue
        try:
            value, past = decoder.raw_decode(text, brace)
            yield value
        except (ValueError, RecursionError):
            try:
                yield parse_loose(text, brace)
            except ValueError:
                continue


def _objects(container: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield an object and those within it."""
    # A reply of many brackets must not exhaust Python's stack.
    if depth > 20:
        return
    if isinstance(container, dict):
        yield container
    inner = container.values() if isinstance(container, dict) else container if isinstance(container, list) else ()
    for value in inner:
        if isinstance(value, (dict, list)):
            yield from _objects(value, depth + 1)
