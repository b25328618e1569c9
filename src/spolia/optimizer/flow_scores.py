"""Scores of the flows of a space: retrieval by sweeps, everything else by an experiment; each kept as it comes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.core.operator import Operator
from spolia.core.type_compatibility import fits
from spolia.errors import NeverWorked, SpoliaError, StepFailed, WiringError, WorkersFailed
from spolia.evaluation.experiment.execution import ask, named_by_content, store_part
from spolia.evaluation.experiment.flows import Known, groups_of, identity
from spolia.evaluation.experiment.gold_locations import gold_locations
from spolia.evaluation.experiment.score_store import ANSWER, ANSWERS, FAILED, SCORED, SCORES, USAGE, ScoreStore
from spolia.evaluation.experiment.score_table import StorePart
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.retrieval_measure import RetrievalMeasure
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.contexts import sweepable
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.reader_scores import ReadScores
from spolia.optimizer.score_board import Floats, ScoreRows
from spolia.optimizer.sweeps import Chains, Sweep, SweepExecutor, SweepScores
from spolia.run import Run
from spolia.types import Failure, Item, Query, Ranking, Usage

CALLS, COST_USD = USAGE.index("calls"), USAGE.index("cost_usd")
Job: TypeAlias = tuple[list[int], list[int]]
"""Places of flows, and of questions that they are asked."""
LOST = 8
"""Questions that workers may lose before they are given no more."""
AT_ONCE = 8
"""Questions of flows that wait, which are asked together: what is lost when a study is killed."""


@dataclass(eq=False)
class FlowScores:
    """Asks flows questions in their order and measures what they give; what is in the store is not asked again.

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
        told: called with how many more scores are there, by several threads; an error that it raises ends the asking.
        executor: of sweeps that only search; None computes all in this process.
        rows: scores computed now.
    """

    candidates: Candidates
    items: Sequence[Item]
    objectives: Objectives
    run: Run
    store: ScoreStore
    degraded: str = "stop"
    told: Callable[[int], None] = lambda rows: None
    executor: SweepExecutor | None = None
    rows: int = 0
    needed: Usage = field(default=Usage())
    """What flows needed of models, whether it was asked now, kept from before or in a cache."""
    excluded: dict[int, SpoliaError] = field(default_factory=dict)
    """Flows that cannot run, with why."""
    lost: Counter[str] = field(default_factory=Counter)
    """Why workers did not give scores, which were computed here instead."""

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._measures = self.objectives.measures
        self._known: Known = {}
        self._groups = groups_of(self.candidates.space.flow)
        with self.run:
            taken = [named_by_content(str(one), identity(one, self.run, self._known)) for one in self._measures]
        self._part = store_part(self.store, [], self.items, taken)
        self.reread()
        self._ids: dict[int, int] = {}
        self._placed: dict[tuple[str, ...], Sequence[Item]] = {}
        self._chains: dict[int, Operator[Query, Ranking] | None] = {}
        self.sweeps = SweepScores(self.run, self._measures)
        self._ranks = all(isinstance(one, RetrievalMeasure) for one in self._measures)
        self._all_free = _only_ranks(self.candidates.space.flow)
        self._signs = self.objectives.signs
        self._before = self.run.spent
        self.read: ReadScores | None = None
        """Of flows with one reader, whose contexts are known."""

    def reread(self) -> None:
        """Look at what the store holds now: flows will be asked questions that they were asked before."""
        self._stored = set(np.unique(self.store.columns(SCORES)["flow"]).tolist())

    @property
    def spent(self) -> Usage:
        """What models really took since."""
        return self.run.spent - self._before

    def __call__(self, flows: Sequence[int], questions: range) -> ScoreRows:
        shape = len(flows), len(questions), len(self._measures)
        values, costs, usd = np.full(shape, np.nan), np.zeros((len(flows), 2)), 0.0
        chains = [self._chain(flow) for flow in flows]
        swept = {at: chain for at, chain in enumerate(chains) if chain and flows[at] not in self.excluded}
        by_stores: dict[tuple[str, ...], list[int]] = {}
        for at in swept:
            by_stores.setdefault(self._stores(flows[at]), []).append(at)
        for some in by_stores.values():
            values[some] = self._swept([flows[at] for at in some], [swept[at] for at in some], questions)
        rest = [at for at, flow in enumerate(flows) if at not in swept and flow not in self.excluded]
        if rest and self.read is not None and questions.stop <= self.read.contexts.questions:
            found, taken, usd = self.read([flows[at] for at in rest], questions)
            values[rest], costs[rest] = found, taken[:, [COST_USD, CALLS]]
        for at, flow in enumerate(flows):
            if np.isnan(values[at]).any():
                values[at], costs[at], paid = self._asked(flow, questions)
                usd += paid
        return ScoreRows(self._signs * values, costs, usd)

    # Experiments.

    def _asked(self, flow: int, questions: range) -> tuple[Floats, Floats, float]:
        """The scores of one flow, what a question costs, and the USD that were paid for all, now or before; -inf for a
        flow that cannot run."""
        worst = -np.inf * self._signs
        if flow in self.excluded:
            return worst, np.zeros(2), 0.0
        items, before = [self.items[at] for at in questions], self.rows
        try:
            how: dict[str, Any] = {"run": self.run, "path": self.store, "degraded": self.degraded}
            table = ask(
                self._named(flow),
                items,
                self._measures,
                rivals=self._groups,
                told=self._scored,
                known=self._known,
                **how,
            )
        except (StepFailed, NeverWorked, WiringError) as error:
            self.excluded[flow] = error
            return worst, np.zeros(2), 0.0
        self.told(len(questions) - (self.rows - before))
        self.needed += table.usage("usage", 0)
        usage, paid = table.answers["usage"][0].mean(axis=0), table.usage("spent", 0) + table.usage("judging", 0)
        return table.scores[0], usage[[COST_USD, CALLS]], paid.cost_usd

    def cases(self, flows: Sequence[int], places: Sequence[int]) -> list[list[Case]]:
        """What flows gave for some questions, by flow; kept, so that it is made once."""
        how: dict[str, Any] = {"run": self.run, "path": self.store, "degraded": "ok", "known": self._known}
        items = [self.items[at] for at in places]
        if not items:
            return [[] for _ in flows]
        named = {name: found for flow in flows for name, found in self._named(flow).items()}
        table = ask(named, items, self._measures, rivals=self._groups, **how)
        return [[table.case(row, at) for at in range(len(items))] for row in range(len(flows))]

    def failures(self, flow: int) -> tuple[tuple[str, Failure], ...]:
        """The questions on which a flow failed, which score 0."""
        part, answers = self.rows_of([flow], range(len(self.items))), np.zeros(len(self.items), ANSWERS)
        rows, where = part.rows(ANSWER)
        answers[where[1]] = rows
        failed = np.flatnonzero(answers["status"] == FAILED).tolist()
        cases = [part.store.case(answers[at], self.items[at]) for at in failed]
        return tuple((case.item.id, case.result) for case in cases if isinstance(case.result, Failure))

    def _scored(self, flow: str, done: int, whole: int) -> None:
        with self._lock:
            self.rows += 1
        self.told(1)

    def _named(self, flow: int) -> dict[str, Operator[Query, Any]]:
        found = self.candidates.flows[flow]
        return {repr(found): found}

    # Sweeps.

    def _chain(self, flow: int) -> Operator[Query, Ranking] | None:
        """The flow as it can be swept; None where it cannot."""
        if flow not in self._chains:
            found = self.candidates.flows[flow]
            free = self._ranks and (self._all_free or _only_ranks(found))
            self._chains[flow] = sweepable(found) if free else None
        return self._chains[flow]

    def _swept(self, flows: Sequence[int], chains: Chains, questions: range) -> Floats:
        """Scores by flow and question; NaN where a flow fails or is degraded: an experiment reports that."""
        part, items = self.rows_of(flows, questions), self.items_for(flows[0])[questions.start : questions.stop]
        values = self.kept(part, len(flows), len(questions))
        batches = self.run.per_question is None and any(chain.waiting for chain in chains)
        failing = np.zeros(len(flows), bool)

        def jobs() -> Iterator[Job]:
            for start in range(0, len(questions), window := AT_ONCE if batches else 1):
                asked: dict[tuple[int, ...], list[int]] = {}
                for at in range(start, min(start + window, len(questions))):
                    self.told(len(flows))
                    wanted = np.flatnonzero(np.isnan(values[:, at]).any(axis=1) & ~failing)
                    if wanted.size:
                        asked.setdefault(tuple(wanted.tolist()), []).append(at)
                yield from ((list(wanted), places) for wanted, places in asked.items())

        with self.run:
            for (wanted, places), found in self._computed(jobs(), chains, items):
                for at, scores in zip(places, found, strict=True):
                    known, flow_rows = ~np.isnan(scores).any(axis=1), np.array(wanted)
                    failing[flow_rows[~known]] = True
                    self.keep(part, flow_rows[known], at, scores[known])
                    values[flow_rows, at] = scores
        return values

    def _computed(self, jobs: Iterator[Job], chains: Chains, items: Sequence[Item]) -> Iterator[tuple[Job, Floats]]:
        """The scores of jobs by question, flow and measure, each as it ends; by the executor where that can."""

        def here(job: Job) -> Floats:
            return self.sweeps([chains[flow] for flow in job[0]], [items[at] for at in job[1]])

        sweep = None if self.executor is None else Sweep.of(chains, self._measures, self.run)
        if self.executor is not None and sweep is not None:
            yield from self._elsewhere(self.executor, sweep, jobs, items, here)
        yield from ((job, here(job)) for job in jobs)

    def _elsewhere(
        self,
        executor: SweepExecutor,
        sweep: Sweep,
        jobs: Iterator[Job],
        items: Sequence[Item],
        here: Callable[[Job], Floats],
    ) -> Iterator[tuple[Job, Floats]]:
        """Those of an executor; what it loses is computed here, and it is given no more once it has lost `LOST`."""
        pool, going = ThreadPoolExecutor(executor.count), dict[Future[Floats], Job]()
        try:
            while True:
                if self.lost.total() < LOST:
                    for flows, places in islice(jobs, executor.count + 1 - len(going)):
                        asked = [items[at] for at in places]
                        going[pool.submit(executor.scores, sweep, flows, asked)] = flows, places
                if not going:
                    return
                for ended in wait(going, return_when=FIRST_COMPLETED).done:
                    job = going.pop(ended)
                    try:
                        found = ended.result()
                    except WorkersFailed as error:
                        self.lost[str(error)] += 1
                        found = here(job)
                    yield job, found
        finally:
            pool.shutdown(cancel_futures=True)

    def keep(self, part: StorePart, flows: NDArray[np.intp], at: int, scores: Floats) -> None:
        gold = int(part.question_ids[at]), int(part.gold_ids[at])
        self.store.score_flows(part.flow_ids[flows], *gold, part.measure_ids, scores)
        self.rows += flows.size

    def _stores(self, flow: int) -> tuple[str, ...]:
        """The stores that a flow searches, in which gold is looked up."""
        return tuple(dict.fromkeys(group.corpus.path for group in groups_of(self.candidates.flows[flow])))

    def items_for(self, flow: int) -> Sequence[Item]:
        """The questions with their gold as places in the stores that a flow searches."""
        stores = self._stores(flow)
        if stores not in self._placed:
            with self.run:
                places = gold_locations(self.items, [self.candidates.flows[flow]], self._groups)
            self._placed[stores] = [places.item(item) for item in self.items]
        return self._placed[stores]

    def rows_of(self, flows: Sequence[int], questions: range) -> StorePart:
        part, some = self._part, slice(questions.start, questions.stop)
        ids = np.array([self._id(flow) for flow in flows], np.uint64)
        return StorePart(
            self.store, np.arange(len(flows)), ids, part.question_ids[some], part.gold_ids[some], part.measure_ids
        )

    def kept(self, part: StorePart, flows: int, questions: int) -> Floats:
        """What was in the store when it was read last."""
        values = np.full((flows, questions, len(self._measures)), np.nan)
        if self._stored.isdisjoint(part.flow_ids.tolist()):
            return values
        answers = np.zeros((flows, questions), ANSWERS)
        rows, where = part.rows(ANSWER)
        answers[where] = rows
        rows, where = part.rows(SCORES, answers)
        scored = rows["state"] == SCORED
        values[tuple(axis[scored] for axis in where)] = rows["number"][scored]
        return values

    def _id(self, flow: int) -> int:
        if flow not in self._ids:
            ((name, found),) = self._named(flow).items()
            named = named_by_content(name, identity(found, self.run, self._known))
            self._ids[flow] = self.store.name("flows", *named)
        return self._ids[flow]


def _only_ranks(flow: Operator[Query, Any]) -> bool:
    """Whether a flow, or every flow of a space, gives a ranking and asks no language model."""
    try:
        return flow.calls() == 0 and fits(Ranking, flow.gives(Query), {})
    except WiringError:  # candidates that do not go together
        return False
