"""Strategies that learn from scores which candidates are good: TPE, by Optuna, and a two-level bandit."""

from dataclasses import dataclass, field
from math import ceil, inf, log, sqrt
from typing import Any

import numpy as np

from spolia.deferred import optuna
from spolia.errors import WiringError, require
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.score_board import Board, ScoreRequest
from spolia.optimizer.strategies import Requests, Strategy

TRIALS_PER_FLOW = 4
"""Trials for each flow that the budget allows: those that name a flow again, or none, take nothing of it."""
LIMIT_PENALTY = 1e6
"""Times the excess over limits, what is taken off a score: estimators go by the order of scores alone."""


@dataclass(frozen=True)
class TreeParzen(Strategy):
    """Search that draws flows where good ones are dense and others are not, each asked all questions. Numbers are near
    to each other, other candidates are not. Needs `pip install 'spolia[tpe]'`.

    Args:
        startup: flows that are drawn at random first.

    Source: TPE, Bergstra, Bardenet, Bengio and Kégl 2011, as Optuna computes it (Akiba and others 2019).
    """

    startup: int = 10

    def search(self, board: Board) -> Requests:
        require(optuna, "The strategy tpe")
        best = len(board.objectives.best) if board.objectives else 1
        study, n, asked_flows = (  # NumPy's seeds have 32 bits
            self._create_study(optuna, best, board.random.randrange(2**32)),
            board.question_total,
            list[int](),
        )
        for _ in range(TRIALS_PER_FLOW * ceil(board.left / n)):
            trial, values = study.ask(), np.array([np.nan])
            if (flow := _suggest_flow(trial, board.candidates)) is not None:
                if board.cost([flow], n) > board.left:
                    break
                yield ScoreRequest([flow], n)
                asked_flows.append(flow)
                values = board.all_means([flow], n)[0, :best] - LIMIT_PENALTY * board.excess([flow])[0]
            if np.isfinite(values).all():
                study.tell(trial, values.tolist())
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return board.rank(list(dict.fromkeys(asked_flows)), n)[0] if asked_flows else 0

    def _create_study(self, optuna: Any, objectives: int, seed: int) -> Any:
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it writes of each new study to stderr
        try:
            sampler = optuna.samplers.TPESampler(n_startup_trials=self.startup, seed=seed)
            return optuna.create_study(sampler=sampler, directions=["maximize"] * objectives)
        finally:
            optuna.logging.set_verbosity(verbosity)


def _suggest_flow(trial: Any, candidates: FlowTable) -> int | None:
    """Return the flow that a trial draws, place by place, since the places that matter depend on earlier ones; None if
    its candidates do not go together."""
    space, point = candidates.space, dict[str, int]()
    while name := next((open_place for open_place in space.complete(point) if open_place not in point), None):
        place = space.places[name]
        if order := place.order:
            point[name] = order[trial.suggest_int(name, 0, len(order) - 1)]
        else:
            point[name] = trial.suggest_categorical(name, range(len(place.values)))
    try:
        return candidates.number(point)
    except WiringError:
        return None


@dataclass
class _Arms:
    """Counts of pulls and sums of rewards, by arm."""

    alpha: float
    pulls: dict[object, int] = field(default_factory=dict)
    sums: dict[object, float] = field(default_factory=dict)

    def best(self, arms: list[object]) -> object:
        """Return the arm with the highest upper confidence bound; an arm that was not pulled comes first."""
        total_pulls = max(1, sum(self.pulls.get(arm, 0) for arm in arms))

        def upper_bound(arm: object) -> float:
            if not (pulls := self.pulls.get(arm, 0)):
                return inf
            return self.sums[arm] / pulls + self.alpha * sqrt(2 * log(total_pulls) / pulls)

        return max(arms, key=upper_bound)

    def tell(self, arm: object, reward: float) -> None:
        self.pulls[arm] = self.pulls.get(arm, 0) + 1
        self.sums[arm] = self.sums.get(arm, 0.0) + reward


@dataclass(frozen=True)
class HierarchicalBandit(Strategy):
    """Search that changes one place of the best flow in each trial. A bandit chooses the place, another one its
    candidate, both by upper confidence bounds. The new flow is asked some questions, and its score rewards both.

    Rewards are shares of the span seen so far. The choice is the best of the flows that were asked
    most.

    Args:
        questions: of a trial.
        alpha: how much bounds count.

    Source: the two levels of Fu et al., "AutoRAG-HP", 2024 (arXiv 2406.19251); UCB1, Auer, Cesa-Bianchi and Fischer
    2002.
    """

    questions: int = 12
    alpha: float = 0.5

    def search(self, board: Board) -> Requests:
        candidates, n = board.candidates, min(self.questions, board.question_total)
        upper, lower = _Arms(self.alpha), _Arms(self.alpha)
        yield ScoreRequest([0], n)
        current, counts, asked_flows = 0, {0: n}, [0]
        while board.left > 0:
            point = candidates.point_by_number[current]
            arms = {
                place: {
                    (place, candidates.point_by_number[neighbour].get(place)): neighbour
                    for neighbour in candidates.vary_place(current, place)
                    if counts.get(neighbour, 0) < board.question_total
                }
                for place in point
            }
            places: list[object] = [place for place, flows in arms.items() if flows]
            if not places:
                break
            place = upper.best(places)
            flow_by_arm = arms[str(place)]
            candidate = lower.best(list(flow_by_arm))
            flow = next(option for arm, option in flow_by_arm.items() if arm == candidate)
            question_count = min(board.question_total, counts.get(flow, 0) + n)
            if board.cost([flow], question_count) > board.left:
                break
            yield ScoreRequest([flow], question_count)
            counts[flow] = question_count
            asked_flows = list(dict.fromkeys([*asked_flows, flow]))
            means = [float(board.means([asked_flow], counts[asked_flow])[0]) for asked_flow in asked_flows]
            known_means = [mean for mean in means if np.isfinite(mean)]
            low, high = (min(known_means), max(known_means)) if known_means else (0.0, 0.0)
            mean = float(board.means([flow], question_count)[0])
            reward = (mean - low) / (high - low) if high > low and np.isfinite(mean) else 0.0
            upper.tell(place, reward)
            lower.tell(candidate, reward)
            current = asked_flows[int(np.argmax(means))]
        return board.finalists(1)[0] if board.finalists(1) else current
