"""Intervals against published numbers, exact enumeration, drawing one by one, and simulated experiments."""

from __future__ import annotations

import json
from itertools import product
from math import comb, inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.experiments import EXPECTED, HARD, TOTALS, covered, one_in_ten_differs
from spolia.evaluation.measures.abstention import AbstentionF1, SelectiveRisk
from spolia.evaluation.measures.answers.ngrams import BLEU
from spolia.evaluation.measures.measure import Case, SetMeasure
from spolia.evaluation.statistics.interval import NORMAL, expanded_bca, resampled_means, student_t, tango, wilson
from spolia.evaluation.statistics.sample import Row, Sample, Totals, difference, interval
from spolia.types import Answer, Item
from tests.cases import check_each

COSTS = (0.0, inf)
SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=60)
COMMITTED = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "experiments.json"


@settings(max_examples=60)
@given(SCORES)
def test_the_interval_holds_the_mean_and_stays_where_scores_can_be(scores: list[float]) -> None:
    found_interval = Sample([[value] for value in scores], resamples=500).interval(0)
    assert found_interval.mean == pytest.approx(sum(scores) / len(scores))
    assert 0 <= found_interval.low <= found_interval.mean <= found_interval.high <= 1
    assert found_interval.low < found_interval.high


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * 2), min_size=1, max_size=40))
def test_a_difference_is_the_same_the_other_way_round(pairs: list[tuple[float, float]]) -> None:
    sample = Sample(pairs, resamples=500)
    forth, back = sample.difference(0, 1), sample.difference(1, 0)
    assert forth.mean == pytest.approx(-back.mean)
    assert -1 <= forth.low <= forth.mean <= forth.high <= 1
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low), abs=0.02)


def test_wilson_is_the_set_of_shares_that_the_score_test_does_not_refuse() -> None:
    for right, n in ((0, 10), (3, 10), (81, 263), (30, 30)):
        found_interval = wilson(right, n)
        for end in (found_interval.low, found_interval.high):
            if 0 < end < 1:
                assert abs(right / n - end) / (end * (1 - end) / n) ** 0.5 == pytest.approx(1.959964, abs=1e-4)
    assert (wilson(81, 263).low, wilson(81, 263).high) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998


def test_tango_holds_a_difference_as_often_as_it_says_by_adding_up_all_outcomes() -> None:
    n, ours, theirs = 30, 0.2, 0.1
    coverage = 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            weight = comb(n, b) * comb(n - b, c) * ours**b * theirs**c * (1 - ours - theirs) ** (n - b - c)
            if weight > 1e-12:
                found_interval = tango(b, c, n)
                coverage += weight * (found_interval.low <= ours - theirs <= found_interval.high)
    assert 0.94 < coverage < 0.965


def test_students_t_is_that_of_the_tables() -> None:
    published = {2: 4.303, 5: 2.571, 10: 2.228, 29: 2.045, 99: 1.984}
    for freedom, t in published.items():
        assert student_t(0.95, freedom) == pytest.approx(t, rel=0.01 if freedom < 5 else 5e-4)
    assert student_t(0.99, 20) == pytest.approx(2.845, abs=2e-3)


NORMALLY = np.array([NORMAL.inv_cdf((i + 0.5) / 20_001) for i in range(20_001)])


@pytest.mark.parametrize(
    ("values", "level", "low", "high"),
    [
        # no skew: -√(20/19) · 2.0930 and the same above
        ([-1.0, 1.0] * 10, 0.95, -2.1474, 2.1474),
        # a = 24 / (6 · 12^1.5) = 0.09623, √(4/3) · 0.7649 = 0.8832: -0.8832 / (1 + 0.0850), 0.8832 / (1 - 0.0850)
        ([-1.0, -1.0, -1.0, 3.0], 0.5, -0.8140, 0.9652),
    ],
)
def test_ends_of_the_bootstrap_are_what_one_works_out_by_hand(
    values: list[float], level: float, low: float, high: float
) -> None:
    """Where resampled means are a normal distribution, its quantiles are the deviates themselves."""
    found_interval = expanded_bca(0.0, np.array(values), NORMALLY, level)
    assert (found_interval.low, found_interval.high) == pytest.approx((low, high), abs=2e-3)
    # more of the means are below: z0 = 0.2, which shifts both ends by twice of it where nothing is skewed
    if sum(values) == 0 and max(values) == 1:
        shifted = expanded_bca(0.2, np.array(values), NORMALLY, level)
        assert (shifted.low, shifted.high) == pytest.approx((low + 0.4, high + 0.4), abs=5e-3)


def test_resamples_are_what_drawing_question_by_question_gives() -> None:
    scores = np.random.default_rng(7).exponential(size=60)
    drawn_means = np.random.default_rng(8).choice(scores, size=(20_000, 60)).mean(axis=1)
    resampled = resampled_means(scores[:, None], 20_000, 0)[:, 0]
    shares = [0.025, 0.2, 0.5, 0.8, 0.975]
    assert np.quantile(resampled, shares) == pytest.approx(np.quantile(drawn_means, shares), abs=0.01)


@pytest.mark.slow
def test_all_columns_are_drawn_together_so_that_differences_are_paired() -> None:
    hard = np.random.default_rng(5).random((400, 1))
    sample = Sample(np.hstack([0.8 * hard + 0.04, 0.8 * hard + 0.02 * np.random.default_rng(6).random((400, 1))]))
    assert sample.difference(0, 1).excludes_zero
    assert sample.interval(0).low < sample.interval(1).high


def test_scores_that_are_all_the_same_are_not_taken_for_certain() -> None:
    assert interval([1.0] * 30).low == pytest.approx(0.886, abs=1e-3)
    assert 0.2 < interval([0.3] * 30).low < 0.3 < interval([0.3] * 30).high < 0.4
    assert difference([0.3] * 30, [0.3] * 30).high > 0.01
    assert difference([1.0] * 30, [1.0] * 30).high > 0.05


def test_one_question_says_next_to_nothing() -> None:
    assert interval([0.4]).high - interval([0.4]).low > 0.9
    tokens = Sample([[812.0]], range=COSTS).interval(0)
    assert (tokens.mean, tokens.low, tokens.high) == (812.0, 0.0, inf)
    assert tokens.json() == {"mean": 812.0, "low": 0.0, "high": None, "n": 1}


def test_the_range_that_is_declared_decides_and_not_the_scores() -> None:
    calls = Sample([[1.0]] * 30, range=COSTS).interval(0)
    assert calls.low < 1 < calls.high
    assert Sample([[1.0]] * 30).interval(0).method == "Wilson"
    grades = Sample([[1.0]] * 30, range=(0, 5)).interval(0)
    assert 0.5 < grades.low < 1 < grades.high < 1.5
    with pytest.raises(ValueError, match="outside of the range"):
        Sample([[0.3], [4.0]])


def test_differences_that_are_all_the_same_are_not_taken_for_certain_either() -> None:
    for n in (2, 30, 300):
        found_difference = Sample([[4.0, 3.85]] * n, range=COSTS).difference(1, 0)
        assert found_difference.low < found_difference.mean < found_difference.high
    assert Sample([[4.0, 3.85]] * 2, range=COSTS).difference(1, 0).high > 1
    assert Sample([[0.0, 0.0]] * 30, range=COSTS).difference(1, 0).low == -inf


@pytest.mark.slow
def test_what_is_missing_is_left_out_as_if_it_had_not_been_asked() -> None:
    random = np.random.default_rng(4)
    scores = random.beta(2, 3, (400, 3))
    scores[random.random((400, 3)) < 0.1] = np.nan
    sample = Sample(scores)
    pair_scores = scores[~np.isnan(scores[:, [0, 2]]).any(axis=1)][:, [0, 2]]
    alone = Sample(pair_scores)
    for ours, theirs in ((0, 2), (2, 0)):
        found_difference, other_difference = sample.difference(ours, theirs), alone.difference(ours // 2, theirs // 2)
        assert found_difference.mean == pytest.approx(other_difference.mean)
        assert found_difference.n == other_difference.n == len(pair_scores)
        assert (found_difference.low, found_difference.high) == pytest.approx(
            (other_difference.low, other_difference.high), abs=0.003
        )
        assert sample.p(ours, theirs) == pytest.approx(alone.p(ours // 2, theirs // 2), abs=0.02)
    assert sample.interval(1).n == int((~np.isnan(scores[:, 1])).sum())


def test_the_method_follows_from_the_scores() -> None:
    draw = np.random.default_rng(1)
    assert interval(list(draw.random(50))).method == "expanded BCa bootstrap"
    assert interval([*draw.random(10), *[1.0] * 40]).method == "t with a pair unseen"
    assert difference([1.0, 0.0] * 20, [0.0, 0.0] * 20).method == "Tango"


def test_the_seed_decides() -> None:
    scores = list(np.random.default_rng(1).random(50))
    assert interval(scores, seed=1) == interval(scores, seed=1)
    assert interval(scores, seed=1) != interval(scores, seed=2)


@pytest.mark.slow
def test_a_measure_that_is_no_mean_is_totalled_again_for_every_draw() -> None:
    measure = BLEU()
    texts = ["the cat sat on the mat", "a dog ran by the sea today", "owls hunt at night in woods"] * 10
    items = [Item(str(i), "?", answers=(text,)) for i, text in enumerate(texts)]
    whole = [measure.observe(Case(item, Answer(item.answers[0]))) for item in items]
    half = [measure.observe(Case(item, Answer(f"{item.answers[0][:16]} no more"))) for item in items]
    totals = Totals([whole, half], measure.total, additive=True)
    found_interval, difference = totals.interval(1), totals.difference(0, 1)
    assert found_interval is not None
    assert difference is not None
    assert found_interval.mean == measure.total(half)
    assert found_interval.low < found_interval.mean < found_interval.high
    assert difference.low > 0
    assert totals.p(0, 1) == pytest.approx(1 / 10_001)
    assert totals.p(0, 0) == 1.0


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_questions_show_nothing_by_a_total(n: int) -> None:
    measure, item = BLEU(), Item("q", "?", answers=("the cat sat on the mat",))
    right, wrong = (
        [measure.observe(Case(item, Answer(text)))] * n for text in (item.answers[0], "a dog ran off now ok")
    )
    totals = Totals([right, wrong], measure.total, additive=True)
    assert totals.p(0, 1) == 2.0 ** (1 - n)
    alone, difference = totals.interval(0), totals.difference(0, 1)
    assert alone is not None
    assert difference is not None
    assert (alone.mean, difference.mean) == (1.0, 1.0)
    assert max(alone.low, difference.low) < 0.9


COUNTED = st.sampled_from([(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
"""What a question adds to the F1 of abstaining."""


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(COUNTED, COUNTED), min_size=1, max_size=7))
def test_rows_of_few_questions_are_exchanged_in_all_ways(pairs: list[tuple[Row, Row]]) -> None:
    total = AbstentionF1().total
    ours, theirs = map(list, zip(*pairs, strict=True))
    totals = Totals([ours, theirs], total, additive=True)
    found_difference = totals.difference(0, 1)
    if found_difference is None:
        assert None in (total(ours), total(theirs))
        return
    reached = []
    for swaps in product((False, True), repeat=len(pairs)):
        first, second = zip(
            *(pair[::-1] if swap else pair for pair, swap in zip(pairs, swaps, strict=True)), strict=True
        )
        first_total, second_total = total(first), total(second)
        reached.append(
            first_total is None
            or second_total is None
            or abs(first_total - second_total) >= abs(found_difference.mean) - 1e-9
        )
    assert totals.p(0, 1) == pytest.approx(sum(reached) / len(reached))
    assert -1 <= found_difference.low <= found_difference.mean <= found_difference.high <= 1


def test_a_total_that_stands_on_one_question_says_nothing() -> None:
    answered_interval = Totals([[(1.0, 1.0), *[(0.0, 0.0)] * 29]], SelectiveRisk().total, additive=True).interval(0)
    assert answered_interval is not None
    assert (answered_interval.mean, answered_interval.low, answered_interval.high, answered_interval.n) == (
        0.0,
        0.0,
        1.0,
        1,
    )
    assert Totals([[(0.0, 0.0)] * 30], SelectiveRisk().total, additive=True).interval(0) is None


@pytest.mark.parametrize("measure", [BLEU(), AbstentionF1(), SelectiveRisk()], ids=str)
def test_totals_that_are_said_to_follow_from_sums_do(measure: SetMeasure) -> None:
    random, width = np.random.default_rng(1), {"BLEU": 10, "AbstentionF1": 3, "Risk": 2}[str(measure)]
    rows = [tuple(map(float, row)) for row in np.sort(random.integers(1, 9, (40, width)), axis=1)]
    total = measure.total(rows)
    assert measure.additive
    assert total == pytest.approx(measure.total([tuple(map(sum, zip(*rows, strict=True)))]))


def test_drawn_rows_give_what_drawn_sums_give() -> None:
    random = np.random.default_rng(2)
    flows = [[tuple(map(float, row)) for row in random.integers(0, 2, (60, 3))] for _ in range(2)]
    by_rows, by_sums = (Totals(flows, AbstentionF1().total, additive=additive) for additive in (False, True))
    row_difference, sum_difference = by_rows.difference(0, 1), by_sums.difference(0, 1)
    assert row_difference is not None
    assert sum_difference is not None
    assert (row_difference.low, row_difference.high) == pytest.approx(
        (sum_difference.low, sum_difference.high), abs=0.015
    )
    assert by_rows.p(0, 1) == pytest.approx(by_sums.p(0, 1), abs=0.12)


def test_nothing_to_average_is_refused() -> None:
    with pytest.raises(ValueError, match="row for each question"):
        interval([])
    with pytest.raises(ValueError, match="level"):
        Sample([[1.0]], level=95)
    with pytest.raises(ValueError, match="every question"):
        difference([1.0], [1.0, 0.0])


@pytest.mark.slow
@check_each("kind", EXPECTED)
@check_each("n", [30, 100])
def test_intervals_hold_the_true_number_about_as_often_as_they_say(kind: str, n: int) -> None:
    for draw in EXPECTED[kind]:
        assert 90 <= covered(draw, n, 200, seed=3) <= 99.5, draw.__name__


def test_few_questions_that_differ_do_not_make_a_narrow_interval() -> None:
    assert covered(one_in_ten_differs, 30, 200) > 94


def test_the_committed_simulation_is_within_two_points_of_what_is_said() -> None:
    simulation = json.loads(COMMITTED.read_text())
    assert simulation["experiments"] == 1000
    coverages = simulation["percent of 95 % intervals that hold the true number"]
    assert {kind: list(draws) for kind, draws in coverages["expected"].items()} == {
        kind: [draw.__name__ for draw in draws] for kind, draws in EXPECTED.items()
    }
    assert set(coverages["hard"]) == set(HARD)
    for draws in coverages["expected"].values():
        for by_n in draws.values():
            assert set(by_n) == {"30", "100", "300"}
            assert all(93 <= percent <= 97 for percent in by_n.values()), draws
    near_one = coverages["exact, Wilson, shares from 0.95 to 0.998"]
    assert all(row["least"] > 91 and row["mean"] > 94 for row in near_one.values())
    for kind in ("plain", "paired"):
        for by_n in coverages[f"totals, {kind} (200 experiments)"].values():
            assert all(percent > 90 for percent in by_n.values()), by_n
    by_totals = simulation["percent of experiments with 2 flows that claim a difference of totals where there is none"]
    assert set(by_totals) == set(TOTALS)
    assert all(percent <= 6.5 for by_n in by_totals.values() for percent in by_n.values())
    claimed = simulation["percent of experiments that claim a difference where there is none"]
    assert all(percent <= 6.5 for name, percent in claimed.items() if name.endswith("holm"))
    assert all(percent > 15 for name, percent in claimed.items() if name.endswith("none"))
