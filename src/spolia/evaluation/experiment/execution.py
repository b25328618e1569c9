"""Flows asked question by question: each in a lane of its own, kept as soon as it is answered, then measured."""

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
from spolia.core.plurals import several
from spolia.core.run_context import attempt, gather
from spolia.errors import BudgetSpent, MeasureError, NeverWorked, StepFailed
from spolia.evaluation.experiment.flows import (
    CONTENT,
    Flow,
    Known,
    changes,
    identity,
    inside,
    named,
    opened,
    questions,
    refuse_other_flows,
)
from spolia.evaluation.experiment.gold_locations import gold_locations
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
from spolia.evaluation.measures.measure import Case, CostMeasure, Measure, Seen, SetMeasure
from spolia.evaluation.measures.registry import as_measures
from spolia.models.protocols import LanguageModel
from spolia.run import Run
from spolia.run.budget import NO_COST
from spolia.run.lane import StepCalls, counted_reasons, summed
from spolia.stores.corpus import NodeGroup
from spolia.types import Failure, Item, Query, Usage, digest_of

SURE = 5
"""Questions of which each fails the same way, so that the others would too."""
OF_THE_FLOW = (
    errors.FlowFileError, errors.GroupError, errors.ManifestMismatch, errors.MissingExtra, errors.NotAStore,
    errors.StoreCorrupt, errors.StoreTooNew, errors.UndecidedError, errors.WeightsError, errors.WiringError,
)  # fmt: skip
"""Failures that do not depend on the question."""


def refuse_broken(
    flow: str, failures: Sequence[Failure | None], steps: Sequence[StepCalls], whole: int, stops: bool
) -> None:
    """Refuse a flow that fails for a reason of its own; and, where that stops, on all of its first questions alike."""
    if not failures or failures[0] is None:
        return
    first, same = failures[0], all(one == failures[0] for one in failures)
    why = f"{first.kind}: {first.message.rstrip('.')}. What cannot be asked is not measured"
    mend = "since its zeros would say that others are better: mend it, or leave it out"
    if first.kind in {kind.__name__ for kind in OF_THE_FLOW}:
        raise StepFailed(f"{flow} fails on the first question: {why}, {mend}.")
    if stops and same and len(failures) >= min(SURE, max(whole, 2)):
        told = f"{flow} fails on each of the first {len(failures)} questions, the same way"
        idle = tuple(one.step for one in steps if one.never_worked)
        raise NeverWorked(f"{told}: {why}, {mend}, or write --degraded ok.", idle, counted_reasons(steps))


def refuse_rankings_alone(flows: Sequence[str], measures: Sequence[SetMeasure], states: Collection[int]) -> None:
    """Refuse measures of answers alone of flows that all give rankings."""
    if {*states} - {WITHOUT_GOLD} == {NO_ANSWER}:
        raise NoAnswer(
            f"{', '.join(map(str, measures))}: not to be measured of a ranking, and {', '.join(flows)} "
            f"{'gives' if len(flows) == 1 else 'give'} nothing else. Write R@5 or AnswerHit@5, or measure a flow that "
            "ends in an answer, for example with Extract or Reader."
        )


DEGRADED = ("stop", "ok")
"""What happens where a step of a flow fails on every call: the experiment stops, or it is measured all the same."""


def never_worked(flow: str, steps: Sequence[StepCalls], whole: int) -> NeverWorked | None:
    """The error for a flow with a step that failed on every call, if these are enough to be sure."""
    idle = [one for one in steps if one.never_worked]
    sure = [one for one in idle if one.trials >= min(SURE, max(whole, 2))]
    if not sure:
        return None
    told = ", ".join(f"{one.step} ({one.failed:,} of {several(one.trials, 'call')})" for one in sure)
    why = sure[0].reasons[0][0].rstrip(".") if sure[0].reasons else "no reason was given"
    return NeverWorked(
        f"{flow} has a step that failed whenever it was called: {told}: {why}. Its numbers would be those of a flow "
        "without that step. Correct the cause or leave the step out, and run the command again; it asks again what "
        "failed. To measure the flow as it is, write --degraded ok (in Python degraded='ok').",
        tuple(one.step for one in idle),
        counted_reasons(steps),
    )


Told: TypeAlias = Callable[[str, int, int], None]
"""Called with a flow, how many questions it was asked, and of how many; by several threads."""
Position: TypeAlias = tuple[int, int]
"""A flow and a question of a table."""
StoredRecord: TypeAlias = tuple[bytes, Mapping[str, Any]]
"""Something that a store knows: a digest of all that it depends on, and what it is."""
LISTED = 5
"""Changes that are listed."""


def ask(
    flows: Flow | Sequence[Flow] | Mapping[str, Flow],
    items: Iterable[Item],
    measures: str | Iterable[str | SetMeasure],
    *,
    run: Run | None = None,
    path: str | Path | ScoreStore | None = None,
    data: str = "questions",
    again: bool = False,
    degraded: str = "stop",
    rivals: Sequence[NodeGroup] = (),
    known: Known | None = None,
    told: Told = lambda flow, done, total: None,
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
        again: ask everything again, whatever the file holds; a cache of the run is used all the same.
        degraded: what happens where a step of a flow fails on every call: `stop`, or `ok` to measure the flow.
        rivals: groups that other flows search, with which these are compared: gold that only those have is not found.
        told: called with the flow, how many questions it was asked so far, and of how many.

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
    by_name, asked, run = named(flows), questions(items), run if run is not None else Run(share=True)
    listed = [flow for _, flow in by_name]
    for flow in listed:
        refuse_other_flows(flow)
    chosen = tuple(dict.fromkeys(as_measures(measures)))
    with run, ExitStack() as stack:
        opening, places = opened(listed), gold_locations(asked, listed, rivals)
        known = {} if known is None else known
        members: dict[Path | ScoreStore | None, list[tuple[int, StoredRecord]]] = {}
        file = Path(path) if isinstance(path, str) else path
        for at, (name, flow) in enumerate(by_name):
            found = named_by_content(name, identity(flow, run, known))
            own = file
            if isinstance(file, Path) and file.is_dir():
                own = file / f"{data}-{found[0].hex()[:16]}.experiment"
            members.setdefault(own, []).append((at, found))
        taken = [named_by_content(str(one), identity(one, run, known)) for one in chosen]
        stores = {
            file: file if isinstance(file, ScoreStore) else stack.enter_context(ScoreStore(file)) for file in members
        }
        parts = [store_part(stores[file], flows_here, asked, taken) for file, flows_here in members.items()]
        table = ScoreTable.of([name for name, _ in by_name], asked, chosen, parts, places)
        if again:
            for part in parts:
                rows, columns = np.nonzero(table.answers["status"][part.flows] != MISSING)
                part.store.drop(zip(part.flow_ids[rows].tolist(), part.question_ids[columns].tolist(), strict=True))
            table = table.read()
        asking = FlowExecution(run, listed, table, opening, told, stops=degraded == "stop")
        if asking.todo:
            asking.fill()
            for store in stores.values():
                store.release_nodes()
            table = table.read()
        refuse_rankings_alone(table.flows, chosen, np.unique(table.states).tolist())
        for at in range(len(listed)):
            asking.refuse_idle(at, table.steps(at), ((one, table.called(at, one)) for one in range(len(asked))))
        return replace(table, asked=len(asking.asked), notes=_notes(stores.values()))


@dataclass
class FlowExecution:
    """What is missing in a table: asked, measured and kept, question by question, inside a run that is entered."""

    run: Run
    flows: Sequence[Flow]
    table: ScoreTable
    opening: Sequence[float]
    told: Told
    stops: bool = True
    asked: list[Position] = field(default_factory=list)
    steps: dict[Position, tuple[StepCalls, ...]] = field(default_factory=dict)
    scored: set[int] = field(default_factory=set)  # the states of scores so far
    judged: set[int] = field(default_factory=set)  # measures that were taken once
    unjudged: dict[int, list[str]] = field(default_factory=dict)  # of the others, why they could not be taken

    def __post_init__(self) -> None:
        table = self.table
        self.items = [table.places.item(item) for item in table.items]
        self.parts = [table.part(flow) for flow in range(len(self.flows))]
        self.run_ids = {id(part.store): part.store.run(self.run.id) for part, _ in self.parts}
        ids = [(id(part.store), flow_id) for part, flow_id in self.parts]
        first = np.array([ids.index(one) == at for at, one in enumerate(ids)], bool)  # equal flows are asked once
        self.unasked = table.unasked & first[:, None]
        self.unscored = table.unscored
        todo = (self.unasked | self.unscored.any(axis=2)) & first[:, None]
        self.todo: list[Position] = list(zip(*(one.tolist() for one in np.nonzero(todo)), strict=True))
        self.whole = (table.states != WITHOUT_GOLD).any(axis=2).sum(axis=1).tolist()
        self._done = [
            count(whole - here + 1) for whole, here in zip(self.whole, todo.sum(axis=1).tolist(), strict=True)
        ]
        judged = any(isinstance(part, LanguageModel) for one in table.measures for part in inside(one))
        self.waits = [judged or flow.waiting for flow in self.flows]

    def fill(self) -> None:
        """The first questions of all flows, so that one that cannot be asked costs little; then the others."""
        begun = set[Position]()
        for flow in range(len(self.flows)):
            begun |= self._begin(flow)
        refuse_rankings_alone(self.table.flows, self.table.measures, self.scored)
        others = [cell for cell in self.todo if cell not in begun]
        if self.run.results is not None:  # what several flows ask of one question stays at hand
            others.sort(key=lambda cell: cell[1])
        for start in range(0, len(others), self.run.window):
            self._ask(others[start : start + self.run.window])

    def _begin(self, flow: int) -> set[Position]:
        """Ask a flow its first questions, the very first alone: it waits for models to be loaded."""
        cells = [(flow, int(question)) for question in np.flatnonzero(self.unasked[flow])[:SURE]]
        failures: list[Failure | None] = []
        for some in (cells[:1], cells[1:]):
            failures += self._ask(some, self.opening[flow] if not failures else None)
            called = {question: self.steps[flow, question] for _, question in cells if (flow, question) in self.steps}
            steps = summed((steps, 1) for steps in called.values())
            try:
                refuse_broken(self.table.flows[flow], failures, steps, self.whole[flow], self.stops)
            except StepFailed:
                self._drop(cells)
                raise
            if len(failures) == len(cells):
                self.refuse_idle(flow, steps, called.items())
        return set(cells)

    def refuse_idle(
        self, flow: int, steps: Sequence[StepCalls], called: Iterable[tuple[int, Sequence[StepCalls]]]
    ) -> None:
        """Stop where a step of a flow never worked; the questions on which it failed are asked again the next time."""
        if self.stops and (error := never_worked(self.table.flows[flow], steps, self.whole[flow])) is not None:
            idle = set(error.never_worked)
            self._drop((flow, at) for at, own in called if any(one.step in idle for one in own))
            raise error

    def _drop(self, cells: Iterable[Position]) -> None:
        for flow, question in cells:
            part, flow_id = self.parts[flow]
            part.store.drop([(flow_id, int(part.question_ids[question]))])

    def _ask(self, cells: Sequence[Position], opening: float | None = None) -> list[Failure | None]:
        """Those of a flow that waits several at the same time; how each failed."""
        found: dict[Position, Any] = {}
        for waits in (False, True):
            some = [cell for cell in cells if self.waits[cell[0]] == waits]
            found |= zip(some, gather([partial(self._one, *cell, opening) for cell in some], waits=waits), strict=True)
        if failed := next((one for one in found.values() if isinstance(one, Failure)), None):
            raise failed.raised()
        return [found[cell][0] for cell in cells]

    def _one(self, flow: int, question: int, opening: float | None) -> tuple[Failure | None]:
        part, flow_id = self.parts[flow]
        question_id, item, table = int(part.question_ids[question]), self.items[question], self.table
        missing = (table.states[flow, question] != WITHOUT_GOLD).tolist()
        if self.unasked[flow, question]:
            case, columns = self._answer(flow, item, opening)
            self.steps[flow, question] = columns["steps"]
            part.store.keep(flow_id, question_id, case, run=self.run_ids[id(part.store)], **columns)
            self.asked.append((flow, question))
        else:
            case, missing = table.case(flow, question), self.unscored[flow, question].tolist()
        scores: dict[int, tuple[int, Seen | None, Usage]] = {}
        measure_ids = part.measure_ids.tolist()
        with self.run.lane() as lane:  # one for all measures, of which most ask no model
            for at in np.flatnonzero(missing).tolist():
                lane.why, lane.interrupted, before = "", False, lane.spent
                state, seen = self._score(table.measures[at], case, flow)
                is_idle = self._is_idle(at, seen, lane.why)
                state = INTERRUPTED if lane.interrupted or is_idle else state
                self.scored.add(state)
                after = lane.spent
                scores[measure_ids[at]] = (state, seen, NO_COST if after is before else after - before)
        self._refuse_spent(flow, item)
        part.store.score(flow_id, question_id, int(part.gold_ids[question]), scores)
        self._refuse_unjudged(min(SURE, max(self.whole[flow], 2)))
        self.told(table.flows[flow], next(self._done[flow]), self.whole[flow])
        return (case.result if isinstance(case.result, Failure) else None,)

    def _is_idle(self, measure: int, seen: Seen | None, why: str) -> bool:
        """Whether the judge of a measure failed, as always before: it is asked again the next time."""
        if seen is not None:
            self.judged.add(measure)
        elif why and self.stops and measure not in self.judged:
            self.unjudged.setdefault(measure, []).append(why)
            return True
        return False

    def _refuse_unjudged(self, sure: int) -> None:
        """Stop where a judge failed on all of the first answers."""
        for at, why in list(self.unjudged.items()):
            if at not in self.judged and len(why) >= sure:
                measure = str(self.table.measures[at])
                raise NeverWorked(
                    f"{measure} could not be taken of the first {len(why)} answers: {why[0].rstrip('.')}. Correct the "
                    "cause, and run the command again; it asks again what failed. To measure the rest, write "
                    "--degraded ok (in Python degraded='ok').",
                    (measure,),
                    {measure: dict(Counter(why))},
                )

    def _answer(self, flow: int, item: Item, opening: float | None) -> tuple[Case, dict[str, Any]]:
        with self.run.lane() as lane:
            started = time.perf_counter()
            result = attempt(partial(self.flows[flow], Query(item.question)))
            seconds = time.perf_counter() - started
        self._refuse_spent(flow, item)
        is_known = isfinite(lane.spared)
        seconds += lane.spared if is_known else 0.0
        found = {name: getattr(lane, name) for name in ("usage", "spent", "interrupted")}
        found |= {"steps": lane.steps(self.flows[flow]), "cached": not is_known}
        found |= {"lane": lane.number, "seconds": seconds, "opening": nan if opening is None else opening}
        warm = seconds if is_known and opening is None else None
        return Case(item, result, lane.usage, tuple(lane.retrievals), warm), found

    def _refuse_spent(self, flow: int, item: Item) -> None:
        if self.run.exhausted:
            raise BudgetSpent(
                f"The budget of this run allows no more at question {item.id!r} of {self.table.flows[flow]}: "
                f"{self.run.refusal}. Raise the budget and run again. "
                "Answers so far are saved if the experiment has a file."
            )

    def _score(self, measure: SetMeasure, case: Case, flow: int) -> tuple[int, Seen | None]:
        """Return the state of a score and what the case adds; a score that is no number is undetermined. An error of
        the measure names the question."""
        try:
            (seen,) = measure.all_seen([case])
        except BudgetSpent:
            raise
        except NoAnswer:
            return NO_ANSWER, None
        except Exception as error:
            said = str(error) if isinstance(error, MeasureError) else f"{type(error).__name__}: {error}"
            raise MeasureError(
                f"{measure} failed on the result of {self.table.flows[flow]} for question {case.item.id!r}: "
                f"{said.removesuffix('.')}. Answers so far are saved if the experiment has a file."
            ) from error
        if seen is None or (isinstance(measure, (Measure, CostMeasure)) and not isfinite(seen[0])):
            return UNDETERMINED, None
        return SCORED, seen


def named_by_content(name: str, what: Mapping[str, Any]) -> StoredRecord:
    """A flow, a measure, a question or its gold, as a store knows it: by a digest of all that it depends on."""
    return digest_of(json.dumps(what)), {"name": name, **what}


def store_part(
    store: ScoreStore,
    flows: Sequence[tuple[int, StoredRecord]],
    items: Sequence[Item],
    measures: Sequence[StoredRecord],
) -> StorePart:
    """Where scores of these flows, by place in their table, on these questions are in a store."""
    questions = [named_by_content(item.id, {"id": item.id, "question": item.question}) for item in items]
    gold = [named_by_content(item.id, {"id": item.id, CONTENT: item.digest.hex()}) for item in items]
    kinds = {"flows": [flow for _, flow in flows], "questions": questions, "gold": gold, "measures": measures}
    ids = [np.array(store.names(kind, named), np.uint64) for kind, named in kinds.items()]
    return StorePart(store, np.array([at for at, _ in flows], np.intp), *ids)


def _notes(stores: Iterable[ScoreStore]) -> tuple[str, ...]:
    found = [
        change
        for store in stores
        for kind, before, now in store.notes
        for change in changes({kind: {now["name"]: before}}, {kind: {now["name"]: now}})
    ]
    if not found:
        return ()
    more = f"; and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return (f"Computed again, since it has changed: {'; '.join(found[:LISTED])}{more}.",)
