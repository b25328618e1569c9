"""Scores in columns: arrays by flow, question and measure, beside what each answer took and whether there is one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spolia.evaluation.experiment import score_store
from spolia.evaluation.experiment.gold_locations import GoldLocations
from spolia.evaluation.measures.measure import Case, Seen, SetMeasure
from spolia.run.lane import StepCalls, summed
from spolia.types import Item, Usage


@dataclass(frozen=True, eq=False)
class StorePart:
    """The part of a table that one store holds, with its ids of flows, questions and measures."""

    store: score_store.ScoreStore
    flows: NDArray[np.intp]
    flow_ids: NDArray[np.uint64]
    question_ids: NDArray[np.uint64]
    gold_ids: NDArray[np.uint64]
    measure_ids: NDArray[np.uint64]

    def rows(
        self, kind: int, answers: score_store.Columns | None = None
    ) -> tuple[score_store.Columns, tuple[NDArray[np.intp], ...]]:
        """The rows of the table that are here, oldest first, and where they belong in it; with the table's `answers`,
        without what was scored of earlier ones."""
        rows = self.store.columns(kind)
        where = [_positions(self.flow_ids, rows["flow"]), _positions(self.question_ids, rows["question"])]
        if kind in (score_store.SCORES, score_store.JUDGING):
            where.append(_positions(self.measure_ids, rows["measure"]))
        ours = np.logical_and.reduce([at >= 0 for at in where])
        if kind in (score_store.SCORES, score_store.JUDGING):
            ours &= self.gold_ids[where[1]] == rows["gold"]
        where[0] = self.flows[where[0]]
        if answers is not None:
            ours &= rows["place"] > answers["place"][where[0], where[1]]
        return rows[ours], tuple(at[ours] for at in where)


@dataclass(frozen=True)
class Cell:
    """A flow on a question: what it made of it, and by measure that applies what that adds (None if not known).

    If `cached`, an earlier run computed a step, and `seconds` are of the others. In the journal its steps are at `run`
    and `lane`, 0 where they are not.
    """

    flow: str
    case: Case
    seen: Mapping[str, Seen | None]
    seconds: float
    cached: bool
    run: str
    lane: int
    steps: tuple[StepCalls, ...] = ()


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """What flows scored on questions. Axes are flows, questions and measures, in the order in which they were given.

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
    def of(
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
            rows, where = part.rows(score_store.ANSWER)
            answers[where] = rows  # of several answers the last one holds
        scored = [part.rows(score_store.SCORES, answers) for part in parts]
        widest = [
            max([1, *(int(rows["width"][at[2] == m].max(initial=0)) for rows, at in scored)]) for m in range(shape[2])
        ]
        numbers = tuple(np.full((*shape[:2], width), np.nan) for width in widest)
        for rows, where in scored:
            states[where], widths[where] = rows["state"], rows["width"]
            for m, table in enumerate(numbers):
                mine = where[2] == m
                table[where[0][mine], where[1][mine], rows["part"][mine]] = rows["number"][mine]
        for part in parts:
            rows, where = part.rows(score_store.JUDGING, answers)
            np.add.at(judging, where[:2], rows["usage"])
            rows, where = part.rows(score_store.STEPS, answers)
            outcomes[where] = rows["steps"]
        applies = np.array([[one.applies(item) for one in measures] for item in items], bool)
        states[:, ~applies.reshape(shape[1:])] = score_store.WITHOUT_GOLD
        firsts = [np.where(widths[:, :, m] > 0, table[:, :, 0], np.nan) for m, table in enumerate(numbers)]
        scores = np.stack(firsts, axis=2) if firsts else np.zeros(shape)
        named, first = (tuple(flows), tuple(items), tuple(measures)), np.arange(shape[0])
        for part in parts:  # equal flows share their rows
            first[part.flows] = part.flows[_positions(part.flow_ids, part.flow_ids)]
        answers, states, scores, widths, judging, outcomes, *each = (
            one[first] for one in (answers, states, scores, widths, judging, outcomes, *numbers)
        )
        return cls(*named, answers, states, scores, tuple(each), widths, judging, outcomes, tuple(parts), places)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """By flow and question, whether there is no result; the scores of that are 0."""
        return np.asarray(self.answers["status"] == score_store.FAILED)

    @property
    def interrupted(self) -> NDArray[np.bool_]:
        """By flow and question, whether a server was down for the flow or a judge, so that it is worth asking again."""
        return np.asarray(self.answers["interrupted"] | (self.states == score_store.INTERRUPTED).any(axis=2))

    @property
    def unasked(self) -> NDArray[np.bool_]:
        """By flow and question, whether a flow is to be asked."""
        wanted = (self.states != score_store.WITHOUT_GOLD).any(axis=2)
        found: NDArray[np.bool_] = wanted & (
            (self.answers["status"] == score_store.MISSING) | self.answers["interrupted"]
        )
        return found

    @property
    def unscored(self) -> NDArray[np.bool_]:
        """By flow, question and measure, whether a score is to be taken."""
        return np.asarray(np.isin(self.states, (score_store.UNSCORED, score_store.INTERRUPTED)))

    def rows(self) -> Mapping[str, NDArray[Any]]:
        """A row for each score, as columns by name: `flow`, `question` and `measure` by position, `score`, `failed`,
        and what the answer took: `seconds` and the fields of `Usage`. Questions without gold are left out."""
        flow, question, measure = np.nonzero(self.states != score_store.WITHOUT_GOLD)
        found: dict[str, NDArray[Any]] = {"flow": flow, "question": question, "measure": measure}
        found |= {
            "score": self.scores[flow, question, measure],
            "failed": self.failed[flow, question],
            "seconds": self.answers["seconds"][flow, question],
        }
        return found | dict(zip(score_store.USAGE, self.answers["usage"][flow, question].T, strict=True))

    def seen(self, flow: int, measure: int, questions: Sequence[int] | None = None) -> list[Seen | None]:
        """What each question adds to a measure; None where that is not known, or there is no gold."""
        at = slice(None) if questions is None else np.asarray(questions, np.intp)
        numbers, widths = self.numbers[measure][flow, at].tolist(), self.widths[flow, at, measure].tolist()
        return [tuple(row[:width]) if width else None for row, width in zip(numbers, widths, strict=True)]

    def usage(self, kind: str, flow: int) -> Usage:
        """What all questions of a flow took: `usage`, as it needs it, `spent`, without what a cache held, `judging`."""
        rows = self.judging if kind == "judging" else self.answers[kind]
        return score_store.usage_of(rows[flow].sum(axis=0))

    def steps(self, flow: int) -> tuple[StepCalls, ...]:
        """How often each step of a flow was called for all questions, and what was out of order."""
        store = self.part(flow)[0].store
        return summed((store.steps(id), n) for id, n in _counted(self.outcomes[flow]))

    def called(self, flow: int, question: int) -> tuple[StepCalls, ...]:
        return self.part(flow)[0].store.steps(int(self.outcomes[flow, question]))

    def degraded(self, flow: int) -> int:
        """How many questions of a flow have a result, and a step was out of order."""
        store, outcomes = self.part(flow)[0].store, self.outcomes[flow][~self.failed[flow]]
        return sum(n for id, n in _counted(outcomes) if any(one.reasons for one in store.steps(id)))

    def case(self, flow: int, question: int) -> Case:
        """What a flow made of a question, as measures see it."""
        item = self.places.item(self.items[question])
        return self.part(flow)[0].store.case(self.answers[flow, question], item)

    def cell(self, flow: int, question: int) -> Cell:
        row, states = self.answers[flow, question], self.states[flow, question]
        seen = {
            str(measure): self.seen(flow, at, [question])[0]
            for at, measure in enumerate(self.measures)
            if states[at] not in (score_store.WITHOUT_GOLD, score_store.NO_ANSWER)
        }
        store = self.part(flow)[0].store
        run = store.called(int(row["run"])) if row["lane"] else ""
        took = float(row["seconds"]), bool(row["cached"]), run, int(row["lane"])
        return Cell(self.flows[flow], self.case(flow, question), seen, *took, self.called(flow, question))

    def part(self, flow: int) -> tuple[StorePart, int]:
        """Where a flow's answers are, and its id there."""
        one, at = next((one, np.flatnonzero(one.flows == flow)) for one in self.parts if flow in one.flows)
        return one, int(one.flow_ids[at[0]])

    def read(self) -> "ScoreTable":
        """The same, as it is in the stores now."""
        return ScoreTable.of(self.flows, self.items, self.measures, self.parts, self.places)


def _counted(ids: NDArray[np.uint64]) -> list[tuple[int, int]]:
    found, counts = np.unique(ids, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


def _positions(ids: NDArray[np.uint64], found: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Where each stands first among these ids; -1 for others."""
    if not ids.size:
        return np.full(found.shape, -1, np.intp)
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(np.searchsorted(ids[order], found), ids.size - 1)]
    return np.where(ids[at] == found, at, -1)
