"""Replies that a hostile page or a broken server can make a model give: every parser reads or refuses them in linear
time. A pattern that backtracks would run for minutes to years on them, which ends the test by its time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spolia.models.parsers import refuses, says_nothing, strip_thoughts, strip_tokens
from spolia.models.parsers.parser import plain_words
from spolia.models.parsers.tags import Markers

from .test_every_parser import parsers
from .test_replies import FAMILIES, read, rows

SIZE = 10_000
REPLIES: dict[str, tuple[str, str, str]] = {
    "blanks": ("a", " ", "x"),
    "blanks at the end": ("a [1]", " ", ""),
    "line breaks": ("a", "\n", "x"),
    "blanks in a marker's numbers": ("[1", "   1", " x]"),
    "opened markers": ("", "[1 ", "x"),
    "blanks in a tag": ("<a>", " ", "x"),
    "blanks in a row of a table": ("| 1 |", " ", "x"),
    "blanks after a key": ("need", " ", "x"),
    "blanks in the value of a key": ("need: a", " ", "x"),
    "blanks after a number of a step": ("1", " ", "x"),
    "blanks after a rule": ("answer: a\n---", " ", "x"),
    "numbered lines": ("", "1\n", ""),
    "assignments of lists": ("", "=[a", "]x]"),
    "quoted texts": ('"a', '", "', "a"),
    "comments": ("{a: [", "/*,", ""),
    "objects": ("", '{"a":', ""),
    "lists": ("", "[", "]"),
    "tags": ("", "<a ", ""),
    "thoughts": ("", "<think>", "</think"),
    "ends of thoughts": ("", "</think ", "x"),
    "fences": ("", "```\n", "x"),
    "bold type": ("", "**", "x"),
    "lines that go on": ("- a,\n", "b,\n", ""),
    "labels": ("", "answer:", ""),
    "steps": ("", "step\n", ""),
    "statements": ("", "sql ", ":"),
    "turns": ("", "Q:\n", ""),
    "quotes": ("", "“", "x"),
    "signs that become many": ("", "\ufdfa", "x"),
}  # prefix, what is repeated, suffix


def _make_marker_reader(size: int) -> Callable[[str], object]:
    def parse(reply: str) -> object:
        markers = Markers(3)
        pieces = [markers.feed(reply[start : start + size]) for start in range(0, len(reply), size)]
        return "".join(pieces) + markers.end()

    return parse


def _readers() -> Iterator[Any]:
    tried = [next(rows(family))[0] for family in FAMILIES]
    for parser in [*tried, *parsers()]:
        yield pytest.param(lambda reply, parser=parser: read(parser, reply), id=type(parser).__name__)
    for at_once in (3, SIZE * 2):
        yield pytest.param(_make_marker_reader(at_once), id=f"Markers-{at_once}")
    for function in (strip_thoughts, plain_words, refuses, says_nothing):
        yield pytest.param(function, id=function.__name__)
    yield pytest.param(lambda reply: strip_tokens(reply, ("Relevant",)), id="strip_tokens")


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("read_reply", list(_readers()))
def test_every_reader_of_replies_ends_on_adversarial_replies(read_reply: Callable[[str], object]) -> None:
    for beginning, repeated, end in REPLIES.values():
        reply = beginning + repeated * (SIZE // len(repeated)) + end
        assert read_reply(reply) is not None, f"{beginning!r} + {repeated!r} * n + {end!r}"


@pytest.mark.parametrize(
    "marker", ["[1   1   1   1   1   1   1   1   1   1   1   1   1   1   1   1 x]", "[1 2 , 3 and 1]"]
)
def test_a_marker_is_decided_in_one_pass(marker: str) -> None:
    markers = Markers(3)
    text = markers.feed(f"Paris {marker}") + markers.end()
    assert text == (f"Paris {marker}" if "x" in marker else "Paris [1][2][3]")
