"""What a study knows: scores in columns, and how many more may be asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.optimizer.candidates import Candidates
from spolia.optimizer.contexts import FREE, Contexts
from spolia.optimizer.objectives import Combined, Objectives
from spolia.types import Value

FIRST = 6
"""Questions that a flow should answer before it may be dropped."""
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreRequest:
    """What a strategy asks for: the scores of some flows on the first `upto` questions of the common order."""

    flows: Sequence[int]
    upto: int


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """What came back: by flow and question a score, of several measures one each, higher is better, NaN where it is not
    determined; by flow what a question costs in USD and calls. A flow that cannot run has no number but -inf. `usd` is
    what was paid for all of them."""

    values: Floats
    costs: Floats
    usd: float = 0.0


ScoreSource: TypeAlias = Callable[[Sequence[int], range], ScoreRows]
"""Asks flows, by number, the questions at these places of the common order."""


class Board:
    """The score matrix of a study, flows × questions, which grows with the flows that are asked.

    All flows are asked the questions in one order, so that any two are compared on the same ones.

    Args:
        candidates: the flows.
        questions: how many questions there are.
        rows: how many scores may be asked for, all in all.
        seed: of what strategies draw.
        prior: flows that were best elsewhere, best first.
        objectives: by which flows are ordered; None for one measure of which more is better.
        contexts: what readers are shown: then what is counted are not scores but contexts that no flow has shown
            before, and all other scores are free.
    """

    def __init__(
        self,
        candidates: Candidates,
        questions: int,
        rows: float,
        seed: int = 0,
        prior: Sequence[int] = (),
        objectives: Objectives | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        self.contexts, self._read = contexts, np.ones(FREE + 1, bool)
        self.objectives = objectives
        self.candidates, self.questions, self.rows, self.prior = candidates, questions, rows, prior
        self.random = Random(seed)
        self.spent, self.usd = 0, 0.0
        self.leaders: list[tuple[int, float, int]] = []
        """How many scores were asked for and what was paid when a request was answered, and the best of its flows."""
        self._asked = np.zeros(0, np.intp)
        self._scores = np.zeros((0, questions, len(objectives.measures) if objectives else 1))
        self._costs = np.zeros((0, 2))
        self._slope: Floats | None = None

    @property
    def left(self) -> float:
        """How many more counted scores may be asked for."""
        return self.rows - self.spent

    @property
    def asked(self) -> NDArray[np.intp]:
        """By flow, how many of the first questions it was asked."""
        return self._asked

    @property
    def scores(self) -> Floats:
        """By flow and question, of the first measure; what was not asked is NaN."""
        return self._scores[:, :, 0]

    def draw(self, most: int) -> list[int]:
        """At most `most` flows to begin with: at random, or, of those whose contexts are known, the ones that show
        their readers all the gold of the most questions. That is free, and such flows share contexts."""
        drawn = self.candidates.draw(most, self.random)
        if self.contexts is None:
            return drawn
        every = list(self.candidates.every)
        quality = self.contexts.quality(every)
        known = ~np.isnan(quality)
        means = np.where(known, quality, 0.0).sum(axis=1) / np.maximum(1, known.sum(axis=1))
        shown = {flow for row, flow in enumerate(every) if known[row].any()}
        best = iter([every[row] for row in np.argsort(-means, kind="stable").tolist() if every[row] in shown])
        return [next(best) if flow in shown else flow for flow in drawn]

    def cost(self, flows: Sequence[int], upto: int) -> int:
        """How many counted scores are missing for some flows on the first questions."""
        self._grow()
        if self.contexts is not None:
            return int(self._unread(flows, upto).size)
        return int(np.maximum(0, upto - self._asked[list(flows)]).sum())

    def reach(self, flows: Sequence[int], rows: float, least: int = 0) -> int:
        """How many questions all of these flows can be asked for `rows` scores; at least `least`."""
        self._grow()
        if self.contexts is not None:
            return self._reach_unread(flows, rows, least)
        asked = np.sort(self._asked[list(flows)])
        behind = np.searchsorted(asked, np.arange(self.questions), "right")  # flows that were not asked that question
        return max(least, int(np.searchsorted(np.cumsum(behind), rows, "right")))

    def fill(self, request: ScoreRequest, source: ScoreSource) -> None:
        """Ask what is missing, few questions of all flows first, then twice as many: if it breaks off, they can be
        compared."""
        self._grow()
        flows = np.array(list(dict.fromkeys(request.flows)), np.intp)
        last = min(request.upto, self.questions)
        start, step = int(self._asked[flows].min(initial=last)), FIRST
        while start < last:
            start, step = min(last, start + step), 2 * step
            self._fill(flows, start, source)
        if flows.size:
            self.leaders.append((self.spent, self.usd, self.ranked(flows.tolist(), last)[0]))

    def _fill(self, flows: NDArray[np.intp], upto: int, source: ScoreSource) -> None:
        """Ask the questions up to one, flows that are at the same question together."""
        for start in np.unique(self._asked[flows]).tolist():
            some = flows[self._asked[flows] == start]
            if start < upto and some.size:
                now = upto - start
                read = None if self.contexts is None else self._unread(some.tolist(), upto)
                found = source(some.tolist(), range(start, upto))
                self._scores[some, start:upto] = found.values.reshape(some.size, now, -1)
                self._costs[some] = (self._costs[some] * start + found.costs * now) / upto
                self._asked[some], self._slope = upto, None
                self.spent += now * some.size if read is None else read.size
                if read is not None:
                    self._read[read] = True
                self.usd += found.usd

    def _unread(self, flows: Sequence[int], upto: int, start: int = 0) -> NDArray[np.int64]:
        """Contexts that flows would show on questions, and that no flow has shown before."""
        assert self.contexts is not None
        numbers = self.contexts.numbers(flows)[:, start:upto]
        found = np.unique(numbers[np.arange(start, upto) >= self._asked[list(flows)][:, None]])
        if (more := self.contexts.count - self._read.size) > 0:
            self._read = np.append(self._read, np.zeros(more, bool))
        return np.asarray(found[~self._read[found]])

    def _reach_unread(self, flows: Sequence[int], rows: float, upto: int) -> int:
        left = rows - self._unread(flows, upto).size
        while upto < self.questions and (left := left - self._unread(flows, upto + 1, upto).size) >= 0:
            upto += 1
        return upto

    def means(self, flows: Sequence[int], upto: int) -> Floats:
        """The means of flows on the first questions; -inf for those of which nothing is determined."""
        return self.all_means(flows, upto)[:, 0]

    def all_means(self, flows: Sequence[int], upto: int) -> Floats:
        """The means by flow and measure; where contexts are known, those expected on all questions.

        What a reader is shown is known for all questions before it is asked any. How good that is, is a control
        variate: mean(y) + b (mean of x on all questions - mean of x on those asked), with b as far as scores follow x
        within questions.
        """
        rows = self._scores[list(flows), :upto]
        known = ~np.isnan(rows)
        counts = np.maximum(known.sum(axis=1), 1)
        means = np.where(known.any(axis=1), np.where(known, rows, 0.0).sum(axis=1) / counts, -np.inf)
        if self.contexts is None:
            return means
        quality = self.contexts.quality(flows)[:, :, None]
        ahead = quality.mean(axis=1) - np.where(known, quality[:, :upto], 0.0).sum(axis=1) / counts
        return np.asarray(means + self._slopes() * np.nan_to_num(ahead))

    def _slopes(self) -> Floats:
        """By measure, by how much scores rise with the quality of contexts, from all that was asked; a prior of one
        pair of rows that differ fully and score the same."""
        assert self.contexts is not None
        if self._slope is None:
            (flows,) = np.nonzero(self._asked)
            quality = self.contexts.quality(flows.tolist())[:, :, None]
            known = ~np.isnan(self._scores[flows]) & ~np.isnan(quality) & np.isfinite(self._scores[flows])
            x, y = (_centred(one, known) for one in (quality, self._scores[flows]))
            self._slope = np.asarray((x * y).sum(axis=(0, 1)) / ((x * x).sum(axis=(0, 1)) + 0.5))
        return self._slope

    def ranked(self, flows: Sequence[int], upto: int, combined: Combined | None = None) -> list[int]:
        """Flows, the best on the first questions first; of equal ones the cheapest.

        Args:
            combined: how several objectives are one; by default, the knee of the Pareto front is first.
        """
        self._grow()
        listed = np.asarray(list(flows), np.intp)
        means = self.all_means(listed.tolist(), upto)
        keys = self.objectives.keys(means, combined) if self.objectives else -np.round(means, 12)
        lengths = [self.candidates.length(flow) for flow in listed.tolist()]
        columns = np.column_stack([keys, self._costs[listed], lengths, listed])
        return [int(flow) for flow in listed[np.lexsort(columns.T[::-1])]]

    def excess(self, flows: Sequence[int]) -> Floats:
        """How far flows are beyond the limits, on all questions that they were asked."""
        if self.objectives is None:
            return np.zeros(len(flows))
        return self.objectives.excess(self.all_means(flows, self.questions))

    def price(self, flow: int) -> tuple[float, float]:
        """What a question costs with a flow: USD, and calls of models."""
        self._grow()
        usd, calls = self._costs[flow].tolist()
        return usd, calls

    @property
    def constant(self) -> list[bool]:
        """By measure, whether all flows score the same on every question."""
        known = np.isfinite(self._scores)
        most = np.where(known, self._scores, -np.inf).max(axis=0, initial=-np.inf)
        least = np.where(known, self._scores, np.inf).min(axis=0, initial=np.inf)
        return [bool(one) for one in (most <= least).all(axis=0)]

    @property
    def unscored(self) -> list[bool]:
        """By measure, whether no flow has a score on any question."""
        return [not np.isfinite(scores).any() for scores in np.moveaxis(self._scores, -1, 0)]

    def tied(self, flow: int) -> list[int]:
        """The flows whose means of all measures are those of a flow, on as many questions."""
        (flows,) = np.nonzero(self._asked == self._asked[flow])
        means = self.all_means([flow, *flows.tolist()], self.questions)
        means = np.round(means, 12) if self.objectives is None else self.objectives.blurred(means)
        return [int(one) for one in flows[(means[1:] == means[0]).all(axis=1)]]

    def finalists(self, most: int) -> list[int]:
        """The flows that were asked most, the best first."""
        (flows,) = np.nonzero(self._asked)
        by_asked: dict[int, list[int]] = {}
        for flow in flows.tolist():
            by_asked.setdefault(int(self._asked[flow]), []).append(flow)
        found = [flow for upto in sorted(by_asked, reverse=True) for flow in self.ranked(by_asked[upto], upto)]
        return [flow for flow in found[:most] if np.isfinite(self.means([flow], self.questions)[0])]

    def behind(self, chosen: int) -> list[tuple[int, float, float]]:
        """How many scores were asked for, what was paid in USD, and by how much the leader of then is worse than a flow
        on the questions that both were asked."""
        found = []
        for spent, usd, leader in self.leaders:
            gaps = self.scores[chosen] - self.scores[leader]
            if (known := gaps[np.isfinite(gaps)]).size:
                found.append((spent, usd, float(known.mean())))
        return found

    def _grow(self) -> None:
        if (more := len(self.candidates.flows) - self._asked.size) > 0:
            more = max(more, self._asked.size // 2)
            self._asked = np.append(self._asked, np.zeros(more, np.intp))
            self._scores = np.vstack([self._scores, np.full((more, *self._scores.shape[1:]), np.nan)])
            self._costs = np.vstack([self._costs, np.zeros((more, 2))])


def _centred(values: Floats, known: NDArray[np.bool_]) -> Floats:
    """Values by flow, question and measure less the mean of the question; 0 where they are not known."""
    some = np.where(known, values, 0.0)
    return np.where(known, some - some.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 0.0)


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
    questions is none the better for it. Interactions are not shown.

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
            better = np.round(found[own] - found[own].mean(), 12) + 0.0  # what rounding leaves is no effect
            effects += [
                Effect(place, columns[at][1], float(one), int(has[:, at].sum()))
                for at, one in zip(own, better, strict=True)
            ]
    return effects
