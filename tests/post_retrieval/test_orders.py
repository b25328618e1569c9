"""Orders of hits: by place, by chance, by time."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import WiringError
from spolia.flow_files.files import dump, load
from spolia.post_retrieval.boosts import Newest, TimeDecay
from spolia.post_retrieval.presentation import Order, Reorder
from spolia.types import Hit, Node, Query, Ranking
from tests.cases import check_each

FIVE = Ranking(Query("?"), tuple(Hit(Node(str(n), ""), 1 / n) for n in range(1, 6)), "bm25")


def ids(ranking: Ranking) -> list[str]:
    return [node.id for node in ranking.nodes]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("sides", "13542"), ("reverse", "54321"), ("ascending", "54321"), ("best again", "123451")],
)
def test_five_hits(order: Order, expected: str) -> None:
    ranking = Reorder(order)(FIVE)
    assert "".join(ids(ranking)) == expected
    assert set(ranking.hits) == set(FIVE.hits)
    assert ranking.source == "bm25"


def test_ascending_looks_at_scores_and_keeps_the_order_of_equal_ones() -> None:
    hits = tuple(Hit(Node(id, ""), score) for id, score in (("a", 1.0), ("b", 3.0), ("c", 1.0), ("d", 2.0)))
    assert ids(Reorder("ascending")(FIVE.but(hits=hits))) == ["a", "c", "d", "b"]


def test_a_shuffle_depends_on_seed_and_question_alone() -> None:
    assert Reorder("shuffle")(FIVE) == Reorder("shuffle")(FIVE)
    orders = {tuple(ids(Reorder("shuffle", seed)(FIVE))) for seed in range(40)}
    assert len(orders) > 10
    shuffles = {tuple(ids(Reorder("shuffle")(FIVE.but(query=Query(f"{n}?"))))) for n in range(40)}
    assert len(shuffles) > 10


@given(st.integers(0, 12), st.sampled_from(get_args(Order)))
def test_every_order_keeps_the_hits(count: int, order: Order) -> None:
    hits = tuple(Hit(Node(str(n), ""), 1 / (n + 1)) for n in range(count))
    ranking = Reorder(order)(FIVE.but(hits=hits))
    assert set(ranking.hits) == set(hits)
    assert len(ranking) == count + (order == "best again" and count > 1)


def ranking_by_days(*days: str | None) -> Ranking:
    """Hits of equal scores, called by their places."""
    nodes = (Node(str(index), "", meta=(("day", day),) if day else ()) for index, day in enumerate(days))
    return Ranking(Query("?"), tuple(Hit(node, 1.0) for node in nodes))


def test_the_newest_come_first_with_their_scores() -> None:
    ranking = Newest("day")(
        ranking_by_days("2024", "2026-05-01", None, "2026-05-01", "soon", "2025-12-31T23:00:00-02:00")
    )
    assert ids(ranking) == ["1", "3", "5", "0", "2", "4"]
    assert {hit.score for hit in ranking.hits} == {1.0}
    assert ids(Newest("day", top_k=1)(ranking)) == ["1"]
    assert Newest()(ranking_by_days()).hits == ()


def test_of_several_times_the_latest_counts() -> None:
    twice = Node("twice", "", meta=(("day", "2020"), ("day", "2026")))
    ranking = ranking_by_days("2024")
    assert ids(Newest("day")(ranking.but(hits=(*ranking.hits, Hit(twice, 0.5))))) == ["twice", "0"]


def test_goldens_of_the_decay() -> None:
    days = ("2026-01-01", "2026-01-31", "2025-12-02", None)
    ranking = ranking_by_days(*days)
    scored = ranking.but(hits=tuple(hit.but(score=float(4 - index)) for index, hit in enumerate(ranking.hits)))
    # φ is 1, 2/3, 1/3, 0; the ages are 30, 0, 60 days, and endless.
    assert [(hit.node.id, round(hit.score, 6)) for hit in TimeDecay("day", half_life_days=30)(scored).hits] == [
        ("1", 0.833333),
        ("0", 0.75),
        ("2", 0.291667),
        ("3", 0.0),
    ]
    assert ids(TimeDecay("day", weight=0.0)(scored)) == ["0", "1", "2", "3"]
    assert ids(TimeDecay("day", weight=1.0)(scored)) == ["1", "0", "2", "3"]
    decayed = TimeDecay("day", weight=1.0, now="2026-03-02", half_life_days=30)(scored)
    assert [round(hit.score, 6) for hit in decayed.hits] == [0.5, 0.25, 0.125, 0.0]


def test_what_is_newer_than_now_is_new() -> None:
    ranking = TimeDecay("day", weight=1.0, now="2026-01-01")(ranking_by_days("2027", "2026-01-01"))
    assert [hit.score for hit in ranking.hits] == [1.0, 1.0]
    assert ids(ranking) == ["0", "1"]
    assert TimeDecay()(ranking_by_days()).hits == ()
    assert [hit.score for hit in TimeDecay("day", weight=1.0)(ranking_by_days(None, "soon")).hits] == [0.0, 0.0]


@check_each(
    "wrong",
    [
        lambda: Reorder("middle"),  # type: ignore[arg-type]
        lambda: Newest(top_k=0),
        lambda: TimeDecay(half_life_days=0),
        lambda: TimeDecay(weight=2),
        lambda: TimeDecay(now="tomorrow"),
        lambda: TimeDecay(top_k=0),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: object) -> None:
    with pytest.raises(WiringError):
        wrong()  # type: ignore[operator]


@pytest.mark.parametrize("op", [Reorder("shuffle", 7), Newest("day", 3), TimeDecay("day", 7.0, 0.3, "2026", 4)])
def test_they_are_written_and_read(op: Reorder | Newest | TimeDecay) -> None:
    assert load(dump(op)) == op
