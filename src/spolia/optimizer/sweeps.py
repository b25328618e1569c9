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
from spolia.core.sweepable import Swept
from spolia.errors import DataError, SpoliaError, StepFailed, WorkersFailed
from spolia.evaluation.measures.measure import Case, SetMeasure
from spolia.evaluation.measures.retrieval_measure import OWN, CutMeasure, gold_marks, gold_shape
from spolia.optimizer.score_board import Floats
from spolia.orchestration.sweep import Together, sweeper
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.run import Run
from spolia.stores import Corpus, NodeGroup
from spolia.types import Failure, Filter, Item, Query, Ranking
from spolia.worker_process import Died, WorkerProcess, pickled, send, serve

Chains: TypeAlias = Sequence[Operator[Query, Ranking]]
GARBAGE = 50_000
"""Objects that a worker makes before it looks for garbage."""
LIMIT_S = 600.0
"""For one question in a worker."""
LIMIT_MB = 1 << 20
"""No limit: what a worker computes, this process would compute."""


@dataclass(frozen=True)
class Sweep:
    """Flows that only search, and what is measured, as plain data that another process can be sent.

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
    def of(cls, chains: Chains, measures: Sequence[SetMeasure], run: Run) -> Self | None:
        """None where flows ask more than stores, or steps are recorded: only the run's own process can do that."""
        found = dict.fromkeys(one for chain in chains for one in chain.resources)
        groups = [one.group if isinstance(one, NodeGraph) else one for one in found]
        if run.journal is not None or not all(isinstance(one, NodeGroup) for one in groups):
            return None
        corpora = dict.fromkeys(one.corpus for one in groups if isinstance(one, NodeGroup))
        with run:
            contents = [(one, one.fingerprint()) for one in corpora]
        return cls(chains, measures, contents, tuple(sorted(run.principals)), run.filter)


class SweepScores:
    """The scores of flows on questions; rankings with their gold at the same places are measured once."""

    def __init__(self, run: Run, measures: Sequence[SetMeasure]) -> None:
        self.run, self.measures = run, measures
        depths = [one.k if isinstance(one, CutMeasure) else None for one in measures]
        self._depth = None if None in depths else max(filter(None, depths), default=None)
        self._by_gold: dict[object, dict[tuple[object, ...], Sequence[float]]] = {}
        self._sweeper: tuple[Chains, Together] = (), sweeper([])

    def __call__(self, chains: Chains, items: Sequence[Item]) -> Floats:
        """float64[questions, flows, measures]. What fails together is tried in parts: each question alone, then each
        flow; NaN for what fails alone, or is degraded."""
        found = attempt(partial(self._scored, chains, items))
        if not isinstance(found, Failure):
            return found
        if len(items) > 1:
            return np.concatenate([self(chains, [item]) for item in items])
        if len(chains) > 1:
            return np.concatenate([self([chain], items) for chain in chains], axis=1)
        return np.full((1, 1, len(self.measures)), nan)

    def _scored(self, chains: Chains, items: Sequence[Item]) -> Floats:
        with self.run.lane(shares=False) as lane:  # the sweep shares them
            rankings = self._together(chains)([Query(item.question) for item in items])
            found = [[*self.measured(own, item)] for own, item in zip(rankings, items, strict=True)]
        if degraded := next((reason for _, reason, degrades in lane.reasons if degrades), ""):
            raise StepFailed(degraded)
        return np.array(found, np.float64)

    def _together(self, chains: Chains) -> Together:
        before = self._sweeper[0]
        if len(before) != len(chains) or any(one is not other for one, other in zip(before, chains, strict=True)):
            self._sweeper = chains, sweeper(chains)
        return self._sweeper[1]

    def measured(self, rankings: Sequence[Swept], item: Item) -> Iterator[Sequence[float]]:
        """By ranking, the scores of each measure."""
        known = {} if item.quotes else self._by_gold.setdefault(gold_shape(item), {})
        places: dict[int, list[int]] = {}
        for one in rankings:
            if item.quotes:
                key: tuple[object, ...] = tuple(node.digest for node in one.nodes)
            else:
                marks = places.get(id(one.pool)) or places.setdefault(id(one.pool), gold_marks(item, one.pool.nodes))
                order = [at for at in one.order if marks[at] != OWN] if OWN in marks else one.order
                key = tuple([marks[at] for at in order[: self._depth]])
            if key not in known:
                case = Case(item, one.ranking)
                seen = (measure.seen(case) for measure in self.measures)
                known[key] = [nan if scored is None else scored[0] for scored in seen]
            yield known[key]


class SweepExecutor(Protocol):
    """Computes scores elsewhere: in processes of this machine, or on other machines.

    What it is given can be pickled, and each call stands alone. Calls come from several threads.

    Attributes:
        count: how many calls are made at the same time.
    """

    count: int

    def scores(self, sweep: Sweep, flows: Sequence[int], items: Sequence[Item]) -> Floats:
        """`SweepScores` of some of the flows of a sweep.

        Raises:
            WorkersFailed: they cannot be computed there; the caller computes them.
        """
        ...


class SweepProcesses:
    """A `SweepExecutor` of processes on this machine. Use it in a `with` statement; they start when they are needed.

    Args:
        count: how many.
    """

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self._workers = [_SweepProcess(LIMIT_MB, LIMIT_MB) for _ in range(count)]
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
            return worker.scores(sweep, self._sent(sweep), flows, items)
        except Died as died:
            raise WorkersFailed(f"a worker process {died}") from died
        except SpoliaError as error:
            raise WorkersFailed(str(error)) from error
        finally:
            self._idle.put(worker)

    def _sent(self, sweep: Sweep) -> bytes:
        with self._lock:
            if self._pickled[0] is not sweep:
                self._pickled = sweep, pickled(sweep, "leave out the processes")
            return self._pickled[1]


class _SweepProcess(WorkerProcess):
    """A worker as this process sees it; it holds the last sweep."""

    program = "from spolia.optimizer.sweeps import main; main()"
    remedy = "Run it to see why, or leave out the processes"
    _holds: tuple[object, object] = None, None

    def scores(self, sweep: Sweep, sent: bytes, flows: Sequence[int], items: Sequence[Item]) -> Floats:
        self.running()
        self.seconds = LIMIT_S
        holds = self.process, sweep
        is_new = any(one is not other for one, other in zip(holds, self._holds, strict=True))
        self._holds = None, None
        places = np.array(flows, "<i8").tobytes()
        _, (found,) = self.asked({}, [sent if is_new else b"", pickled(items, "leave out the processes"), places])
        self._holds = holds
        return np.frombuffer(found, "<f8").reshape(len(items), len(flows), len(sweep.measures))


def main() -> None:
    """Be a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side ends it
    gc.set_threshold(GARBAGE)
    with ExitStack() as inside:
        held: list[tuple[Sweep, SweepScores]] = []

        def answer(said: dict[str, Any], attached: list[bytes], requests: BinaryIO, replies: BinaryIO) -> None:
            sweep, items, flows = attached
            if sweep:
                inside.close()
                held[:] = [_opened(pickle.loads(sweep), inside)]  # from the process that started this one
            ((found, scores),) = held
            chains = [found.chains[at] for at in np.frombuffer(flows, "<i8").tolist()]
            send(replies, {}, [scores(chains, pickle.loads(items)).astype("<f8").tobytes()])

        serve(answer)


def _opened(sweep: Sweep, inside: ExitStack) -> tuple[Sweep, SweepScores]:
    run = inside.enter_context(Run(groups=sweep.principals, filter=sweep.filter, threads=1))
    for corpus, content in sweep.contents:
        if corpus.fingerprint() != content:
            raise DataError(f"{corpus.path} has changed since the study began")
    return sweep, SweepScores(run, sweep.measures)
