"""Scores of flows with one reader: a context is read and measured once for all flows that show it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spolia.core.run_context import attempt, gather
from spolia.errors import BudgetSpent
from spolia.evaluation.experiment.flows import walk_parts
from spolia.evaluation.experiment.score_store import ANSWER, USAGE, usage_from_row, usage_row
from spolia.evaluation.measures.costs import AverageTokens, UsDollars
from spolia.evaluation.measures.measure import Case, Measure, SetMeasure
from spolia.models.protocols import LanguageModel
from spolia.optimizer.contexts import Contexts
from spolia.optimizer.flow_scores import FlowScores
from spolia.run.lane import Lane
from spolia.types import Failure, Query

Floats = NDArray[np.float64]
CONTEXTS_PER_THREAD = 4
"""Contexts for each thread that are read before the time of a study is looked at."""


def are_answer_only(measures: Sequence[SetMeasure]) -> bool:
    """Return whether measures score the same answer alike: none asks a judge or counts what searches took."""
    return all(
        isinstance(measure, Measure | AverageTokens | UsDollars)
        and not any(isinstance(part, LanguageModel) for part in walk_parts(measure))
        for measure in measures
    )


@dataclass(eq=False)
class ReaderScores:
    """Scores of flows, asked and measured context by context; rows that repeat a context are filled in.

    Args:
        scores: whose store, run and measures are used.
    """

    scores: FlowScores
    contexts: Contexts

    def __post_init__(self) -> None:
        self._known_scores: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        self._lock = Lock()

    def __call__(self, flows: Sequence[int], questions: range) -> tuple[Floats, Floats, float]:
        """Return scores by flow, question and measure, NaN where a flow fails, is degraded or is of another kind; by
        flow what a question takes; and the USD paid for all, now or before."""
        part = self.scores.select_part(flows, questions)
        values = self.scores.read_stored(part, len(flows), len(questions))
        missing: NDArray[np.bool_] = np.asarray(np.isnan(values).any(axis=2))
        stored = np.zeros((*values.shape[:2], 2, len(USAGE)))
        rows, positions = part.rows(ANSWER)
        stored[positions] = np.stack([rows["usage"], rows["spent"]], axis=1)
        groups = self.contexts.groups(flows)[:, questions.start : questions.stop]
        known_cells = np.argwhere(~missing & (groups >= 0))
        has_usage = stored[known_cells[:, 0], known_cells[:, 1], 0].any(axis=1)
        for row, index in known_cells[
            np.argsort(~has_usage, kind="stable")
        ].tolist():  # rows that were filled in have no usage
            self._known_scores.setdefault(
                (questions[index], int(groups[row, index])), (values[row, index], stored[row, index, 0])
            )
        usd = float(stored[:, :, 1, USAGE.index("cost_usd")].sum())
        row_by_key: dict[tuple[int, int], int] = {}
        for index in range(len(questions)):
            for row in np.flatnonzero(missing[:, index] & (groups[:, index] >= 0)).tolist():
                key = questions[index], int(groups[row, index])
                if key not in self._known_scores:
                    row_by_key.setdefault(key, row)
        listed = list(row_by_key.items())
        for start in range(0, len(listed), step := CONTEXTS_PER_THREAD * self.scores.run.threads):
            usd += self._read_contexts(listed[start : start + step], flows)
        usages = np.zeros((len(flows), len(questions), len(USAGE)))
        for index in range(len(questions)):
            filled_rows = []
            for row in np.flatnonzero(groups[:, index] >= 0).tolist():
                key = questions[index], int(groups[row, index])
                if (entry := self._known_scores.get(key)) is not None:
                    usages[row, index] = entry[1]
                    if missing[row, index]:
                        values[row, index] = entry[0]
                        if row_by_key.get(key) != row:
                            filled_rows.append(row)
            self.scores.store_scores(part, np.array(filled_rows, np.intp), index, values[filled_rows, index])
            self.scores.on_progress(len(flows))
        self.scores.needed += usage_from_row(usages.sum(axis=(0, 1)))
        return values, usages.mean(axis=1), usd

    def _read_contexts(self, batch: Sequence[tuple[tuple[int, int], int]], flows: Sequence[int]) -> float:
        """Read contexts at the same time, and return what was paid for them."""
        run, candidates = self.scores.run, self.scores.candidates
        with run:
            calls = [partial(self._answer_question, flows[row], question) for (question, _), row in batch]
            waits = any(candidates.flows[flows[row]].waiting for _, row in batch)
            results = gather(calls, waits=waits)
        answers = [
            (key, result) for (key, _), result in zip(batch, results, strict=True) if not isinstance(result, Failure)
        ]
        self._known_scores.update((key, (scores, np.array(usage_row(lane.usage)))) for key, (scores, lane) in answers)
        if run.exhausted:
            raise BudgetSpent(f"The budget of this run allows no more: {run.refusal}. The answers so far are kept.")
        # No new rows, but the callback also checks the time limit.
        self.scores.on_progress(0)
        return sum(lane.spent.cost_usd for _, (_, lane) in answers)

    def _answer_question(self, flow: int, question: int) -> tuple[Floats, Lane] | Failure:
        """Ask a flow a question; the answer is measured and stored before anything else is asked."""
        item = self.scores.items_for(flow)[question]
        with self.scores.run.lane() as lane:
            result = attempt(partial(self.scores.candidates.flows[flow], Query(item.question)))
        if isinstance(result, Failure) or any(degrades for _, _, degrades in lane.reasons):
            return Failure("StepFailed", "it is asked as an experiment asks it")
        case = Case(item, result, lane.usage, tuple(lane.retrievals), None)
        measured = [measure.observe(case) for measure in self.scores.objectives.measures]
        scores = np.array([nan if observation is None else observation[0] for observation in measured])
        self._store_answer(flow, question, case, scores, lane)
        return scores, lane

    def _store_answer(self, flow: int, question: int, case: Case, scores: Floats, lane: Lane) -> None:
        part, store = self.scores.select_part([flow], range(question, question + 1)), self.scores.store
        columns: dict[str, Any] = {name: getattr(lane, name) for name in ("usage", "spent", "cached", "interrupted")}
        columns |= {
            "steps": lane.count_calls(self.scores.candidates.flows[flow]),
            "run": store.register_run(self.scores.run.id),
        }
        # Answers that flows share have no time of their own.
        columns |= {"lane": lane.number, "seconds": nan, "opening": nan}
        store.write_answer(int(part.flow_ids[0]), int(part.question_ids[0]), case, **columns)
        with self._lock:  # threads count the rows
            self.scores.store_scores(part, np.zeros(1, np.intp), 0, scores[None])
