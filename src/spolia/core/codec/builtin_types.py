"""Shapes of text, numbers, true, false, nothing, bytes and sequences."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from spolia.core.codec.shape import DecodeContext, EncodeContext, Plain, Shape, mismatch_error
from spolia.errors import CodecError

WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


@dataclass(frozen=True)
class Scalars:
    """Scalar types of one place. A whole number stands for a float too, and stays the number that it is."""

    kinds: frozenset[type]

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        kind = type(value)
        if kind is float or isinstance(value, float):  # numpy's float64 is a float too; it is written as Python's own
            self._check(value, float)
            return float(value)
        if kind in self.kinds and kind is not int:
            return value
        return self._check(value, kind)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        kind = type(plain)
        return plain if kind in self.kinds and kind is not float else self._check(plain, kind)

    def _check(self, value: Any, kind: type) -> Any:
        if kind is float and not isfinite(value):
            raise CodecError(f"{value!r} is not a finite number. Write a finite one.")
        if kind in self.kinds or (kind is int and float in self.kinds):
            return value
        raise mismatch_error(self.words, value, self._hint(value))

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
class BytesShape:
    """Bytes, written as base64 (RFC 4648)."""

    words = "bytes in base64"

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        if not isinstance(value, bytes):
            raise mismatch_error(self.words, value)
        return b64encode(value).decode()

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        try:
            # `!` is in no base64: one error for both
            return b64decode(plain if isinstance(plain, str) else b"!", validate=True)
        except ValueError:
            raise mismatch_error(self.words, plain) from None


@dataclass(frozen=True)
class Literals:
    """Values of a `Literal`, of which one is allowed."""

    values: tuple[Any, ...]

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        return self._match(value)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        return self._match(plain)

    def _match(self, value: Any) -> Any:
        for allowed in self.values:
            if type(allowed) is type(value) and allowed == value:  # 1 equals True
                return allowed
        raise mismatch_error(self.words, value)

    @property
    def words(self) -> str:
        return "one of " + ", ".join(map(repr, self.values))


@dataclass(frozen=True)
class Many:
    """Sequence of any number of values of one shape; `make` builds the sequence."""

    item: Shape
    make: Callable[[Any], Any] = tuple
    takes: tuple[type, ...] = (tuple,)

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        if not isinstance(value, self.takes):
            raise mismatch_error(self.words, value)
        # a set's own order differs from process to process
        items = sorted(value, key=repr) if isinstance(value, frozenset) else value
        return _convert_items(items, lambda item: self.item.encode(item, writing))

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if not isinstance(plain, list):
            raise mismatch_error(self.words, plain, "Write a list: [...].")
        return self.make(_convert_items(plain, lambda item: self.item.decode(item, reading)))

    @property
    def words(self) -> str:
        return f"a list, each item of it {self.item.words}"


@dataclass(frozen=True)
class Fixed:
    """Tuple of a fixed length, each place with its own shape."""

    items: tuple[Shape, ...]

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        if not isinstance(value, tuple) or len(value) != len(self.items):
            raise mismatch_error(self.words, value)
        pairs = zip(self.items, value, strict=True)
        return _convert_items(pairs, lambda pair: pair[0].encode(pair[1], writing))

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if not isinstance(plain, list) or len(plain) != len(self.items):
            raise mismatch_error(self.words, plain)
        return tuple(_convert_items(zip(self.items, plain, strict=True), lambda pair: pair[0].decode(pair[1], reading)))

    @property
    def words(self) -> str:
        return f"a list of {len(self.items)} ({', '.join(item.words for item in self.items)})"


@dataclass(frozen=True)
class NamedPairs:
    """Shape of `tuple[tuple[str, X], ...]`: a mapping, or a list of pairs where a name comes twice."""

    item: Shape
    make: Callable[[Any], Any] = tuple

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        pairs = tuple(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, tuple) or not all(_is_pair(pair) for pair in pairs):
            raise mismatch_error(self.words, value)
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            return _convert_items(pairs, lambda pair: [pair[0], self.item.encode(pair[1], writing)])
        return _convert_pairs(pairs, lambda item: self.item.encode(item, writing))

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if isinstance(plain, dict):
            return self.make(tuple(_convert_pairs(plain.items(), lambda item: self.item.decode(item, reading)).items()))
        if not isinstance(plain, list) or not all(_is_pair(pair) for pair in plain):
            raise mismatch_error(self.words, plain, "Write {name: ..., other: ...}.")
        return self.make(tuple(_convert_items(plain, lambda pair: (pair[0], self.item.decode(pair[1], reading)))))

    @property
    def words(self) -> str:
        return f"a mapping from names, each to {self.item.words}"


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str)


def _convert_items(items: Any, convert: Callable[[Any], Any]) -> list[Any]:
    done: list[Any] = []
    try:
        for item in items:
            done.append(convert(item))
    except CodecError as error:
        error.under(len(done))
        raise
    return done


def _convert_pairs(pairs: Any, convert: Callable[[Any], Any]) -> dict[str, Any]:
    done: dict[str, Any] = {}
    name = ""
    try:
        for name, item in pairs:
            done[name] = convert(item)
    except CodecError as error:
        error.under(name)
        raise
    return done
