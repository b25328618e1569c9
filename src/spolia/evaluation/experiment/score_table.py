"""Scores in columns: arrays by flow, question and measure, with the cost of each answer and the state of each score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spolia.evaluation.experiment import score_store
from spolia.evaluation.experiment.gold_locations import GoldLocations
from spolia.evaluation.measures.measure import Case, Observation, SetMeasure
from spolia.run.lane import StepCalls, sum_calls
from spolia.types import Item, Usage


@dataclass(frozen=True, eq=False)
class StorePart:
    """Part of a table that one store holds, with its ids of flows, questions and measures."""

    store: score_store.ScoreStore
    flows: NDArray[np.intp]
    flow_ids: NDArray[np.uint64]
    question_ids: NDArray[np.uint64]
    gold_ids: NDArray[np.uint64]
    measure_ids: NDArray[np.uint64]

    def rows(
        self, kind: int, answers: score_store.Columns | None = None
    ) -> tuple[score_store.Columns, tuple[NDArray[np.intp], ...]]:
        """Return the rows of the table that this store holds, oldest first, with their positions; given `answers`,
        without scores of earlier answers."""
        rows = self.store.columns(kind)
        positions = [_find_positions(self.flow_ids, rows["flow"]), _find_positions(self.question_ids, rows["question"])]
        if kind in (score_store.SCORES, score_store.JUDGING):
            positions.append(_find_positions(self.measure_ids, rows["measure"]))
        ours = np.logical_and.reduce([column >= 0 for column in positions])
        if kind in (score_store.SCORES, score_store.JUDGING):
            ours &= self.gold_ids[positions[1]] == rows["gold"]
        positions[0] = self.flows[positions[0]]
        if answers is not None:
            ours &= rows["place"] > answers["place"][positions[0], positions[1]]
        return rows[ours], tuple(column[ours] for column in positions)


@dataclass(frozen=True)
class Cell:
    """Result of a flow on a question, with what it adds to each measure that applies (None if unknown).

    If `cached`, an earlier run computed a step, and `seconds` are of the others. In the journal its steps are at `run`
    and `lane`, 0 where they are not.
    """

    flow: str
    case: Case
    observations: Mapping[str, Observation | None]
    seconds: float
    cached: bool
    run: str
    lane: int
    steps: tuple[StepCalls, ...] = ()


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of flows on questions. Axes are flows, questions and measures, in the order in which they were given.

    Args:
        items: the questions, with their gold as it is written.
        answers: by flow and question, with the fields of `ANSWERS`: `status`, `seconds`, `usage`, ...
        states: of each score: `UNSCORED`, `SCORED`, `UNDETERMINED`, `INTERRUPTED`, `WITHOUT_GOLD` or `NO_ANSWER`.
        scores: the score of a question; NaN if it has no score. For a measure that is not a mean, its first number.
        numbers: by measure, all the numbers that a question adds, NaN where there are fewer.
        widths: how many numbers these are.
        judging: what judges spent, with the columns of `Usage`.
        outcomes: by flow and question, the id of how often its steps were called and what failed; 0 if not known.
        parts: where all this is kept.
        places: of the gold in the stores.
        asked: how many questions were asked to make it, all flows together; the others were there before.
        notes: what had changed since, so that it was asked or scored again.
    """

    flows: tuple[str, ...]
    items: tuple[Item, ...]
    measures: tuple[SetMeasure, ...]
    answers: score_store.Columns
    states: NDArray[np.uint8]
    scores: NDArray[np.float64]
    numbers: tuple[NDArray[np.float64], ...]
    widths: NDArray[np.uint16]
    judging: NDArray[np.float64]
    outcomes: NDArray[np.uint64]
    parts: tuple[StorePart, ...]
    places: GoldLocations
    asked: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def from_parts(
        cls,
        flows: Sequence[str],
        items: Sequence[Item],
        measures: Sequence[SetMeasure],
        parts: Sequence[StorePart],
        places: GoldLocations,
    ) -> Self:
        shape = len(flows), len(items), len(measures)
        answers, judging = np.zeros(shape[:2], score_store.ANSWERS), np.zeros((*shape[:2], len(score_store.USAGE)))
        outcomes = np.zeros(shape[:2], np.uint64)
        states, widths = np.zeros(shape, np.uint8), np.zeros(shape, np.uint16)
        for part in parts:
            rows, positions = part.rows(score_store.ANSWER)
            answers[positions] = rows  # of several answers the last one holds
        scored = [part.rows(score_store.SCORES, answers) for part in parts]
        widest = [
            max([1, *(int(rows["width"][columns[2] == m].max(initial=0)) for rows, columns in scored)])
            for m in range(shape[2])
        ]
        numbers = tuple(np.full((*shape[:2], width), np.nan) for width in widest)
        for rows, positions in scored:
            states[positions], widths[positions] = rows["state"], rows["width"]
            for m, table in enumerate(numbers):
                mine = positions[2] == m
                table[positions[0][mine], positions[1][mine], rows["part"][mine]] = rows["number"][mine]
        for part in parts:
            rows, positions = part.rows(score_store.JUDGING, answers)
            # A score may have several rows of judging; `judging[…] +=` would count only the last.
            np.add.at(judging, positions[:2], rows["usage"])
            rows, positions = part.rows(score_store.STEPS, answers)
            outcomes[positions] = rows["steps"]
        applies = np.array([[measure.applies(item) for measure in measures] for item in items], bool)
        states[:, ~applies.reshape(shape[1:])] = score_store.WITHOUT_GOLD
        firsts = [np.where(widths[:, :, m] > 0, table[:, :, 0], np.nan) for m, table in enumerate(numbers)]
        scores = np.stack(firsts, axis=2) if firsts else np.zeros(shape)
        axes, first = (tuple(flows), tuple(items), tuple(measures)), np.arange(shape[0])
        for part in parts:  # equal flows share their rows
            first[part.flows] = part.flows[_find_positions(part.flow_ids, part.flow_ids)]
        answers, states, scores, widths, judging, outcomes, *number_columns = (
            array[first] for array in (answers, states, scores, widths, judging, outcomes, *numbers)
        )
        return cls(
            *axes, answers, states, scores, tuple(number_columns), widths, judging, outcomes, tuple(parts), places
        )

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Return by flow and question whether there is no result; such questions score 0."""
        return np.asarray(self.answers["status"] == score_store.FAILED)

    @property
    def interrupted(self) -> NDArray[np.bool_]:
        """Return by flow and question whether a server was down for it or for a judge: asking again may help."""
        return np.asarray(self.answers["interrupted"] | (self.states == score_store.INTERRUPTED).any(axis=2))

    @property
    def unasked(self) -> NDArray[np.bool_]:
        """Return by flow and question whether the flow must still be asked."""
        applicable = (self.states != score_store.WITHOUT_GOLD).any(axis=2)
        pending: NDArray[np.bool_] = applicable & (
            (self.answers["status"] == score_store.MISSING) | self.answers["interrupted"]
        )
        return pending

    @property
    def unscored(self) -> NDArray[np.bool_]:
        """Return by flow, question and measure whether the score must still be taken."""
        return np.asarray(np.isin(self.states, (score_store.UNSCORED, score_store.INTERRUPTED)))

    def rows(self) -> Mapping[str, NDArray[Any]]:
        """Return a row for each score, as columns by name: `flow`, `question` and `measure` by position, `score`,
        `failed`, `seconds` and the fields of `Usage`. Questions without gold are left out."""
        flow, question, measure = np.nonzero(self.states != score_store.WITHOUT_GOLD)
        columns: dict[str, NDArray[Any]] = {"flow": flow, "question": question, "measure": measure}
        columns |= {
            "score": self.scores[flow, question, measure],
            "failed": self.failed[flow, question],
            "seconds": self.answers["seconds"][flow, question],
        }
        return columns | dict(zip(score_store.USAGE, self.answers["usage"][flow, question].T, strict=True))

    def observations(self, flow: int, measure: int, questions: Sequence[int] | None = None) -> list[Observation | None]:
        """Return what each question adds to a measure; None where that is unknown, or there is no gold."""
        selection = slice(None) if questions is None else np.asarray(questions, np.intp)
        numbers, widths = (
            self.numbers[measure][flow, selection].tolist(),
            self.widths[flow, selection, measure].tolist(),
        )
        return [tuple(row[:width]) if width else None for row, width in zip(numbers, widths, strict=True)]

    def usage(self, kind: str, flow: int) -> Usage:
        """Return what all questions of a flow took: `usage`, as it needs it, `spent`, without what a cache held,
        `judging`."""
        rows = self.judging if kind == "judging" else self.answers[kind]
        return score_store.usage_from_row(rows[flow].sum(axis=0))

    def steps(self, flow: int) -> tuple[StepCalls, ...]:
        """Return how often each step of a flow was called for all questions, and what was out of order."""
        store = self.part(flow)[0].store
        return sum_calls((store.steps(id), n) for id, n in _count_ids(self.outcomes[flow]))

    def step_calls(self, flow: int, question: int) -> tuple[StepCalls, ...]:
        return self.part(flow)[0].store.steps(int(self.outcomes[flow, question]))

    def count_degraded(self, flow: int) -> int:
        """Count the questions of a flow that have a result although a step was out of order."""
        store, outcomes = self.part(flow)[0].store, self.outcomes[flow][~self.failed[flow]]
        return sum(n for id, n in _count_ids(outcomes) if any(step.reasons for step in store.steps(id)))

    def case(self, flow: int, question: int) -> Case:
        """Return what a flow made of a question, as measures see it."""
        item = self.places.locate_item(self.items[question])
        return self.part(flow)[0].store.case(self.answers[flow, question], item)

    def cell(self, flow: int, question: int) -> Cell:
        row, states = self.answers[flow, question], self.states[flow, question]
        observations = {
            str(measure): self.observations(flow, column, [question])[0]
            for column, measure in enumerate(self.measures)
            if states[column] not in (score_store.WITHOUT_GOLD, score_store.NO_ANSWER)
        }
        store = self.part(flow)[0].store
        run = store.name_of(int(row["run"])) if row["lane"] else ""
        took = float(row["seconds"]), bool(row["cached"]), run, int(row["lane"])
        return Cell(self.flows[flow], self.case(flow, question), observations, *took, self.step_calls(flow, question))

    def part(self, flow: int) -> tuple[StorePart, int]:
        """Return the part that holds a flow's answers, and the flow's id in it."""
        part, rows = next((part, np.flatnonzero(part.flows == flow)) for part in self.parts if flow in part.flows)
        return part, int(part.flow_ids[rows[0]])

    def reload(self) -> "ScoreTable":
        """Return the same table, read again from the stores."""
        return ScoreTable.from_parts(self.flows, self.items, self.measures, self.parts, self.places)


def _count_ids(ids: NDArray[np.uint64]) -> list[tuple[int, int]]:
    unique_ids, counts = np.unique(ids, return_counts=True)
    return list(zip(unique_ids.tolist(), counts.tolist(), strict=True))


def _find_positions(ids: NDArray[np.uint64], values: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return where each value stands first among the ids; -1 for other values."""
    if not ids.size:
        return np.full(values.shape, -1, np.intp)
    order = np.argsort(ids, kind="stable")
    # A value above all ids would be out of range.
    positions = order[np.minimum(np.searchsorted(ids[order], values), ids.size - 1)]
    return np.where(ids[positions] == values, positions, -1)
