"""The benchmark of strategies: what a study spends, and how curves are compared."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "optimizer"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played() -> Any:
    return pytest.importorskip("strategies")


def test_steps_that_flows_share_and_contexts_that_were_read_are_paid_once(played: Any) -> None:
    grid = played.ScoreGrid.simulated(0, (3, 4), questions=60)
    shared = replace(grid, steps=np.column_stack([grid.points[:, 0], 3 + np.arange(12)]), step_us=np.ones(15))
    questions = np.arange(40)
    board, _ = played.studied(shared, played.STRATEGIES["halving"], 0.3, questions, 0)
    once = {
        (step, index)
        for flow in range(12)
        for index in range(board.question_counts[flow])
        for step in shared.steps[flow].tolist()
    }
    assert shared.spent(board) == pytest.approx(len(once) / (15 * 40))
    read = replace(shared, contexts=np.tile(grid.points[:, [1]], 60))
    contexts = {
        (int(grid.points[flow, 1]), index) for flow in range(12) for index in range(board.question_counts[flow])
    }
    assert read.calls(board, questions) == pytest.approx(len(contexts) / (4 * 40))


def test_a_rival_that_spends_twice_as_much_for_the_same_regret_gives_a_ratio_of_a_half(played: Any) -> None:
    regret = np.random.default_rng(0).normal([[2.0], [1.0], [0.5]], 0.2, (3, 50))
    spend = np.tile([[0.01], [0.02], [0.04]], 50)
    ours, rival = (played.Curve((1, 2, 4), regret, times * spend, spend, spend) for times in (1, 2))
    row = played.ratio(ours, rival, 0.75)
    assert row["ratio"] == pytest.approx(0.5)
    assert row["low"] == pytest.approx(0.5) == row["high"]
    assert 0.02 < row["ours"] < 0.04
    assert played.ratio(ours, rival, 0.1)["ours"] is None


def test_a_rival_whose_least_budget_is_below_a_regret_gives_no_ratio_and_ours_a_bound(played: Any) -> None:
    spend, zeros = np.tile([[0.01], [0.02]], 50), np.zeros((2, 50))
    crossing, above = (played.Curve((1, 2), np.tile([[begin], [0.5]], 50), spend, spend, zeros) for begin in (2.0, 0.6))
    row = played.ratio(crossing, above, 0.75)
    assert (row["rival"], row["ratio"], row["is a bound"]) == (0.01, None, False)
    row = played.ratio(above, crossing, 0.75)
    assert row["is a bound"]
    assert 0 < row["ratio"] < 1
    row = played.ratio(crossing, above, 0.75, is_bound=True)
    assert (row["rival"], row["is a bound"]) == (0.01, False)
    assert row["ratio"] == pytest.approx(100 * row["ours"])


def test_a_planted_pair_is_best_together_and_bad_alone(played: Any) -> None:
    grid = played.ScoreGrid.simulated(1, (6, 5, 3), questions=300)
    planted, pair = grid.with_pair()
    remaining = np.setdiff1d(np.arange(90), pair)
    assert 0.03 <= len(pair) / 90 <= 0.1
    assert planted.truth[pair].max() > grid.truth.max() + 0.03
    assert (planted.scores[remaining] == grid.scores[remaining]).all()
    fixed = [place for place in range(3) if np.ptp(grid.points[pair, place]) == 0]
    for place in fixed:
        alone = [flow for flow in remaining if grid.points[flow, place] == grid.points[pair[0], place]]
        assert grid.truth[alone].mean() < grid.truth.mean()


@pytest.mark.parametrize("seed", range(3))
def test_a_fast_race_ends_as_that_of_tune(played: Any, seed: int) -> None:
    grid, race = played.ScoreGrid.simulated(seed, (5, 6, 3), questions=300), played.STRATEGIES["prove"]
    questions = played.drawn(grid, seed, 200)
    left, share = played.FastRace(grid)(questions)
    board, chosen = played.studied(grid, race, 1.0, questions, seed)
    last = int(board.question_counts.max())
    assert left.tolist() == sorted(race.drop_worse(board, np.flatnonzero(board.question_counts == last).tolist(), last))
    assert share == pytest.approx(board.rows_spent / 90 / 200)
    assert share < 1
    assert chosen in left


def test_parts_that_were_played_before_stay_with_their_seeds_if_the_grid_is_the_same(played: Any) -> None:
    now = played.about(played.ScoreGrid.simulated(0, (3, 4), questions=60), "simulated")
    earlier = now | {"seeds": {"cold": 100, "pair": 20}, "cold": {"floor": 0.2}, "pair": {"neighbours": 19}}
    assert played.kept(earlier, now) == earlier
    assert played.kept(earlier, now | {"flows": 13}) == now | {"flows": 13, "seeds": {}}


def test_answers_are_played_over_a_grid_that_has_them_and_other_sets_over_the_measured_one(played: Any) -> None:
    grid = played.ScoreGrid.simulated(0, (3, 4), questions=60)
    assert {"cold", "warm", "small"} <= set(played.parts_of(grid))
    assert set(played.PARTS) - set(played.parts_of(grid)) == {"answers"}
    answered_grid = replace(grid, answers=1 - grid.scores)
    assert set(played.PARTS) - set(played.parts_of(answered_grid)) == {"warm", "small"}
    first = answered_grid.of_sets("first")
    assert (first.answers == 1 - first.scores).all()
