"""Replies as models write them, written down by hand: what each parser reads of them, and that none breaks it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.models.parsers import (
    ControlTokens,
    Headed,
    JsonObject,
    Lines,
    Number,
    OneOf,
    Order,
    Parser,
    Tags,
    YesNo,
)
from spolia.models.parsers.json_object import parse_loose
from spolia.pre_retrieval.text_to_query import Statement
from tests.cases import check_each
from tests.tree import few

FOLDER = Path(__file__).parent / "replies"
Row = tuple[Parser[Any], Any, str]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(", ")]


def _named(given: str, stated: str) -> dict[str, str]:
    """Texts by the names in whose order they stand."""
    return dict(zip(_split(given), stated.replace("⏎", "\n").split("|"), strict=True))


FAMILIES: dict[str, tuple[Callable[[str], Parser[Any]], Callable[[str, str], Any]]] = {
    "yes_no": (lambda _: YesNo(), lambda _, stated: {"yes": True, "no": False}[stated]),
    "label": (lambda given: OneOf(tuple(_split(given))), lambda _, stated: stated),
    "score": (lambda given: Number(*map(float, _split(given))), lambda _, stated: float(stated)),
    "ranking": (lambda _: Order(), lambda _, stated: tuple(map(int, stated.split()))),
    "items": (lambda _: Lines(), lambda _, stated: tuple(stated.split("|"))),
    "json_object": (lambda given: JsonObject(tuple(_split(given))), lambda _, stated: json.loads(stated)),
    "tags": (lambda given: Tags(tuple(_split(given))), _named),
    "sections": (lambda given: Headed(tuple(_split(given))), _named),
    "control_tokens": (
        lambda given: ControlTokens(tuple(_split(given))),
        lambda _, stated: tuple(_split(stated)),
    ),
    "statement": (lambda _: Statement(), lambda _, stated: stated.replace("⏎", "\n")),
}


def rows(family: str) -> Iterator[Row]:
    """Parser, value and reply of each line of a family's file."""
    parser_of, value_of = FAMILIES[family]
    given = ""
    for line in (FOLDER / f"{family}.txt").read_text(encoding="utf-8").split("\n")[1:]:
        if " :: " in line:
            stated, reply = line.split(" :: ", 1)
            yield parser_of(given), value_of(given, stated), reply.replace("⏎", "\n")
        elif line.startswith("= "):
            given = line[2:]


def read(parser: Parser[Any], reply: str) -> Any:
    """The value, or the refusal."""
    try:
        return parser.parse(reply)
    except ValueError as error:
        return error


@check_each("family", FAMILIES)
def test_messy_replies_are_read_as_they_are_meant(family: str) -> None:
    table = list(rows(family))
    assert len(table) >= 300
    assert len({(parser.digest, reply) for parser, _, reply in table}) == len(table), "a reply stands there twice"
    wrong = [
        f"{reply!r}: {read_value!r} instead of {value!r}"
        for parser, value, reply in table
        if (read_value := read(parser, reply)) != value or type(read_value) is not type(value)
    ]
    share = 1 - len(wrong) / len(table)
    assert share >= 0.97, f"{share:.1%} of {len(table)}:\n" + "\n".join(wrong)


# ------------------------------------------------------------------------------------------------------------- fuzzing

FUZZED = 3_000
_ODD = ("\x00", "\ud800", "‮", "{", "}", "[", "]", "<think>", "</think>", "\\", '"', "'", "￼", "９", "\n", ":", "%", "☃")


def damage_reply(replies: list[str], random: random.Random) -> str:
    """A reply that was cut, torn, doubled, mixed with another one or with characters that mean something."""
    reply = random.choice(replies)
    for _ in range(random.randint(1, 4)):
        start, to = sorted((random.randint(0, len(reply)), random.randint(0, len(reply))))
        odd = random.choice((*_ODD, chr(random.randint(1, 0xD7FF)), random.choice(replies)))
        reply = random.choice(
            (
                reply[:start],
                reply[start:],
                reply[:start] + reply[to:],
                reply[:start] + odd + reply[start:],
                reply[:start] + odd * random.randint(2, 40) + reply[to:],
                reply[start:to] * random.randint(2, 20),
            )
        )[:5000]
    return reply


@pytest.mark.slow
@pytest.mark.parametrize("family", few(FAMILIES, 4))
def test_no_reply_breaks_a_parser(family: str) -> None:
    table = list(rows(family))
    chance, replies = random.Random(family), [reply for _, _, reply in table]
    counts = {"read": 0, "refused": 0}
    for number in range(FUZZED):
        outcome = read(table[number % len(table)][0], damage_reply(replies, chance))
        counts["refused" if isinstance(outcome, ValueError) else "read"] += 1
    assert counts["read"] + counts["refused"] == FUZZED
    assert min(counts.values()) > FUZZED / 100, f"what is refused or read is hardly tried: {counts}"


@pytest.mark.slow
@pytest.mark.parametrize("family", few(FAMILIES, 4))
@pytest.mark.parametrize(
    "repeated",
    ["no ", "{", '{"a":', "[", "1", "1 ", "[1] > ", "- a\n", "<think>", "</think>", "**", "ab, ", "'", ">", "\n"],
)
def test_a_reply_that_repeats_for_ever_is_read_or_refused_soon(family: str, repeated: str) -> None:
    parser = next(rows(family))[0]
    read(parser, repeated * (100_000 // len(repeated)))  # a pattern that backtracks would take hours


@check_each("family", FAMILIES)
@check_each("reply", ["", " \n", "\ufeff", "<think>yes 1 [2]"])
def test_an_empty_reply_is_refused(family: str, reply: str) -> None:
    assert isinstance(read(next(rows(family))[0], reply), ValueError)


KEYS = st.text(st.characters(exclude_characters="\"'”“„»«」「:：\\\n", exclude_categories=("C", "Z")), min_size=1)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text("ab c?#,.-é谁", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.dictionaries(KEYS, PLAIN, min_size=1, max_size=4))
def test_json_as_it_should_be_is_read_as_json_whatever_its_keys(written: dict[str, Any]) -> None:
    assert parse_loose(json.dumps(written, ensure_ascii=False), 0) == written
