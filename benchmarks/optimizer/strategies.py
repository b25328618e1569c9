"""Strategies of tuning, played over a matrix of scores: how far from the best flow they end, for what they spend.

    python benchmarks/optimizer/strategies.py [MATRIX.npz] [--seeds N] [--only PART ...] [--out FILE]

Kept are strategies.* from real.npz, and strategies_world.* from world.npz.

Everything is played by the classes that `spolia tune` runs. A seed draws the tuning questions, with replacement from
those of the grid, and what strategies draw. Regret is the true mean of the best flow minus that of the choice, in
points; true means are those over all questions of the grid. The floor is the regret of the flow that is best on all
tuning questions. Spend is a share of what the grid costs, by measured costs, where steps that flows share are computed
once a question, for all strategies; calls are those of a reader that is never asked the same context twice.
Without a file a matrix is simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from race import FastRace
from results import publish
from score_grid import Ints, ScoreGrid
from strategies_page import page, plot

from spolia.evaluation.measures.registry import parse_measure
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.plan import FINALISTS, STRATEGIES
from spolia.optimizer.score_board import Board, Floats
from spolia.optimizer.strategies import WARM_FLOWS, Strategy, find_best
from spolia.optimizer.tuned_flow import FinalScores

QUESTIONS, FRESH = 500, 300
SHARES = (0.0025, 0.004, 0.0055, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.2)
"""Budgets, from the least of `grid` on: 0.55 % is the least of `third` and 2 % that of `halving`."""
WARM_SHARES = (0.00015, 0.0003, 0.0005, 0.001, 0.0025, 0.003, 0.0054, 0.0075, 0.01, 0.02, 0.03, 0.05, 0.1)
"""With the least budget of each strategy: 0.015 % of ours, 0.3 % of `greedy` and `random`."""
OURS, RIVALS = "neighbours", ("third", "halving", "greedy", "random", "grid", "tpe", "bandit")
COLD = ("third", "halving", "greedy", "random")
"""Rivals of a warm start."""
SMALL, SMALL_SHARES = ("musique", "hotpotqa", "2wikimultihopqa", "aragog"), (0.02, 0.05, 0.1)
"""Sets that are reported beside: each has fewer questions than are drawn to tune."""
SLOW, SLOW_SHARES = ("tpe", "bandit"), (0.0055, 0.01, 0.02, 0.03, 0.05)
"""Strategies that take long: with fewer seeds and budgets."""
SLOW_SEEDS = 20
CALLED = 10
"""Seeds of which calls are counted."""
ANSWERED = (0.01, 0.02, 0.03, 0.05, 0.1)
KEPT = Path(__file__).parents[1] / "results" / "optimizer"
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Played:
    """How a study ended."""

    regret: float
    spent: float
    rows: float
    calls: float


def drawn(grid: ScoreGrid, seed: int, questions: int) -> Ints:
    return np.random.default_rng(seed).integers(0, grid.scores.shape[1], questions)


def studied(
    grid: ScoreGrid, strategy: Strategy, share: float, numbers: Ints, seed: int, prior: Sequence[int] = ()
) -> tuple[Board, int]:
    """A study of some questions, and the row of the flow that it chose."""
    board = board_of(grid, share, numbers, seed, prior)
    return board, find_best(strategy, board, grid.source(numbers))


def board_of(grid: ScoreGrid, share: float, numbers: Ints, seed: int, prior: Sequence[int] = ()) -> Board:
    return Board(grid.candidates, len(numbers), int(share * len(grid.points) * len(numbers)), seed, prior, OBJECTIVE)


def play(
    grid: ScoreGrid, name: str, share: float, seed: int, prior: Sequence[int] = (), questions: int = QUESTIONS
) -> Played | None:
    """None where the budget is too small for the strategy."""
    numbers, strategy = drawn(grid, seed, questions), STRATEGIES[name]
    if strategy.minimum_rows(board := board_of(grid, share, numbers, seed)) > board.left:
        return None
    board, chosen = studied(grid, strategy, share, numbers, seed, prior)
    if not board.rows_spent:
        return None
    calls = grid.calls(board, numbers) if seed < CALLED else np.nan
    regret = 100 * (grid.truth.max() - grid.truth[chosen])
    return Played(regret, grid.spent(board), board.rows_spent / board.question_total / len(grid.points), calls)


OBJECTIVE = Objectives((parse_measure("nDCG@10"),))


@dataclass(frozen=True, eq=False)
class Curve:
    """How studies of one strategy ended, by budget and seed."""

    budgets: Sequence[float]
    regret: Floats
    spent: Floats
    rows: Floats
    calls: Floats

    @classmethod
    def of(cls, budgets: Sequence[float], played: Sequence[Sequence[Played]]) -> Curve:
        columns = ("regret", "spent", "rows", "calls")
        return cls(
            budgets, *(np.array([[getattr(study, name) for study in row] for row in played]) for name in columns)
        )

    def spend(self, regret: float, seeds: Ints | None = None, of: str = "spent") -> float:
        """Where the curve of means first reaches a regret, between two budgets by the logarithm; inf if nowhere. If the
        least budget reaches it, what that spends: no less was measured."""
        seed_numbers = slice(None) if seeds is None else seeds
        means, log_spend = (
            self.regret[:, seed_numbers].mean(axis=1),
            np.log(getattr(self, of)[:, seed_numbers].mean(axis=1)),
        )
        for index, mean in enumerate(means):
            if mean <= regret:
                if not index:
                    return float(np.exp(log_spend[0]))
                part = (means[index - 1] - regret) / (means[index - 1] - mean)
                return float(np.exp(log_spend[index - 1] + part * (log_spend[index] - log_spend[index - 1])))
        return float("inf")

    def has_more_than(self, regret: float) -> bool:
        """Whether the least budget does not reach a regret yet, so that the curve crosses it."""
        return bool(self.regret[0].mean() > regret)

    def json(self) -> list[Json]:
        return [
            {
                "budget": budget,
                "rows": share(rows.mean()),
                "spent": share(spent.mean()),
                "calls": share(calls[np.isfinite(calls)].mean()) if np.isfinite(calls).any() else None,
                "regret": round(regret.mean(), 3),
                "standard error": round(regret.std(ddof=1) / len(regret) ** 0.5, 3),
                "more than 1 point": round(float((regret > 1).mean()), 3),
            }
            for budget, regret, spent, rows, calls in zip(
                self.budgets, self.regret, self.spent, self.rows, self.calls, strict=True
            )
        ]


def share(number: float) -> float:
    return float(f"{number:.4g}")


def shown(spend: float) -> float | None:
    """None for what no budget reaches."""
    return share(spend) if np.isfinite(spend) else None


def curve(
    grid: ScoreGrid,
    name: str,
    seeds: int,
    prior: Sequence[int] = (),
    shares: Sequence[float] = SHARES,
    questions: int = QUESTIONS,
) -> Curve:
    if name in SLOW:
        seeds, shares = min(seeds, SLOW_SEEDS), [budget_share for budget_share in shares if budget_share in SLOW_SHARES]
    result = {
        budget_share: spread(partial(play, grid, name, budget_share, prior=prior, questions=questions), range(seeds))
        for budget_share in shares
    }
    result = {budget_share: row for budget_share, row in result.items() if None not in row}
    return Curve.of([*result], [*result.values()])


def ratio(ours: Curve, rival: Curve, regret: float, is_bound: bool = False) -> Json:
    """Spend for equal regret, ours / the rival's, with an interval from resampled seeds, the same for both.

    Args:
        is_bound: whether the curves begin where the strategies do, so that a spend there is what they need. Otherwise a
            curve that begins below the regret may need less: then ours gives a bound, and the rival's no ratio.
    """
    random, seeds = np.random.default_rng(0), min(ours.regret.shape[1], rival.regret.shape[1])
    spends = ours.spend(regret), rival.spend(regret)
    row: Json = {"ours": shown(spends[0]), "rival": shown(spends[1])}
    row["is a bound"] = not (is_bound or ours.has_more_than(regret))
    if not (is_bound or rival.has_more_than(regret)):
        return row | {"ratio": None, "low": None, "high": None}
    ratios = []
    for _ in range(2_000):
        seed_numbers = random.integers(0, seeds, seeds)
        our_spend, rival_spend = ours.spend(regret, seed_numbers), rival.spend(regret, seed_numbers)
        ratios.append(1.0 if our_spend == rival_spend else our_spend / rival_spend)
    low, high = np.quantile(ratios, (0.025, 0.975), method="inverted_cdf")
    return row | {"ratio": shown(spends[0] / spends[1]), "low": shown(low), "high": shown(high)}


def cold(grid: ScoreGrid, seeds: int, without: Sequence[str] = ()) -> Json:
    curves = {name: curve(grid, name, seeds) for name in (OURS, *RIVALS) if name not in without}
    return {
        "floor": floor(grid, seeds),
        "seeds": {name: rival.regret.shape[1] for name, rival in curves.items() if rival.regret.size},
        "curves": {name: rival.json() for name, rival in curves.items()},
        "spend for equal regret": {
            f"{regret:g}": {name: ratio(curves[OURS], rival, regret) for name, rival in curves.items() if name != OURS}
            for regret in (1.0, 0.8, 0.7, 0.6)
        },
    }


def floor(grid: ScoreGrid, seeds: int, questions: int = QUESTIONS) -> float:
    """The mean regret of the flow that is best on all tuning questions."""
    size = grid.scores.shape[1]
    times = np.array([np.bincount(drawn(grid, seed, questions), minlength=size) for seed in range(seeds)])
    return round(float(np.mean(100 * (grid.truth.max() - grid.truth[(grid.scores @ times.T).argmax(axis=0)]))), 3)


def small(grid: ScoreGrid, seeds: int) -> Json:
    """Small sets, of each of which as many tuning questions are drawn as it has."""
    rows: Json = {}
    for name in SMALL:
        own = ScoreGrid.load(KEPT / f"{name}.npz")
        size = own.scores.shape[1]
        curves = {strategy: curve(own, strategy, seeds, (), SMALL_SHARES, size) for strategy in (OURS, *COLD)}
        rows[name] = {
            "questions": size,
            "mean of the best": share(own.truth.max()),
            "regret of the default": round(100 * (own.truth.max() - own.truth[0]), 3),
            "floor": floor(own, seeds, size),
            "curves": {strategy: strategy_curve.json() for strategy, strategy_curve in curves.items()},
        }
    return rows


def answers(grid: ScoreGrid, seeds: int) -> Json:
    """F1 of the answers of a simulated reader instead of nDCG@10."""
    if grid.answers is None:
        raise SystemExit("This matrix has no answers. Name world.npz.")
    own = replace(grid, scores=grid.answers)
    curves = {name: curve(own, name, seeds, (), ANSWERED) for name in (OURS, *COLD)}
    return {
        "mean of the best": share(own.truth.max()),
        "regret of the default": round(100 * (own.truth.max() - own.truth[0]), 3),
        "floor": floor(own, seeds),
        "curves": {name: strategy_curve.json() for name, strategy_curve in curves.items()},
    }


def warm(grid: ScoreGrid, seeds: int) -> Json:
    """On each corpus alone: with the flows that are best on the others, and without."""
    rows: Json = {}
    names = np.unique(grid.sets).tolist()
    for name in names:
        own, other_grid = grid.of_sets(name), grid.of_sets(*(other_name for other_name in names if other_name != name))
        prior = np.argsort(-other_grid.truth, kind="stable")[:WARM_FLOWS].tolist()
        curves = {"warm": curve(own, OURS, seeds, prior, WARM_SHARES)} | {
            f"{item}, cold": curve(own, item, seeds, (), WARM_SHARES) for item in (OURS, *COLD)
        }
        rivals = [curves[f"{item}, cold"] for item in COLD]
        rows[name] = {
            "questions": own.scores.shape[1],
            "curves": {name: item.json() for name, item in curves.items()},
            "spend at a regret of 1": {name: shown(item.spend(1.0)) for name, item in curves.items()},
            "rows at a regret of 1": {name: shown(item.spend(1.0, of="rows")) for name, item in curves.items()},
            "warm against the best cold rival": ratio(
                curves["warm"], min(rivals, key=lambda one: one.spend(1.0)), 1.0, is_bound=True
            ),
        }
    return rows


def pair(grid: ScoreGrid, seeds: int = 20, budget: float = 0.1) -> Json:
    """In how many studies the choice is one of the flows with both candidates of a planted pair."""
    planted, pair_flows = grid.with_pair()
    counts: Json = {"share of flows": share(len(pair_flows) / len(grid.points)), "budget": budget, "seeds": seeds}
    for name in (OURS, "third", "halving", "random", "greedy", "grid"):
        played = spread(partial(_is_in, planted, pair_flows, name, budget), range(seeds))
        counts[name] = sum(played)
    return counts


def _is_in(planted: ScoreGrid, numbers: Ints, name: str, budget: float, seed: int) -> bool:
    asked_numbers = drawn(planted, seed, QUESTIONS)
    return studied(planted, STRATEGIES[name], budget, asked_numbers, seed)[1] in numbers


def prove(grid: ScoreGrid, simulations: int) -> Json:
    """How often a race drops the true best, and what share of the grid it asks."""
    result: Json = {}
    for questions in (500, 1_000):
        raced = spread(partial(_race, grid, questions), range(simulations))
        dropped, rows = (np.array(column) for column in zip(*raced, strict=True))
        result[str(questions)] = {
            "simulations": simulations,
            "true best dropped": share(float(dropped.mean())),
            "share of the grid": share(float(rows.mean())),
        }
    return result


def _race(grid: ScoreGrid, questions: int, seed: int) -> tuple[bool, float]:
    left, rows = FastRace(grid)(drawn(grid, seed, questions))
    return bool(grid.truth[left].max() < grid.truth.max() - 1e-12), rows


def intervals(grid: ScoreGrid, draws: int) -> Json:
    """How often the interval of a report holds the true mean of the chosen flow."""
    rows: Json = {}
    for name, strategy, budget, questions, fresh in (
        ("300 choose, 200 fresh", OURS, 0.05, 300, 200),
        ("500 choose, 300 fresh", OURS, 0.05, 500, 300),
        ("60 choose and report", OURS, 0.2, 60, 0),
        ("100 choose and report", OURS, 0.2, 100, 0),
        ("150 choose and report", OURS, 0.2, 150, 0),
        ("100 choose and report, all flows asked", "grid", 1.0, 100, 0),
    ):
        reports = spread(partial(_reported, grid, strategy, budget, questions, fresh), range(draws))
        holds, bias, width, bounded = (np.array(column, np.float64) for column in zip(*reports, strict=True))
        rows[name] = {
            "draws": draws,
            "covers": share(holds.mean()),
            "bias, points": round(100 * bias.mean(), 3),
            "width, points": round(100 * width.mean(), 3),
            "regret bound holds": share(bounded.mean()) if fresh else None,
        }
    return rows


def _reported(
    grid: ScoreGrid, name: str, budget: float, questions: int, fresh: int, seed: int
) -> tuple[bool, float, float, float]:
    numbers = drawn(grid, seed, questions + fresh)
    board, chosen = studied(grid, STRATEGIES[name], budget, numbers[:questions], seed)
    flows = list(dict.fromkeys([chosen, *board.finalists(FINALISTS)]))[:FINALISTS]
    final = grid.source(numbers)(flows, range(questions, questions + fresh)) if fresh else None
    (best, *_), bound = FinalScores(board, OBJECTIVE, flows, final, seed).report()
    truth, score = grid.truth[best.number], best.score
    assert score is not None
    bounded = np.nan if bound is None else float(grid.truth[flows].max() - truth <= bound + 1e-12)
    return score.low <= truth <= score.high, score.mean - truth, score.high - score.low, bounded


def spread(work: Callable[[int], Any], seeds: Iterable[int]) -> list[Any]:
    """What each number gives, on two cores."""
    global _WORK
    _WORK = work
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        return [*pool.map(_worked, seeds, chunksize=5)]


def _worked(number: int) -> Any:
    return _WORK(number)


_WORK: Callable[[int], Any] = int
PARTS: Mapping[str, Callable[[ScoreGrid, int], Json]] = {
    "cold": cold, "warm": warm, "small": small, "answers": answers, "pair": lambda grid, seeds: pair(grid),
    "prove": lambda grid, seeds: prove(grid, 10 * seeds), "intervals": lambda grid, seeds: intervals(grid, 3 * seeds),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", nargs="*", choices=[*PARTS], help="by default all that the matrix has")
    parser.add_argument("--without", nargs="*", default=(), help="rivals to leave out of the cold curves")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    grid = ScoreGrid.load(options.matrix) if options.matrix else ScoreGrid.simulated()
    earlier = json.loads(options.out.read_text("utf-8")) if options.out and options.out.exists() else {}
    result = kept(earlier, about(grid, options.matrix.name if options.matrix else "simulated"))
    result["regret of the default"] = round(100 * (grid.truth.max() - grid.truth[0]), 3)
    for part in options.only or parts_of(grid):
        result[part] = (partial(cold, without=options.without) if part == "cold" else PARTS[part])(grid, options.seeds)
        result["seeds"][part] = options.seeds
        publish("strategies", result, options.out)
        if options.out:
            curves = options.out.with_suffix(".svg")
            options.out.with_suffix(".md").write_text(page(result, curves.name), encoding="utf-8")
            if "cold" in result:
                curves.write_text(plot(result["cold"]), encoding="utf-8")


def parts_of(grid: ScoreGrid) -> Sequence[str]:
    """The parts that can be played over a grid: answers where there are some, else a warm start from its other sets and
    what is kept of small sets."""
    without = ("warm", "small") if grid.answers is not None else ("answers",)
    return [part for part in PARTS if part not in without]


def about(grid: ScoreGrid, scores: str) -> Json:
    """What is played over: results with another one are not of the same grid."""
    numbers = {"flows": len(grid.points), "questions of the grid": grid.scores.shape[1], "tuning questions": QUESTIONS}
    return {"scores": scores, **numbers, "mean of the best": share(grid.truth.max())}


def kept(earlier: Json, now: Json) -> Json:
    """The parts of a result of before, if they are of the same grid."""
    same = all(earlier.get(name) == value for name, value in now.items())
    parts = {part: earlier[part] for part in PARTS if part in earlier} if same else {}
    return now | {"seeds": {part: earlier["seeds"][part] for part in parts}} | parts


if __name__ == "__main__":
    main()
