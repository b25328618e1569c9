"""Bootstrap intervals against theory and against drawing one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.evaluation.bootstrap import Interval, Method, bootstrap, paired

SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=40)
METHODS = st.sampled_from(["percentile", "bca"])


@settings(max_examples=50)
@given(SCORES, METHODS)
def test_the_interval_holds_the_mean_and_stays_within_the_scores(scores: list[float], method: Method) -> None:
    found = bootstrap(scores, resamples=500, method=method)
    assert found.mean == pytest.approx(sum(scores) / len(scores))
    assert min(scores) - 1e-9 <= found.low <= found.mean <= found.high <= max(scores) + 1e-9


@settings(max_examples=50)
@given(SCORES, st.randoms(), METHODS)
def test_the_order_of_questions_does_not_matter(scores: list[float], order: random.Random, method: Method) -> None:
    shuffled = list(scores)
    order.shuffle(shuffled)
    assert bootstrap(shuffled, resamples=200, method=method) == bootstrap(scores, resamples=200, method=method)


@given(SCORES)
def test_a_flow_does_not_differ_from_itself(scores: list[float]) -> None:
    assert paired(scores, scores) == Interval(0.0, 0.0, 0.0, len(scores))


def test_the_interval_of_a_share_is_the_one_of_the_normal_approximation() -> None:
    found = bootstrap([1.0] * 700 + [0.0] * 300)
    half = 1.96 * (0.7 * 0.3 / 1000) ** 0.5
    assert found.low == pytest.approx(0.7 - half, abs=0.003)
    assert found.high == pytest.approx(0.7 + half, abs=0.003)


def test_it_is_what_drawing_question_by_question_gives() -> None:
    scores = np.random.default_rng(7).exponential(size=60)
    drawn = np.random.default_rng(8).choice(scores, size=(20_000, 60)).mean(axis=1)
    found = bootstrap(scores, resamples=20_000)
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.01)


def test_bca_moves_a_skewed_interval_towards_the_tail() -> None:
    skewed = np.random.default_rng(3).exponential(size=30)
    plain, corrected = bootstrap(skewed), bootstrap(skewed, method="bca")
    assert corrected.low > plain.low
    assert corrected.high > plain.high


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_intervals_hold_the_true_mean_about_as_often_as_they_say(method: Method) -> None:
    source = np.random.default_rng(11)
    held = 0
    for _ in range(300):
        found = bootstrap(source.random(100) < 0.7, resamples=400, method=method)
        held += found.low <= 0.7 <= found.high
    assert 270 <= held <= 297


def test_pairing_shows_a_small_steady_difference() -> None:
    source = np.random.default_rng(5)
    hard = source.random(400)
    theirs = (hard < 0.6).astype(float)
    ours = (hard < 0.64).astype(float)
    assert paired(list(ours), list(theirs)).excludes_zero
    apart = bootstrap(ours), bootstrap(theirs)
    assert apart[0].low < apart[1].high


def test_the_seed_decides() -> None:
    scores = list(np.random.default_rng(1).random(50))
    assert bootstrap(scores, seed=1) == bootstrap(scores, seed=1)
    assert bootstrap(scores, seed=1) != bootstrap(scores, seed=2)


def test_nothing_to_average_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one score"):
        bootstrap([])
    with pytest.raises(ValueError, match="level"):
        bootstrap([1.0], level=95)
    with pytest.raises(ValueError, match="every question"):
        paired([1.0], [1.0, 0.0])
