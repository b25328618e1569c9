"""How good a chosen flow is, and what the choice may have lost."""

import numpy as np
import pytest

from spolia.evaluation.statistics.selection import bound_loss, correct_for_choice


def draw_scores(flows: int, questions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of flows on a sample of questions, and their true means."""
    random = np.random.default_rng(seed)
    quality = random.normal(0.6, 0.02, flows)
    noise = random.normal(0, 0.25, (questions, 1)) + random.normal(0, 0.2, (questions, flows))
    return quality + noise, quality


@pytest.mark.slow
def test_the_score_of_the_best_of_many_is_corrected_for_the_choice_and_the_interval_covers() -> None:
    covered, raw, corrected = [], [], []
    for seed in range(60):
        scores, truth = draw_scores(60, 100, seed)
        best = int(scores.mean(axis=0).argmax())
        interval = correct_for_choice(scores, draws=300, seed=seed)
        raw.append(scores[:, best].mean() - truth[best])
        corrected.append(interval.mean - truth[best])
        covered.append(interval.low <= truth[best] <= interval.high)
    assert np.mean(raw) > 0.02
    assert abs(np.mean(corrected)) < np.mean(raw) / 2
    assert np.mean(covered) >= 0.9


@pytest.mark.slow
def test_the_bound_on_what_is_lost_holds_nearly_always() -> None:
    is_bounded = []
    for seed in range(100):
        scores, truth = draw_scores(8, 200, seed)
        is_bounded.append(bound_loss(scores, 0, draws=500) >= truth.max() - truth[0])
    assert np.mean(is_bounded) >= 0.93


def test_flows_that_do_not_differ_lose_nothing() -> None:
    same = np.repeat(np.random.default_rng(0).random((30, 1)), 3, axis=1)
    assert bound_loss(same, 1) == 0.0
    assert bound_loss(same[:, :1], 0) == 0.0
    assert bound_loss(np.add(same, [0.0, 0.0, 0.5]), 1) == pytest.approx(0.5)
    constant = np.full((20, 4), 0.25)
    assert correct_for_choice(constant).mean == 0.25


def test_scores_that_hardly_differ_do_not_make_a_score_certain() -> None:
    interval = correct_for_choice(np.ones((25, 4)), width=1.0, draws=50).clip(0, 1)
    assert interval.mean == interval.high == 1.0
    assert 0.85 < interval.low < 0.97


def test_flows_that_were_not_asked_everything_are_compared_on_what_they_were() -> None:
    scores = np.tile([0.5, 0.4], (40, 1))
    scores[20:, 1] = np.nan
    assert correct_for_choice(scores, draws=50).mean == pytest.approx(0.5)
