"""Cutting between characters as a reader sees them."""

from __future__ import annotations

from spolia.indexing.splitters.windows import last_cut, may_cut
from tests.cases import check_each


@check_each(
    "whole",
    [
        "e\u0301",
        "\r\n",
        "👨\u200d👩\u200d👧",
        "👍🏽",
        "🇰🇷",
        "ที่",
        "เก",
        "ᄒ\u1161ᆫ",
        "क्ष",
        "한\u11a8"[:1],
        "❤\ufe0f",
        "1\ufe0f\u20e3",
    ],
)
def test_what_is_one_character_to_a_reader_is_not_cut(whole: str) -> None:
    text = f"a{whole}b"
    assert [index for index in range(len(text) + 1) if may_cut(text, index)] == [0, 1, len(text) - 1, len(text)]


def test_letters_ideographs_and_two_flags_may_be_parted() -> None:
    assert all(may_cut("ab한국中文", index) for index in range(9))
    assert [may_cut("🇰🇷🇯🇵", index) for index in range(5)] == [True, False, True, False, True]


def test_where_nothing_may_be_cut_the_bound_counts() -> None:
    assert last_cut("a" + "\u0301" * 50, 1, 20) == 20
    assert last_cut("ab" + "\u0301" * 3, 0, 4) == 1
