"""Tuples, lists, sets and mappings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spolia.codec.context import Reading, Writing
from spolia.codec.shape import Plain, Shape, wanted
from spolia.errors import CodecError


@dataclass(frozen=True)
class Many:
    """Any number of values of one shape; `make` says of which kind the sequence is."""

    item: Shape
    make: Callable[[Any], Any] = tuple
    takes: tuple[type, ...] = (tuple,)

    def encode(self, value: Any, writing: Writing) -> Plain:
        if not isinstance(value, self.takes):
            raise wanted(self.words, value)
        items = sorted(value, key=repr) if isinstance(value, frozenset) else value
        return _each(items, lambda item: self.item.encode(item, writing))

    def decode(self, plain: Plain, reading: Reading) -> Any:
        if not isinstance(plain, list):
            raise wanted(self.words, plain, "Write a list: [...].")
        return self.make(_each(plain, lambda item: self.item.decode(item, reading)))

    @property
    def words(self) -> str:
        return f"a list, each item of it {self.item.words}"


@dataclass(frozen=True)
class Fixed:
    """A tuple of a fixed length, each place of its own shape."""

    items: tuple[Shape, ...]

    def encode(self, value: Any, writing: Writing) -> Plain:
        if not isinstance(value, tuple) or len(value) != len(self.items):
            raise wanted(self.words, value)
        pairs = zip(self.items, value, strict=True)
        return _each(pairs, lambda pair: pair[0].encode(pair[1], writing))

    def decode(self, plain: Plain, reading: Reading) -> Any:
        if not isinstance(plain, list) or len(plain) != len(self.items):
            raise wanted(self.words, plain)
        return tuple(_each(zip(self.items, plain, strict=True), lambda pair: pair[0].decode(pair[1], reading)))

    @property
    def words(self) -> str:
        return f"a list of {len(self.items)} ({', '.join(item.words for item in self.items)})"


@dataclass(frozen=True)
class Pairs:
    """`tuple[tuple[str, X], ...]`, written as a mapping; as a list of pairs where a name comes twice."""

    item: Shape
    make: Callable[[Any], Any] = tuple

    def encode(self, value: Any, writing: Writing) -> Plain:
        pairs = tuple(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, tuple) or not all(_is_pair(pair) for pair in pairs):
            raise wanted(self.words, value)
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            return _each(pairs, lambda pair: [pair[0], self.item.encode(pair[1], writing)])
        return _named(pairs, lambda item: self.item.encode(item, writing))

    def decode(self, plain: Plain, reading: Reading) -> Any:
        if isinstance(plain, dict):
            return self.make(tuple(_named(plain.items(), lambda item: self.item.decode(item, reading)).items()))
        if not isinstance(plain, list) or not all(_is_pair(pair) for pair in plain):
            raise wanted(self.words, plain, "Write {name: ..., other: ...}.")
        return self.make(tuple(_each(plain, lambda pair: (pair[0], self.item.decode(pair[1], reading)))))

    @property
    def words(self) -> str:
        return f"a mapping from names, each to {self.item.words}"


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str)


def _each(items: Any, convert: Callable[[Any], Any]) -> list[Any]:
    done: list[Any] = []
    try:
        for item in items:
            done.append(convert(item))
    except CodecError as error:
        error.under(len(done))
        raise
    return done


def _named(pairs: Any, convert: Callable[[Any], Any]) -> dict[str, Any]:
    done: dict[str, Any] = {}
    name = ""
    try:
        for name, item in pairs:
            done[name] = convert(item)
    except CodecError as error:
        error.under(name)
        raise
    return done
