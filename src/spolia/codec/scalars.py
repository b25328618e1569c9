"""Text, numbers, true, false, nothing, and bytes."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from math import isfinite
from typing import Any

from spolia.codec.context import Reading, Writing
from spolia.codec.shape import Plain, wanted
from spolia.errors import CodecError

WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


@dataclass(frozen=True)
class Scalars:
    """One of some scalar types. A whole number stands for a float too, and stays the number that it is."""

    kinds: frozenset[type]

    def encode(self, value: Any, writing: Writing) -> Plain:
        kind = type(value)
        if kind is float or isinstance(value, float):
            self._check(value, float)
            return float(value)
        if kind in self.kinds and kind is not int:
            return value
        return self._check(value, kind)

    def decode(self, plain: Plain, reading: Reading) -> Any:
        kind = type(plain)
        return plain if kind in self.kinds and kind is not float else self._check(plain, kind)

    def _check(self, value: Any, kind: type) -> Any:
        if kind is float and not isfinite(value):
            raise CodecError(f"{value!r} is not a finite number. Write a finite one.")
        if kind in self.kinds or (kind is int and float in self.kinds):
            return value
        raise wanted(self.words, value, self._hint(value))

    def _hint(self, value: Any) -> str:
        if str in self.kinds and isinstance(value, (int, float, bool)):
            return f'Write it in quotes: "{value}".'
        if self.kinds == {int} and isinstance(value, float) and value.is_integer():
            return f"Write {int(value)}."
        return ""

    @property
    def words(self) -> str:
        return " or ".join(text for kind, text in WORDS.items() if kind in self.kinds)


@dataclass(frozen=True)
class Bytes:
    """Bytes, written as base64 (RFC 4648)."""

    words = "bytes in base64"

    def encode(self, value: Any, writing: Writing) -> Plain:
        if not isinstance(value, bytes):
            raise wanted(self.words, value)
        return b64encode(value).decode()

    def decode(self, plain: Plain, reading: Reading) -> Any:
        try:
            return b64decode(plain if isinstance(plain, str) else b"!", validate=True)
        except ValueError:
            raise wanted(self.words, plain) from None


@dataclass(frozen=True)
class Literals:
    """One of some fixed values."""

    values: tuple[Any, ...]

    def encode(self, value: Any, writing: Writing) -> Plain:
        return self._one(value)

    def decode(self, plain: Plain, reading: Reading) -> Any:
        return self._one(plain)

    def _one(self, value: Any) -> Any:
        for known in self.values:
            if type(known) is type(value) and known == value:
                return known
        raise wanted(self.words, value)

    @property
    def words(self) -> str:
        return "one of " + ", ".join(map(repr, self.values))
