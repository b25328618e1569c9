"""Execution of an experiment: asks flows question by question, stores each answer immediately, and scores it."""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import isfinite, nan
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from spolia import errors
from spolia.core.deprecation import renamed_arguments
from spolia.core.plurals import several
from spolia.core.run_context import attempt, gather
from spolia.errors import BudgetSpent, MeasureError, NeverWorked, StepFailed
from spolia.evaluation.experiment.flows import (
    CONTENT,
    Fingerprints,
    Flow,
    check_items,
    describe_changes,
    identity,
    name_flows,
    open_stores,
    refuse_other_flows,
    walk_parts,
)
from spolia.evaluation.experiment.gold_locations import locate_gold
from spolia.evaluation.experiment.score_store import (
    INTERRUPTED,
    MISSING,
    NO_ANSWER,
    SCORED,
    UNDETERMINED,
    WITHOUT_GOLD,
    ScoreStore,
)
from spolia.evaluation.experiment.score_table import ScoreTable, StorePart
from spolia.evaluation.measures.answers.answer_text import NoAnswer
from spolia.evaluation.measures.measure import Case, CostMeasure, Measure, Observation, SetMeasure
from spolia.evaluation.measures.registry import as_measures
from spolia.models.protocols import LanguageModel
from spolia.run import Run
from spolia.run.budget import NO_COST
from spolia.run.lane import StepCalls, count_reasons, sum_calls
from spolia.stores.corpus import NodeGroup
from spolia.types import Failure, Item, Query, Usage, digest_of

CERTAIN_FAILURES = 5
"""Questions of which each fails the same way, so that the others would too."""
FLOW_ERRORS = (
    errors.FlowFileError, errors.GroupError, errors.ManifestMismatch, errors.MissingExtra, errors.NotAStore,
    errors.StoreCorrupt, errors.StoreTooNew, errors.UndecidedError, errors.WeightsError, errors.WiringError,
)  # fmt: skip
"""Failures that do not depend on the question."""


def refuse_broken(
    flow: str, failures: Sequence[Failure | None], steps: Sequence[StepCalls], question_count: int, stops: bool
) -> None:
    """Raise StepFailed for a flow that cannot run, and NeverWorked if all of its first questions fail the same way."""
    if not failures or failures[0] is None:
        return
    first, same = failures[0], all(failure == failures[0] for failure in failures)
    reason = f"{first.kind}: {first.message.rstrip('.')}. What cannot be asked is not measured"
    advice = "since its zeros would say that others are better: mend it, or leave it out"
    # These errors do not depend on the question, so one failure is proof enough.
    if first.kind in {kind.__name__ for kind in FLOW_ERRORS}:
        raise StepFailed(f"{flow} fails on the first question: {reason}, {advice}.")
    if stops and same and len(failures) >= min(CERTAIN_FAILURES, max(question_count, 2)):
        summary = f"{flow} fails on each of the first {len(failures)} questions, the same way"
        idle = tuple(step.step for step in steps if step.never_worked)
        raise NeverWorked(f"{summary}: {reason}, {advice}, or write --degraded ok.", idle, count_reasons(steps))


def refuse_rankings_alone(flows: Sequence[str], measures: Sequence[SetMeasure], states: Collection[int]) -> None:
    """Raise NoAnswer if all flows give rankings and all measures need answers."""
    if {*states} - {WITHOUT_GOLD} == {NO_ANSWER}:
        raise NoAnswer(
            f"{', '.join(map(str, measures))}: not to be measured of a ranking, and {', '.join(flows)} "
            f"{'gives' if len(flows) == 1 else 'give'} nothing else. Write R@5 or AnswerHit@5, or measure a flow that "
            "ends in an answer, for example with Extract or Reader."
        )


DEGRADED = ("stop", "ok")
"""What happens where a step of a flow fails on every call: the experiment stops, or it is measured all the same."""


def find_idle_step(flow: str, steps: Sequence[StepCalls], question_count: int) -> NeverWorked | None:
    """Return an error for a flow with a step that failed on every call, if enough calls prove it."""
    idle = [step for step in steps if step.never_worked]
    sure = [step for step in idle if step.trials >= min(CERTAIN_FAILURES, max(question_count, 2))]
    if not sure:
        return None
    counts = ", ".join(f"{step.step} ({step.failed:,} of {several(step.trials, 'call')})" for step in sure)
    reason = sure[0].reasons[0][0].rstrip(".") if sure[0].reasons else "no reason was given"
    return NeverWorked(
        f"{flow} has a step that failed whenever it was called: {counts}: {reason}. Its numbers would be those of a "
        "flow without that step. Correct the cause or leave the step out, and run the command again; it asks again "
        "what failed. To measure the flow as it is, write --degraded ok (in Python degraded='ok').",
        tuple(step.step for step in idle),
        count_reasons(steps),
    )


QuestionCallback: TypeAlias = Callable[[str, int, int], None]
"""Called with a flow, how many questions it was asked, and of how many; by several threads."""
Position: TypeAlias = tuple[int, int]
"""A flow and a question of a table."""
StoredRecord: TypeAlias = tuple[bytes, Mapping[str, Any]]
"""Something that a store knows: a digest of all that it depends on, and what it is."""
LISTED_CHANGES = 5
"""Changes that are listed."""


@renamed_arguments(told="on_progress", known="fingerprints", again="ask_again")
def ask(
    flows: Flow | Sequence[Flow] | Mapping[str, Flow],
    items: Iterable[Item],
    measures: str | Iterable[str | SetMeasure],
    *,
    run: Run | None = None,
    path: str | Path | ScoreStore | None = None,
    data: str = "questions",
    ask_again: bool = False,
    degraded: str = "stop",
    rivals: Sequence[NodeGroup] = (),
    fingerprints: Fingerprints | None = None,
    on_progress: QuestionCallback = lambda flow, done, total: None,
) -> ScoreTable:
    """Ask flows questions and measure what they give, as far as that was not done before.

    You can add questions, flows and measures to the same file: only the new cells are computed. A new measure of
    a stored answer asks no flow. Cells whose inputs changed (a flow's parameters, code or stores, a question, its
    gold, a measure) are computed again, and `notes` of the table say so.

    Args:
        flows: one flow, several, or several by name; without a name a flow is called by its notation.
        items: questions with gold; each flow is asked those to which any measure applies.
        measures: what to measure; texts are read by `parse_measures`.
        run: whose cache, journal, budget, threads and rights are used, by flows and by judges alike.
        path: the file that keeps answers and scores, usually `NAME.experiment`. In a folder each flow has a file
            of its own, named by all that it depends on. An open store stays open. None keeps them in memory.
        data: what the questions are called; begins the names of files in a folder.
        ask_again: ask everything again, whatever the file holds; a cache of the run is used all the same.
        degraded: what happens where a step of a flow fails on every call: `stop`, or `ok` to measure the flow.
        rivals: groups that other flows search, with which these are compared: gold that only those have is not found.
        on_progress: called with the flow, how many questions it was asked so far, and of how many.

    Raises:
        WiringError: a flow takes or gives something else, or two are called the same.
        DataError: a store has not the document or the quote that a question's gold names.
        StoreBusy: another process uses the file.
        StepFailed: a flow fails whatever it is asked; says how.
        NeverWorked: a step of a flow fails whenever it is called; says how. The next run asks them again.
        MeasureError: a measure fails; names the question. Answers so far are kept.
        BudgetSpent: the run's budget ends before the questions; answers so far are kept.

    >>> from spolia import Hit, Node, Ranking, step
    >>> @step
    ... def always_p1(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("p1", "..."), 1.0),))
    >>> table = ask(always_p1, [Item("q1", "?", gold=(("p1",),)), Item("q2", "??", gold=(("p2",),))], "R@5,MRR")
    >>> table.scores.shape, table.scores[0, :, 0].tolist()
    ((1, 2, 2), [1.0, 0.0])
    """
    by_name, checked_items, run = name_flows(flows), check_items(items), run if run is not None else Run(share=True)
    listed = [flow for _, flow in by_name]
    for flow in listed:
        refuse_other_flows(flow)
    measure_list = tuple(dict.fromkeys(as_measures(measures)))
    with run, ExitStack() as stack:
        # Gold is located before any flow is asked: a wrong gold id costs no call.
        opening, places = open_stores(listed), locate_gold(checked_items, listed, rivals)
        fingerprints = {} if fingerprints is None else fingerprints
        members: dict[Path | ScoreStore | None, list[tuple[int, StoredRecord]]] = {}
        file = Path(path) if isinstance(path, str) else path
        for index, (name, flow) in enumerate(by_name):
            record = make_record(name, identity(flow, run, fingerprints))
            flow_file = file
            if isinstance(file, Path) and file.is_dir():
                flow_file = file / f"{data}-{record[0].hex()[:16]}.experiment"
            members.setdefault(flow_file, []).append((index, record))
        measure_records = [make_record(str(measure), identity(measure, run, fingerprints)) for measure in measure_list]
        stores = {
            file: file if isinstance(file, ScoreStore) else stack.enter_context(ScoreStore(file)) for file in members
        }
        parts = [
            build_store_part(stores[file], flows_here, checked_items, measure_records)
            for file, flows_here in members.items()
        ]
        table = ScoreTable.from_parts([name for name, _ in by_name], checked_items, measure_list, parts, places)
        if ask_again:
            for part in parts:
                rows, columns = np.nonzero(table.answers["status"][part.flows] != MISSING)
                part.store.drop_answers(
                    zip(part.flow_ids[rows].tolist(), part.question_ids[columns].tolist(), strict=True)
                )
            table = table.reload()
        asking = FlowExecution(run, listed, table, opening, on_progress, stops=degraded == "stop")
        if asking.todo:
            asking.fill()
            for store in stores.values():
                store.release_nodes()
            table = table.reload()
        refuse_rankings_alone(table.flows, measure_list, np.unique(table.states).tolist())
        for index in range(len(listed)):
            asking.refuse_idle(
                index,
                table.steps(index),
                ((question, table.step_calls(index, question)) for question in range(len(checked_items))),
            )
        return replace(table, asked=len(asking.asked_cells), notes=_describe_recomputed(stores.values()))


@dataclass
class FlowExecution:
    """Execution of the cells that a table lacks: asked, measured and stored question by question, inside an entered
    run."""

    run: Run
    flows: Sequence[Flow]
    table: ScoreTable
    opening: Sequence[float]
    on_progress: QuestionCallback
    stops: bool = True
    asked_cells: list[Position] = field(default_factory=list)
    steps: dict[Position, tuple[StepCalls, ...]] = field(default_factory=dict)
    score_states: set[int] = field(default_factory=set)  # the states of scores so far
    judged_measures: set[int] = field(default_factory=set)  # measures that were taken once
    judge_failures: dict[int, list[str]] = field(default_factory=dict)  # of the others, why they could not be taken

    def __post_init__(self) -> None:
        table = self.table
        self.items = [table.places.locate_item(item) for item in table.items]
        self.parts = [table.part(flow) for flow in range(len(self.flows))]
        self.run_ids = {id(part.store): part.store.register_run(self.run.id) for part, _ in self.parts}
        ids = [(id(part.store), flow_id) for part, flow_id in self.parts]
        first = np.array(
            [ids.index(part_id) == index for index, part_id in enumerate(ids)], bool
        )  # equal flows are asked once
        self.unasked = table.unasked & first[:, None]
        self.unscored = table.unscored
        todo = (self.unasked | self.unscored.any(axis=2)) & first[:, None]
        self.todo: list[Position] = list(zip(*(column.tolist() for column in np.nonzero(todo)), strict=True))
        self.question_counts = (table.states != WITHOUT_GOLD).any(axis=2).sum(axis=1).tolist()
        self._progress_counters = [
            count(whole - here + 1) for whole, here in zip(self.question_counts, todo.sum(axis=1).tolist(), strict=True)
        ]
        judged = any(isinstance(part, LanguageModel) for measure in table.measures for part in walk_parts(measure))
        # A judge waits for a model, whatever the flow itself does.
        self.waits = [judged or flow.waiting for flow in self.flows]

    def fill(self) -> None:
        """Ask the first questions of all flows, so that a flow that cannot run costs little; then the others."""
        begun = set[Position]()
        for flow in range(len(self.flows)):
            begun |= self._ask_first_questions(flow)
        # Checked after the first questions, before the later ones are paid for.
        refuse_rankings_alone(self.table.flows, self.table.measures, self.score_states)
        later_cells = [cell for cell in self.todo if cell not in begun]
        if self.run.results is not None:  # what several flows ask of one question stays at hand
            later_cells.sort(key=lambda cell: cell[1])
        for start in range(0, len(later_cells), self.run.window):
            self._ask_cells(later_cells[start : start + self.run.window])

    def _ask_first_questions(self, flow: int) -> set[Position]:
        """Ask a flow its first questions, the very first alone: it waits for models to be loaded."""
        cells = [(flow, int(question)) for question in np.flatnonzero(self.unasked[flow])[:CERTAIN_FAILURES]]
        failures: list[Failure | None] = []
        for batch in (cells[:1], cells[1:]):
            failures += self._ask_cells(batch, self.opening[flow] if not failures else None)
            calls_by_question = {
                question: self.steps[flow, question] for _, question in cells if (flow, question) in self.steps
            }
            steps = sum_calls((steps, 1) for steps in calls_by_question.values())
            try:
                refuse_broken(self.table.flows[flow], failures, steps, self.question_counts[flow], self.stops)
            except StepFailed:
                # The scores of a flow that cannot run must not be in the file: they would be read as
                # its results.
                self._drop(cells)
                raise
            if len(failures) == len(cells):
                self.refuse_idle(flow, steps, calls_by_question.items())
        return set(cells)

    def refuse_idle(
        self, flow: int, steps: Sequence[StepCalls], calls_by_question: Iterable[tuple[int, Sequence[StepCalls]]]
    ) -> None:
        """Stop if a step of a flow never worked; the questions on which it failed are asked again the next time."""
        if (
            self.stops
            and (error := find_idle_step(self.table.flows[flow], steps, self.question_counts[flow])) is not None
        ):
            idle = set(error.never_worked)
            self._drop(
                (flow, question) for question, own in calls_by_question if any(step.step in idle for step in own)
            )
            raise error

    def _drop(self, cells: Iterable[Position]) -> None:
        for flow, question in cells:
            part, flow_id = self.parts[flow]
            part.store.drop_answers([(flow_id, int(part.question_ids[question]))])

    def _ask_cells(self, cells: Sequence[Position], opening: float | None = None) -> list[Failure | None]:
        """Ask cells, I/O-bound flows concurrently; return how each failed."""
        results: dict[Position, Any] = {}
        for waits in (False, True):
            batch = [cell for cell in cells if self.waits[cell[0]] == waits]
            results |= zip(
                batch, gather([partial(self._ask_question, *cell, opening) for cell in batch], waits=waits), strict=True
            )
        if failed := next((result for result in results.values() if isinstance(result, Failure)), None):
            raise failed.raised()
        return [results[cell][0] for cell in cells]

    def _ask_question(self, flow: int, question: int, opening: float | None) -> tuple[Failure | None]:
        part, flow_id = self.parts[flow]
        question_id, item, table = int(part.question_ids[question]), self.items[question], self.table
        missing = (table.states[flow, question] != WITHOUT_GOLD).tolist()
        if self.unasked[flow, question]:
            case, columns = self._answer(flow, item, opening)
            self.steps[flow, question] = columns["steps"]
            part.store.write_answer(flow_id, question_id, case, run=self.run_ids[id(part.store)], **columns)
            self.asked_cells.append((flow, question))
        else:
            case, missing = table.case(flow, question), self.unscored[flow, question].tolist()
        scores: dict[int, tuple[int, Observation | None, Usage]] = {}
        measure_ids = part.measure_ids.tolist()
        with self.run.lane() as lane:  # one for all measures, of which most ask no model
            for column in np.flatnonzero(missing).tolist():
                lane.failure_reason, lane.interrupted, usage_before = "", False, lane.spent
                state, observation = self._score(table.measures[column], case, flow)
                is_idle = self._is_judge_idle(column, observation, lane.failure_reason)
                state = INTERRUPTED if lane.interrupted or is_idle else state
                self.score_states.add(state)
                usage_after = lane.spent
                scores[measure_ids[column]] = (
                    state,
                    observation,
                    NO_COST if usage_after is usage_before else usage_after - usage_before,
                )
        # Scores that a spent budget cut short are not stored, so that the next run takes them.
        self._refuse_spent(flow, item)
        part.store.write_scores(flow_id, question_id, int(part.gold_ids[question]), scores)
        self._refuse_unjudged(min(CERTAIN_FAILURES, max(self.question_counts[flow], 2)))
        self.on_progress(table.flows[flow], next(self._progress_counters[flow]), self.question_counts[flow])
        return (case.result if isinstance(case.result, Failure) else None,)

    def _is_judge_idle(self, measure: int, observation: Observation | None, reason: str) -> bool:
        """Return whether a measure's judge failed, as on every answer before; the next run takes that score again."""
        if observation is not None:
            self.judged_measures.add(measure)
        elif reason and self.stops and measure not in self.judged_measures:
            self.judge_failures.setdefault(measure, []).append(reason)
            return True
        return False

    def _refuse_unjudged(self, enough: int) -> None:
        """Raise NeverWorked if a judge failed on all of the first answers."""
        for column, reasons in list(self.judge_failures.items()):
            if column not in self.judged_measures and len(reasons) >= enough:
                measure = str(self.table.measures[column])
                raise NeverWorked(
                    f"{measure} could not be taken of the first {len(reasons)} answers: {reasons[0].rstrip('.')}. "
                    "Correct the cause, and run the command again; it asks again what failed. To measure the rest, "
                    "write --degraded ok (in Python degraded='ok').",
                    (measure,),
                    {measure: dict(Counter(reasons))},
                )

    def _answer(self, flow: int, item: Item, opening: float | None) -> tuple[Case, dict[str, Any]]:
        with self.run.lane() as lane:
            started = time.perf_counter()
            result = attempt(partial(self.flows[flow], Query(item.question)))
            seconds = time.perf_counter() - started
        self._refuse_spent(flow, item)
        is_known = isfinite(lane.spared)
        # A step that an equal flow of this process computed counts with its own time.
        seconds += lane.spared if is_known else 0.0
        columns = {name: getattr(lane, name) for name in ("usage", "spent", "interrupted")}
        columns |= {"steps": lane.count_calls(self.flows[flow]), "cached": not is_known}
        columns |= {"lane": lane.number, "seconds": seconds, "opening": nan if opening is None else opening}
        warm = seconds if is_known and opening is None else None
        return Case(item, result, lane.usage, tuple(lane.retrievals), warm), columns

    def _refuse_spent(self, flow: int, item: Item) -> None:
        if self.run.exhausted:
            raise BudgetSpent(
                f"The budget of this run allows no more at question {item.id!r} of {self.table.flows[flow]}: "
                f"{self.run.refusal}. Raise the budget and run again. "
                "Answers so far are saved if the experiment has a file."
            )

    def _score(self, measure: SetMeasure, case: Case, flow: int) -> tuple[int, Observation | None]:
        """Return the state of a score and what the case adds; a score that is no number is undetermined. An error of
        the measure names the question."""
        try:
            (observation,) = measure.observe_all([case])
        except BudgetSpent:
            raise
        except NoAnswer:
            return NO_ANSWER, None
        except Exception as error:
            message = str(error) if isinstance(error, MeasureError) else f"{type(error).__name__}: {error}"
            raise MeasureError(
                f"{measure} failed on the result of {self.table.flows[flow]} for question {case.item.id!r}: "
                f"{message.removesuffix('.')}. Answers so far are saved if the experiment has a file."
            ) from error
        if observation is None or (isinstance(measure, (Measure, CostMeasure)) and not isfinite(observation[0])):
            return UNDETERMINED, None
        return SCORED, observation


def make_record(name: str, content: Mapping[str, Any]) -> StoredRecord:
    """Return the record of a flow, a measure, a question or its gold: a digest of its inputs, and what it is."""
    return digest_of(json.dumps(content)), {"name": name, **content}


def build_store_part(
    store: ScoreStore,
    flows: Sequence[tuple[int, StoredRecord]],
    items: Sequence[Item],
    measures: Sequence[StoredRecord],
) -> StorePart:
    """Register flows, questions, gold and measures in a store, and return their ids with the rows of the flows."""
    questions = [make_record(item.id, {"id": item.id, "question": item.question}) for item in items]
    gold = [make_record(item.id, {"id": item.id, CONTENT: item.digest.hex()}) for item in items]
    kinds = {"flows": [flow for _, flow in flows], "questions": questions, "gold": gold, "measures": measures}
    ids = [np.array(store.register_all(kind, records), np.uint64) for kind, records in kinds.items()]
    return StorePart(store, np.array([row for row, _ in flows], np.intp), *ids)


def _describe_recomputed(stores: Iterable[ScoreStore]) -> tuple[str, ...]:
    texts = [
        change
        for store in stores
        for kind, previous, now in store.notes
        for change in describe_changes({kind: {now["name"]: previous}}, {kind: {now["name"]: now}})
    ]
    if not texts:
        return ()
    rest = f"; and {len(texts) - LISTED_CHANGES} more" if len(texts) > LISTED_CHANGES else ""
    return (f"Computed again, since it has changed: {'; '.join(texts[:LISTED_CHANGES])}{rest}.",)
