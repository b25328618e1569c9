"""The tokenizer counts, places and covers as the embedder reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import WeightsError
from spolia.models.onnx import weights
from spolia.models.onnx.tokenizer import TokenPiece, WordPiece


@pytest.fixture(scope="module")
def tokenizer() -> WordPiece:
    try:
        weights.find(hub=False)
    except WeightsError as error:
        pytest.skip(f"needs the weights: {error}")
    pytest.importorskip("tokenizers")
    return WordPiece()


def test_pieces_stand_where_they_are_in_the_text(tokenizer: WordPiece) -> None:
    text = "Ünaffable 😀 ไทย!"
    pieces = tokenizer.pieces(text)
    assert [text[piece.start : piece.end] for piece in pieces] == [
        "Üna",
        "ffa",
        "ble",
        "😀",
        "ไทย",
        "!",
    ]
    assert [piece.is_known for piece in pieces] == [True, True, True, False, False, True]
    assert pieces[-1] == TokenPiece(15, 16, True)


def test_counts_leave_out_special_tokens(tokenizer: WordPiece) -> None:
    assert tokenizer.count(["hello world", "", "   ", "x" * 500]) == [2, 0, 0, 1]
    assert tokenizer.ids("hello world") == [101, 7592, 2088, 102]
    assert tokenizer.ids("hello big world", 4) == [101, 7592, 2502, 102]
    assert tokenizer.ids("") == [101, 102]


@pytest.mark.parametrize("text", ["\x00a\x00", "a\ud83d b", "‮abc‬", "a" * 100_000, "\n\t \u00a0"])
def test_odd_texts_are_read(tokenizer: WordPiece, text: str) -> None:
    for piece in tokenizer.pieces(text):
        assert 0 <= piece.start < piece.end <= len(text)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.text(max_size=60))
def test_pieces_are_in_order_and_inside(tokenizer: WordPiece, text: str) -> None:
    pieces = tokenizer.pieces(text)
    assert len(pieces) == tokenizer.count([text])[0]
    assert all(0 <= piece.start <= piece.end <= len(text) for piece in pieces)
    assert [piece.start for piece in pieces] == sorted(piece.start for piece in pieces)
    assert 0.0 <= tokenizer.covers(text) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unknown"),
    [("xquad_th", 0.89), ("xquad_zh", 0.55), ("korquad_dev", 0.18), ("xquad_en", 0.0), ("xquad_es", 0.0)],
)
def test_shares_of_unknown_characters(tokenizer: WordPiece, shared_datasets: Path, name: str, unknown: float) -> None:
    lines = (shared_datasets / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:240]
    text = "\n\n".join(json.loads(line)["text"] for line in lines)
    assert 1 - tokenizer.covers(text) == pytest.approx(unknown, abs=0.006)
