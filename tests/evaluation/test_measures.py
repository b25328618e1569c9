"""Measures against values worked out by hand, and what holds for all of them."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import found_ids
from spolia.evaluation.measures.ndcg import NDCG
from spolia.evaluation.measures.parse import parse_measure, parse_measures
from spolia.types import Answer, Citation, Hit, Item, Node, Query, Ranking

ONE = Item("one", "?", gold=(("a",),))
TWO = Item("two", "?", gold=(("a",), ("b",)))
THREE = Item("three", "?", gold=(("a",), ("b",), ("c",)))
EITHER = Item("either", "?", gold=(("a", "A"), ("b",)))
GRADED = Item("graded", "?", gold=(("a",), ("b",), ("c",)), grades=(("a", 3.0), ("b", 2.0), ("c", 1.0)))

IDEAL_3 = 1 + 1 / log2(3) + 1 / 2
IDEAL_GRADED = 3 + 2 / log2(3) + 1 / 2

BY_HAND = [
    ("R@1", "a b", ONE, 1.0),
    ("R@1", "b a", ONE, 0.0),
    ("R@2", "b a", ONE, 1.0),
    ("R@5", "", ONE, 0.0),
    ("R@2", "a x b", TWO, 1 / 2),
    ("R@3", "a x b", TWO, 1.0),
    ("R@10", "x y c", THREE, 1 / 3),
    ("R@2", "a a b", TWO, 1 / 2),
    ("R@5", "a a a a a", THREE, 1 / 3),
    ("R@2", "A x", EITHER, 1 / 2),
    ("R@2", "A a", EITHER, 1 / 2),
    ("R@2", "A b", EITHER, 1.0),
    ("full@1", "a", ONE, 1.0),
    ("full@2", "a x b", TWO, 0.0),
    ("full@3", "a x b", TWO, 1.0),
    ("full@2", "a a b", TWO, 0.0),
    ("full@2", "A b", EITHER, 1.0),
    ("full@9", "", TWO, 0.0),
    ("MRR", "a", ONE, 1.0),
    ("MRR", "x y z a", ONE, 1 / 4),
    ("MRR", "x b a", TWO, 1 / 2),
    ("MRR", "x y", ONE, 0.0),
    ("MRR", "x x a", ONE, 1 / 3),
    ("MRR@2", "x y a", ONE, 0.0),
    ("MRR@3", "x y a", ONE, 1 / 3),
    ("nDCG@10", "a", ONE, 1.0),
    ("nDCG@10", "x a", ONE, 1 / log2(3)),
    ("nDCG@3", "x y z a", ONE, 0.0),
    ("nDCG@10", "x x x a", ONE, 1 / log2(5)),
    ("nDCG@10", "a a a", ONE, 1.0),
    ("nDCG@10", "a x b", TWO, 1.5 / (1 + 1 / log2(3))),
    ("nDCG@10", "b x a", TWO, 1.5 / (1 + 1 / log2(3))),
    ("nDCG@2", "a x b c", THREE, 1 / (1 + 1 / log2(3))),
    ("nDCG@10", "c x b", THREE, 1.5 / IDEAL_3),
    ("nDCG@10", "a b c", GRADED, 1.0),
    ("nDCG@10", "c b a", GRADED, (1 + 2 / log2(3) + 3 / 2) / IDEAL_GRADED),
    ("nDCG@1", "b a", GRADED, 2 / 3),
    ("nDCG@10", "x c", GRADED, (1 / log2(3)) / IDEAL_GRADED),
    ("nDCG@10", "c c a", GRADED, (1 + 3 / 2) / IDEAL_GRADED),
]


def ranking(ids: str | list[str]) -> Ranking:
    names = ids.split() if isinstance(ids, str) else ids
    return Ranking(Query("?"), tuple(Hit(Node(name, ""), float(-rank)) for rank, name in enumerate(names)))


@pytest.mark.parametrize(("written", "found", "item", "value"), BY_HAND)
def test_a_measure_is_what_one_works_out_by_hand(written: str, found: str, item: Item, value: float) -> None:
    assert parse_measure(written).score(ranking(found), item) == pytest.approx(value, abs=1e-12)


WRITTEN = st.sampled_from(["R@1", "R@3", "full@2", "full@5", "MRR", "MRR@2", "nDCG@1", "nDCG@4"])
LETTERS = st.sampled_from("abcdefgh")
FOUND = st.lists(LETTERS, max_size=10)
ITEMS = st.builds(
    lambda groups, grades: Item(
        "q",
        "?",
        gold=tuple(map(tuple, groups)),
        grades=tuple((one, grades.get(one, 1.0)) for one in sorted({one for group in groups for one in group})),
    ),
    st.lists(st.lists(LETTERS, min_size=1, max_size=3, unique=True), min_size=1, max_size=4),
    st.dictionaries(LETTERS, st.sampled_from([1.0, 2.0, 3.0])),
)


@given(WRITTEN, FOUND, ITEMS)
def test_a_measure_lies_between_0_and_1(written: str, found: list[str], item: Item) -> None:
    score = parse_measure(written).score(ranking(found), item)
    assert 0 <= score <= 1


@given(WRITTEN, FOUND, ITEMS)
def test_what_comes_after_a_passage_a_second_time_changes_nothing(written: str, found: list[str], item: Item) -> None:
    measure = parse_measure(written)
    seen_again = [*found, *found[:3]]
    assert measure.score(ranking(seen_again), item) == measure.score(ranking(found), item)


@given(WRITTEN, FOUND, ITEMS)
def test_the_order_of_the_gold_does_not_matter(written: str, found: list[str], item: Item) -> None:
    turned = item.but(gold=tuple(tuple(reversed(group)) for group in reversed(item.gold)))
    measure = parse_measure(written)
    assert measure.score(ranking(found), turned) == measure.score(ranking(found), item)


@given(st.sampled_from(["R", "full"]), st.integers(1, 8), FOUND, ITEMS)
def test_recall_only_grows_with_k(name: str, k: int, found: list[str], item: Item) -> None:
    less, more = (parse_measure(f"{name}@{places}").score(ranking(found), item) for places in (k, k + 1))
    assert less <= more


@given(st.integers(1, 8), FOUND, ITEMS)
def test_full_recall_never_exceeds_recall(k: int, found: list[str], item: Item) -> None:
    full, some = (parse_measure(f"{name}@{k}").score(ranking(found), item) for name in ("full", "R"))
    assert full == (some == 1)


@given(st.integers(1, 8), ITEMS)
def test_the_gold_by_grade_is_the_best_order(k: int, item: Item) -> None:
    best = [one for one, _ in sorted(item.grades, key=lambda pair: -pair[1])]
    assert NDCG(k).score(ranking(best), item) == pytest.approx(1.0)


@given(WRITTEN, FOUND, ITEMS)
def test_moving_gold_up_never_hurts(written: str, found: list[str], item: Item) -> None:
    distinct = list(dict.fromkeys(found))
    gold = {one for group in item.gold for one in group}
    measure = parse_measure(written)
    for place in range(1, len(distinct)):
        if distinct[place] in gold and distinct[place - 1] not in gold:
            swapped = [*distinct]
            swapped[place - 1], swapped[place] = swapped[place], swapped[place - 1]
            before, after = (measure.score(ranking(order), item) for order in (distinct, swapped))
            assert after >= before - 1e-12


@pytest.mark.parametrize("written", ["R@5", "full@20", "MRR", "MRR@10", "nDCG@10"])
def test_a_measure_prints_as_it_is_written(written: str) -> None:
    assert str(parse_measure(written)) == written


@pytest.mark.parametrize(
    ("written", "says"), [("R", "R@5"), ("R@0", "k from 1"), ("F7", "R@k"), ("", "R@k"), ("R@-1", "R@k")]
)
def test_what_no_measure_is_called_is_refused_with_what_to_write(written: str, says: str) -> None:
    with pytest.raises(MeasureError, match=says):
        parse_measure(written)


def test_no_measure_at_all_is_refused() -> None:
    with pytest.raises(MeasureError, match="names no measure"):
        parse_measures(" , ")


def test_measures_of_no_place_are_refused() -> None:
    with pytest.raises(MeasureError, match="k = 1"):
        NDCG(0)


def test_without_gold_a_measure_does_not_apply() -> None:
    assert parse_measure("R@5").applies(ONE)
    assert not parse_measure("R@5").applies(Item("q", "?"))


def test_what_holds_no_passages_is_refused() -> None:
    with pytest.raises(MeasureError, match="A str holds no passages"):
        parse_measure("MRR").score("an answer", ONE)  # type: ignore[arg-type]


def test_a_node_stands_for_its_document() -> None:
    hits = tuple(Hit(Node(name, "", document=doc), 1.0) for name, doc in [("n1", "p1"), ("n2", "p1"), ("n3", "p2")])
    assert found_ids(Ranking(Query("?"), hits)) == ("p1", "p1", "p2")


def test_of_an_answer_the_evidence_counts_and_without_it_the_citations() -> None:
    citations = (Citation("1", "n1", "p1", "a.txt", "so"),)
    assert found_ids(Answer("so", citations, evidence=ranking("x y"))) == ("x", "y")
    assert found_ids(Answer("so", citations)) == ("p1",)
