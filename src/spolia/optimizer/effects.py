"""What each candidate of a place does to the score, over all flows that were asked."""

from dataclasses import dataclass

import numpy as np

from spolia.optimizer.score_board import Board
from spolia.types import Value


@dataclass(frozen=True)
class Effect(Value):
    """How much better the objective is with a candidate than with the mean candidate of its place, all other places
    alike; `flows` that have it were asked."""

    place: str
    candidate: str
    better: float
    flows: int


def main_effects(board: Board) -> list[Effect]:
    """The effects of candidates as if they added up, by place in the order of the space; places of which only one
    candidate was asked are left out.

    Least squares of score = effect of the question + sum of effects of the candidates. A flow that was asked only easy
    questions is none the better for it. What candidates do only together is in no effect.

    Source: the fixed-effects (within) estimator, Yule 1907.
    """
    (asked,) = np.nonzero(board.asked)
    known = np.isfinite(board.scores[asked])
    chosen = [dict(board.candidates.choices(flow)) for flow in asked.tolist()]
    columns = list(dict.fromkeys(one for choices in chosen for one in choices.items()))
    has = np.array([[choices.get(place) == taken for place, taken in columns] for choices in chosen], dtype=np.float64)
    n, scores = np.maximum(known.sum(axis=0), 1), np.where(known, board.scores[asked], 0.0)
    of_question = known.T @ has / n[:, None]
    inner = has.T @ (has * known.sum(axis=1)[:, None]) - of_question.T @ (of_question * n[:, None])
    found = np.linalg.lstsq(inner, has.T @ scores.sum(axis=1) - of_question.T @ scores.sum(axis=0), rcond=1e-9)[0]
    effects = []
    for place in board.candidates.space.places:
        own = [at for at, (name, _) in enumerate(columns) if name == place]
        if len(own) > 1:
            better = found[own] - found[own].mean()
            effects += [
                Effect(place, columns[at][1], float(one), int(has[:, at].sum()))
                for at, one in zip(own, better, strict=True)
            ]
    return effects
