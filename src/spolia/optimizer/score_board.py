"""Score matrix of a study: what is known, and how many more scores may be asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.contexts import FREE, Contexts
from spolia.optimizer.objectives import CombineFunction, Objectives
from spolia.types import Value

FIRST_QUESTIONS = 6
"""Questions that a flow should answer before it may be dropped."""
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreRequest:
    """Request of a strategy: the scores of some flows on the first `question_count` questions of the common order."""

    flows: Sequence[int]
    question_count: int


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """Scores that came back: by flow, question and measure, higher is better, NaN where one is not determined; by flow
    what a question costs in USD and calls. A flow that cannot run has -inf. `usd` is what was paid for all of them."""

    values: Floats
    costs: Floats
    usd: float = 0.0


ScoreSource: TypeAlias = Callable[[Sequence[int], range], ScoreRows]
"""Asks flows, by number, the questions at these places of the common order."""


class Board:
    """Score matrix of a study, flows × questions, which grows with the flows that are asked.

    All flows are asked the questions in one order, so that any two are compared on the same ones.

    Args:
        candidates: the flows.
        question_total: how many questions there are.
        rows: how many scores may be asked for, all in all.
        seed: of what strategies draw.
        prior: flows that were best elsewhere, best first.
        objectives: by which flows are ordered; None for one measure of which more is better.
        contexts: what readers are shown: then what is counted are not scores but contexts that no flow has shown
            before, and all other scores are free.
    """

    def __init__(
        self,
        candidates: FlowTable,
        question_total: int,
        rows: float,
        seed: int = 0,
        prior: Sequence[int] = (),
        objectives: Objectives | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        self.contexts, self._is_read = contexts, np.ones(FREE + 1, bool)
        self.objectives = objectives
        self.candidates, self.question_total, self.rows, self.prior = candidates, question_total, rows, prior
        self.random = Random(seed)
        self.rows_spent, self.usd = 0, 0.0
        self.leaders: list[tuple[int, float, int]] = []
        """How many scores were asked for and what was paid when a request was answered, and the best of its flows."""
        self._question_counts = np.zeros(0, np.intp)
        self._scores = np.zeros((0, question_total, len(objectives.measures) if objectives else 1))
        self._costs = np.zeros((0, 2))
        self._slope: Floats | None = None

    @property
    def left(self) -> float:
        """Return how many more counted scores may be asked for."""
        return self.rows - self.rows_spent

    @property
    def question_counts(self) -> NDArray[np.intp]:
        """Return by flow how many of the first questions it was asked."""
        return self._question_counts

    @property
    def scores(self) -> Floats:
        """Return by flow and question the scores of the first measure; NaN where a flow was not asked."""
        return self._scores[:, :, 0]

    def draw_promising(self, count: int) -> list[int]:
        """Draw at most `count` flows to begin with: at random, or, of those whose contexts are known, the ones that
        show their readers all the gold of the most questions. That is free, and such flows share contexts."""
        sample = self.candidates.draw_flows(count, self.random)
        if self.contexts is None:
            return sample
        all_flows = list(self.candidates.all_flows)
        quality = self.contexts.quality(all_flows)
        is_known = ~np.isnan(quality)
        means = np.where(is_known, quality, 0.0).sum(axis=1) / np.maximum(1, is_known.sum(axis=1))
        shown_flows = {flow for row, flow in enumerate(all_flows) if is_known[row].any()}
        best = iter(
            [all_flows[row] for row in np.argsort(-means, kind="stable").tolist() if all_flows[row] in shown_flows]
        )
        return [next(best) if flow in shown_flows else flow for flow in sample]

    def cost(self, flows: Sequence[int], question_count: int) -> int:
        """Return how many counted scores are missing for some flows on the first questions."""
        self._grow()
        if self.contexts is not None:
            return int(self._find_unread(flows, question_count).size)
        return int(np.maximum(0, question_count - self._question_counts[list(flows)]).sum())

    def affordable_questions(self, flows: Sequence[int], rows: float, minimum: int = 0) -> int:
        """Return how many questions all of these flows can be asked for `rows` scores; at least `minimum`."""
        self._grow()
        if self.contexts is not None:
            return self._affordable_unread(flows, rows, minimum)
        counts = np.sort(self._question_counts[list(flows)])
        behind = np.searchsorted(
            counts, np.arange(self.question_total), "right"
        )  # flows that were not asked that question
        return max(minimum, int(np.searchsorted(np.cumsum(behind), rows, "right")))

    def fill(self, request: ScoreRequest, source: ScoreSource) -> None:
        """Ask what is missing, few questions of all flows first, then twice as many: if it breaks off, flows can be
        compared."""
        self._grow()
        flows = np.array(list(dict.fromkeys(request.flows)), np.intp)
        last = min(request.question_count, self.question_total)
        # Without flows there is nothing to ask.
        start, step = int(self._question_counts[flows].min(initial=last)), FIRST_QUESTIONS
        while start < last:
            start, step = min(last, start + step), 2 * step
            self._fill(flows, start, source)
        if flows.size:
            self.leaders.append((self.rows_spent, self.usd, self.rank(flows.tolist(), last)[0]))

    def _fill(self, flows: NDArray[np.intp], question_count: int, source: ScoreSource) -> None:
        """Ask the questions up to a number, flows that are at the same question together."""
        for start in np.unique(self._question_counts[flows]).tolist():
            batch = flows[self._question_counts[flows] == start]
            if start < question_count and batch.size:
                new_questions = question_count - start
                unread = None if self.contexts is None else self._find_unread(batch.tolist(), question_count)
                result = source(batch.tolist(), range(start, question_count))
                self._scores[batch, start:question_count] = result.values.reshape(batch.size, new_questions, -1)
                self._costs[batch] = (self._costs[batch] * start + result.costs * new_questions) / question_count
                self._question_counts[batch], self._slope = question_count, None  # new scores change the slope
                self.rows_spent += new_questions * batch.size if unread is None else unread.size
                if unread is not None:
                    self._is_read[unread] = True
                self.usd += result.usd

    def _find_unread(self, flows: Sequence[int], question_count: int, start: int = 0) -> NDArray[np.int64]:
        """Return contexts that flows would show on questions, and that no flow has shown before."""
        assert self.contexts is not None
        numbers = self.contexts.numbers(flows)[:, start:question_count]
        candidates = np.unique(numbers[np.arange(start, question_count) >= self._question_counts[list(flows)][:, None]])
        if (missing := self.contexts.count - self._is_read.size) > 0:
            self._is_read = np.append(self._is_read, np.zeros(missing, bool))
        return np.asarray(candidates[~self._is_read[candidates]])

    def _affordable_unread(self, flows: Sequence[int], rows: float, question_count: int) -> int:
        rows_left = rows - self._find_unread(flows, question_count).size
        while (
            question_count < self.question_total
            and (rows_left := rows_left - self._find_unread(flows, question_count + 1, question_count).size) >= 0
        ):
            question_count += 1
        return question_count

    def means(self, flows: Sequence[int], question_count: int) -> Floats:
        """Return the means of flows on the first questions; -inf if nothing is determined."""
        return self.all_means(flows, question_count)[:, 0]

    def all_means(self, flows: Sequence[int], question_count: int) -> Floats:
        """Return the means by flow and measure; where contexts are known, those expected on all questions.

        What a reader is shown is known for all questions before it is asked any. How good that is, is a control
        variate: mean(y) + b (mean of x on all questions - mean of x on those asked), with b as far as scores follow x
        within questions.
        """
        rows = self._scores[list(flows), :question_count]
        is_known = ~np.isnan(rows)
        counts = np.maximum(is_known.sum(axis=1), 1)
        means = np.where(is_known.any(axis=1), np.where(is_known, rows, 0.0).sum(axis=1) / counts, -np.inf)
        if self.contexts is None:
            return means
        quality = self.contexts.quality(flows)[:, :, None]
        ahead = quality.mean(axis=1) - np.where(is_known, quality[:, :question_count], 0.0).sum(axis=1) / counts
        return np.asarray(means + self._slopes() * np.nan_to_num(ahead))

    def _slopes(self) -> Floats:
        """Return by measure how much scores rise with the quality of contexts, from all that was asked; a prior of one
        pair of rows that differ fully and score the same."""
        assert self.contexts is not None
        if self._slope is None:
            (flows,) = np.nonzero(self._question_counts)
            quality = self.contexts.quality(flows.tolist())[:, :, None]
            is_known = ~np.isnan(self._scores[flows]) & ~np.isnan(quality) & np.isfinite(self._scores[flows])
            x, y = (_center(values, is_known) for values in (quality, self._scores[flows]))
            self._slope = np.asarray((x * y).sum(axis=(0, 1)) / ((x * x).sum(axis=(0, 1)) + 0.5))
        return self._slope

    def rank(self, flows: Sequence[int], question_count: int, combine: CombineFunction | None = None) -> list[int]:
        """Rank flows by their scores on the first questions, the best first; of equal flows the cheapest.

        Args:
            combine: how several objectives are one; by default, the knee of the Pareto front is first.
        """
        self._grow()
        listed = np.asarray(list(flows), np.intp)
        means = self.all_means(listed.tolist(), question_count)
        keys = self.objectives.keys(means, combine) if self.objectives else -np.round(means, 12)
        lengths = [self.candidates.length(flow) for flow in listed.tolist()]
        # The last two columns only make the order unique: shorter notations first, then lower numbers.
        columns = np.column_stack([keys, self._costs[listed], lengths, listed])
        return [int(flow) for flow in listed[np.lexsort(columns.T[::-1])]]

    def excess(self, flows: Sequence[int]) -> Floats:
        """Return how far flows are beyond the limits, on all questions that they were asked."""
        if self.objectives is None:
            return np.zeros(len(flows))
        return self.objectives.excess(self.all_means(flows, self.question_total))

    def price(self, flow: int) -> tuple[float, float]:
        """Return what a question costs with a flow: USD, and calls of models."""
        self._grow()
        usd, calls = self._costs[flow].tolist()
        return usd, calls

    @property
    def constant(self) -> list[bool]:
        """Return by measure whether all flows score the same on every question."""
        is_known = np.isfinite(self._scores)
        maximum = np.where(is_known, self._scores, -np.inf).max(axis=0, initial=-np.inf)
        minimum = np.where(is_known, self._scores, np.inf).min(axis=0, initial=np.inf)
        return [bool(is_constant) for is_constant in (maximum <= minimum).all(axis=0)]

    @property
    def unscored(self) -> list[bool]:
        """Return by measure whether no flow has a score on any question."""
        return [not np.isfinite(scores).any() for scores in np.moveaxis(self._scores, -1, 0)]

    def find_tied(self, flow: int) -> list[int]:
        """Return the flows whose means of all measures are those of a flow, on as many questions."""
        (flows,) = np.nonzero(self._question_counts == self._question_counts[flow])
        means = self.all_means([flow, *flows.tolist()], self.question_total)
        means = np.round(means, 12) if self.objectives is None else self.objectives.blur(means)
        return [int(tied_flow) for tied_flow in flows[(means[1:] == means[0]).all(axis=1)]]

    def finalists(self, count: int) -> list[int]:
        """Return the flows that were asked most, the best first."""
        (flows,) = np.nonzero(self._question_counts)
        by_asked: dict[int, list[int]] = {}
        for flow in flows.tolist():
            by_asked.setdefault(int(self._question_counts[flow]), []).append(flow)
        ranking = [
            flow
            for question_count in sorted(by_asked, reverse=True)
            for flow in self.rank(by_asked[question_count], question_count)
        ]
        return [flow for flow in ranking[:count] if np.isfinite(self.means([flow], self.question_total)[0])]

    def leader_gaps(self, chosen: int) -> list[tuple[int, float, float]]:
        """Return after each request how many scores were asked for, what was paid in USD, and by how much the leader is
        worse than a flow."""
        rows = []
        for row_count, usd, leader in self.leaders:
            gaps = self.scores[chosen] - self.scores[leader]
            if (known_gaps := gaps[np.isfinite(gaps)]).size:
                rows.append((row_count, usd, float(known_gaps.mean())))
        return rows

    def _grow(self) -> None:
        if (missing := len(self.candidates.flows) - self._question_counts.size) > 0:
            # Growing by half keeps the cost of copies linear in the number of flows.
            missing = max(missing, self._question_counts.size // 2)
            self._question_counts = np.append(self._question_counts, np.zeros(missing, np.intp))
            self._scores = np.vstack([self._scores, np.full((missing, *self._scores.shape[1:]), np.nan)])
            self._costs = np.vstack([self._costs, np.zeros((missing, 2))])


def _center(values: Floats, is_known: NDArray[np.bool_]) -> Floats:
    """Subtract the mean of each question from values by flow, question and measure; 0 where they are unknown."""
    known_values = np.where(is_known, values, 0.0)
    return np.where(is_known, known_values - known_values.sum(axis=0) / np.maximum(is_known.sum(axis=0), 1), 0.0)


@dataclass(frozen=True)
class Effect(Value):
    """Gain of a candidate over the mean candidate of its place, if all other places are equal; `flows` that have it
    were asked."""

    place: str
    candidate: str
    better: float
    flows: int


def main_effects(board: Board) -> list[Effect]:
    """Estimate the effects of candidates as if they added up, by place in the order of the space; places of which only
    one candidate was asked are left out.

    Least squares of score = effect of the question + sum of effects of the candidates. A flow that was asked only easy
    questions is none the better for it. Interactions are not shown.

    Source: the fixed-effects (within) estimator, Yule 1907.
    """
    (flows,) = np.nonzero(board.question_counts)
    is_known = np.isfinite(board.scores[flows])
    flow_choices = [dict(board.candidates.choices(flow)) for flow in flows.tolist()]
    columns = list(dict.fromkeys(choice for choices in flow_choices for choice in choices.items()))
    indicators = np.array(
        [[choices.get(place) == candidate for place, candidate in columns] for choices in flow_choices],
        dtype=np.float64,
    )
    n, scores = np.maximum(is_known.sum(axis=0), 1), np.where(is_known, board.scores[flows], 0.0)
    of_question = is_known.T @ indicators / n[:, None]
    inner = indicators.T @ (indicators * is_known.sum(axis=1)[:, None]) - of_question.T @ (of_question * n[:, None])
    # Candidates that always occur together make the matrix singular, which `solve` would refuse.
    solution = np.linalg.lstsq(
        inner, indicators.T @ scores.sum(axis=1) - of_question.T @ scores.sum(axis=0), rcond=1e-9
    )[0]
    effects = []
    for place in board.candidates.space.places:
        place_columns = [column for column, (name, _) in enumerate(columns) if name == place]
        if len(place_columns) > 1:
            better = (
                np.round(solution[place_columns] - solution[place_columns].mean(), 12) + 0.0
            )  # what rounding leaves is no effect
            effects += [
                Effect(place, columns[column][1], float(value), int(indicators[:, column].sum()))
                for column, value in zip(place_columns, better, strict=True)
            ]
    return effects
