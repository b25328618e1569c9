"""Tree-structured Parzen estimators, by Optuna."""

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from spolia.errors import WiringError, installed
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
        with installed("tpe", "optuna", "The strategy tpe"):
            import optuna
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
