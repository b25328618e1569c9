"""Sentences in any script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.core.sentences import sentences
from tests.cases import check_each


def sentences_of(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@check_each(
    ("text", "expected"),
    [
        ("He came. She left! Why? So.", ["He came.", "She left!", "Why?", "So."]),
        ("Dr. J. K. Smith met Mrs. Jones. They spoke.", ["Dr. J. K. Smith met Mrs. Jones.", "They spoke."]),
        (
            "It cost 3.50 dollars. See Fig. 3. Then e.g. this.",
            ["It cost 3.50 dollars.", "See Fig. 3.", "Then e.g. this."],
        ),
        (
            "The U.S. Army came. He left the U.S. They stayed.",
            ["The U.S. Army came.", "He left the U.S.", "They stayed."],
        ),
        ('"Why?" he asked. "Because."', ['"Why?" he asked.', '"Because."']),
        ("It is so.[3] Others agree.[12][13] The end.", ["It is so.[3]", "Others agree.[12][13]", "The end."]),
        ("Wait... and see. Now.", ["Wait... and see.", "Now."]),
        ("Am 3. Oktober 1990 kam es. Gut.", ["Am 3. Oktober 1990 kam es.", "Gut."]),
        ("他来了。走吧！真的吗？", ["他来了。", "走吧！", "真的吗？"]),
        ("「走れ！」と彼は言った。次の文。", ["「走れ！」と彼は言った。", "次の文。"]),
        ("사과는 빨갛다. 배는 3.5개다! 왜?", ["사과는 빨갛다.", "배는 3.5개다!", "왜?"]),
        ("ما اسمك؟ اسمي علي. نعم", ["ما اسمك؟", "اسمي علي.", "نعم"]),
        ("यह है। वह भी है॥ फिर", ["यह है।", "वह भी है॥", "फिर"]),
        ("- one\n- two\n3. three\n\nNext", ["- one", "- two", "3. three", "Next"]),
        ("A title\r\n\r\nBody.", ["A title", "Body."]),
        ("", []),
        (" \n\t\u3000", []),
    ],
)
def test_sentences_of_many_scripts(text: str, expected: list[str]) -> None:
    assert sentences_of(text) == expected


def test_a_line_break_in_wrapped_text_does_not_end_a_sentence() -> None:
    text = (
        "A short title\n"
        "The body begins here and is long enough to be wrapped at about seventy\n"
        "characters, so that the line break inside it is not the end of a sentence at\n"
        "all. Another one."
    )
    assert [len(sentence.splitlines()) for sentence in sentences_of(text)] == [1, 3, 1]


def test_thai_is_cut_at_spaces_between_long_phrases_only() -> None:
    first = "ประเทศไทยเป็นประเทศที่ตั้งอยู่ในภูมิภาคเอเชียตะวันออกเฉียงใต้"
    assert sentences_of(f"{first} มีพรมแดนติดกับประเทศพม่าและลาว") == [first, "มีพรมแดนติดกับประเทศพม่าและลาว"]
    assert len(sentences_of("พ.ศ. 2550 ใน กรุงเทพ")) == 1


@pytest.mark.slow
@given(
    st.text(alphabet=st.sampled_from(list("aB .!?。؟\n\r 1ไท(\"')][…:-#\u2029é")), max_size=300) | st.text(max_size=100)
)
def test_every_character_but_blanks_is_in_exactly_one_sentence(text: str) -> None:
    covered = [0] * len(text)
    for start, end in sentences(text):
        assert text[start:end] == text[start:end].strip() != ""
        for position in range(start, end):
            covered[position] += 1
    for character, times in zip(text, covered, strict=True):
        assert times == 1 or (times == 0 and character.isspace())


@pytest.mark.slow
@check_each("piece", [".", " ", "\n", ". ", ".)", "a\n", "A. ", "。", "ก ", "[1]", "\"'", "- \n", "\r"])
def test_hostile_repetition_takes_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert sum(end - start for start, end in sentences(text)) <= len(text)
