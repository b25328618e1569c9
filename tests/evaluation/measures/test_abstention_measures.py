"""Abstaining against values worked out by hand: who should, who did, and at what risk."""

from __future__ import annotations

import random
from itertools import permutations
from math import inf, nan
from statistics import mean

import pytest

from spolia.errors import MeasureError
from spolia.evaluation.measures.abstention import AURC, AbstentionF1, Coverage, SelectiveRisk, risk_coverage
from spolia.evaluation.measures.answers.embedding_similarity import SemScore
from spolia.evaluation.measures.answers.string_match import ExactMatch
from spolia.evaluation.measures.measure import Case, measured
from spolia.testing import HashingEmbedder
from spolia.types import Answer, Failure, Item
from tests.cases import check_each
from tests.evaluation.measures.fixtures import ABSTAINED, item_with, ranking, total_of, unanswerable_item

RIGHT, WRONG = Case(item_with("x"), Answer("x")), Case(item_with("x"), Answer("y"))
LEFT, RIGHTLY_LEFT = Case(item_with("x"), ABSTAINED), Case(unanswerable_item(), ABSTAINED)
TRAPPED, FAILED = Case(unanswerable_item(), Answer("x")), Case(item_with("x"), Failure("ValueError", "no"))


@check_each(
    ("cases", "value"),
    [
        ([RIGHTLY_LEFT], 1.0),
        ([RIGHTLY_LEFT, LEFT], 2 / (2 + 1)),  # tp 1, fp 1
        ([RIGHTLY_LEFT, TRAPPED, TRAPPED], 2 / (2 + 2)),  # tp 1, fn 2
        ([RIGHTLY_LEFT, LEFT, TRAPPED, RIGHT], 2 / (2 + 1 + 1)),
        ([TRAPPED], 0.0),
        ([LEFT], 0.0),
        ([RIGHT, WRONG], None),
        ([RIGHTLY_LEFT, FAILED], 1.0),  # a failure is no abstention
        ([Case(unanswerable_item(), Failure("ValueError", "no"))], 0.0),
    ],
)
def test_abstention_f1_is_what_one_works_out_by_hand(cases: list[Case], value: float | None) -> None:
    assert total_of(AbstentionF1(), cases) == value


def test_without_a_label_nobody_knows_whether_to_abstain() -> None:
    assert not AbstentionF1().applies(Item("q", "?", gold=(("p1",),)))


def test_risk_is_that_of_what_is_answered() -> None:
    cases = [RIGHT, RIGHT, WRONG, LEFT, FAILED]
    assert total_of(SelectiveRisk(), cases) == pytest.approx(1 / 3)
    assert total_of(Coverage(), cases) == 3 / 5
    assert total_of(SelectiveRisk(), [LEFT, FAILED]) is None
    assert measured(SelectiveRisk(), [LEFT]).value is None


@pytest.mark.parametrize(
    ("seen", "value"),
    [
        ([(3.0, 1.0), (2.0, 0.0), (1.0, 1.0)], (0 + 1 / 2 + 1 / 3) / 3),
        ([(1.0, 1.0), (2.0, 0.0), (3.0, 0.0)], (1 + 2 / 2 + 2 / 3) / 3),
        ([(0.5, 1.0), (0.5, 0.0), (0.5, 0.0), (0.5, 0.0)], 3 / 4),  # all equal: the risk of all
        ([(0.5, 1.0)], 0.0),
        ([(inf, 1.0), (-inf, 0.0)], (0 + 1 / 2) / 2),
    ],
)
def test_aurc_is_what_one_works_out_by_hand(seen: list[tuple[float, float]], value: float) -> None:
    assert AURC().total(seen) == pytest.approx(value, abs=1e-12)


def test_ties_are_the_mean_over_all_orders() -> None:
    draw = random.Random(2)
    for _ in range(20):
        observations = [(float(draw.randint(0, 2)), draw.random()) for _ in range(5)]
        orders = [
            candidate
            for candidate in permutations(observations)
            if list(candidate) == sorted(candidate, key=lambda pair: -pair[0])
        ]
        means = [mean(1 - mean(score for _, score in order[:i]) for i in range(1, 6)) for order in orders]
        assert AURC().total(observations) == pytest.approx(mean(means))


def test_the_order_of_the_answers_does_not_matter() -> None:
    observations = [(0.5, 1.0), (0.5, 0.0), (0.9, 1.0), (0.1, 0.0)]
    assert AURC().total(observations[::-1]) == pytest.approx(AURC().total(observations), abs=1e-12)
    assert [coverage for coverage, _ in risk_coverage(observations)] == [0.25, 0.5, 0.75, 1.0]


def test_answers_are_ordered_by_the_score_of_their_best_passage() -> None:
    sure, unsure = ranking("p1", score=9.0), ranking("p2", score=1.0)
    good = [Case(item_with("x"), Answer("x", evidence=sure)), Case(item_with("x"), Answer("y", evidence=unsure))]
    assert measured(AURC(), good).value == pytest.approx((0 + 1 / 2) / 2)
    bad = [Case(item_with("x"), Answer("y", evidence=sure)), Case(item_with("x"), Answer("x", evidence=unsure))]
    assert measured(AURC(), bad).value == pytest.approx((1 + 1 / 2) / 2)


def test_who_abstains_fails_or_shows_no_score_comes_last() -> None:
    first = Case(item_with("x"), Answer("x", evidence=ranking("p1", score=-5.0)))
    for last in (LEFT, FAILED, WRONG, Case(item_with("x"), Answer("y", evidence=ranking("p1", score=nan)))):
        assert measured(AURC(), [last, first]).value == pytest.approx((0 + 1 / 2) / 2)


def test_the_rule_of_squad2_makes_abstaining_right() -> None:
    measure = AURC(of=ExactMatch(rule="squad2"))
    assert measured(measure, [RIGHTLY_LEFT]).value == 0.0


@pytest.mark.parametrize("measure", [AURC, SelectiveRisk])
def test_the_risk_of_what_is_no_share_is_refused(measure: type[AURC | SelectiveRisk]) -> None:
    with pytest.raises(MeasureError, match="not a number from 0 to 1"):
        measure(of=SemScore(HashingEmbedder()))
