"""Result of a study: the chosen flow, and how good it is on questions that did not choose it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from spolia.core.combinators.space import Point
from spolia.core.deprecation import RenamedAttribute
from spolia.core.operator import Operator
from spolia.core.views import render_view
from spolia.evaluation.measures.measure import CostMeasure, Measure
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.sample import Sample
from spolia.evaluation.statistics.selection import bound_loss, correct_for_choice
from spolia.optimizer.differences import FlowDifferences
from spolia.optimizer.objectives import Objectives, fronts
from spolia.optimizer.score_board import Board, Effect, Floats, ScoreRows
from spolia.types import Query, Usage, Value

ON_FRESH, ON_ALL_CORRECTED = "fresh questions", "questions, corrected for the choice"
"""What a score is measured on."""


@dataclass(frozen=True)
class Finalist(Value):
    """Flow that was asked most: its score, and by how much it is better than the chosen one, on the questions of the
    report; None where all questions chose, of all but the chosen one. `means` are those of all objectives and limits on
    fresh questions; `on_front`: no finalist is better in one of these and as good in the others. `group`: 1 for the
    flow with the best score and flows that it is not shown to be better than, 2 for the best of the others, and so on.
    It failed on `failed` of the `questions_asked`, which score 0."""

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
    questions_asked: int = 0
    failed: int = 0

    @property
    def mean_cells(self) -> list[tuple[str, str]]:
        """Return each measure with its mean as tables show it: – for a measure without a score."""
        return [(name, f"{mean:.4g}" if isfinite(mean) else "–") for name, mean in self.means]

    def json(self) -> dict[str, Any]:
        """Return the finalist as plain data."""
        plain: dict[str, Any] = {"choices": dict(self.choices), "point": dict(self.point)}
        plain |= {
            name: interval and interval.json() for name, interval in (("score", self.score), ("ahead", self.ahead))
        }
        means = {name: mean if isfinite(mean) else None for name, mean in self.means}
        plain |= {"means": means, "on_front": self.on_front, "group": self.group}
        plain |= {"asked": self.questions_asked, "failed": self.failed}
        return plain | {"usd": self.usd, "calls": self.calls, "notation": self.notation}


@dataclass(frozen=True)
class TunedFlow(Value):
    """Result of a study.

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
    flows_asked: int
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

    asked = RenamedAttribute("flows_asked")

    @property
    def measure(self) -> str:
        """Return the first objective, whose score is reported."""
        return self.objective.split(", ")[0]

    @property
    def has_means(self) -> bool:
        """Return whether finalists have means of several measures."""
        return len(self.finalists[0].means) > 1

    @property
    def has_failed(self) -> bool:
        """Return whether a finalist failed on a question."""
        return any(finalist.failed for finalist in self.finalists)

    @property
    def unscored(self) -> str:
        """Explain why only the chosen flow has a score; empty where all finalists have one."""
        if all(finalist.score is not None for finalist in self.finalists):
            return ""
        advice = "a larger budget" if self.is_cut_short else "200 questions or more"
        return (
            "Only the chosen flow has a score: the other finalists were asked only the questions that chose, on which "
            f"scores are too good. With {advice}, all finalists are scored on fresh questions."
        )

    def _repr_html_(self) -> str:
        """Return the finalists and the chosen flow as HTML, which a notebook shows."""
        return render_view(self, "html")

    def json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        cost = {"rows": self.rows, "calls": self.spent.calls, "usd": self.spent.cost_usd, "share": self.share}
        best = {"choices": dict(self.finalists[0].choices), "point": dict(self.point), "notation": repr(self.flow)}
        plain: dict[str, Any] = {"best": best}
        plain |= {"score": self.score.json(), "method": self.strategy, "regret_bound": self.regret_bound}
        plain |= {"spent": cost, "objective": self.objective, "scored_on": self.scored_on, "flows": self.flows}
        plain |= {"flows_asked": self.flows_asked, "questions": self.questions, "fresh_questions": self.fresh}
        plain["finalists"] = [finalist.json() for finalist in self.finalists]
        plain["unscored"] = self.unscored
        plain["excluded"] = [{"choices": choices, "why": reason} for choices, reason in self.excluded]
        return plain | {"notes": list(self.notes)}


@dataclass(frozen=True, eq=False)
class FinalScores:
    """Scores of the finalists, by which the reported flow is chosen.

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
        """Return the finalists, the chosen one first, and how much better any of them may be than that.

        Of flows that no difference is shown between, on fresh questions, the cheapest is chosen; with several
        objectives the strategy's choice stays. Flows beyond the limits, on the questions that chose, are no rivals.
        """
        if self.scores is None:
            chosen, *other_flows = self.flows
            return [self._finalist(chosen, self._correct_for_choice()), *map(self._finalist, other_flows)], None
        values = self.scores.values
        table = values[:, :, 0].T
        sample = Sample(self._restore_signs(table), range=self.measure.range, seed=self.seed)
        price = [self.board.price(flow) for flow in self.flows]
        excess = self.board.excess(self.flows)
        rivals = [index for index in range(len(self.flows)) if excess[index] <= excess[0]]
        several = len(self.objectives.best) > 1
        tied = [
            index for index in rivals if not index or (not several and self._measure_lead(sample, 0, index).low <= 0)
        ]
        best = min(tied, key=lambda index: (price[index], index))
        ahead = [self._measure_lead(sample, index, best) for index in range(len(self.flows))]
        order = sorted(range(len(self.flows)), key=lambda index: (index != best, -ahead[index].mean))
        # A measure may have no score on any question, as a judge whose verdicts cannot be read: its mean is NaN.
        means = np.ma.masked_invalid(values).mean(axis=1).filled(np.nan)
        first = fronts(self.objectives.blur(means)) == 0
        named_means, groups = self._name_means(means), self._group_ties(sample, means[:, 0])
        finalists = [
            self._finalist(
                self.flows[index],
                sample.interval(index),
                ahead[index],
                bool(first[index]),
                named_means[index],
                groups[index],
            )
            for index in order
        ]
        complete_rows = table[~np.isnan(table).any(axis=1)][:, rivals]
        return finalists, None if several else bound_loss(complete_rows, rivals.index(best), seed=self.seed)

    def _group_ties(self, sample: Sample, means: Floats) -> dict[int, int]:
        """Return by finalist the number of its group of ties."""
        open_rows, groups, number = sorted(range(len(self.flows)), key=lambda index: -means[index]), dict[int, int](), 0
        while open_rows:
            number += 1
            tied = [index for index in open_rows if self._measure_lead(sample, open_rows[0], index).low <= 0]
            groups |= dict.fromkeys(tied, number)
            open_rows = [index for index in open_rows if index not in tied]
        return groups

    @property
    def measure(self) -> Measure | CostMeasure:
        """Return the first objective, whose score is reported."""
        return self.objectives.best[0]

    def _name_means(self, means: Floats) -> list[tuple[tuple[str, float], ...]]:
        """Return the means of all measures, by notation."""
        names = [*map(str, self.objectives.measures)]
        # + 0.0, since -0.0 would be shown as -0.
        return [tuple(zip(names, row, strict=True)) for row in (self.objectives.signs * means + 0.0).tolist()]

    def _correct_for_choice(self) -> Interval:
        """Return the score of the choice on all questions, corrected for the choice: only flows compete that were asked
        at least half of them, and are not further beyond the limits."""
        counts, question_count = self.board.question_counts, self.board.question_counts[self.flows[0]]
        (compared,) = np.nonzero(counts * 2 >= question_count)
        compared = compared[self.board.excess(compared.tolist()) <= self.board.excess(self.flows[:1])]
        table = self.board.scores[compared, :question_count]
        low, high = self.measure.range
        interval = correct_for_choice(table[np.isfinite(table).any(axis=1)].T, width=high - low, seed=self.seed)
        interval = (
            interval.but(mean=-interval.mean, low=-interval.high, high=-interval.low)
            if self.measure.lower_is_better
            else interval
        )
        return interval.clip(low, high)

    def _measure_lead(self, sample: Sample, ours: int, theirs: int) -> Interval:
        """Return by how much one finalist is better than another."""
        if ours == theirs:
            return Interval(0.0, 0.0, 0.0, len(sample.scores))
        interval = sample.difference(ours, theirs).widen(self.measure.resolution)
        return interval.reversed if self.measure.lower_is_better else interval

    def _restore_signs(self, table: Floats) -> Floats:
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
            candidates.point_by_number[flow],
            candidates.choices(flow),
            repr(candidates.flows[flow]),
            score,
            ahead,
            *self.board.price(flow),
            on_front,
            means,
            group,
        )
