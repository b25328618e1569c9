"""Measures of retrieval against values worked out by hand, and what holds for all of them."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Measure
from spolia.evaluation.measures.rank_measures import NDCG
from spolia.evaluation.measures.registry import parse_measure
from spolia.evaluation.measures.retrieval_measure import OWN, found_ids, gold_marks
from spolia.types import Answer, Citation, Hit, Item, Node, Query, Ranking
from tests.cases import check_each

ONE = Item("one", "?", gold=(("a",),))
TWO = Item("two", "?", gold=(("a",), ("b",)))
THREE = Item("three", "?", gold=(("a",), ("b",), ("c",)))
EITHER = Item("either", "?", gold=(("a", "A"), ("b",)))
BOTH = Item("both", "?", gold=(("a", "b"), ("a", "c")))
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
    # One member of each group is all that can be gained: a at 1 for the first group, b at 3 for the second.
    ("nDCG@10", "A b", EITHER, 1.0),
    ("nDCG@10", "A a b", EITHER, 1.5 / (1 + 1 / log2(3))),
    ("nDCG@10", "a", BOTH, 1.0),  # one passage for two groups at rank 1: 2 / 1.63, at most 1
    # 2^3 - 1 = 7, 2^2 - 1 = 3, 2^1 - 1 = 1
    ('nDCG@10(rule="exponential")', "b c a", GRADED, (3 + 1 / log2(3) + 7 / 2) / (7 + 3 / log2(3) + 1 / 2)),
    ('nDCG@10(rule="exponential")', "x b", GRADED, (3 / log2(3)) / (7 + 3 / log2(3) + 1 / 2)),
    # AutoRAG: one passage found, so the ideal has one passage, though three are gold
    ('nDCG@10(rule="autorag")', "a", THREE, 1.0),
    ('nDCG@10(rule="autorag")', "x b", THREE, (1 / log2(3)) / (1 + 1 / log2(3))),
    ('nDCG@10(rule="autorag")', "", THREE, 0.0),
    ("P@2", "a b c", THREE, 1.0),
    ("P@5", "a b", THREE, 2 / 5),  # the divisor is k
    ("P@2", "a a", TWO, 1 / 2),
    ("P@4", "A a b x", EITHER, 3 / 4),
    ("Hit@1", "x b", TWO, 0.0),
    ("Hit@2", "x b", TWO, 1.0),
    ("MAP", "a x b", TWO, (1 / 1 + 2 / 3) / 2),
    ("MAP", "x a", TWO, (1 / 2) / 2),  # the missing one counts 0
    ("MAP", "a a b", TWO, (1 / 1 + 2 / 3) / 2),
    ("MAP", "a b", TWO, 1.0),
    ("MAP", "", TWO, 0.0),
    ("MAP@2", "a x b", TWO, (1 / 1) / 2),
    ("MAP", "x A b", EITHER, (1 / 2 + 2 / 3) / 2),
    ("MAP", "A a b", EITHER, (1 / 1 + 3 / 3) / 2),  # at 3 all are gold; a second member neither helps nor is missed
    ('MAP(rule="ragas")', "a x c", THREE, (1 + 2 / 3) / 2),  # 0.8333, the worked example of v = (1, 0, 1, 0)
    ('MAP(rule="ragas")', "x y", THREE, 0.0),
    ('MAP(rule="autorag")', "a b", TWO, (1 / 1 + 1 / 2) / 2),  # each group by itself: 0.75 for a perfect list
    ('MAP(rule="autorag")', "A a b", EITHER, ((1 / 1 + 2 / 2) / 2 + 1 / 3) / 2),
    ('MRR(rule="autorag")', "a b", TWO, (1 / 1 + 1 / 2) / 2),
    ('MRR(rule="autorag")', "x A", EITHER, (1 / 2 + 0) / 2),
    ("Rprec", "a x b", TWO, 1 / 2),
    ("Rprec", "b a x", TWO, 1.0),
    ("Rprec", "A a b", EITHER, 1 / 2),
    ("SetP", "a x b y", TWO, 2 / 4),
    ("SetP", "", TWO, 0.0),
    ("SetR", "x y b", TWO, 1 / 2),
    ("SetR", "A b", EITHER, 1.0),
    ("SetF1", "a x x x", TWO, 2 * (1 / 4) * (1 / 2) / (1 / 4 + 1 / 2)),
    ("SetF1", "x", TWO, 0.0),
]


def measure_of(text: str) -> Measure:
    measure = parse_measure(text)
    assert isinstance(measure, Measure)
    return measure


def score_of(measure_name: str, found_ranking: Ranking, item: Item) -> float:
    score = measure_of(measure_name).score(found_ranking, item)
    assert score is not None
    return score


def ranking(ids: str | list[str]) -> Ranking:
    names = ids.split() if isinstance(ids, str) else ids
    return Ranking(Query("?"), tuple(Hit(Node(name, ""), float(-rank)) for rank, name in enumerate(names)))


@check_each(("written", "found", "item", "value"), BY_HAND)
def test_a_measure_is_what_one_works_out_by_hand(written: str, found: str, item: Item, value: float) -> None:
    assert score_of(written, ranking(found), item) == pytest.approx(value, abs=1e-12)


EVERY = [
    "R@1",
    "R@3",
    "full@2",
    "full@5",
    "MRR",
    "MRR@2",
    "nDCG@1",
    "nDCG@4",
    "P@1",
    "P@3",
    "Hit@2",
    "MAP",
    "MAP@3",
    "Rprec",
    "SetP",
    "SetR",
    "SetF1",
    'nDCG@3(rule="exponential")',
    'MRR(rule="autorag")',
]
GENEROUS = ['MAP(rule="ragas")', 'MAP(rule="autorag")', 'nDCG@3(rule="autorag")']
WRITTEN = st.sampled_from(EVERY)
ALL_WRITTEN = st.sampled_from([*EVERY, *GENEROUS])
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


@pytest.mark.slow
@given(ALL_WRITTEN, FOUND, ITEMS)
def test_a_measure_lies_between_0_and_1(written: str, found: list[str], item: Item) -> None:
    assert 0 <= score_of(written, ranking(found), item) <= 1


@pytest.mark.slow
@given(st.sampled_from([one for one in EVERY if not one.startswith(("SetP", "SetF1"))]), FOUND, ITEMS)
def test_what_comes_after_a_passage_a_second_time_changes_nothing(written: str, found: list[str], item: Item) -> None:
    assert score_of(written, ranking([*found, *found[:3]]), item) == score_of(written, ranking(found), item)


@pytest.mark.slow
@given(st.sampled_from(["SetP", "SetF1", *GENEROUS]), FOUND, ITEMS)
def test_a_passage_a_second_time_never_helps(written: str, found: list[str], item: Item) -> None:
    assert score_of(written, ranking([*found, *found[:3]]), item) <= score_of(written, ranking(found), item)


@pytest.mark.slow
@given(ALL_WRITTEN, FOUND, ITEMS)
def test_the_order_of_the_gold_does_not_matter(written: str, found: list[str], item: Item) -> None:
    turned = item.but(gold=tuple(tuple(reversed(group)) for group in reversed(item.gold)))
    assert score_of(written, ranking(found), turned) == pytest.approx(
        score_of(written, ranking(found), item), abs=1e-12
    )


@pytest.mark.slow
@given(st.sampled_from([one for one in EVERY if not one.startswith(("P@", "SetP", "SetF1"))]), FOUND, ITEMS)
def test_a_further_member_of_a_satisfied_group_is_neither_missed_nor_needed(
    written: str, found: list[str], item: Item
) -> None:
    graded = item.but(grades=())
    wider = graded.but(gold=tuple((*group, f"{group[0]}, another edition") for group in graded.gold))
    assert score_of(written, ranking(found), wider) == score_of(written, ranking(found), graded)


@pytest.mark.slow
@given(st.sampled_from(["R", "full"]), st.integers(1, 8), FOUND, ITEMS)
def test_recall_only_grows_with_k(name: str, k: int, found: list[str], item: Item) -> None:
    less, more = (score_of(f"{name}@{places}", ranking(found), item) for places in (k, k + 1))
    assert less <= more


@pytest.mark.slow
@given(st.integers(1, 8), FOUND, ITEMS)
def test_full_recall_never_exceeds_recall(k: int, found: list[str], item: Item) -> None:
    full, recall = (score_of(f"{name}@{k}", ranking(found), item) for name in ("full", "R"))
    assert full == (recall == 1)


@pytest.mark.slow
@given(st.integers(1, 8), ITEMS)
def test_the_best_of_each_group_by_grade_is_the_best_order(k: int, item: Item) -> None:
    grades = dict(item.grades)
    chosen = {max(map(str, group), key=grades.__getitem__) for group in item.gold}
    alone = item.but(gold=tuple((entry,) for entry in chosen))
    best = sorted(chosen, key=lambda one: -grades[one])
    assert NDCG(k).score(ranking(best), alone) == pytest.approx(1.0)


@pytest.mark.slow
@given(WRITTEN, FOUND, ITEMS)
def test_moving_gold_up_never_hurts(written: str, found: list[str], item: Item) -> None:
    distinct = list(dict.fromkeys(found))
    gold = {entry for group in item.gold for entry in group}
    for place in range(1, len(distinct)):
        if distinct[place] in gold and distinct[place - 1] not in gold:
            swapped = [*distinct]
            swapped[place - 1], swapped[place] = swapped[place], swapped[place - 1]
            previous_score, later_score = (score_of(written, ranking(order), item) for order in (distinct, swapped))
            assert later_score >= previous_score - 1e-12


def test_measures_of_no_place_are_refused() -> None:
    with pytest.raises(MeasureError, match="k = 1"):
        NDCG(0)


def test_without_gold_a_measure_does_not_apply() -> None:
    for measure_name in (*EVERY, *GENEROUS):
        assert parse_measure(measure_name).applies(ONE)
        assert not parse_measure(measure_name).applies(Item("q", "?"))


def test_what_holds_no_passages_is_refused() -> None:
    with pytest.raises(MeasureError, match="A str holds no passages"):
        measure_of("MRR").score("an answer", ONE)  # type: ignore[arg-type]


def test_a_node_stands_for_its_document() -> None:
    hits = tuple(Hit(Node(name, "", document=doc), 1.0) for name, doc in [("n1", "p1"), ("n2", "p1"), ("n3", "p2")])
    assert found_ids(Ranking(Query("?"), hits)) == ("p1", "p1", "p2")


def test_of_an_answer_the_evidence_counts_and_without_it_the_citations() -> None:
    citations = (Citation("1", "n1", "p1", "a.txt", "so"),)
    assert found_ids(Answer("so", citations, evidence=ranking("x y"))) == ("x", "y")
    assert found_ids(Answer("so", citations)) == ("p1",)


@pytest.mark.parametrize(
    ("id", "text", "gold", "score"),
    [
        ("q1", "Salt is\ndear.", "a", 1.0),
        ("q1", "Pepper is dear.", "a", 0.5),  # the same id by chance
        ("q2", "Salt is dear.", "a", 0.5),
        ("q1", "Salt is dear.", "q1", 1.0),
    ],
)
def test_the_passage_that_is_the_question_itself_is_left_out(id: str, text: str, gold: str, score: float) -> None:
    item = Item("q1", "Salt is dear. So it is.", gold=((gold,),))
    nodes = [Node("n1", text, document=id), Node("n2", "Cheap salt.", document="a")]
    found_ranking = Ranking(Query(item.question), (Hit(nodes[0], 2.0), Hit(nodes[1], 1.0)))
    assert parse_measure("MRR").score(found_ranking, item) == score  # type: ignore[attr-defined]
    marks = [mark for mark in gold_marks(item, nodes) if mark != OWN]
    assert 1 / (1 + marks.index(1)) == score, "a sweep sees the same places"
