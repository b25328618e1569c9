"""Strategies that learn from scores which candidates are good: TPE, by Optuna, and a bandit of bandits."""

from dataclasses import dataclass, field
from math import ceil, inf, log, sqrt
from typing import Any

import numpy as np

from spolia.deferred import optuna
from spolia.errors import WiringError, require
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.score_board import Board, ScoreRequest
from spolia.optimizer.strategies import Requests, Strategy

TRIALS = 4
"""Trials for each flow that the budget allows: those that name a flow again, or none, take nothing of it."""
FAR = 1e6
"""Times the excess over limits, what is taken off a score: estimators go by the order of scores alone."""


@dataclass(frozen=True)
class TreeParzen(Strategy):
    """Flows drawn where the better ones that were asked before are dense and the others are not, each asked all
    questions. Numbers are near to each other, other candidates are not. Needs `pip install 'spolia[tpe]'`.

    Args:
        startup: flows that are drawn at random first.

    Source: TPE, Bergstra, Bardenet, Bengio and Kégl 2011, as Optuna computes it (Akiba and others 2019).
    """

    startup: int = 10

    def search(self, board: Board) -> Requests:
        require(optuna, "The strategy tpe")
        best = len(board.objectives.best) if board.objectives else 1
        study, n, asked = self._study(optuna, best, board.random.randrange(2**32)), board.questions, list[int]()
        for _ in range(TRIALS * ceil(board.left / n)):
            trial, values = study.ask(), np.array([np.nan])
            if (flow := _suggested(trial, board.candidates)) is not None:
                if board.cost([flow], n) > board.left:
                    break
                yield ScoreRequest([flow], n)
                asked.append(flow)
                values = board.all_means([flow], n)[0, :best] - FAR * board.excess([flow])[0]
            if np.isfinite(values).all():
                study.tell(trial, values.tolist())
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return board.ranked(list(dict.fromkeys(asked)), n)[0] if asked else 0

    def _study(self, optuna: Any, objectives: int, seed: int) -> Any:
        told = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it writes of each new study to stderr
        try:
            sampler = optuna.samplers.TPESampler(n_startup_trials=self.startup, seed=seed)
            return optuna.create_study(sampler=sampler, directions=["maximize"] * objectives)
        finally:
            optuna.logging.set_verbosity(told)


def _suggested(trial: Any, candidates: Candidates) -> int | None:
    """The flow that a trial draws place by place, since which places matter follows from those before; None if its
    candidates do not go together."""
    space, point = candidates.space, dict[str, int]()
    while name := next((one for one in space.completed(point) if one not in point), None):
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
    """How often each arm was pulled, and what it gave in all."""

    alpha: float
    pulls: dict[object, int] = field(default_factory=dict)
    sums: dict[object, float] = field(default_factory=dict)

    def best(self, arms: list[object]) -> object:
        """The arm with the highest upper confidence bound; one that was not pulled comes first."""
        whole = max(1, sum(self.pulls.get(arm, 0) for arm in arms))

        def bound(arm: object) -> float:
            if not (pulls := self.pulls.get(arm, 0)):
                return inf
            return self.sums[arm] / pulls + self.alpha * sqrt(2 * log(whole) / pulls)

        return max(arms, key=bound)

    def tell(self, arm: object, reward: float) -> None:
        self.pulls[arm] = self.pulls.get(arm, 0) + 1
        self.sums[arm] = self.sums.get(arm, 0.0) + reward


@dataclass(frozen=True)
class HierarchicalBandit(Strategy):
    """Each trial moves one place of the best flow so far. A bandit chooses the place, another one its candidate, both
    by their upper confidence bounds. The flow that results is asked some questions, and its score rewards both.

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
        candidates, n = board.candidates, min(self.questions, board.questions)
        upper, lower = _Arms(self.alpha), _Arms(self.alpha)
        yield ScoreRequest([0], n)
        current, upto, asked = 0, {0: n}, [0]
        while board.left > 0:
            point = candidates.points[current]
            arms = {
                place: {
                    (place, candidates.points[one].get(place)): one
                    for one in candidates.along(current, place)
                    if upto.get(one, 0) < board.questions
                }
                for place in point
            }
            places: list[object] = [place for place, flows in arms.items() if flows]
            if not places:
                break
            place = upper.best(places)
            taken = arms[str(place)]
            candidate = lower.best(list(taken))
            flow = next(one for arm, one in taken.items() if arm == candidate)
            more = min(board.questions, upto.get(flow, 0) + n)
            if board.cost([flow], more) > board.left:
                break
            yield ScoreRequest([flow], more)
            upto[flow] = more
            asked = list(dict.fromkeys([*asked, flow]))
            means = [float(board.means([one], upto[one])[0]) for one in asked]
            known = [mean for mean in means if np.isfinite(mean)]
            low, high = (min(known), max(known)) if known else (0.0, 0.0)
            mean = float(board.means([flow], more)[0])
            reward = (mean - low) / (high - low) if high > low and np.isfinite(mean) else 0.0
            upper.tell(place, reward)
            lower.tell(candidate, reward)
            current = asked[int(np.argmax(means))]
        return board.finalists(1)[0] if board.finalists(1) else current
