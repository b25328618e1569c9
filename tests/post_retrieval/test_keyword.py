"""All required keywords, no excluded one, and no filter knows of another."""

from __future__ import annotations

import pytest

from spolia.errors import WiringError
from spolia.post_retrieval.selection import KeywordFilter
from spolia.types import Hit, Node, Query, Ranking

TEXTS = ("apple pie", "banana split", "apple and banana", "Äpfel, no APPLE-PIE", "pineapple")


def texts_left(filter: KeywordFilter) -> list[str]:
    hits = tuple(Hit(Node(text, text), 1 / rank) for rank, text in enumerate(TEXTS, 1))
    ranking = filter(Ranking(Query("dessert"), hits, "bm25"))
    assert set(ranking.hits) <= set(hits)
    assert ranking.source == "bm25"
    return [node.text for node in ranking.nodes]


def test_all_required_are_there() -> None:
    assert texts_left(KeywordFilter(("apple", "banana"))) == ["apple and banana"]
    assert texts_left(KeywordFilter(("apple",))) == ["apple pie", "apple and banana", "Äpfel, no APPLE-PIE"]
    assert texts_left(KeywordFilter(("apple pie",))) == ["apple pie", "Äpfel, no APPLE-PIE"]
    assert texts_left(KeywordFilter(("cherry",))) == []


def test_no_excluded_one_is_there() -> None:
    assert texts_left(KeywordFilter(excluded=("apple", "split"))) == ["pineapple"]
    assert texts_left(KeywordFilter(("apple",), ("apfel", "banana"))) == ["apple pie"]
    assert texts_left(KeywordFilter()) == list(TEXTS)


def test_keywords_of_one_filter_are_unknown_to_another() -> None:
    assert len(texts_left(KeywordFilter(("apple",)))) == 3
    assert texts_left(KeywordFilter(("split",))) == ["banana split"]
    assert len(texts_left(KeywordFilter(("apple",)))) == 3


def test_title_and_headings_count() -> None:
    ranking = Ranking(Query("?"), (Hit(Node("a", "It rises.", context="The tide"), 1.0),))
    assert len(KeywordFilter(("tide",))(ranking)) == 1
    assert len(KeywordFilter(excluded=("tide",))(ranking)) == 0
    assert len(KeywordFilter(("tide",))(Ranking(Query("?"), ()))) == 0


def test_a_keyword_that_no_text_can_hold_is_refused() -> None:
    with pytest.raises(WiringError, match="'!' has neither letters nor digits"):
        KeywordFilter(("apple", "!"))
