"""Every parser that no table of messy replies is about, found by walking: no reply breaks it, or keeps it busy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from spolia.models.parsers import Parser, YesNo
from tests.tree import classes, few

from .test_replies import FAMILIES, FUZZED, damage_reply, read, rows

GIVEN: dict[str, dict[str, Any]] = {"OrUndetermined": {"parser": YesNo()}}
"""What a parser is made with."""

REPLIES: Sequence[str] = (
    "Yes, it does.",
    "**No**",
    "undetermined",
    "1. Who is he?\n2. Where is #1?\n",
    "Sub-question 1: Who employs Olsen?\nStep 2: Where is #1?",
    "Keywords: tide, Moon, 'tide'",
    "**Q1:** Who pulls?\n**A1:** The moon.\nQ: And?\nA: Nothing.",
    "- Clovis | Person\n| Paris | place |",
    "1: yes\n2: No, the passage says 1998.\n3: undetermined",
    "Here it is:\n```sql\nSELECT name FROM person;\n```\nIt lists names.",
    "Cypher: MATCH (n) RETURN n.name;",
    '**Rewritten query:** "author of Emma"',
    "none",
    "None.",
    "**none**",
    "I do not know.",
    "Answer: 508\nQuotes:\n- Clovis made Paris his capital in 508.",
    'Answer: the moon\nQuotes:\n"The moon pulls at the sea."',
    "**Answer:** twice a day\n**Quotes:**\n- The tide comes twice a day.",
    "First question: Where?\nFirst answer: Paris\nSecond question: When?\nSecond answer: 508\nQuestion: When, there?",
    "First question: Who?\nFirst answer: Ann\nSecond question: Her town?\nSecond answer: Salo\nQuestion: Which town?",
)
REPEATED = (
    "- a\n", "**", "ab, ", "\n", " ", "-\n", "_", "```\n", "Q: ", "Q:\n", "a|b\n", "#1 ", "select ", "\n\n- ", "1) ",
)  # fmt: skip


def parsers() -> list[Parser[Any]]:
    """One of each class that is not tried in `test_replies`."""
    tried = {type(next(rows(family))[0]) for family in FAMILIES}
    return [cls(**GIVEN.get(cls.__name__, {})) for cls in classes(Parser) if cls not in tried]


def test_they_are_found() -> None:
    assert {"Searches", "Decisions", "Steps", "Phrases"} <= {type(parser).__name__ for parser in parsers()}


@pytest.mark.slow
@pytest.mark.parametrize("parser", few(parsers(), 4), ids=lambda parser: type(parser).__name__)
def test_no_reply_breaks_it(parser: Parser[Any]) -> None:
    chance, counts = random.Random(type(parser).__name__), {"read": 0, "refused": 0}
    for _ in range(FUZZED):
        outcome = read(parser, damage_reply(list(REPLIES), chance))
        counts["refused" if isinstance(outcome, ValueError) else "read"] += 1
    assert counts["read"] + counts["refused"] == FUZZED
    assert min(counts.values()) > FUZZED / 100, f"what is refused or read is hardly tried: {counts}"


@pytest.mark.slow
@pytest.mark.parametrize("parser", few(parsers(), 4), ids=lambda parser: type(parser).__name__)
def test_a_reply_that_repeats_for_ever_is_read_or_refused_soon(parser: Parser[Any]) -> None:
    for repeated in REPEATED:
        many = repeated * (8_000 // len(repeated))
        for reply in (many, f"a{many}x"):
            read(parser, reply)  # a pattern that backtracks would take hours
