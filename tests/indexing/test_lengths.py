"""Windows of scripts that a tokenizer does not cover are measured in characters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import SpoliaError
from spolia.indexing.splitters.sized_splitter import Lengths, SlidingWindow
from spolia.indexing.sync.report import reports
from spolia.indexing.sync.sync import sync
from spolia.models.onnx import weights
from spolia.models.onnx.minilm import MiniLM
from spolia.models.onnx.tokenizer import WordPiece
from spolia.stores.corpus import Corpus
from spolia.stores.groups.nodes import cut_document
from spolia.types import Document, Value
from tests.cases import check_each
from tests.indexing.test_splitter import ARABIC, CHINESE, EMOJI, KOREAN, SCRIPTS, THAI, Bytes, covers_text

ENGLISH = "The river crosses the city, and “nobody” knows where it begins — or ends. "
SPANISH = "El río cruza la ciudad, ¿y quién sabe dónde nace? Según los años, cambió. "


@dataclass(frozen=True)
class English(Value):
    """Knows words of ASCII; spells what is not, a token for each byte, and says that it knows none."""

    def count(self, texts: Iterable[str], /) -> list[int]:
        return [sum(1 if word.isascii() else len(word.encode()) for word in text.split()) for text in texts]

    def covers(self, text: str) -> float:
        return sum(character.isascii() for character in text) / max(1, len(text))

    def fingerprint(self) -> str:
        return "English/1"


def lengths(text: str, splitter: SlidingWindow) -> list[int]:
    nodes = list(cut_document(Document("d", text), splitter))
    assert covers_text(text, nodes)
    assert all(len(node.text) <= splitter.size * splitter.chars_per_token for node in nodes)
    return [len(node.text) for node in nodes]


@check_each("text", [KOREAN, CHINESE, THAI, ARABIC, "가" * 100, "한국어".join(" " * 50)])
def test_windows_of_a_script_that_is_not_covered_are_as_long_as_the_characters_allow(text: str) -> None:
    window_lengths = lengths(text * 60, SlidingWindow(size=50, overlap=5, tokenizer=English()))
    assert (
        sum(window_lengths) / len(window_lengths) > 120
    )  # a window has 200 characters; counted in tokens it would have 17


def test_a_counter_that_does_not_say_what_it_knows_is_believed() -> None:
    window_lengths = lengths(KOREAN * 60, SlidingWindow(size=50, overlap=5, tokenizer=Bytes()))
    assert max(window_lengths) < 60
    assert Lengths(Bytes(), 4, 1.0).count("서울") == 3


def test_pieces_of_one_document_are_measured_each_by_its_script() -> None:
    splitter = SlidingWindow(size=20, overlap=0, tokenizer=English())
    nodes = list(cut_document(Document("d", "A bc de fg hi. " * 20 + "\n\n" + KOREAN * 20), splitter))
    latin = [node.text for node in nodes if node.text.isascii()]
    assert {len(text.split()) for text in latin} == {20}
    assert max(len(node.text) for node in nodes if node.text not in latin) > 40


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.sampled_from([*SCRIPTS, ENGLISH, "\n\n", "x" * 90]), max_size=20), st.integers(4, 40))
def test_mixed_scripts_never_exceed_the_bounds(pieces: list[str], size: int) -> None:
    splitter, text = SlidingWindow(size, 1, tokenizer=English()), "".join(pieces)
    nodes = list(cut_document(Document("d", text), splitter))
    assert covers_text(text, nodes)
    for node in nodes:
        assert len(node.text) <= 4 * size
        assert Lengths(English(), 4, 0.95).count(node.text) <= size


def test_the_share_is_declared_and_named() -> None:
    with pytest.raises(SpoliaError, match=r"covered=1\.5\. Write a share from 0 to 1"):
        SlidingWindow(covered=1.5)
    symbols = "∑∂ " * 99
    assert max(lengths(symbols, SlidingWindow(20, 0, tokenizer=English()))) > 70
    assert max(lengths(symbols, SlidingWindow(20, 0, tokenizer=English(), covered=0.2))) < 20


@pytest.fixture
def wordpiece() -> WordPiece:
    pytest.importorskip("tokenizers")
    try:
        weights.find(hub=False)
    except Exception as error:
        pytest.skip(f"needs the weights: {error}")
    return WordPiece()


def test_the_tokenizer_of_the_embedder_covers_what_is_in_latin_letters(wordpiece: WordPiece) -> None:
    measure = Lengths(wordpiece, 4, 0.95)
    for text in (ENGLISH, SPANISH, "naïve café", "def f(x): return x[1:]", "a | 1 | b", "Grüße aus Zürich"):
        assert measure.is_covered(text), text
    for text in (KOREAN, CHINESE, THAI, ARABIC, EMOJI, "Москва — столица России, город на реке."):
        assert not measure.is_covered(text), text
        assert measure.count(text) == -(-len(text) // 4)


@pytest.mark.parametrize("text", [KOREAN, CHINESE, THAI, ARABIC])
def test_no_window_has_more_than_four_characters_for_each_token(wordpiece: WordPiece, text: str) -> None:
    window_lengths = lengths(text * 99, SlidingWindow(tokenizer=wordpiece))
    assert sorted(window_lengths)[len(window_lengths) // 2] > 600


@pytest.mark.slow
def test_words_of_a_hundred_thousand_characters_are_cut(wordpiece: WordPiece) -> None:
    for word in ("x" * 100_000, "가" * 100_000, "ก" * 100_000, "👍🏽" * 50_000):
        assert max(lengths(word, SlidingWindow(tokenizer=wordpiece))) <= 800


@pytest.mark.slow
def test_chunks_that_are_longer_than_the_window_and_a_script_that_is_not_known_are_reported(
    wordpiece: WordPiece, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "korean.txt").write_text(KOREAN * 40, "utf-8")
    (tmp_path / "docs" / "english.txt").write_text(ENGLISH * 40, "utf-8")
    corpus = Corpus(str(tmp_path / "s.spolia"))
    sync(tmp_path / "docs", corpus, embedder=MiniLM())
    korean, english = reports(corpus)["korean.txt"], reports(corpus)["english.txt"]
    assert korean.beyond_window == korean.chunks == 3
    assert korean.warnings == ("3 of 3 chunks are longer than the embedder's window.",)
    assert (english.beyond_window, english.warnings) == (0, ())
