"""What a study chose, and how good it is on questions that did not choose it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from spolia import optimizer
from spolia.core.combinators.space import Point
from spolia.core.operator import Operator
from spolia.evaluation.measures.measure import CostMeasure, Measure
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.sample import Sample
from spolia.evaluation.statistics.selection import corrected_for_choice, most_lost
from spolia.optimizer.differences import FlowDifferences
from spolia.optimizer.objectives import Objectives, fronts
from spolia.optimizer.score_board import Board, Effect, Floats, ScoreRows
from spolia.types import Query, Usage, Value

FRESH, CORRECTED = "fresh questions", "questions, corrected for the choice"
"""What a score is measured on."""


@dataclass(frozen=True)
class Finalist(Value):
    """A flow that was asked most: its score, and by how much it is better than the chosen one, on the questions of the
    report; None where all questions chose, of all but the chosen one. `means` are those of all objectives and limits on
    fresh questions; `on_front`: no finalist is better in one of these and as good in the others. `group`: 1 for the
    flow with the best score and flows that it is not shown to be better than, 2 for the best of the others, and so on.
    It failed on `failed` of the `asked` questions, which score 0.
    """

    number: int
    point: Point
    choices: tuple[tuple[str, str], ...]
    notation: str
    score: Interval | None
    ahead: Interval | None
    usd: float
    calls: float
    on_front: bool | None = None
    means: tuple[tuple[str, float], ...] = ()
    group: int | None = None
    asked: int = 0
    failed: int = 0

    @property
    def mean_cells(self) -> list[tuple[str, str]]:
        """Each measure with its mean as tables show it: – for a measure without a score."""
        return [(name, f"{mean:.4g}" if isfinite(mean) else "–") for name, mean in self.means]

    def json(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = {"choices": dict(self.choices), "point": dict(self.point)}
        found |= {name: one and one.json() for name, one in (("score", self.score), ("ahead", self.ahead))}
        means = {name: mean if isfinite(mean) else None for name, mean in self.means}
        found |= {"means": means, "on_front": self.on_front, "group": self.group}
        found |= {"asked": self.asked, "failed": self.failed}
        return found | {"usd": self.usd, "calls": self.calls, "notation": self.notation}


@dataclass(frozen=True)
class TunedFlow(Value):
    """The result of a study.

    Args:
        flow, point: the choice, and where it is in the space.
        score: on the questions of the report; the score on the questions that it was chosen by is nowhere told.
        scored_on: which questions these are: fresh ones, or all, corrected for the choice.
        regret_bound: how much better any finalist may be, with 95 % confidence; None where no questions are fresh.
        finalists: the flows that were asked most, the chosen one first.
        rows: scores computed now, for the choice and the report; those for the choice are the `share` of the grid.
        spent: what models took now.
        excluded: flows that cannot run, or of which a step never worked: their choices, and why.
        effects: what each candidate does to the score, over all flows that were asked.
        curve: how many scores were asked for, the cost in USD, and how far the leader was behind the flow that the
            search chose.
        is_share: whether scores lie between 0 and 1.
        is_cut_short: whether a budget of the run ended the study early.
        differences: the choice against the default flow and the runner-up.
    """

    flow: Operator[Query, Any]
    point: Point
    objective: str
    strategy: str
    score: Interval
    scored_on: str
    regret_bound: float | None
    finalists: tuple[Finalist, ...]
    flows: int
    asked: int
    questions: int
    fresh: int
    rows: int
    share: float
    spent: Usage = field(default=Usage())
    excluded: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    curve: tuple[tuple[int, float, float], ...] = ()
    is_share: bool = True
    is_cut_short: bool = False
    differences: tuple[FlowDifferences, ...] = ()

    @property
    def measure(self) -> str:
        """The first objective, whose score is reported."""
        return self.objective.split(", ")[0]

    @property
    def has_means(self) -> bool:
        """Whether finalists have means of several measures."""
        return len(self.finalists[0].means) > 1

    @property
    def has_failed(self) -> bool:
        """Whether a finalist failed on a question."""
        return any(one.failed for one in self.finalists)

    @property
    def unscored(self) -> str:
        """Why only the chosen flow has a score; empty where all finalists have one."""
        if all(one.score is not None for one in self.finalists):
            return ""
        more = "a larger budget" if self.is_cut_short else "200 questions or more"
        return (
            "Only the chosen flow has a score: the other finalists were asked only the questions that chose, on which "
            f"scores are too good. With {more}, all finalists are scored on fresh questions."
        )

    def _repr_html_(self) -> str:
        """The finalists and the chosen flow, which a notebook shows."""
        return optimizer.report.fragment(self)

    def json(self) -> dict[str, Any]:
        """Plain data."""
        spent = {"rows": self.rows, "calls": self.spent.calls, "usd": self.spent.cost_usd, "share": self.share}
        best = {"choices": dict(self.finalists[0].choices), "point": dict(self.point), "notation": repr(self.flow)}
        found: dict[str, Any] = {"best": best}
        found |= {"score": self.score.json(), "method": self.strategy, "regret_bound": self.regret_bound}
        found |= {"spent": spent, "objective": self.objective, "scored_on": self.scored_on, "flows": self.flows}
        found |= {"flows_asked": self.asked, "questions": self.questions, "fresh_questions": self.fresh}
        found["finalists"] = [one.json() for one in self.finalists]
        found["unscored"] = self.unscored
        found["excluded"] = [{"choices": choices, "why": why} for choices, why in self.excluded]
        return found | {"notes": list(self.notes)}


@dataclass(frozen=True, eq=False)
class FinalScores:
    """Scores of the finalists, from which the choice is reported.

    Args:
        flows: the finalists by number, the strategy's choice first.
        scores: what they scored on fresh questions; None where all questions chose.
    """

    board: Board
    objectives: Objectives
    flows: Sequence[int]
    scores: ScoreRows | None
    seed: int = 0

    def report(self) -> tuple[list[Finalist], float | None]:
        """The finalists, the chosen one first, and how much better any of them may be than that.

        Of flows that no difference is shown between, on fresh questions, the cheapest is chosen; with several
        objectives the strategy's choice stays. Flows beyond the limits, on the questions that chose, are no rivals.
        """
        if self.scores is None:
            chosen, *others = self.flows
            return [self._finalist(chosen, self._corrected()), *map(self._finalist, others)], None
        every = self.scores.values
        table = every[:, :, 0].T
        sample = Sample(self._written(table), range=self.measure.range, seed=self.seed)
        price = [self.board.price(flow) for flow in self.flows]
        excess = self.board.excess(self.flows)
        rivals = [at for at in range(len(self.flows)) if excess[at] <= excess[0]]
        several = len(self.objectives.best) > 1
        tied = [at for at in rivals if not at or (not several and self._ahead(sample, 0, at).low <= 0)]
        best = min(tied, key=lambda at: (price[at], at))
        ahead = [self._ahead(sample, at, best) for at in range(len(self.flows))]
        order = sorted(range(len(self.flows)), key=lambda at: (at != best, -ahead[at].mean))
        # A measure may have no score on any question, as a judge whose verdicts cannot be read: its mean is NaN.
        means = np.ma.masked_invalid(every).mean(axis=1).filled(np.nan)
        first = fronts(self.objectives.blurred(means)) == 0
        told, groups = self._told(means), self._groups(sample, means[:, 0])
        found = [
            self._finalist(self.flows[at], sample.interval(at), ahead[at], bool(first[at]), told[at], groups[at])
            for at in order
        ]
        known = table[~np.isnan(table).any(axis=1)][:, rivals]
        return found, None if several else most_lost(known, rivals.index(best), seed=self.seed)

    def _groups(self, sample: Sample, means: Floats) -> dict[int, int]:
        """By finalist, the number of its group of ties."""
        left, found, number = sorted(range(len(self.flows)), key=lambda at: -means[at]), dict[int, int](), 0
        while left:
            number += 1
            tied = [at for at in left if self._ahead(sample, left[0], at).low <= 0]
            found |= dict.fromkeys(tied, number)
            left = [at for at in left if at not in tied]
        return found

    @property
    def measure(self) -> Measure | CostMeasure:
        """The first objective, whose score is reported."""
        return self.objectives.best[0]

    def _told(self, means: Floats) -> list[tuple[tuple[str, float], ...]]:
        """Means of all measures by name, as they are written."""
        names = [*map(str, self.objectives.measures)]
        return [tuple(zip(names, row, strict=True)) for row in (self.objectives.signs * means + 0.0).tolist()]

    def _corrected(self) -> Interval:
        """The score of the choice on all questions: only flows compete that were asked at least half of them, and are
        not further beyond the limits."""
        asked, upto = self.board.asked, self.board.asked[self.flows[0]]
        (compared,) = np.nonzero(asked * 2 >= upto)
        compared = compared[self.board.excess(compared.tolist()) <= self.board.excess(self.flows[:1])]
        table = self.board.scores[compared, :upto]
        low, high = self.measure.range
        found = corrected_for_choice(table[np.isfinite(table).any(axis=1)].T, width=high - low, seed=self.seed)
        found = found.but(mean=-found.mean, low=-found.high, high=-found.low) if self.measure.lower_is_better else found
        return found.within(low, high)

    def _ahead(self, sample: Sample, ours: int, theirs: int) -> Interval:
        """By how much one is better than another."""
        if ours == theirs:
            return Interval(0.0, 0.0, 0.0, len(sample.scores))
        found = sample.difference(ours, theirs).widened(self.measure.resolution)
        return found.reversed if self.measure.lower_is_better else found

    def _written(self, table: Floats) -> Floats:
        return -table if self.measure.lower_is_better else table

    def _finalist(
        self,
        flow: int,
        score: Interval | None = None,
        ahead: Interval | None = None,
        on_front: bool | None = None,
        means: tuple[tuple[str, float], ...] = (),
        group: int | None = None,
    ) -> Finalist:
        candidates = self.board.candidates
        return Finalist(
            flow,
            candidates.points[flow],
            candidates.choices(flow),
            repr(candidates.flows[flow]),
            score,
            ahead,
            *self.board.price(flow),
            on_front,
            means,
            group,
        )
