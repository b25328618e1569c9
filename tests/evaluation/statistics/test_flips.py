"""Paired permutation tests against all permutations, and what is left of p-values when there are many."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spolia.evaluation.statistics.sample import Sample
from spolia.evaluation.statistics.significance import benjamini_hochberg, chernoff_bound, flipped_sums, holm, sign_flip
from tests.cases import check_each


def no_draws() -> NDArray[np.float64]:
    """Fail where signs are drawn although all are counted."""
    raise AssertionError


def p_by_all_signs(d: Any) -> float:
    signs = np.array(list(product((1, -1), repeat=len(d))))
    return float((np.abs(signs @ d) >= abs(d.sum()) - 1e-9).mean())


@pytest.mark.slow
@settings(max_examples=80)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=12))
def test_few_differences_are_tried_with_all_signs(differences: list[float]) -> None:
    d = np.array(differences)
    assert sign_flip(d, no_draws) == pytest.approx(p_by_all_signs(d))


def test_differences_that_cancel_but_for_rounding_are_none() -> None:
    assert sign_flip(np.array([-0.5, 0.2, 0.2, 0.5, -1.0, -0.5, 0.2, 0.2, 0.2, 0.5]), no_draws) == 1.0


def test_differences_of_one_size_are_counted() -> None:
    d = np.array([1.0] * 11 + [-1.0] * 3)
    assert sign_flip(d, no_draws) == pytest.approx(p_by_all_signs(d))
    many = np.array([1.0] * 60 + [-1.0] * 20 + [0.0] * 500)
    assert sign_flip(many, no_draws) == pytest.approx(8.6e-6, rel=0.02)  # 2 P(X >= 60), X of 80 coins


@check_each("n", range(13, 31))
def test_as_many_as_can_be_counted_are_counted(n: int) -> None:
    random = np.random.default_rng(n)
    sizes = random.integers(1, 50, n)
    ways = np.zeros(2 * int(sizes.sum()) + 1)
    ways[0] = 1
    for size in sizes:  # by convolution: ways[s] of reaching s - Σ of what was taken so far
        ways = ways + np.concatenate([np.zeros(2 * size), ways[: -2 * size]])
    off = np.abs(np.arange(ways.size) - sizes.sum())
    for signs in (random.choice([1, 1, 1, -1], n), random.choice([1, -1], n)):
        d = sizes * signs / 7
        assert sign_flip(d, no_draws) == pytest.approx(ways[off >= abs((sizes * signs).sum())].sum() / 2.0**n)


@check_each("n", [*range(2, 45), 100, 500])
def test_where_all_are_ahead_no_other_signs_reach_that(n: int) -> None:
    d = np.random.default_rng(n).lognormal(0, 1.5, n)
    assert sign_flip(d, lambda: flipped_sums(d[:, None], 100, 0)[:, 0]) == pytest.approx(2.0 ** (1 - n), rel=1e-3)


def drawn_sums(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    return flipped_sums(differences[:, None], 1000, 0)[:, 0]


def test_one_question_more_that_is_worse_is_never_less_sure() -> None:
    d = np.concatenate([np.random.default_rng(5).uniform(0.3, 0.75, 40)])
    p_values = [sign_flip(d[:n], partial(drawn_sums, d[:n])) for n in range(8, 41)]
    assert all(more < less for less, more in pairwise(p_values))


def test_what_is_said_of_all_signs_is_never_below_what_they_are_and_near_it() -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        n = int(random.integers(13, 21))
        d = random.lognormal(0, random.uniform(0.1, 2), n) * random.choice([1, 1, 1, 1, -0.3], n)
        exact, bound = sign_flip(d, no_draws), chernoff_bound(np.abs(d), abs(d.sum()) * (1 - 1e-9))
        assert exact * (1 - 1e-6) <= bound
        assert bound <= 20 * exact or bound > 0.001


def test_a_large_steady_difference_is_rarer_than_any_draw_can_tell() -> None:
    d = np.random.default_rng(0).uniform(0.1, 0.9, 200)
    assert 0 < sign_flip(d, lambda: flipped_sums(d[:, None], 1000, 0)[:, 0]) < 1e-40


@pytest.mark.slow
def test_p_values_of_flows_that_are_equally_good_are_even() -> None:
    random = np.random.default_rng(2)
    p_values = [Sample(random.beta(2, 2, (40, 2)), resamples=500, seed=i).p(0, 1) for i in range(400)]
    assert np.quantile(p_values, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.06)


def test_the_same_flow_twice_differs_in_nothing() -> None:
    scores = np.random.default_rng(0).random((50, 1))
    assert Sample(np.hstack([scores, scores])).p(0, 1) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_corrections_keep_the_order_and_never_lower_a_p_value(p: list[float]) -> None:
    for corrected in (holm(p), benjamini_hochberg(p)):
        assert all(p[i] - 1e-12 <= corrected[i] <= 1 for i in range(len(p)))
        order = sorted(range(len(p)), key=p.__getitem__)
        assert all(corrected[a] <= corrected[b] + 1e-12 for a, b in pairwise(order))
    assert all(a >= b - 1e-12 for a, b in zip(holm(p), benjamini_hochberg(p), strict=True))


def test_corrections_are_the_published_ones() -> None:
    p = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0,
    ]
    # Benjamini and Hochberg 1995, section 3.2: their procedure refuses four hypotheses, Bonferroni's and Holm's three.
    assert sum(corrected < 0.05 for corrected in benjamini_hochberg(p)) == 4
    assert sum(corrected < 0.05 for corrected in holm(p)) == 3
