"""What a study of flows with a paid reader takes: what is free first, equal contexts once, and without.

    python benchmarks/optimizer/paid.py [--questions N] [--seeds N] [--out FILE]

An invented world (`FictionalWorld`) is searched by words, and read by a simulated reader that overlooks a tenth of the
facts and is lured in a fifth of the questions: answers are simulated, not those of a language model. Every context of
the grid is read once; then studies are played over the stored scores by the strategy that `tune` runs by default. A
seed draws the tuning questions, half of all, and what the strategy draws.

- `rows`: a budget counts scores, as of a space without readers; the flows to begin with are drawn.
- `contexts`: a budget counts contexts that were not asked before, other scores are free.
- `quality`: the same, and whether all gold is in a context, which is free, decides which flows to begin with and is a
  control variate: as `tune` does.

A question has some 15 contexts here: a tenth of the calls are 1.5 a question. The limit on regret at 2 % of the rows
and a tenth of the calls is that of `strategies.py`, whose 672 flows have more than 110 contexts a question.

Regret is the true mean F1 of the best flow minus that of the choice, in points, over all questions; the floor is that
of the flow that is best on all tuning questions. Calls are shares of those that the whole grid takes on the tuning
questions if each context is asked once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1]))

from results import Judged, machine, told

from spolia import BM25, Branch, Choice, Identity, ReciprocalRankFusion
from spolia.core.combinators.space import Space
from spolia.core.operator import Operator
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.simulation.profile import Profile
from spolia.evaluation.simulation.reader import SimulatedReader
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.generation.reader import Reader
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.contexts import Contexts, ReaderFlow
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.score_board import Board, ScoreRows
from spolia.optimizer.strategies import HalvingWithNeighbours, find_best
from spolia.orchestration import ConvexCombination
from spolia.orchestration.sweep import build_variant_runner
from spolia.post_retrieval import Percentile, TitleBoost
from spolia.retrieval import TFIDF, BM25Variant, FieldedBM25
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.types import Answer, Item, Query

Floats: TypeAlias = NDArray[np.float64]
SHARES = {
    "rows": (0.0025, 0.005, 0.01, 0.02, 0.05),
    "contexts": (0.03, 0.05, 0.1, 0.2, 0.4),
    "quality": (0.03, 0.05, 0.1, 0.2, 0.4),
}
"""Of all scores, or of all calls."""
MEASURE = "F1"
WANTED = (3.0, 2.0, 1.5, 1.0)
"""Regrets at which calls are compared."""


def space(chunks: NodeGroup, reader: SimulatedReader) -> Operator[Query, Answer]:
    """240 flows; a place is a retriever, a fusion, a boost, a selection, or how many passages the reader is shown."""
    words = Choice(
        BM25(chunks, 20, "words"), BM25Variant(chunks, "bm25l", top_k=20, source="words"), TFIDF(chunks, 20, "words"),
        name="words",
    )  # fmt: skip
    weights = [(("words", weight), ("fields", 1 - weight)) for weight in (0.5, 0.8)]
    fusion = Choice(
        ReciprocalRankFusion(top_k=20).vary("constant", k=(10.0, 60.0)),
        ConvexCombination(weights[0], "min-max", 20).vary("weights", weights=weights),
        name="fusion",
    )
    arms = Branch(words, FieldedBM25(chunks, top_k=20, source="fields")) >> fusion
    selection = Choice(Identity(), TitleBoost(top_k=20), name="boost") >> Choice(
        Identity(), Percentile(0.4), name="kept"
    )
    return Choice(words, arms, name="arms") >> selection >> Reader(reader).vary("shown", max_passages=(1, 2, 4, 8))


@dataclass(frozen=True, eq=False)
class PaidGrid:
    """Every score of the space, the context that each flow shows, and how good that is."""

    candidates: FlowTable
    scores: Floats
    contexts: Contexts

    @classmethod
    def read(cls, folder: Path, questions: int) -> PaidGrid:
        FictionalWorld(7, people=150, questions=questions).write(folder)
        data = DataSet(str(folder))
        items = list(data.items())
        reader = SimulatedReader.from_data(data, items, Profile(miss=0.1, lure=0.2))
        objectives = Objectives.from_measures(MEASURE)
        asked_items = [item for item in items if all(entry.applies(item) for entry in objectives.measures)]
        candidates = FlowTable(Space(space(index_passages(data, folder=folder / "stores"), reader)))
        run, flows = Run(share=64 << 20), list(candidates.all_flows)
        contexts = Contexts(candidates, lambda flow: asked_items, len(asked_items), run)
        groups, values = contexts.groups(flows), np.zeros((len(flows), len(asked_items)))
        readers = [entry for flow in flows if (entry := ReaderFlow.from_flow(candidates.flows[flow]))]
        together = build_variant_runner([entry.search for entry in readers])
        with run:
            for index, item in enumerate(asked_items):
                (result,) = together([Query(item.question)])
                for group in np.unique(groups[:, index]):
                    same = np.flatnonzero(groups[:, index] == group)
                    answer = readers[same[0]].reader(result[same[0]].ranking)
                    observation = objectives.measures[0].observe(Case(item, answer))
                    assert observation is not None
                    values[same, index] = observation[0]
        return cls(candidates, values, contexts)


class SomeContexts(Contexts):
    """Contexts of a grid on some of its questions, and how good they are if that `is_known`."""

    def __init__(self, grid: PaidGrid, questions: NDArray[np.intp], is_known: bool) -> None:
        flows, whole = list(grid.candidates.all_flows), grid.contexts
        none: list[Item] = []
        super().__init__(grid.candidates, lambda flow: none, len(questions), whole.run)
        self._rows = {flow: index for index, flow in enumerate(flows)}
        self._numbers = whole.numbers(flows)[:, questions]
        self._groups = whole.groups(flows)[:, questions]
        self._quality = np.where(is_known, whole.quality(flows)[:, questions], np.nan)
        self.count = whole.count


def play(grid: PaidGrid, kind: str, share: float, seed: int) -> tuple[float, float, float]:
    """The regret in points, and the shares of calls and of scores that were asked."""
    random = np.random.default_rng(seed)
    questions = random.permutation(grid.scores.shape[1])[: grid.scores.shape[1] // 2]
    contexts, n = SomeContexts(grid, questions, kind == "quality"), len(questions)
    whole = len(grid.scores) * n
    calls = contexts.total
    counted_contexts = None if kind == "rows" else contexts
    board = Board(
        grid.candidates, n, share * (whole if counted_contexts is None else calls), seed, contexts=counted_contexts
    )

    def source(flows: Any, asked: range) -> ScoreRows:
        values = grid.scores[np.ix_(np.asarray(flows), questions[asked.start : asked.stop])]
        return ScoreRows(values, np.zeros((len(flows), 2)))

    chosen = find_best(HalvingWithNeighbours(), board, source)
    asked_contexts = contexts.numbers(list(grid.candidates.all_flows))[
        np.arange(n) < board.question_counts[list(grid.candidates.all_flows)][:, None]
    ]
    truth = 100 * grid.scores.mean(axis=1)
    return (
        float(truth.max() - truth[chosen]),
        len(np.unique(asked_contexts)) / calls,
        float(board.question_counts.sum()) / whole,
    )


def floor(grid: PaidGrid, seeds: int) -> float:
    truth, regrets = 100 * grid.scores.mean(axis=1), []
    for seed in range(seeds):
        questions = np.random.default_rng(seed).permutation(grid.scores.shape[1])[: grid.scores.shape[1] // 2]
        regrets.append(truth.max() - truth[grid.scores[:, questions].mean(axis=1).argmax()])
    return float(np.mean(regrets))


def at_regret(curve: list[dict[str, float]], regret: float) -> float | None:
    """The share of calls at which a curve first comes to a regret, between its points."""
    for point, next_point in pairwise(curve):
        if point["regret"] > regret >= next_point["regret"]:
            part = (point["regret"] - regret) / (point["regret"] - next_point["regret"])
            return round(float(np.exp(np.interp(part, (0, 1), np.log([point["calls"], next_point["calls"]])))), 4)
    return curve[0]["calls"] if curve[0]["regret"] <= regret else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=240)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        grid = PaidGrid.read(Path(folder), options.questions)
    read_s, flows = time.process_time() - began, grid.scores.shape[0]
    truth = 100 * grid.scores.mean(axis=1)
    result: dict[str, Any] = {
        "answers": "simulated reader that overlooks a tenth of the facts and is lured in a fifth of the questions",
        "flows": flows, "questions": grid.scores.shape[1],
        "rows": grid.scores.size, "calls of the cached grid": grid.contexts.total,
        "best": round(float(truth.max()), 2), "median": round(float(np.median(truth)), 2),
        "floor": round(floor(grid, options.seeds), 2), "seeds": options.seeds,
        "cpu_s of the grid": round(read_s, 1),
    }  # fmt: skip
    curves: dict[str, list[dict[str, float]]] = {}
    for kind, shares in SHARES.items():
        curves[kind] = []
        for share in shares:
            plays = np.array([play(grid, kind, share, seed) for seed in range(options.seeds)])
            regret, calls, rows = plays.mean(axis=0).tolist()
            error = float(plays[:, 0].std() / np.sqrt(len(plays)))
            curves[kind].append({
                "budget": share, "regret": round(regret, 2), "error": round(error, 2), "calls": round(calls, 4),
                "rows": round(rows, 4),
            })  # fmt: skip
    result["curves"] = curves
    result["calls at equal regret"] = {
        str(regret_level): {kind: at_regret(curve, regret_level) for kind, curve in curves.items()}
        for regret_level in WANTED
    }
    tenth = next(row for row in curves["quality"] if row["budget"] == 0.1)
    judged: Judged = {
        "regret at a tenth of the calls": (tenth["regret"], None),
        "calls there": (tenth["calls"], None),
        "floor": (result["floor"], None),
    }
    text = json.dumps({**result, **told(judged), "machine": machine()}, indent=1)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
