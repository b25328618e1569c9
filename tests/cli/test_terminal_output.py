"""Nothing that a document says can act on the terminal."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from spolia.cli.screen import json_text, one_line, visible
from tests.cases import check_each

ANYTHING = st.text(st.characters(categories=None), max_size=60)
SOME_CONTROLS = (
    "\x00\x07\x08\x1b\x7f\x9b\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
)
LEFT_ALONE = "\n\t\u00ad\u200c\u200d"


@check_each("character", SOME_CONTROLS)
def test_controls_are_written_out(character: str) -> None:
    assert visible(f"a{character}b").startswith("a\\")
    assert character not in json_text({"text": f"a{character}b"})


@check_each("text", ["한국어", "ภาษาไทย", "العربية", "👩‍👩‍👧", "línea\n\tdos", "می‌خواهم"])
def test_writing_of_all_kinds_stays_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert json_text(text) == json.dumps(text, ensure_ascii=False)


@given(ANYTHING)
def test_no_control_format_or_surrogate_character_is_left(text: str) -> None:
    for character in visible(text):
        if character not in LEFT_ALONE:
            assert unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"}
            assert unicodedata.bidirectional(character) not in {
                "LRE",
                "RLE",
                "LRO",
                "RLO",
                "PDF",
                "LRI",
                "RLI",
                "FSI",
                "PDI",
            }


@given(st.dictionaries(ANYTHING, ANYTHING, max_size=3), st.booleans())
def test_escaped_json_means_the_same(value: dict[str, str], ascii_only: bool) -> None:
    text = json_text(value, ascii_only=ascii_only)
    assert json.loads(text) == value
    text.encode()


@given(ANYTHING, st.integers(2, 20))
def test_one_line_is_one_line_of_at_most_the_width(text: str, width: int) -> None:
    line = one_line(text, width)
    assert len(line) <= width
    assert "\n" not in line
