from __future__ import annotations

import math

import pytest

from spolia.errors import WiringError
from spolia.flow_files.files import dump, load
from spolia.post_retrieval.boosts import TitleBoost
from spolia.types import Hit, Node, Query, Ranking
from tests.cases import check_each


def factor(query: str, title: str) -> float:
    hit = Hit(Node("n", "text", context=title), 1.0)
    return TitleBoost()(Ranking(Query(query), (hit,))).hits[0].score


@check_each(
    ("query", "title", "expected"),
    [
        ("Spolia", "Spolia", 1.5),
        ("The Spolia", "Spolia", 1.5),
        ("the Spolia", "Spolia > History", 1.5),
        ("spolia", "Spolia", 1.2),
        ("Spolia", "Spolia (band)", 1.2),
        ("spolia", "Spolia (band)", 1.1),
        ("who reused spolia", "Spolia", 1.1),
        ("Who founded Spolia in Rome?", "Spolia (band)", 1.05),
        ("Who founded Rome?", "Spolia (band)", 1.0),
        ("Spolia", "", 1.0),
        ("Spolia", "Spolia\nIts history", 1.5),
    ],
)
def test_the_factors(query: str, title: str, expected: float) -> None:
    assert factor(query, title) == expected


def ranking(*scored: tuple[str, float]) -> Ranking:
    return Ranking(Query("Spolia"), tuple(Hit(Node(title, "text", context=title), score) for title, score in scored))


def test_an_exact_title_comes_above_a_higher_score_within_the_factor() -> None:
    near_ranking, beyond = ranking(("Stones", 1.49), ("Spolia", 1.0)), ranking(("Stones", 1.51), ("Spolia", 1.0))
    assert [node.id for node in TitleBoost()(near_ranking).nodes] == ["Spolia", "Stones"]
    assert [node.id for node in TitleBoost()(beyond).nodes] == ["Stones", "Spolia"]
    assert len(TitleBoost(top_k=1)(near_ranking)) == 1


def test_a_title_never_counts_against_a_hit() -> None:
    boosted = TitleBoost()(ranking(("Stones", -2.0), ("Spolia", -2.4)))
    assert [(hit.node.id, round(hit.score, 6)) for hit in boosted.hits] == [("Spolia", -1.6), ("Stones", -2.0)]


def test_scores_that_are_none_come_last_and_infinite_ones_stay_in_order() -> None:
    odd = ranking(("a", math.nan), ("b", -math.inf), ("Spolia", 1.0), ("c", math.inf), ("d", 3.0))
    assert [node.id for node in TitleBoost()(odd).nodes] == ["c", "d", "Spolia", "a", "b"]


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in ({"exact": 0.9}, {"named": float("inf")}, {"top_k": 0}):
        with pytest.raises(WiringError):
            TitleBoost(**wrong)
    assert load(dump(TitleBoost(2.0, top_k=3))) == TitleBoost(2.0, top_k=3)
