"""A shape: how the values of one declared type look as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from spolia.errors import CodecError

if TYPE_CHECKING:
    from spolia.codec.context import Reading, Writing

Plain: TypeAlias = Any


class Shape(Protocol):
    """How the values of one declared type are written and read."""

    def encode(self, value: Any, writing: Writing) -> Plain: ...
    def decode(self, plain: Plain, reading: Reading) -> Any: ...

    @property
    def words(self) -> str:
        """What belongs there, for messages: `a whole number`."""


def seen(plain: object) -> str:
    """What was there instead, in a few words.

    >>> seen("abc"), seen([1, 2]), seen({"BM25": 1}), seen(None)
    ("the text 'abc'", 'a list of 2', 'a mapping with BM25', 'nothing')
    """
    if plain is None:
        return "nothing"
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, str):
        return f"the text {plain if len(plain) <= 60 else plain[:57] + '...'!r}"
    if isinstance(plain, (int, float)):
        return f"the number {plain!r:.60}"
    if isinstance(plain, (list, tuple)):
        return f"a {type(plain).__name__} of {len(plain)}"
    if isinstance(plain, Mapping):
        keys = ", ".join(f"{key!s:.40}" for key in list(plain)[:5])
        return f"a mapping with {keys}" if keys else "an empty mapping"
    return f"{type(plain).__name__} {plain!r:.80}"


def wanted(words: str, found: object, hint: str = "") -> CodecError:
    """The error that something else belongs there."""
    return CodecError(f"Here belongs {words}; there was {seen(found)}.{' ' + hint if hint else ''}")
