"""The scores of every flow of a space on every question, measured or made up: what strategies are played over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from matrix import ScoreMatrix, candidates_of
from numpy.typing import NDArray

from spolia.core.combinators.space import Space
from spolia.core.operator import Operator, Then
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.score_board import Board, Floats, ScoreRows, ScoreSource
from spolia.types import Ranking

Ints: TypeAlias = NDArray[np.integer[Any]]
RANK = 0.25
"""By how much a made-up flow must be better for the gold passage to move up one rank."""
PLANTED = 0.03, 0.1
"""Least and most share of the flows that have both candidates of a planted pair."""


@dataclass(frozen=True)
class Setting(Operator[Any, Any]):
    """A place of a made-up flow: nothing but what is taken there."""

    place: str = ""
    taken: str = ""

    def apply(self, value: Any, /) -> Ranking:
        return Ranking(value, ())


@dataclass(frozen=True, eq=False)
class ScoreGrid:
    """What a grid of all flows has found; flows by their number in `candidates`.

    Args:
        points: by flow and place the candidate that is taken; -1 where the place does not matter.
        scores: by flow and question, 0 to 1.
        sets: by question, of which data set it is.
        steps: by flow the numbers of the steps that it takes, -1 after the last; flows share those of equal number.
        step_us: what each step takes for a question.
        contexts: by flow and question the number of what a reader is shown: equal numbers are one call.
        answers: by flow and question the F1 of what a simulated reader answers.
    """

    candidates: FlowTable
    points: Ints
    scores: Floats
    sets: NDArray[np.str_]
    steps: Ints
    step_us: Floats
    contexts: Ints | None = None
    answers: Floats | None = None

    @cached_property
    def truth(self) -> Floats:
        """The true mean of every flow: over all questions."""
        return np.asarray(self.scores.mean(axis=1))

    def source(self, asked: Ints) -> ScoreSource:
        """Scores on some questions, in their order."""

        def ask(flows: Sequence[int], questions: range) -> ScoreRows:
            numbers = asked[questions.start : questions.stop]
            return ScoreRows(self.scores[np.ix_(list(flows), numbers)][:, :, None], np.zeros((len(flows), 2)))

        return ask

    def spent(self, board: Board) -> float:
        """What a study took, as a share of what the grid takes: steps that flows share are taken once a question."""
        once = np.zeros(len(self.step_us) + 1)
        for column in self.steps.T:
            np.maximum.at(once, column, board.question_counts[: len(column)])
        return float(once[:-1] @ self.step_us / board.question_total / self.step_us.sum())

    def calls(self, board: Board, asked: Ints) -> float:
        """Calls of a reader, as a share of those of the grid: a context that was read is not read again."""
        if self.contexts is None:
            return np.nan
        contexts, read, grid = self.contexts[:, asked], 0, 0
        for index, column in enumerate(contexts.T):
            read += len(np.unique(column[board.question_counts[: len(column)] > index]))
            grid += len(np.unique(column))
        return read / grid

    def of_sets(self, *names: str) -> Self:
        """The questions of some data sets."""
        is_in_sets = np.isin(self.sets, names)
        contexts, answers = (None if array is None else array[:, is_in_sets] for array in (self.contexts, self.answers))
        return replace(
            self, scores=self.scores[:, is_in_sets], sets=self.sets[is_in_sets], contexts=contexts, answers=answers
        )

    def with_pair(self, gain: float = 0.04) -> tuple[Self, Ints]:
        """Two candidates, the worst pair that so many flows have, none of them the default's, are the best together, by
        `gain`; also which flows have both."""
        worst = []
        for (place, these), (other_place, those) in combinations(enumerate(self.points.T), 2):
            for first in np.unique(these[(these >= 0) & (these != these[0])]):  # the default has neither
                for second in np.unique(those[(those >= 0) & (those != those[0])]):
                    has_both = (these == first) & (those == second)
                    if PLANTED[0] <= has_both.mean() <= PLANTED[1]:
                        alone = [self.truth[(these == first) & ~has_both], self.truth[(those == second) & ~has_both]]
                        if all(part.size for part in alone):
                            worst.append((max(part.mean() for part in alone), (place, first, other_place, second)))
        _, (place, first, other_place, second) = min(worst)
        has_both = np.flatnonzero((self.points[:, place] == first) & (self.points[:, other_place] == second))
        scores, order = self.scores.copy(), np.random.default_rng(0).permutation(self.scores.shape[1])
        lift = self.truth.max() + gain - self.truth[has_both].max()
        for flow in has_both.tolist():  # as many questions become right as lift its mean by that
            gained = np.cumsum(1 - scores[flow, order]) / len(order)
            scores[flow, order[: np.searchsorted(gained, lift)]] = 1
        return replace(self, scores=scores), has_both

    @classmethod
    def simulated(
        cls, seed: int = 0, sizes: Sequence[int] = (8, 22, 4), questions: int = 1_500, effects: float = 0.15
    ) -> Self:
        """Candidates have effects, alone and in pairs, more in some places than in others, and questions prefer some of
        them; the sum is told as the rank of one gold passage, so that most questions are right or wrong with any flow.
        Made to be as a measured space of 648 flows: candidates alone explain .93 of the variance of means."""
        random = np.random.default_rng(seed)
        places = {
            f"place {position}": [f"candidate {index}" for index in range(size)] for position, size in enumerate(sizes)
        }
        candidates = FlowTable(
            Space(Then(*(Setting(name).vary(name, taken=place_values) for name, place_values in places.items())))
        )
        points = np.array(
            [[candidates.point_by_number[flow][name] for name in places] for flow in candidates.all_flows]
        )
        logit = random.normal(2.0, 3.0, questions) + random.normal(0, effects / 10, (len(points), 1))
        for place, size in enumerate(sizes):
            alone = random.normal(0, effects * random.exponential(), (size, 1)) + random.normal(
                0, 0.5, (size, questions)
            )
            logit += alone[points[:, place]]
        for (index, first), (other_index, second) in combinations(enumerate(sizes), 2):
            logit += random.normal(0, effects / 3, (first, second))[points[:, index], points[:, other_index], None]
        ranks = np.clip(np.ceil(-logit / RANK), 0, 10).astype(np.intp)  # 0 is the first, 10 is not among the first ten
        scores, steps = np.append(1 / np.log2(np.arange(2, 12)), 0.0)[ranks], np.arange(len(points))[:, None]
        sets = random.choice(["first", "second", "third"], questions)
        return cls(candidates, points, scores, sets, steps, np.ones(len(points)))

    @classmethod
    def load(cls, path: Path) -> Self:
        """The scores that `matrix.py` has written, of `space.py` as it is."""
        score_matrix = ScoreMatrix.load(path)
        points, candidates = np.array(score_matrix.points, np.intp), candidates_of()
        names = score_matrix.places.tolist()
        if points.tolist() != [[point.get(name, -1) for name in names] for point in candidates.point_by_number]:
            raise ValueError(f"{path} is of another space. Make it anew with matrix.py.")
        answers = score_matrix.simulated_f1.astype(np.float64) if score_matrix.simulated_f1.size else None
        return cls(
            candidates,
            points,
            score_matrix.scores,
            score_matrix.sets,
            score_matrix.steps,
            score_matrix.step_us,
            score_matrix.contexts,
            answers,
        )
