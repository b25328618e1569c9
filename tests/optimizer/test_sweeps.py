"""Searches computed by worker processes: the same scores, whatever happens to a worker."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import WorkersFailed
from spolia.evaluation.measures.registry import parse_measure
from spolia.indexing.sync.texts import add_texts
from spolia.optimizer.sweeps import Sweep, SweepProcesses, SweepScores
from spolia.optimizer.tuning import tune
from spolia.post_retrieval.selection import Cut
from spolia.retrieval.bm25_variants import BM25Variant
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Item, Query, Ranking


@dataclass(frozen=True)
class Dies(Operator[Query, Query]):
    """Kills the worker that asks this question first; `here` is another process."""

    question: str
    here: int
    marker: str

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0

    def apply(self, value: Query, /) -> Query:
        if value.text == self.question and os.getpid() != self.here:
            Path(self.marker).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return value


@pytest.mark.slow
def test_processes_give_the_scores_of_this_one_and_a_killed_worker_loses_none(tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "lights.spolia"))
    add_texts(
        corpus,
        {f"{number}.txt": f"Light {number} has {number % 5} lamps, and {number % 3} goats." for number in range(40)},
    )
    items = [
        Item(f"q{number}", f"How many goats has light {number}?", gold=((f"text:{number}.txt",),))
        for number in range(40)
    ]
    search = BM25Variant(corpus.group("chunk"))
    space = search.vary("k1", k1=[0.5, 1.2, 2.0]).vary("b", b=[0.0, 0.75]) >> Cut().vary("most", top_k=[1, 5])
    space = Dies(items[7].question, os.getpid(), str(tmp_path / "died")) >> space
    alone = tune(space, items, "MRR")
    with SweepProcesses(2) as processes:
        tuned_flow = tune(space, items, "MRR", executor=processes, path=tmp_path / "study")
        assert (tmp_path / "died").exists()
        assert (tuned_flow.point, tuned_flow.score, tuned_flow.finalists) == (alone.point, alone.score, alone.finalists)
        assert tuned_flow.rows == alone.rows
        assert "Computed here 1 time: a worker process died (SIGKILL)." in tuned_flow.notes
        assert tune(space, items, "MRR", executor=processes, path=tmp_path / "study").rows == 0

        run, measures = Run(), [parse_measure("MRR")]
        sweep = Sweep.from_chains([search, search.but(top_k=2)], measures, run)
        assert sweep is not None
        with run:
            here = SweepScores(run, measures)(sweep.chains, items[:2])
        assert processes.scores(sweep, [1], items[:2]).tolist() == here[:, 1:].tolist()
        with pytest.raises(WorkersFailed, match="has changed since the study began"):
            processes.scores(replace(sweep, contents=((corpus, "other"),)), [0], items[:1])

        @step
        def local(query: Query) -> Ranking:
            return Ranking(query, ())

        with pytest.raises(WorkersFailed, match="cannot be sent to another process"):
            processes.scores(replace(sweep, chains=(local,)), [0], items[:1])
