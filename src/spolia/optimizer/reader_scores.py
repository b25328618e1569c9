"""Scores of flows with one reader: a context is read and measured once for all flows that show it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spolia.core.run_context import attempt, gather
from spolia.errors import BudgetSpent
from spolia.evaluation.experiment.flows import inside
from spolia.evaluation.experiment.score_store import ANSWER, USAGE, usage_of, usage_row
from spolia.evaluation.measures.costs import AverageTokens, UsDollars
from spolia.evaluation.measures.measure import Case, Measure, SetMeasure
from spolia.models.protocols import LanguageModel
from spolia.optimizer.contexts import Contexts
from spolia.run.lane import Lane
from spolia.types import Failure, Query

if TYPE_CHECKING:
    from spolia.optimizer.flow_scores import FlowScores

Floats = NDArray[np.float64]
AT_ONCE = 4
"""Contexts for each thread that are read before the time of a study is looked at."""


def takes(measures: Sequence[SetMeasure]) -> bool:
    """Whether measures say the same of the same answer: none asks a judge, or counts what searches took."""
    return all(
        isinstance(one, Measure | AverageTokens | UsDollars)
        and not any(isinstance(part, LanguageModel) for part in inside(one))
        for one in measures
    )


@dataclass(eq=False)
class ReadScores:
    """Flows asked and measured context by context; rows that repeat one are filled in.

    Args:
        scores: whose store, run and measures are used.
    """

    scores: "FlowScores"
    contexts: Contexts

    def __post_init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        self._lock = Lock()

    def __call__(self, flows: Sequence[int], questions: range) -> tuple[Floats, Floats, float]:
        """Scores by flow, question and measure, NaN where a flow fails, is degraded or is of another kind; by flow what
        a question takes; and the USD that were paid for all, now or before."""
        part = self.scores.rows_of(flows, questions)
        values = self.scores.kept(part, len(flows), len(questions))
        missing: NDArray[np.bool_] = np.asarray(np.isnan(values).any(axis=2))
        stored = np.zeros((*values.shape[:2], 2, len(USAGE)))
        rows, where = part.rows(ANSWER)
        stored[where] = np.stack([rows["usage"], rows["spent"]], axis=1)
        groups = self.contexts.groups(flows)[:, questions.start : questions.stop]
        kept = np.argwhere(~missing & (groups >= 0))
        answered = stored[kept[:, 0], kept[:, 1], 0].any(axis=1)
        for row, at in kept[np.argsort(~answered, kind="stable")].tolist():  # rows that were filled in have no usage
            self._known.setdefault((questions[at], int(groups[row, at])), (values[row, at], stored[row, at, 0]))
        usd = float(stored[:, :, 1, USAGE.index("cost_usd")].sum())
        wanted: dict[tuple[int, int], int] = {}
        for at in range(len(questions)):
            for row in np.flatnonzero(missing[:, at] & (groups[:, at] >= 0)).tolist():
                key = questions[at], int(groups[row, at])
                if key not in self._known:
                    wanted.setdefault(key, row)
        listed = list(wanted.items())
        for start in range(0, len(listed), step := AT_ONCE * self.scores.run.threads):
            usd += self._read(listed[start : start + step], flows)
        taken = np.zeros((len(flows), len(questions), len(USAGE)))
        for at in range(len(questions)):
            filled = []
            for row in np.flatnonzero(groups[:, at] >= 0).tolist():
                key = questions[at], int(groups[row, at])
                if (known := self._known.get(key)) is not None:
                    taken[row, at] = known[1]
                    if missing[row, at]:
                        values[row, at] = known[0]
                        if wanted.get(key) != row:
                            filled.append(row)
            self.scores.keep(part, np.array(filled, np.intp), at, values[filled, at])
            self.scores.told(len(flows))
        self.scores.needed += usage_of(taken.sum(axis=(0, 1)))
        return values, taken.mean(axis=1), usd

    def _read(self, some: Sequence[tuple[tuple[int, int], int]], flows: Sequence[int]) -> float:
        """Contexts read at the same time; what was paid for them."""
        run, candidates = self.scores.run, self.scores.candidates
        with run:
            calls = [partial(self._answer, flows[row], question) for (question, _), row in some]
            waits = any(candidates.flows[flows[row]].waiting for _, row in some)
            found = gather(calls, waits=waits)
        answered = [(key, one) for (key, _), one in zip(some, found, strict=True) if not isinstance(one, Failure)]
        self._known.update((key, (seen, np.array(usage_row(lane.usage)))) for key, (seen, lane) in answered)
        if run.exhausted:
            raise BudgetSpent(f"The budget of this run allows no more: {run.refusal}. The answers so far are kept.")
        self.scores.told(0)
        return sum(lane.spent.cost_usd for _, (_, lane) in answered)

    def _answer(self, flow: int, question: int) -> tuple[Floats, Lane] | Failure:
        """What a flow answers, measured and kept before anything else is asked."""
        item = self.scores.items_for(flow)[question]
        with self.scores.run.lane() as lane:
            result = attempt(partial(self.scores.candidates.flows[flow], Query(item.question)))
        if isinstance(result, Failure) or any(degrades for _, _, degrades in lane.reasons):
            return Failure("StepFailed", "it is asked as an experiment asks it")
        case = Case(item, result, lane.usage, tuple(lane.retrievals), None)
        measured = [measure.seen(case) for measure in self.scores.objectives.measures]
        seen = np.array([nan if one is None else one[0] for one in measured])
        self._keep(flow, question, case, seen, lane)
        return seen, lane

    def _keep(self, flow: int, question: int, case: Case, seen: Floats, lane: Lane) -> None:
        part, store = self.scores.rows_of([flow], range(question, question + 1)), self.scores.store
        columns: dict[str, Any] = {name: getattr(lane, name) for name in ("usage", "spent", "cached", "interrupted")}
        columns |= {"steps": lane.steps(self.scores.candidates.flows[flow]), "run": store.run(self.scores.run.id)}
        columns |= {"lane": lane.number, "seconds": nan, "opening": nan}
        store.keep(int(part.flow_ids[0]), int(part.question_ids[0]), case, **columns)
        with self._lock:  # threads count the rows
            self.scores.keep(part, np.zeros(1, np.intp), 0, seen[None])
