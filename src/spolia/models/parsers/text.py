"""Replies that are read as they are."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.models.parsers.parser import Parser, spoken


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
