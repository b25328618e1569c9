"""Scores of the flows of a space: retrieval by sweeps, everything else by an experiment; each kept as it comes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import nan
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.core.operator import Operator
from spolia.core.run_context import attempt
from spolia.core.sweepable import Swept
from spolia.core.type_compatibility import fits
from spolia.errors import NeverWorked, SpoliaError, StepFailed, WiringError
from spolia.evaluation.experiment.execution import ask, named_by_content, store_part
from spolia.evaluation.experiment.flows import Known, groups_of, identity
from spolia.evaluation.experiment.gold_locations import gold_locations
from spolia.evaluation.experiment.score_store import ANSWER, ANSWERS, SCORED, SCORES, USAGE, ScoreStore
from spolia.evaluation.experiment.score_table import StorePart
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.retrieval_measure import CutMeasure, RetrievalMeasure, gold_marks, gold_shape
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.contexts import sweepable
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.reader_scores import ReadScores
from spolia.optimizer.score_board import Floats, ScoreRows
from spolia.orchestration.sweep import Together, sweeper
from spolia.run import Run
from spolia.types import Failure, Item, Query, Ranking, Usage

CALLS, COST_USD = USAGE.index("calls"), USAGE.index("cost_usd")
Chains: TypeAlias = Sequence[Operator[Query, Ranking]]
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
        rows: scores computed now.
    """

    candidates: Candidates
    items: Sequence[Item]
    objectives: Objectives
    run: Run
    store: ScoreStore
    degraded: str = "stop"
    told: Callable[[int], None] = lambda rows: None
    rows: int = 0
    needed: Usage = field(default=Usage())
    """What flows needed of models, whether it was asked now, kept from before or in a cache."""
    excluded: dict[int, SpoliaError] = field(default_factory=dict)
    """Flows that cannot run, with why."""

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
        depths = [one.k if isinstance(one, CutMeasure) else None for one in self._measures]
        self._depth = None if None in depths else max(filter(None, depths), default=None)
        self._ranks = all(isinstance(one, RetrievalMeasure) for one in self._measures)
        self._all_free = _only_ranks(self.candidates.space.flow)
        self._by_gold: dict[object, dict[tuple[object, ...], Sequence[float]]] = {}
        self._sweeper: tuple[tuple[int, ...], Together] = (), sweeper([])
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
                told=self._computed,
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

    def _computed(self, flow: str, done: int, whole: int) -> None:
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
        with self.run:
            for start in range(0, len(questions), window := AT_ONCE if batches else 1):
                asked: dict[bytes, list[int]] = {}
                for at in range(start, min(start + window, len(questions))):
                    self.told(len(flows))
                    if (wanted := np.flatnonzero(np.isnan(values[:, at]).any(axis=1) & ~failing)).size:
                        asked.setdefault(wanted.tobytes(), []).append(at)
                for key, places in asked.items():
                    wanted = np.frombuffer(key, np.intp)
                    found = self._found([items[at] for at in places], [chains[flow] for flow in wanted.tolist()])
                    for at, scores in zip(places, found, strict=True):
                        known = ~np.isnan(scores).any(axis=1)
                        failing[wanted[~known]] = True
                        self.keep(part, wanted[known], at, scores[known])
                        values[wanted, at] = scores
        return values

    def keep(self, part: StorePart, flows: NDArray[np.intp], at: int, scores: Floats) -> None:
        gold = int(part.question_ids[at]), int(part.gold_ids[at])
        self.store.score_flows(part.flow_ids[flows], *gold, part.measure_ids, scores)
        self.rows += flows.size

    def _found(self, items: Sequence[Item], chains: Chains) -> Floats:
        """Scores by question, flow and measure. What fails together is tried in parts: each question alone, then each
        flow; NaN for what fails alone."""
        found = attempt(partial(self._scored, items, chains))
        if not isinstance(found, Failure):
            return found
        if len(items) > 1:
            return np.concatenate([self._found([item], chains) for item in items])
        if len(chains) > 1:
            return np.concatenate([self._found(items, [chain]) for chain in chains], axis=1)
        return np.full((1, 1, len(self._measures)), np.nan)

    def _scored(self, items: Sequence[Item], chains: Chains) -> Floats:
        """The scores of flows on questions; rankings with their gold at the same places are measured once."""
        with self.run.lane(shares=False) as lane:  # the sweep shares them
            rankings = self._together(chains)([Query(item.question) for item in items])
            found = [[*self._measured(own, item)] for own, item in zip(rankings, items, strict=True)]
        if degraded := next((reason for _, reason, degrades in lane.reasons if degrades), ""):
            raise StepFailed(degraded)
        return np.array(found, np.float64)

    def _together(self, chains: Chains) -> Together:
        key = tuple(map(id, chains))  # they are kept in `_chains`
        if key != self._sweeper[0]:
            self._sweeper = key, sweeper(chains)
        return self._sweeper[1]

    def _measured(self, rankings: Sequence[Swept], item: Item) -> Iterator[Sequence[float]]:
        known = {} if item.quotes else self._by_gold.setdefault(gold_shape(item), {})
        places: dict[int, list[int]] = {}
        for one in rankings:
            if item.quotes:
                key: tuple[object, ...] = tuple(node.digest for node in one.nodes)
            else:
                marks = places.get(id(one.pool)) or places.setdefault(id(one.pool), gold_marks(item, one.pool.nodes))
                key = tuple([marks[at] for at in one.order[: self._depth]])
            if key not in known:
                case = Case(item, one.ranking)
                seen = (measure.seen(case) for measure in self._measures)
                known[key] = [nan if scored is None else scored[0] for scored in seen]
            yield known[key]

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
