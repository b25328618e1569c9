"""Windows of exactly so many tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import WiringError
from spolia.indexing.splitters.sized_splitter import BATCH_CHARACTERS, TokenWindow
from spolia.models.onnx import weights
from spolia.models.onnx.tokenizer import WordPiece
from spolia.stores.definition import Part
from tests.cases import check_each
from tests.indexing.splitters.splitter_cases import Threes, characters_left_out, cut_checked, part_of
from tests.indexing.test_splitter import EMOJI, KOREAN, SCRIPTS


@pytest.fixture
def wordpiece() -> WordPiece:
    pytest.importorskip("tokenizers")
    try:
        weights.find(hub=False)
    except Exception as error:
        pytest.skip(f"needs the weights: {error}")
    return WordPiece()


def windows(splitter: TokenWindow, part: Part) -> list[tuple[int, int]]:
    return [(piece.start or 0, (piece.start or 0) + len(piece.text)) for piece in cut_checked(splitter, part)]


@pytest.mark.slow
@given(st.integers(0, 300), st.integers(1, 40), st.data())
@settings(max_examples=150)
def test_windows_have_exactly_so_many_tokens_and_share_exactly_the_overlap(
    count: int, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    words = [f"w{number}" for number in range(count)]
    window_words = [piece.text.split() for piece in cut_checked(TokenWindow(size, overlap), part_of(" ".join(words)))]
    stride = size - overlap
    begins = range(0, max(1, count - overlap), stride) if count else range(0)
    assert window_words == [words[begin : begin + size] for begin in begins]
    assert [word for number, window in enumerate(window_words) for word in window[overlap if number else 0 :]] == words


def test_an_empty_text_has_no_windows() -> None:
    assert cut_checked(TokenWindow(), part_of("")) == ()


@check_each("text", [*SCRIPTS, KOREAN * 30 + EMOJI * 30])
@check_each("tokenizer", [None, Threes()])
def test_the_text_is_put_together_again_from_the_offsets(text: str, tokenizer: Threes | None) -> None:
    part = part_of(text * 20)
    assert characters_left_out(part.node.text, cut_checked(TokenWindow(10, 3, tokenizer), part)) == ""
    assert characters_left_out(part.node.text, cut_checked(TokenWindow(10, 0, tokenizer), part)) == ""


def test_tokens_are_those_of_the_embedder(wordpiece: WordPiece) -> None:
    text = "Unbelievable stonemasons rebuilt the aqueducts near Segovia, arch by arch. " * 40
    tokens = wordpiece.pieces(text)
    found_windows = windows(TokenWindow(50, 7, wordpiece), part_of(text))
    begins = [tokens[index].start for index in range(0, len(tokens) - 7, 43)]
    assert found_windows == [
        (begin, tokens[min(len(tokens), index + 50) - 1].end)
        for begin, index in zip(begins, range(0, len(tokens) - 7, 43), strict=True)
    ]


@pytest.mark.slow
def test_tokens_of_a_long_text_are_those_of_the_whole(wordpiece: WordPiece) -> None:
    text = "Unbelievable stonemasons rebuilt the aqueducts. " * (2 * BATCH_CHARACTERS // 48)
    tokens = wordpiece.pieces(text)
    assert len(text) > 1.9 * BATCH_CHARACTERS
    found_windows = windows(TokenWindow(1000, 0, wordpiece), part_of(text))
    assert [begin for begin, _ in found_windows] == [tokens[index].start for index in range(0, len(tokens), 1000)]


@pytest.mark.parametrize("text", ["가" * 3000, "👍🏽" * 3000, "ก" * 3000, "x" * 3000])
def test_words_that_the_tokenizer_does_not_know_are_cut(wordpiece: WordPiece, text: str) -> None:
    found_windows = windows(TokenWindow(20, 5, wordpiece), part_of(text))
    assert len(found_windows) > 20
    assert max(end - begin for begin, end in found_windows) <= 80


def test_nothing_is_shared_across_blanks_longer_than_a_window() -> None:
    text = "one two three" + " " * 1000 + "four five six"
    assert [piece.text for piece in cut_checked(TokenWindow(2, 1), part_of(text))] == [
        "one two", "two three", "four five", "five six"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"size": 0}, "size=0"),
        ({"size": 5, "overlap": 5}, "overlap=5 with size=5.*Write an overlap below"),
        ({"overlap": -1}, "overlap=-1"),
        ({"chars_per_token": 0}, "chars_per_token=0"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(fields: dict[str, int], said: str) -> None:
    with pytest.raises(WiringError, match=f"TokenWindow got.*{said}"):
        TokenWindow(**fields)  # type: ignore[arg-type]
