"""Strategies on matrices of scores whose best flow is known."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random

import numpy as np
import pytest

from spolia.core.combinators.space import Space
from spolia.core.operator import Operator
from spolia.errors import MissingExtra
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.model_based import HierarchicalBandit, TreeParzen
from spolia.optimizer.plan import STRATEGIES
from spolia.optimizer.score_board import Board, Floats, ScoreRows, ScoreSource
from spolia.optimizer.strategies import (
    COMPARED_FLOWS,
    GreedySearch,
    Halving,
    HalvingWithNeighbours,
    Racing,
    RandomSearch,
    Strategy,
    find_best,
    halve,
)
from spolia.types import Query, Ranking
from tests.cases import check_each

QUESTIONS = 200
PLACES = {"words": "abcdefgh", "fusion": "abcdefghijklmnopqrst", "after": "abcd"}


@dataclass(frozen=True)
class Named(Operator[Query, Ranking]):
    """A flow that is nothing but its settings."""

    words: str = "a"
    fusion: str = "a"
    after: str = "a"

    def apply(self, value: Query, /) -> Ranking:
        return Ranking(value, ())


@cache
def planted() -> Floats:
    """By settings and question: additive effects, and one pair that is best together and worst alone."""
    random, sizes = np.random.default_rng(0), tuple(map(len, PLACES.values()))
    logit = random.normal(1.2, 1.6, QUESTIONS) + np.zeros((*sizes, 1))
    for axis, size in enumerate(sizes):
        shape = [size if index == axis else 1 for index in range(3)]
        logit = logit + random.normal(0, 0.25, size).reshape(*shape, 1)
        logit = logit + random.normal(0, 0.5, (size, QUESTIONS)).reshape(*shape, QUESTIONS)
    logit[5] -= 1.5
    logit[:, :, 3] -= 1.5
    logit[5, :, 3] += 5.0
    return np.asarray(1 / (1 + np.exp(-1.5 * logit)))


def matrix_source(candidates: FlowTable, order: Sequence[int]) -> ScoreSource:
    def source(flows: Sequence[int], questions: range) -> ScoreRows:
        rows = [[(PLACES[n].index(getattr(candidates.flows[f], n))) for n in PLACES] for f in flows]
        values = planted()[tuple(np.array(rows).T)][:, [order[question] for question in questions]]
        return ScoreRows(values, np.zeros((len(flows), 2)))

    return source


def rows_of(values: Floats, flows: Sequence[int], questions: range) -> ScoreRows:
    return ScoreRows(values[list(flows), questions.start : questions.stop], np.zeros((len(flows), 2)))


def study(strategy: Strategy, seed: int, share: float, prior: Sequence[dict[str, int]] = ()) -> tuple[Board, int]:
    flow: Operator[Query, Ranking] = Named()
    for name, values in PLACES.items():
        flow = flow.vary(name, **{name: [*values]})
    candidates = FlowTable(Space(flow))
    board = Board(candidates, QUESTIONS, share * 640 * QUESTIONS, seed, candidates.find_near(prior))
    order = Random(seed).sample(range(QUESTIONS), QUESTIONS)
    return board, find_best(strategy, board, matrix_source(candidates, order))


def is_planted(board: Board, flow: int) -> bool:
    chosen = board.candidates.flows[flow]
    return (chosen.words, chosen.after) == ("f", "d")  # type: ignore[attr-defined]


@pytest.mark.slow
def test_greedy_never_finds_a_pair_that_is_bad_alone_and_halving_with_neighbours_does() -> None:
    assert not any(is_planted(*study(GreedySearch(passes=3), seed, 1.0)) for seed in range(10))
    assert sum(is_planted(*study(HalvingWithNeighbours(), seed, 0.1)) for seed in range(10)) >= 9


def test_what_neighbours_leave_of_the_budget_goes_to_the_flows_that_were_asked_most() -> None:
    for seed in range(3):
        board, flow = study(HalvingWithNeighbours(), seed, 0.05)
        last = board.finalists(COMPARED_FLOWS)
        assert flow in last
        assert board.left < len(last) or board.question_counts[last].min() == QUESTIONS


def test_a_larger_budget_asks_more_questions_of_no_more_than_half_of_the_flows_to_begin_with() -> None:
    strategy = HalvingWithNeighbours()
    board, _ = study(strategy, 0, 0.5)
    begun = [len(strategy.draw_flows(board, share * board.rows)) for share in (0.02, 0.05, 0.2, 1.0)]
    assert begun == sorted(begun)
    assert begun[0] < begun[-1] == 320 == len(board.candidates.all_flows) // 2
    assert len(HalvingWithNeighbours(share=0.01).draw_flows(board, board.rows)) == 32


def test_later_rounds_take_fewer_rows_and_all_of_them_what_was_given() -> None:
    board, _ = study(RandomSearch(), 0, 0.01)
    board.rows = board.rows_spent + 6_000
    spent_before, rows = board.rows_spent, list[int]()
    for request in halve(board, range(128), 6_000, 16, 0.5):
        board.fill(
            request,
            lambda flows, asked_request: ScoreRows(
                np.zeros((len(flows), len(asked_request))), np.zeros((len(flows), 2))
            ),
        )
        rows.append(board.rows_spent - spent_before - sum(rows))
    assert [count / rows[0] for count in rows] == pytest.approx([1.0, 0.5, 0.25], abs=0.05)
    assert 0.95 * 6_000 < sum(rows) <= 6_000


def test_flows_reach_as_many_questions_as_the_rows_allow() -> None:
    board, flow = study(Halving(1 / 8), 3, 0.02)
    subset = [flow, *range(40)]
    for rows in (0, 1, 45, 700, 10**6):
        question_limit = board.affordable_questions(subset, rows)
        assert board.cost(subset, question_limit) <= rows
        assert question_limit == QUESTIONS or board.cost(subset, question_limit + 1) > rows
    assert board.affordable_questions(subset, 0, minimum=7) == 7


@pytest.mark.slow
@check_each("name", [name for name in STRATEGIES if name != "tpe"])
def test_no_strategy_goes_beyond_its_budget_and_the_same_seed_asks_the_same(name: str) -> None:
    (one, first), (two, second) = (study(STRATEGIES[name], 7, 0.05) for _ in range(2))
    assert first == second
    assert one.rows_spent == two.rows_spent <= one.rows
    np.testing.assert_array_equal(one.scores, two.scores)


@pytest.mark.slow
def test_tpe_asks_better_flows_after_it_has_seen_some_within_its_budget_and_by_its_seed() -> None:
    pytest.importorskip("optuna")
    (board, flow), (second_board, same) = (study(TreeParzen(), 3, 0.1) for _ in range(2))
    assert flow == same
    assert board.rows_spent == second_board.rows_spent <= board.rows
    (asked_flows,) = np.nonzero(board.question_counts)
    means = board.means(asked_flows.tolist(), QUESTIONS)  # flows are numbered as they are drawn
    assert means[10:].mean() > means[:10].mean() + 0.02


def test_tpe_without_optuna_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"needs optuna, which is not installed.*spolia\[tpe\]"):
        study(TreeParzen(), 3, 0.1)


@pytest.mark.slow
def test_halving_with_neighbours_loses_less_than_its_rivals() -> None:
    truth = planted().mean(axis=-1)

    def regret(strategy: Strategy, share: float) -> float:
        lost = []
        for seed in range(20):
            board, flow = study(strategy, seed, share)
            positions = tuple(PLACES[n].index(getattr(board.candidates.flows[flow], n)) for n in PLACES)
            lost.append(truth.max() - truth[positions])
        return float(np.mean(lost))

    ours = regret(HalvingWithNeighbours(), 0.1)
    assert ours <= min(regret(rival, 0.1) for rival in (GreedySearch(), RandomSearch(), Halving(1 / 3))) + 0.002


@pytest.mark.slow
def test_a_race_keeps_the_best_and_stops_asking_those_that_are_shown_to_be_worse() -> None:
    truth = planted().mean(axis=-1)
    for seed in range(4):
        board, flow = study(STRATEGIES["prove"], seed, 1.0)
        positions = tuple(PLACES[n].index(getattr(board.candidates.flows[flow], n)) for n in PLACES)
        assert truth[positions] == truth.max()
        assert board.rows_spent < 0.5 * board.rows


@pytest.mark.slow
def test_a_race_among_flows_that_are_nearly_equal_drops_the_best_in_at_most_5_of_100_studies() -> None:
    candidates = FlowTable(Space(Named().vary("words", words=[*PLACES["words"]])))
    random, dropped = np.random.default_rng(0), 0
    for _ in range(300):
        values = (random.random((8, QUESTIONS)) < 0.6) * random.random(QUESTIONS)  # all as good as the first
        board, race = Board(candidates, QUESTIONS, np.inf), Racing(alpha=0.05)
        find_best(race, board, partial(rows_of, values))
        last = int(board.question_counts.max())
        dropped += 0 not in race.drop_worse(board, np.flatnonzero(board.question_counts == last).tolist(), last)
    assert dropped <= 22  # 5 % of 300 is 15, and 7 are two standard errors of it


@pytest.mark.slow
def test_a_warm_start_finds_the_best_with_a_budget_too_small_to_look_for_it() -> None:
    best = {"words": 5, "fusion": 3, "after": 3}
    cold, warm = (
        [is_planted(*study(HalvingWithNeighbours(), seed, 0.005, prior)) for seed in range(4)] for prior in ([], [best])
    )
    assert all(warm)
    assert not all(cold)


@pytest.mark.slow
def test_a_bandit_over_places_and_candidates_comes_near_the_best_but_for_pairs_and_keeps_its_budget() -> None:
    truth = planted().mean(axis=-1)
    unpaired = np.sort(np.delete(truth.reshape(8, -1, 4), 5, axis=0)[:, :, :3].ravel())
    for seed in range(5):
        board, flow = study(HierarchicalBandit(), seed, 0.05)
        assert board.rows_spent <= 0.05 * 640 * QUESTIONS
        chosen = board.candidates.flows[flow]
        true_score = truth[tuple(PLACES[name].index(getattr(chosen, name)) for name in PLACES)]
        assert np.searchsorted(unpaired, true_score) > 0.9 * unpaired.size
