"""Scores of flows that only search, all computed together for a question: in this process, or by workers."""

import gc
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import nan
from queue import LifoQueue
from threading import Lock
from typing import Any, BinaryIO, Protocol, Self, TypeAlias

import numpy as np

from spolia.core.operator import Operator
from spolia.core.run_context import attempt
from spolia.core.sweepable import VariantRanking
from spolia.errors import DataError, SpoliaError, StepFailed, WorkersFailed
from spolia.evaluation.measures.measure import Case, SetMeasure
from spolia.evaluation.measures.retrieval_measure import OWN, CutMeasure, gold_marks, gold_shape
from spolia.optimizer.score_board import Floats
from spolia.orchestration.sweep import VariantRunner, build_variant_runner
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.run import Run
from spolia.stores import Corpus, NodeGroup
from spolia.types import Failure, Filter, Item, Query, Ranking
from spolia.worker_process import WorkerDied, WorkerProcess, pickle_value, serve, write_frame

Chains: TypeAlias = Sequence[Operator[Query, Ranking]]
GARBAGE_THRESHOLD = 50_000
"""Objects that a worker makes before it looks for garbage."""
LIMIT_S = 600.0
"""For one question in a worker."""
LIMIT_MB = 1 << 20
"""No limit: what a worker computes, this process would compute."""


@dataclass(frozen=True)
class Sweep:
    """Flows that only search, and their measures, as plain data that can be sent to another process.

    Args:
        chains: the flows.
        contents: what the stores hold that they search; a worker that finds something else refuses.
        principals: for whom they search; `filter` for what.
    """

    chains: Chains
    measures: Sequence[SetMeasure]
    contents: Sequence[tuple[Corpus, str | None]]
    principals: tuple[str, ...] = ()
    filter: Filter | None = None

    @classmethod
    def from_chains(cls, chains: Chains, measures: Sequence[SetMeasure], run: Run) -> Self | None:
        """Make a sweep; None where flows ask more than stores, or steps are recorded: only the run's own process can do
        that."""
        resources = dict.fromkeys(resource for chain in chains for resource in chain.resources)
        groups = [resource.group if isinstance(resource, NodeGraph) else resource for resource in resources]
        if run.journal is not None or not all(isinstance(group, NodeGroup) for group in groups):
            return None
        corpora = dict.fromkeys(group.corpus for group in groups if isinstance(group, NodeGroup))
        with run:
            contents = [(corpus, corpus.fingerprint()) for corpus in corpora]
        return cls(chains, measures, contents, tuple(sorted(run.principals)), run.filter)


class SweepScores:
    """Scores of flows on questions; rankings with their gold at the same places are measured once."""

    def __init__(self, run: Run, measures: Sequence[SetMeasure]) -> None:
        self.run, self.measures = run, measures
        depths = [measure.k if isinstance(measure, CutMeasure) else None for measure in measures]
        # A measure without a cut reads the whole ranking.
        self._max_depth = None if None in depths else max(filter(None, depths), default=None)
        self._by_gold: dict[object, dict[tuple[object, ...], Sequence[float]]] = {}
        self._sweeper: tuple[Chains, VariantRunner] = (), build_variant_runner([])

    def __call__(self, chains: Chains, items: Sequence[Item]) -> Floats:
        """Return float64[questions, flows, measures]. What fails together is tried in parts: each question alone, then
        each flow; NaN for what fails alone, or is degraded."""
        scores = attempt(partial(self._score_together, chains, items))
        if not isinstance(scores, Failure):
            return scores
        if len(items) > 1:
            return np.concatenate([self(chains, [item]) for item in items])
        if len(chains) > 1:
            return np.concatenate([self([chain], items) for chain in chains], axis=1)
        return np.full((1, 1, len(self.measures)), nan)

    def _score_together(self, chains: Chains, items: Sequence[Item]) -> Floats:
        with self.run.lane(shares=False) as lane:  # the sweep shares them
            rankings = self._cached_sweeper(chains)([Query(item.question) for item in items])
            scores = [
                [*self.score_rankings(item_rankings, item)] for item_rankings, item in zip(rankings, items, strict=True)
            ]
        if degraded := next((reason for _, reason, degrades in lane.reasons if degrades), ""):
            raise StepFailed(degraded)
        return np.array(scores, np.float64)

    def _cached_sweeper(self, chains: Chains) -> VariantRunner:
        previous = self._sweeper[0]
        if len(previous) != len(chains) or any(  # by identity: to compare whole flows for each question would cost more
            old_chain is not new_chain for old_chain, new_chain in zip(previous, chains, strict=True)
        ):
            self._sweeper = chains, build_variant_runner(chains)
        return self._sweeper[1]

    def score_rankings(self, rankings: Sequence[VariantRanking], item: Item) -> Iterator[Sequence[float]]:
        """Yield the scores of each measure, by ranking."""
        # Passages with quotes of one question say nothing of another.
        scores_by_key = {} if item.quotes else self._by_gold.setdefault(gold_shape(item), {})
        places: dict[int, list[int]] = {}
        for ranking in rankings:
            if item.quotes:
                key: tuple[object, ...] = tuple(node.digest for node in ranking.nodes)
            else:
                marks = places.get(id(ranking.pool)) or places.setdefault(
                    id(ranking.pool), gold_marks(item, ranking.pool.nodes)
                )
                order = [index for index in ranking.order if marks[index] != OWN] if OWN in marks else ranking.order
                key = tuple([marks[index] for index in order[: self._max_depth]])
            if key not in scores_by_key:
                case = Case(item, ranking.ranking)
                observations = (measure.observe(case) for measure in self.measures)
                scores_by_key[key] = [nan if observation is None else observation[0] for observation in observations]
            yield scores_by_key[key]


class SweepExecutor(Protocol):
    """Executor that computes scores elsewhere: in processes of this machine, or on other machines.

    What it is given can be pickled, and each call stands alone. Calls come from several threads.

    Attributes:
        count: how many calls are made at the same time.
    """

    count: int

    def scores(self, sweep: Sweep, flows: Sequence[int], items: Sequence[Item]) -> Floats:
        """Compute what `SweepScores` gives for some of the flows of a sweep.

        Raises:
            WorkersFailed: they cannot be computed there; the caller computes them.
        """
        ...


class SweepProcesses:
    """Executor of sweeps in processes on this machine. Use it in a `with` statement; they start when they are needed.

    Args:
        count: how many.
    """

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self._workers = [_SweepProcess(LIMIT_MB, LIMIT_MB) for _ in range(count)]
        # The worker used last is taken first: it holds the sweep, and workers that are not needed never
        # start.
        self._idle = LifoQueue[_SweepProcess]()
        for worker in self._workers:
            self._idle.put(worker)
        self._lock, self._pickled = Lock(), (Sweep((), (), ()), b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()

    def scores(self, sweep: Sweep, flows: Sequence[int], items: Sequence[Item]) -> Floats:
        worker = self._idle.get()
        try:
            return worker.scores(sweep, self._pickle_once(sweep), flows, items)
        except WorkerDied as died:
            raise WorkersFailed(f"a worker process {died}") from died
        except SpoliaError as error:
            raise WorkersFailed(str(error)) from error
        finally:
            self._idle.put(worker)

    def _pickle_once(self, sweep: Sweep) -> bytes:
        with self._lock:
            if self._pickled[0] is not sweep:
                self._pickled = sweep, pickle_value(sweep, "leave out the processes")
            return self._pickled[1]


class _SweepProcess(WorkerProcess):
    """Worker as this process sees it; it holds the last sweep."""

    program = "from spolia.optimizer.sweeps import main; main()"
    remedy = "Run it to see why, or leave out the processes"
    _holds: tuple[object, object] = None, None

    def scores(self, sweep: Sweep, sweep_bytes: bytes, flows: Sequence[int], items: Sequence[Item]) -> Floats:
        self.ensure_running()
        self.seconds = LIMIT_S
        holds = self.process, sweep  # a process that was started again holds no sweep
        is_new = any(new_part is not old_part for new_part, old_part in zip(holds, self._holds, strict=True))
        # A call that fails leaves the worker in an unknown state: the next one sends the sweep again.
        self._holds = None, None
        places = np.array(flows, "<i8").tobytes()
        _, (reply,) = self.send_request(
            {}, [sweep_bytes if is_new else b"", pickle_value(items, "leave out the processes"), places]
        )
        self._holds = holds
        return np.frombuffer(reply, "<f8").reshape(len(items), len(flows), len(sweep.measures))


def main() -> None:
    """Run as a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side ends it
    gc.set_threshold(GARBAGE_THRESHOLD)
    with ExitStack() as inside:
        loaded: list[tuple[Sweep, SweepScores]] = []

        def answer(message: dict[str, Any], attached: list[bytes], requests: BinaryIO, replies: BinaryIO) -> None:
            sweep, items, flows = attached
            if sweep:
                inside.close()
                loaded[:] = [_open_sweep(pickle.loads(sweep), inside)]  # from the process that started this one
            ((loaded_sweep, scores),) = loaded
            chains = [loaded_sweep.chains[index] for index in np.frombuffer(flows, "<i8").tolist()]
            write_frame(replies, {}, [scores(chains, pickle.loads(items)).astype("<f8").tobytes()])

        serve(answer)


def _open_sweep(sweep: Sweep, inside: ExitStack) -> tuple[Sweep, SweepScores]:
    run = inside.enter_context(Run(groups=sweep.principals, filter=sweep.filter, threads=1))
    for corpus, content in sweep.contents:
        if corpus.fingerprint() != content:
            raise DataError(f"{corpus.path} has changed since the study began")
    return sweep, SweepScores(run, sweep.measures)
