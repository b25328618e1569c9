"""What is read out of a model's reply: frozen values, so that a role that holds one is plain data."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import Any, Generic, TypeVar

from spolia.types import Value

Out = TypeVar("Out", covariant=True)


_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\(?\d{1,3}[.):]\s+)?")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w/])")


class Parser(ABC, Value, Generic[Out]):
    """Reads a value out of a reply."""

    @abstractmethod
    def parse(self, reply: str) -> Out:
        """The value.

        Raises:
            ValueError: the reply holds none; the message says what it should have looked like.
        """


@dataclass(frozen=True)
class Text(Parser[str]):
    """All of it, without blanks around."""

    def parse(self, reply: str) -> str:
        return _present(reply)


@dataclass(frozen=True)
class Lines(Parser[tuple[str, ...]]):
    """One text a line, without bullets, numbers, empty lines and repetitions.

    Args:
        at_most: further lines are left out.

    >>> Lines().parse("1. Who is he?\\n- Where was he?\\n\\n2) Who is he?")
    ('Who is he?', 'Where was he?')
    """

    at_most: int = 20

    def parse(self, reply: str) -> tuple[str, ...]:
        lines = (_BULLET.sub("", line).strip() for line in _present(reply).splitlines())
        return tuple(dict.fromkeys(line for line in lines if line))[: self.at_most]


@dataclass(frozen=True)
class OneOf(Parser[str]):
    """One of some words: the only one that the reply names, or else that its first and last lines do.

    >>> OneOf(("yes", "no")).parse("**Yes**, because nobody else did.")
    'yes'
    """

    options: tuple[str, ...]

    def parse(self, reply: str) -> str:
        lines = [line for line in reply.splitlines() if line.strip()] or [""]
        named = self._named(reply)
        if len(named) != 1:
            named = set().union(*(found for found in map(self._named, (lines[0], lines[-1])) if len(found) == 1))
        if len(named) == 1:
            return named.pop()
        raise ValueError(f"it must be exactly one of: {', '.join(self.options)}")

    def _named(self, part: str) -> set[str]:
        return {option for option in self.options if _word(option).search(part)}


@dataclass(frozen=True)
class YesNo(Parser[bool]):
    """True for yes, False for no.

    >>> YesNo().parse("No.")
    False
    """

    def parse(self, reply: str) -> bool:
        return OneOf(("yes", "no")).parse(reply) == "yes"


@dataclass(frozen=True)
class Number(Parser[float]):
    """The last number in the reply, within bounds.

    >>> Number(0, 10).parse("Score: 7/10, so I say 7.5")
    7.5
    """

    low: float
    high: float

    def parse(self, reply: str) -> float:
        found = _NUMBER.findall(reply)
        number = float(found[-1]) if found else float("nan")
        if not (isfinite(number) and self.low <= number <= self.high):
            raise ValueError(f"it must end in a number from {self.low:g} to {self.high:g}")
        return number


@dataclass(frozen=True)
class JsonObject(Parser[dict[str, Any]]):
    """The first JSON object in the reply that has the keys; text and code fences around it do not matter.

    >>> JsonObject(("need",)).parse('Sure: ```json\\n{"need": ["a"]}\\n```')
    {'need': ['a']}
    """

    keys: tuple[str, ...] = ()

    def parse(self, reply: str) -> dict[str, Any]:
        decoder = json.JSONDecoder()
        for brace in [found.start() for found in re.finditer(r"\{", reply)][:100]:
            try:
                found, _ = decoder.raw_decode(reply, brace)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict) and found.keys() >= set(self.keys):
                return found
        keys = f" with the keys {', '.join(self.keys)}" if self.keys else ""
        raise ValueError(f"it must be one JSON object{keys}")


def _word(option: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(option)}(?!\w)", re.IGNORECASE)


def _present(reply: str) -> str:
    if not reply.strip():
        raise ValueError("it must not be empty")
    return reply.strip()
