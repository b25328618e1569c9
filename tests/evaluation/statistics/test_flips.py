"""Paired permutation tests against all permutations, and what is left of p-values when there are many."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.evaluation.statistics.corrections import benjamini_hochberg, holm
from spolia.evaluation.statistics.flips import flipped_sums, sign_flip, tail
from spolia.evaluation.statistics.sample import Sample

NONE = np.zeros(0)


def by_all_signs(d: Any) -> float:
    signs = np.array(list(product((1, -1), repeat=len(d))))
    return float((np.abs(signs @ d) >= abs(d.sum()) - 1e-9).mean())


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=12))
def test_few_differences_are_tried_with_all_signs(differences: list[float]) -> None:
    d = np.array(differences)
    assert sign_flip(d, NONE) == pytest.approx(by_all_signs(d))


def test_differences_of_one_size_are_counted() -> None:
    d = np.array([1.0] * 11 + [-1.0] * 3)
    assert sign_flip(d, NONE) == pytest.approx(by_all_signs(d))
    many = np.array([1.0] * 60 + [-1.0] * 20 + [0.0] * 500)
    assert sign_flip(many, NONE) == pytest.approx(8.6e-6, rel=0.02)  # 2 P(X >= 60), X of 80 coins


def test_where_draws_are_too_few_the_tail_is_computed() -> None:
    random = np.random.default_rng(3)
    for shift in (0.15, 0.25, 0.35):
        d = random.normal(shift, 1, 60)
        drawn = np.concatenate([flipped_sums(d[:, None], 200_000, seed)[:, 0] for seed in range(5)])
        counted = float((np.abs(drawn) >= abs(d.sum())).mean())
        assert tail(np.abs(d), abs(d.sum())) == pytest.approx(counted, rel=0.15, abs=2e-5)


def test_a_large_steady_difference_is_rarer_than_any_draw_can_tell() -> None:
    d = np.random.default_rng(0).uniform(0.1, 0.9, 200)
    assert 0 < sign_flip(d, flipped_sums(d[:, None], 1000, 0)[:, 0]) < 1e-40


def test_p_values_of_flows_that_are_equally_good_are_even() -> None:
    random = np.random.default_rng(2)
    found = [Sample(random.beta(2, 2, (40, 2)), resamples=500, seed=i).p(0, 1) for i in range(400)]
    assert np.quantile(found, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.06)


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
    assert sum(one < 0.05 for one in benjamini_hochberg(p)) == 4
    assert sum(one < 0.05 for one in holm(p)) == 3
