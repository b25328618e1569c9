from __future__ import annotations

import pytest

from spolia.errors import StepFailed, WiringError
from spolia.flow_files.files import dump, load
from spolia.orchestration.rank_fusion import EvenSplit
from spolia.types import Query, Ranking
from tests.orchestration.test_fusion import ids, ranking_of


def test_a_remainder_goes_to_the_first_rankings() -> None:
    rankings = tuple(
        ranking_of(name, **{f"{name}{n}": 1.0 - index / 10 - n / 100 for n in range(9)})
        for index, name in enumerate("xyz")
    )
    split = EvenSplit(8)(rankings)
    assert ids(split) == ["x0", "x1", "x2", "y0", "y1", "y2", "z0", "z1"]
    assert [hit.score for hit in split.hits] == sorted((hit.score for hit in split.hits), reverse=True)


def test_a_node_that_two_have_found_is_one_hit_or_two() -> None:
    rankings = (ranking_of("bm25", a=0.3, b=0.2), ranking_of("bm25", a=0.9, c=0.1))
    assert [(hit.node.id, hit.score) for hit in EvenSplit(4)(rankings).hits] == [("a", 0.9), ("b", 0.2), ("c", 0.1)]
    assert ids(EvenSplit(4, once=False)(rankings)) == ["a", "a", "b", "c"]


def test_fewer_places_than_rankings_and_empty_rankings() -> None:
    assert ids(EvenSplit(1)((ranking_of("x", a=0.1), ranking_of("y", b=0.9)))) == ["a"]
    assert ids(EvenSplit(4)((ranking_of("x"), ranking_of("y", b=0.9)))) == ["b"]
    assert ids(EvenSplit(4)((ranking_of("x"),))) == []


def test_what_is_asked_is_the_question() -> None:
    rewritten = Query("Who wrote Emma?").rewritten("author of Emma")
    assert EvenSplit(4)((Ranking(rewritten, ()),)).query.text == "Who wrote Emma?"


def test_nothing_to_split_and_no_place_are_refused() -> None:
    with pytest.raises(StepFailed, match="no ranking to fuse"):
        EvenSplit()(())
    with pytest.raises(WiringError, match="top_k counts from 1"):
        EvenSplit(0)
    assert load(dump(EvenSplit(3, once=False))) == EvenSplit(3, once=False)
