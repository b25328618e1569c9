"""A bandit over places, and one over the candidates of each."""

from dataclasses import dataclass, field
from math import inf, log, sqrt

import numpy as np

from spolia.optimizer.score_board import Board, ScoreRequest
from spolia.optimizer.strategies import Requests, Strategy


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
