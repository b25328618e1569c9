"""Scores of the flows of a space: retrieval by sweeps, everything else by an experiment; each is stored immediately."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.core.operator import Operator
from spolia.core.type_compatibility import fits
from spolia.errors import NeverWorked, SpoliaError, StepFailed, WiringError, WorkersFailed
from spolia.evaluation.experiment.execution import ask, build_store_part, make_record
from spolia.evaluation.experiment.flows import Fingerprints, identity, searched_groups
from spolia.evaluation.experiment.gold_locations import locate_gold
from spolia.evaluation.experiment.score_store import ANSWER, ANSWERS, FAILED, SCORED, SCORES, USAGE, ScoreStore
from spolia.evaluation.experiment.score_table import StorePart
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.retrieval_measure import RetrievalMeasure
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.contexts import Contexts, make_sweepable
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.score_board import Floats, ScoreRows
from spolia.optimizer.sweeps import Chains, Sweep, SweepExecutor, SweepScores
from spolia.run import Run
from spolia.types import Failure, Item, Query, Ranking, Usage

CALLS, COST_USD = USAGE.index("calls"), USAGE.index("cost_usd")
Job: TypeAlias = tuple[list[int], list[int]]
"""Places of flows, and of questions that they are asked."""
MAX_WORKER_FAILURES = 8
"""Questions that workers may lose before they are given no more."""
BATCH_SIZE = 8
"""Questions of flows that wait, which are asked together: what is lost when a study is killed."""


class ContextScores(Protocol):
    """Source of scores that asks and measures context by context."""

    contexts: Contexts

    def __call__(self, flows: Sequence[int], questions: range) -> tuple[Floats, Floats, float]:
        """Return scores by flow, question and measure; by flow what a question takes; and the USD paid for all."""


@dataclass(eq=False)
class FlowScores:
    """Source of scores: asks flows questions in their order and measures the results; what the store has is not asked
    again.

    A flow that only retrieves, without a language model, is swept: what flows have in common is computed once for a
    question, and rankings with their gold at the same places are measured once. Every other flow, and one that fails or
    is degraded in a sweep, is asked as an experiment asks it.

    Args:
        candidates: the flows, by number.
        items: the questions, in the order in which they are asked.
        objectives: what is measured; scores of measures of which less is better are negative.
        run: whose cache, budget and rights are used; it should share equal steps.
        store: where answers and scores are kept.
        degraded: as for `ask`.
        on_progress: called with how many more scores are there, by several threads; an error of it ends the asking.
        executor: of sweeps that only search; None computes all in this process.
        rows: scores computed now.
    """

    candidates: FlowTable
    items: Sequence[Item]
    objectives: Objectives
    run: Run
    store: ScoreStore
    degraded: str = "stop"
    on_progress: Callable[[int], None] = lambda rows: None
    executor: SweepExecutor | None = None
    rows: int = 0
    needed: Usage = field(default=Usage())
    """What flows needed of models, whether it was asked now, kept from before or in a cache."""
    excluded: dict[int, SpoliaError] = field(default_factory=dict)
    """Flows that cannot run, with why."""
    worker_failures: Counter[str] = field(default_factory=Counter)
    """Why workers did not give scores, which were computed here instead."""

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._measures = self.objectives.measures
        self._fingerprints: Fingerprints = {}
        self._groups = searched_groups(self.candidates.space.flow)
        with self.run:
            measure_records = [
                make_record(str(measure), identity(measure, self.run, self._fingerprints)) for measure in self._measures
            ]
        self._part = build_store_part(self.store, [], self.items, measure_records)
        self.reread()
        self._ids: dict[int, int] = {}
        self._items_by_stores: dict[tuple[str, ...], Sequence[Item]] = {}
        self._chains: dict[int, Operator[Query, Ranking] | None] = {}
        self.sweeps = SweepScores(self.run, self._measures)
        self._has_rank_measures = all(isinstance(measure, RetrievalMeasure) for measure in self._measures)
        self._only_ranks = _is_free_ranking(self.candidates.space.flow)
        self._signs = self.objectives.signs
        self._spent_before = self.run.actual_usage
        self.reader_scores: ContextScores | None = None
        """Of flows with one reader, whose contexts are known."""

    def reread(self) -> None:
        """Read which flows the store has scores of; call it before flows are asked the same questions again."""
        self._stored = set(np.unique(self.store.columns(SCORES)["flow"]).tolist())

    @property
    def spent(self) -> Usage:
        """Return what models really took since the study began in this process."""
        return self.run.actual_usage - self._spent_before

    def __call__(self, flows: Sequence[int], questions: range) -> ScoreRows:
        shape = len(flows), len(questions), len(self._measures)
        values, costs, usd = np.full(shape, np.nan), np.zeros((len(flows), 2)), 0.0
        chains = [self._sweepable_chain(flow) for flow in flows]
        swept = {row: chain for row, chain in enumerate(chains) if chain and flows[row] not in self.excluded}
        by_stores: dict[tuple[str, ...], list[int]] = {}
        for row in swept:  # in another store the gold is at other places
            by_stores.setdefault(self._store_paths(flows[row]), []).append(row)
        for rows in by_stores.values():
            values[rows] = self._sweep_flows([flows[row] for row in rows], [swept[row] for row in rows], questions)
        rest = [row for row, flow in enumerate(flows) if row not in swept and flow not in self.excluded]
        # Contexts are known of the questions that choose, not of the fresh ones.
        if rest and self.reader_scores is not None and questions.stop <= self.reader_scores.contexts.questions:
            scores, usages, usd = self.reader_scores([flows[row] for row in rest], questions)
            values[rest], costs[rest] = scores, usages[:, [COST_USD, CALLS]]
        for row, flow in enumerate(flows):
            # What no sweep could score is asked as an experiment, which reports why.
            if np.isnan(values[row]).any():
                values[row], costs[row], paid = self._ask_flow(flow, questions)
                usd += paid
        return ScoreRows(self._signs * values, costs, usd)

    # Experiments.

    def _ask_flow(self, flow: int, questions: range) -> tuple[Floats, Floats, float]:
        """Return the scores of one flow, what a question costs, and the USD paid for all, now or before; -inf if the
        flow cannot run."""
        worst = -np.inf * self._signs  # times the sign: the worst, whether more or less is better
        if flow in self.excluded:
            return worst, np.zeros(2), 0.0
        items, rows_before = [self.items[index] for index in questions], self.rows
        try:
            options: dict[str, Any] = {"run": self.run, "path": self.store, "degraded": self.degraded}
            table = ask(
                self._name_flow(flow),
                items,
                self._measures,
                rivals=self._groups,
                on_progress=self._count_row,
                fingerprints=self._fingerprints,
                **options,
            )
        except (StepFailed, NeverWorked, WiringError) as error:
            self.excluded[flow] = error
            return worst, np.zeros(2), 0.0
        # Rows that were stored before count as done, too.
        self.on_progress(len(questions) - (self.rows - rows_before))
        self.needed += table.usage("usage", 0)
        usage, paid = table.answers["usage"][0].mean(axis=0), table.usage("spent", 0) + table.usage("judging", 0)
        return table.scores[0], usage[[COST_USD, CALLS]], paid.cost_usd

    def cases(self, flows: Sequence[int], places: Sequence[int]) -> list[list[Case]]:
        """Return what flows gave for some questions, by flow; stored, so that it is computed once."""
        options: dict[str, Any] = {
            "run": self.run,
            "path": self.store,
            "degraded": "ok",
            "fingerprints": self._fingerprints,
        }
        items = [self.items[index] for index in places]
        if not items:
            return [[] for _ in flows]
        flows_by_name = {name: operator for flow in flows for name, operator in self._name_flow(flow).items()}
        table = ask(flows_by_name, items, self._measures, rivals=self._groups, **options)
        return [[table.case(row, index) for index in range(len(items))] for row in range(len(flows))]

    def failures(self, flow: int) -> tuple[tuple[str, Failure], ...]:
        """Return the questions on which a flow failed, which score 0."""
        part, answers = self.select_part([flow], range(len(self.items))), np.zeros(len(self.items), ANSWERS)
        rows, positions = part.rows(ANSWER)
        answers[positions[1]] = rows
        failed = np.flatnonzero(answers["status"] == FAILED).tolist()
        cases = [part.store.case(answers[index], self.items[index]) for index in failed]
        return tuple((case.item.id, case.result) for case in cases if isinstance(case.result, Failure))

    def _count_row(self, flow: str, done: int, total: int) -> None:
        with self._lock:  # threads of an experiment call it
            self.rows += 1
        self.on_progress(1)

    def _name_flow(self, flow: int) -> dict[str, Operator[Query, Any]]:
        operator = self.candidates.flows[flow]
        return {repr(operator): operator}

    # Sweeps.

    def _sweepable_chain(self, flow: int) -> Operator[Query, Ranking] | None:
        """Return the flow as it can be swept; None if it cannot be swept."""
        if flow not in self._chains:
            operator = self.candidates.flows[flow]
            is_free = self._has_rank_measures and (self._only_ranks or _is_free_ranking(operator))
            self._chains[flow] = make_sweepable(operator) if is_free else None
        return self._chains[flow]

    def _sweep_flows(self, flows: Sequence[int], chains: Chains, questions: range) -> Floats:
        """Sweep flows over questions; NaN where a flow fails or is degraded: an experiment reports that."""
        part, items = self.select_part(flows, questions), self.items_for(flows[0])[questions.start : questions.stop]
        values = self.read_stored(part, len(flows), len(questions))
        # A budget for each question can only be counted one question at a time.
        batches = self.run.per_question is None and any(chain.waiting for chain in chains)
        failing = np.zeros(len(flows), bool)

        def jobs() -> Iterator[Job]:
            for start in range(0, len(questions), window := BATCH_SIZE if batches else 1):
                questions_by_rows: dict[tuple[int, ...], list[int]] = {}
                for index in range(start, min(start + window, len(questions))):
                    self.on_progress(len(flows))
                    # A flow that fails is asked as an experiment anyway, so more sweeps of it are in vain.
                    rows = np.flatnonzero(np.isnan(values[:, index]).any(axis=1) & ~failing)
                    if rows.size:
                        questions_by_rows.setdefault(tuple(rows.tolist()), []).append(index)
                yield from ((list(rows), places) for rows, places in questions_by_rows.items())

        with self.run:
            for (rows, places), scores_by_question in self._compute_jobs(jobs(), chains, items):
                for index, scores in zip(places, scores_by_question, strict=True):
                    is_known, flow_rows = ~np.isnan(scores).any(axis=1), np.array(rows)
                    failing[flow_rows[~is_known]] = True
                    self.store_scores(part, flow_rows[is_known], index, scores[is_known])
                    values[flow_rows, index] = scores
        return values

    def _compute_jobs(self, jobs: Iterator[Job], chains: Chains, items: Sequence[Item]) -> Iterator[tuple[Job, Floats]]:
        """Yield the scores of jobs by question, flow and measure, each as it ends; by the executor where that can."""

        def compute_here(job: Job) -> Floats:
            return self.sweeps([chains[flow] for flow in job[0]], [items[index] for index in job[1]])

        sweep = None if self.executor is None else Sweep.from_chains(chains, self._measures, self.run)
        if self.executor is not None and sweep is not None:
            yield from self._compute_in_workers(self.executor, sweep, jobs, items, compute_here)
        yield from ((job, compute_here(job)) for job in jobs)

    def _compute_in_workers(
        self,
        executor: SweepExecutor,
        sweep: Sweep,
        jobs: Iterator[Job],
        items: Sequence[Item],
        compute_here: Callable[[Job], Floats],
    ) -> Iterator[tuple[Job, Floats]]:
        """Yield scores of an executor. What it loses is computed here; after `MAX_WORKER_FAILURES` losses it gets no
        more."""
        pool, pending = ThreadPoolExecutor(executor.count), dict[Future[Floats], Job]()
        try:
            while True:
                if self.worker_failures.total() < MAX_WORKER_FAILURES:
                    # One more job than workers, so that none waits for the next job to be made.
                    for flows, places in islice(jobs, executor.count + 1 - len(pending)):
                        job_items = [items[index] for index in places]
                        pending[pool.submit(executor.scores, sweep, flows, job_items)] = flows, places
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    job = pending.pop(future)
                    try:
                        scores = future.result()
                    except WorkersFailed as error:
                        self.worker_failures[str(error)] += 1
                        scores = compute_here(job)
                    yield job, scores
        finally:
            pool.shutdown(cancel_futures=True)

    def store_scores(self, part: StorePart, flows: NDArray[np.intp], question: int, scores: Floats) -> None:
        gold = int(part.question_ids[question]), int(part.gold_ids[question])
        self.store.write_flow_scores(part.flow_ids[flows], *gold, part.measure_ids, scores)
        self.rows += flows.size

    def _store_paths(self, flow: int) -> tuple[str, ...]:
        """Return the stores that a flow searches, in which gold is located."""
        return tuple(dict.fromkeys(group.corpus.path for group in searched_groups(self.candidates.flows[flow])))

    def items_for(self, flow: int) -> Sequence[Item]:
        """Return the questions with their gold as places in the stores that a flow searches."""
        stores = self._store_paths(flow)
        if stores not in self._items_by_stores:
            with self.run:
                places = locate_gold(self.items, [self.candidates.flows[flow]], self._groups)
            self._items_by_stores[stores] = [places.locate_item(item) for item in self.items]
        return self._items_by_stores[stores]

    def select_part(self, flows: Sequence[int], questions: range) -> StorePart:
        part, selected = self._part, slice(questions.start, questions.stop)
        ids = np.array([self._register_flow(flow) for flow in flows], np.uint64)
        return StorePart(
            self.store,
            np.arange(len(flows)),
            ids,
            part.question_ids[selected],
            part.gold_ids[selected],
            part.measure_ids,
        )

    def read_stored(self, part: StorePart, flows: int, questions: int) -> Floats:
        """Return the scores that the store held when it was last read."""
        values = np.full((flows, questions, len(self._measures)), np.nan)
        # Nothing is stored of these flows: the columns need not be read.
        if self._stored.isdisjoint(part.flow_ids.tolist()):
            return values
        answers = np.zeros((flows, questions), ANSWERS)
        rows, positions = part.rows(ANSWER)
        answers[positions] = rows
        rows, positions = part.rows(SCORES, answers)
        scored = rows["state"] == SCORED
        values[tuple(axis[scored] for axis in positions)] = rows["number"][scored]
        return values

    def _register_flow(self, flow: int) -> int:
        if flow not in self._ids:
            ((name, operator),) = self._name_flow(flow).items()
            record = make_record(name, identity(operator, self.run, self._fingerprints))
            self._ids[flow] = self.store.register("flows", *record)
        return self._ids[flow]


def _is_free_ranking(flow: Operator[Query, Any]) -> bool:
    """Return whether a flow, or every flow of a space, gives a ranking and asks no language model."""
    try:
        return flow.calls() == 0 and fits(Ranking, flow.gives(Query), {})
    except WiringError:  # candidates that do not go together
        return False
