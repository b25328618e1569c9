"""The race of `--prove`, played over stored scores a thousand times."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from score_grid import Ints, ScoreGrid

from spolia.evaluation.statistics.interval import student_t
from spolia.optimizer.strategies import MINIMUM_QUESTIONS, Racing

ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class FastRace:
    """What `Racing` does over a grid, from sums and products of scores; a test holds both against each other."""

    grid: ScoreGrid
    race: Racing = field(default_factory=Racing)

    def __call__(self, asked: Ints) -> tuple[Ints, float]:
        """The flows that are left after a race over some questions, and what share of the grid was asked."""
        grid, n, looks = self.grid, len(asked), self.race.looks
        scores = grid.scores[:, asked]
        lengths = np.array([grid.candidates.length(flow) for flow in range(len(scores))])
        sums, squares, rows, last = np.zeros(len(scores)), np.zeros(len(scores)), 0, 0
        flows, left = np.arange(len(scores)), scores
        limit = 1 - 2 * self.race.alpha / looks / max(1, len(scores) - 1)
        for index in range(looks):
            asked_count = min(n, MINIMUM_QUESTIONS + (n - MINIMUM_QUESTIONS) * index // (looks - 1))
            if len(flows) == 1:
                break
            new = left[:, last:asked_count]
            rows += new.size
            sums[flows] += new.sum(axis=1)
            squares[flows] += np.einsum("ij,ij->i", new, new)
            means = sums[flows] / asked_count
            leader = np.lexsort((flows, lengths[flows], -np.round(means, 12)))[0]
            gaps = means[leader] - means
            product = left[:, :asked_count] @ left[leader, :asked_count]
            spread = squares[flows] + squares[flows[leader]] - 2 * product - asked_count * gaps**2
            error = np.sqrt(np.maximum(spread, 0.0) / (asked_count - 1)) / sqrt(asked_count)
            stays = gaps <= student_t(limit, asked_count - 1) * error + ROUNDING
            if not stays.all():
                flows, left = flows[stays], left[stays]
            last = asked_count
        return flows, rows / scores.size
