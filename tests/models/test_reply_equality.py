"""When replies count as the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.models.parsers.parser import plain_words
from tests.cases import check_each


@check_each(
    ("one", "other"),
    [
        ("Nokia", " nokia. "),
        ("Nokia [1].", "NOKIA"),
        ("caf\u00e9", "CAFE\u0301"),
        ("ＮＯＫＩＡ", "Nokia"),
        ("Straße", "STRASSE"),
        ("\uac00", "\u1100\u1161"),
        ("ｶﾅ", "カナ"),
        ("\u221a5", "\u221a 5".replace(" ", "")),
        ("-5 °C", "\u22125 °C"),
        ("don’t", "don't"),
    ],
)
def test_these_are_the_same(one: str, other: str) -> None:
    assert plain_words(one) == plain_words(other)


@check_each(
    ("one", "other"),
    [("5", "-5"), ("C", "C++"), ("5", "5 %".replace("%", "€")), ("किताब", "कताब"), ("3.5", "35"), ("Oslo", "Salo")],
)
def test_these_are_not(one: str, other: str) -> None:
    assert plain_words(one) != plain_words(other)


@pytest.mark.slow
@given(st.text(max_size=30))
def test_the_form_in_which_unicode_is_written_does_not_matter(text: str) -> None:
    forms = {plain_words(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert len(forms) == 1
    assert plain_words(forms.copy().pop()) == forms.pop()
