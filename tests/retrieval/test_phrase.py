"""Words in a row: exactly what a reader would mark in the texts, and never fewer than there are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import QueryError
from spolia.retrieval.bm25 import BM25, Phrase
from spolia.run import Run
from spolia.stores.lexical.analysis import contains_phrase
from spolia.types import Query
from tests.cases import check_each
from tests.retrieval.conftest import Stored

WORDS = ["apple", "pie", "Äpfel", "and"]


def ids_found(op: Phrase, text: str) -> list[str]:
    return sorted(node.id for node in op(Query(text)).nodes)


def test_words_in_a_row_are_found(stored: Stored) -> None:
    texts = {
        "pie": "An apple pie.",
        "dash": "APPLE-PIE!",
        "line": "apple\n  pie",
        "other way": "A pie of apple",
        "between": "apple and pie",
        "plural": "apple pies",
        "part": "pineapple pie",
        "tokyo": "東京タワーは高い",
        "zurich": "In Zürich schmeckt es.",
    }
    group = stored(texts)
    assert ids_found(Phrase(group), "apple pie") == ["dash", "line", "pie"]
    assert ids_found(Phrase(group), "Zurich, schmeckt") == ["zurich"]
    assert ids_found(Phrase(group), "タワー") == ["tokyo"]
    assert ids_found(Phrase(group), "?!") == []
    with pytest.raises(QueryError, match="The question is empty"):
        Phrase(group)(Query(""))


@pytest.mark.slow
def test_scores_and_order_are_those_of_bm25(stored: Stored) -> None:
    group = stored({"long": "red stone " + "sand " * 50, "short": "red stone", "mixed": "stone red"})
    phrase, words = Phrase(group)(Query("red stone")), BM25(group)(Query("red stone"))
    assert [hit.node.id for hit in phrase.hits] == ["short", "long"]
    assert phrase.hits == tuple(hit for hit in words.hits if hit.node.id != "mixed")
    assert phrase.source == "phrase"


def test_it_is_never_short_however_far_down_the_phrase_stands(stored: Stored) -> None:
    decoys = {f"d{number}": "stone red" for number in range(60)}
    rows = {f"r{number}": "red stone " + "sand " * 40 for number in range(5)}
    group = stored(decoys | rows)
    assert len(Phrase(group, top_k=5)(Query("red stone")).hits) == 5
    assert len(Phrase(group, top_k=4)(Query("red stone")).hits) == 4
    assert len(Phrase(group, top_k=9)(Query("red stone")).hits) == 5


def test_only_what_may_be_read_is_found(stored: Stored) -> None:
    group = stored({"a": "red stone", "b": "red stone"}, readers={"b": ("ann",)})
    assert ids_found(Phrase(group), "red stone") == ["a"]
    with Run(principal="ann"):
        assert ids_found(Phrase(group), "red stone") == ["a", "b"]


@pytest.mark.slow
@settings(max_examples=15)
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=8),
    phrase=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
)
def test_it_finds_what_comparing_every_text_finds(stored: Stored, texts: list[str], phrase: str) -> None:
    texts_by_id = {f"n{number}": f"{text} ." for number, text in enumerate(texts)}
    expected = [id for id, text in texts_by_id.items() if f" {phrase} " in f" {text} "]
    assert ids_found(Phrase(stored(texts_by_id), top_k=50), phrase) == sorted(expected)


@check_each(
    ("text", "phrase", "there"),
    [
        ("the artist", "art", False),
        ("state-of-the-art", "the art", True),
        ("file_name", "name", True),
        ("東京tower", "tower", True),
        ("東京tower", "東京", True),
        ("के लिए", "क", False),
        ("के लिए", "के", True),
        ("C++ and C", "c and", True),
        ("straße", "STRASSE", True),
        ("a.b", "a b", True),
        ("", "a", False),
        ("text", "", False),
    ],
)
def test_what_counts_as_a_word(text: str, phrase: str, there: bool) -> None:
    assert contains_phrase(text, phrase) is there
