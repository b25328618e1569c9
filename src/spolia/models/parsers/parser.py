"""What all parsers are, and what all of them pass over."""

import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from spolia.types import Value

Out = TypeVar("Out", covariant=True)

_THOUGHTS = "think|thinking|thought|reasoning"
_THOUGHT = re.compile(rf"<({_THOUGHTS})>.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_THOUGHT_END = re.compile(rf"</(?:{_THOUGHTS})\s*>", re.IGNORECASE)
_SPECIAL = re.compile(r"<\|\w{1,30}\|>|</?s>|[\u200b\u2060\ufeff]")


NOTHING = "none"
"""What a prompt asks a model to write when there is nothing to say."""
_NOTHING = re.compile(r"[\W_]*(?:none|n/a)[\W_]*", re.IGNORECASE)
LONGEST = 200_000
"""Characters of a reply that are looked at."""
END = 2000
"""Characters at the beginning, and at the end, of a long reply among which a verdict is looked for."""


class Parser(ABC, Value, Generic[Out]):
    """Reads a value out of a reply."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema that a server may be held to, so that there is something to read; empty for plain text."""
        return {}

    @abstractmethod
    def parse(self, reply: str) -> Out:
        """The value.

        Raises:
            ValueError: the reply holds none; the message says what it should have looked like.
        """


def spoken(reply: str) -> str:
    """What a model says, without what it thinks before (`<think>`), marks of its chat format and invisible characters.

    >>> spoken("<think>yes? no</think> No.<|im_end|>")
    'No.'
    """
    said = _THOUGHT.sub(" ", reply)
    *before, last = _THOUGHT_END.split(said)  # the opening mark is often part of the prompt
    if not last.strip() and before:
        last = before[-1]
    return _SPECIAL.sub("", last).strip()


def says_nothing(reply: str) -> bool:
    """Whether a reply is the word for nothing.

    >>> says_nothing("None."), says_nothing("None of it holds.")
    (True, False)
    """
    return _NOTHING.fullmatch(reply) is not None


def plain(reply: str) -> str:
    """The beginning and the end of what a model says, in the usual form of each character, without bold type.

    >>> plain("**Score：７**")
    'Score:7'
    """
    said = spoken(reply)
    if len(said) > 2 * END:
        said = f"{said[:END]}\n{said[-END:]}"
    said = unicodedata.normalize("NFKC", said).replace("\u2212", "-")
    return re.sub(r"\*+|`+|~~|\\(?=\W)|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)", "", said).strip()


@dataclass(frozen=True)
class Text(Parser[str]):
    """All of it, without blanks around and without what the model thought before.

    >>> Text().parse("<think>Which one?</think> Nokia. ")
    'Nokia.'
    """

    def parse(self, reply: str) -> str:
        if not (said := spoken(reply)):
            raise ValueError("it must not be empty")
        return said


_MARKER = re.compile(r"\s*\[\d{1,4}\]")
_SIGNED = re.compile(r"(?<!\w)[-\u2212](?=\d)")


def plain_words(reply: str) -> str:
    """A reply without case, accents' other spellings, widths, punctuation and citation markers: equal for equal words.

    Letters, their marks, digits and symbols stay, in any script; a sign before a number does too.

    >>> plain_words("The café (Ｎokia).") == plain_words("the CAFE\\u0301 nokia [1]")
    True
    >>> plain_words("-5 °C"), plain_words("C++"), plain_words("「東京」。")
    ('−5 °c', 'c++', '東京')
    """
    said = unicodedata.normalize("NFKC", _MARKER.sub("", reply)).casefold()
    said = _SIGNED.sub("\u2212", said)
    kept = (letter if unicodedata.category(letter)[0] in "LMNS" else " " for letter in said)
    return unicodedata.normalize("NFC", " ".join("".join(kept).split()))
