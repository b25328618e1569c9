"""Every score of the space of `space.py`: what strategies are compared on without asking anything again.

    python benchmarks/optimizer/matrix.py [--questions N ...] [--kept FOLDER] [--sets NAMES | --world N] --out FILE.npz

Passages of squad_newwiki, covid_qa and xquad_en (`SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout) are
files of one folder, indexed with `sync`; as many questions of each are drawn. Every flow is asked every question as
`spolia tune` asks them. The numbers of flows are those that `tune` gives them: `candidates_of` gives the same ones
without an index. `--sets` takes other data sets, such as musique, and `--world N` an invented world with N questions,
which a simulated reader answers as well: it knows the gold, says what its prompt states, and errs as often as the
profile `noisy` has it. No language model is asked. The file is written after every hundred questions; with one that is
there the same command goes on with the questions that it lacks. Kept are benchmarks/results/optimizer/real.npz,
world.npz, aragog.npz, musique.npz, hotpotqa.npz and 2wikimultihopqa.npz, from `--out` alone, with `--world 3000`, and
with `--sets NAME --questions 500`.

The file (`ScoreMatrix.load`) holds, by array:

- `points` int8[flows, places]: the candidate at each place of `places`; -1 where the place does not matter.
- `codes` uint[flows, questions] and `levels` float64[...]: nDCG@10 is `levels[codes]`, to the last bit.
- `contexts` uint16[flows, questions]: flows with the same number show a reader the same five passages of a question, in
  the same order. A cache of reader calls by rendered context asks once for each number of a question.
- `questions`, `sets`: the ids of the questions, and of which data set each is.
- `steps` int32[flows, most] and `step_us` float64[...]: the steps that a flow takes, by number, -1 after the last; and
  what each takes for a question, in CPU-µs. Flows share a step with the same number: what comes before is the same too.
- `space`: the space as it is written.
- `simulated_em`, `simulated_f1` float16[flows, questions]: of the answers of the simulated reader, from the first five
  passages; empty without `--world`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parent))

from aragog import prepared
from space import WINDOW, groups, space

from spolia.core.combinators import Branch
from spolia.core.combinators.space import Space
from spolia.core.operator import Operator, Then
from spolia.core.run_context import attempt
from spolia.core.sweepable import VariantRanking
from spolia.evaluation.data.dataset import DataSet, draw_items
from spolia.evaluation.experiment.flows import portable_notation
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.evaluation.measures.measure import Case, SetMeasure
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.simulation.profile import profile_named
from spolia.evaluation.simulation.reader import SimulatedReader
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.generation.reader import Reader
from spolia.indexing.sync.sync import sync
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.sweeps import SweepScores
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Document, Item, Query, Ranking

HERE = Path(__file__).parent
DATA = Path(os.environ.get("SPOLIA_DATASETS") or HERE.parents[2] / "shared" / "datasets")
KEPT = Path("/tmp/spolia-flows")
POOLED = ("squad_newwiki", "covid_qa", "xquad_en")
EACH = (593, 449, 458)
"""Questions of each pooled data set: 1,500 in all."""
MEASURE, SHOWN = "nDCG@10", 5
SHARED_BYTES = 64 << 20
PEOPLE = 1_000
OF_ANSWERS = parse_measures("EM, F1")
AT_ONCE = 100
TIMED = 20
"""Questions on which steps are timed."""


@dataclass(frozen=True, eq=False)
class ScoreMatrix:
    """See the module."""

    places: NDArray[np.str_]
    points: NDArray[np.int8]
    codes: NDArray[np.unsignedinteger[Any]]
    levels: NDArray[np.float64]
    contexts: NDArray[np.uint16]
    questions: NDArray[np.str_]
    sets: NDArray[np.str_]
    steps: NDArray[np.int32]
    step_us: NDArray[np.float64]
    space: NDArray[np.str_]
    simulated_em: NDArray[np.float16]
    simulated_f1: NDArray[np.float16]

    @classmethod
    def load(cls, path: Path) -> Self:
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **{field.name: getattr(self, field.name) for field in fields(self)})
        part.replace(path)

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """By flow and question."""
        return self.levels[self.codes]

    def joined(self, other: ScoreMatrix) -> ScoreMatrix:
        """With the questions of another matrix of the same flows that are not here; step costs are of this one."""
        if str(self.space) != str(other.space):
            raise ValueError("The matrices are of two spaces. Name another file with --out.")
        new = ~np.isin(other.questions, self.questions)
        levels, codes = np.unique(np.concatenate([self.scores, other.scores[:, new]], axis=1), return_inverse=True)
        joined_arrays = {
            name: np.concatenate([array, rest[..., new]], axis=-1) if rest.size else array
            for name in ("contexts", "questions", "sets", "simulated_em", "simulated_f1")
            for array, rest in [(getattr(self, name), getattr(other, name))]
        }
        kind = np.uint8 if len(levels) < 256 else np.uint16
        return replace(self, levels=levels, codes=codes.reshape(len(self.points), -1).astype(kind), **joined_arrays)

    def cost_us(self, flows: Sequence[int]) -> float:
        """CPU-µs of some flows for a question, when each step that they share is taken once."""
        steps = np.unique(self.steps[list(flows)])
        return float(self.step_us[steps[steps >= 0]].sum())


def candidates_of() -> FlowTable:
    """The flows with the numbers of the matrix, without an index."""
    candidates = FlowTable(Space(space(Corpus("pool.spolia"))))
    assert candidates.all_flows  # looked at: that numbers them
    return candidates


# The data.


def files_of(folder: Path, passages: Iterator[Document]) -> None:
    """Passages as files, with the title as heading."""
    folder.mkdir(parents=True, exist_ok=True)
    for passage in passages:
        title = passage.title.replace("_", " ")
        (folder / f"{passage.id}.md").write_text((f"# {title}\n\n" if title else "") + passage.text, encoding="utf-8")


def in_files(item: Item, name: str) -> Item:
    """The item with its gold as the names of files."""
    gold = tuple(tuple(f"{passage}.md" for passage in group) for group in item.gold)
    return item.but(gold=gold, meta=(("set", name),))


def indexed(folder: Path, sets: Sequence[DataSet]) -> Corpus:
    """The passages of data sets in one store, made once."""
    corpus = Corpus(str(folder / "pool.spolia"))
    for data in sets:
        if not (done := folder / f"{data.name}.done").exists():
            files_of(folder / "files", data.passages())
            done.touch()
    sync(folder / "files", corpus, splitter=WINDOW, groups=groups(corpus))
    return corpus


def questions_of(sets: Sequence[DataSet], counts: Sequence[int]) -> list[Item]:
    """As many questions with gold of each set, drawn by a seed, mixed."""
    items = [
        in_files(item, data.name)
        for data, count in zip(sets, counts, strict=True)
        for item in draw_items([candidate for candidate in data.items() if candidate.gold], count, 0)
    ]
    random.Random(0).shuffle(items)
    return items


def data_set(name: str, folder: Path) -> DataSet:
    """One of `DATA`; ARAGOG labels no passage, so that any passage of the paper that a question names is gold."""
    if name != "aragog":
        return DataSet(str(DATA / name))
    if not (new_folder := folder / name).exists():
        prepared(new_folder)
    return DataSet(str(new_folder))


def world_in(folder: Path, questions: int) -> DataSet:
    """An invented world, written as a data set; one more question for each that has no answer."""
    data = folder / "world"
    if not (data / "questions.jsonl").exists():
        data.mkdir(parents=True, exist_ok=True)
        FictionalWorld(7, PEOPLE, questions * 14 // 13 + 1).write(data)
    return DataSet(str(data))


# The scores.


class Shown(SweepScores):
    """Scores, and by question the contexts, each the first five hits, and the number of that of each flow."""

    def __init__(self, run: Run, measures: Sequence[SetMeasure]) -> None:
        super().__init__(run, measures)
        self.contexts, self.rankings = dict[str, NDArray[np.uint16]](), dict[str, list[Ranking]]()

    def score_rankings(self, rankings: Sequence[VariantRanking], item: Item) -> Iterator[Sequence[float]]:
        numbers: dict[tuple[str, ...], int] = {}
        first = self.rankings[item.id] = list[Ranking]()
        context_numbers = []
        for variant in rankings:
            number = numbers.setdefault(tuple(variant.ids[:SHOWN]), len(numbers))
            if number == len(first):
                first.append(variant.ranking.but(hits=variant.ranking.hits[:SHOWN]))
            context_numbers.append(number)
        self.contexts[item.id] = np.array(context_numbers, np.uint16)
        return super().score_rankings(rankings, item)

    def answered(self, reader: Operator[Ranking, Answer], item: Item) -> NDArray[np.float16]:
        """By measure and flow, the scores of what a reader answers; a call that fails scores 0."""
        cases = [Case(item, attempt(partial(reader, ranking))) for ranking in self.rankings[item.id]]
        scores = [[(measure.observe(case) or (np.nan,))[0] for measure in OF_ANSWERS] for case in cases]
        return np.array(scores, np.float16)[self.contexts[item.id]].T


def measured(
    flow: Operator[Query, Any],
    items: Sequence[Item],
    measure: str = MEASURE,
    reader: Operator[Ranking, Answer] | None = None,
    save: Callable[[ScoreMatrix], None] = lambda so_far: None,
) -> ScoreMatrix:
    """Every score of a space, by the route of `tune`.

    Args:
        save: told what is there after every hundred questions.
    """
    plan = TuningPlan.from_space(flow, items, measure)
    candidates = plan.candidates
    all_flows = list(candidates.all_flows)
    assert all_flows == list(range(len(all_flows)))
    names = list(candidates.space.places)
    points = np.array([[point.get(name, -1) for name in names] for point in candidates.point_by_number], np.int8)
    steps, step_us = costs(candidates, items[:TIMED])
    values: list[NDArray[np.float64]] = []
    answers: list[NDArray[np.float16]] = []

    def so_far() -> ScoreMatrix:
        existing_items = items[: sum(value.shape[1] for value in values)]
        levels, codes = np.unique(np.concatenate(values, axis=1), return_inverse=True)
        read = np.array(answers) if answers else np.zeros((0, 2, 0), np.float16)
        return ScoreMatrix(
            np.array(names),
            points,
            codes.reshape(len(all_flows), -1).astype(np.uint8 if len(levels) < 256 else np.uint16),
            levels,
            np.array([shown.contexts[item.id] for item in existing_items]).T,
            np.array([item.id for item in existing_items]),
            np.array([str(dict(item.meta)["set"]) for item in existing_items]),
            steps,
            step_us,
            np.array(portable_notation(flow)),
            *read.transpose(1, 2, 0),
        )

    with ScoreStore(None) as store:
        flow_scores = FlowScores(candidates, items, plan.objectives, Run(share=SHARED_BYTES), store)
        flow_scores.sweeps = shown = Shown(flow_scores.run, plan.objectives.measures)
        for start in range(0, len(items), AT_ONCE):
            asking = range(start, min(start + AT_ONCE, len(items)))
            values.append(flow_scores(all_flows, asking).values[:, :, 0])
            if reader:
                with Run():
                    answers += [shown.answered(reader, items[position]) for position in asking]
            save(so_far())
        assert not flow_scores.excluded
    return so_far()


# What steps cost.


def costs(candidates: FlowTable, items: Sequence[Item]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The steps of each flow by number, and what each takes, timed alone."""
    numbers: dict[tuple[bytes, bytes], int] = {}
    sums: list[float] = []
    rows = [_Timed(numbers, sums) for _ in candidates.flows]
    for index, item in enumerate([items[0], *items]):  # the first time, what is read once is read
        costs_by_steps: dict[tuple[bytes, bytes], Any] = {}
        with Run():
            for row, flow in zip(rows, candidates.flows, strict=True):
                row.take(flow, b"", Query(item.question), costs_by_steps)
        if not index:
            sums[:] = [0.0] * len(sums)
    longest = max(len(row.steps) for row in rows)
    steps = np.full((len(rows), longest), -1, np.int32)
    for index, row in enumerate(rows):
        taken_steps = sorted(row.steps)
        steps[index, : len(taken_steps)] = taken_steps
    return steps, np.array(sums) * 1e6 / len(items)


@dataclass(eq=False)
class _Timed:
    """The steps of one flow; each is timed where it is met first."""

    numbers: dict[tuple[bytes, bytes], int]
    sums: list[float]

    def __post_init__(self) -> None:
        self.steps: set[int] = set()

    def take(self, op: Operator[Any, Any], before: bytes, value: Any, known: dict[tuple[bytes, bytes], Any]) -> Any:
        """What the step gives; its key is that of the step and all before it."""
        if isinstance(op, Then):
            for step in op.steps:
                value = self.take(step, before, value, known)
                before += step.digest
            return value
        if isinstance(op, Branch):
            return tuple(self.take(arm, before, value, known) for arm in op.arms)
        key = before, op.digest
        if key not in known:
            began = time.process_time()
            known[key] = op(value)
            seconds = time.process_time() - began
            position = self.numbers.setdefault(key, len(self.sums))
            if position == len(self.sums):
                self.sums.append(0.0)
            self.sums[position] += seconds
        self.steps.add(self.numbers[key])
        return known[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, nargs="+", default=EACH, help="of all data sets, or of each")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where indexes are kept")
    parser.add_argument("--sets", nargs="+", default=POOLED, help="data sets")
    parser.add_argument("--world", type=int, metavar="N", help="an invented world with so many questions")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.world:
        folder = options.kept / f"world-{PEOPLE}"
        sets = [world_in(folder / f"{options.world}", options.world)]
    else:
        folder = options.kept if tuple(options.sets) == POOLED else options.kept / "-".join(options.sets)
        sets = [data_set(name, folder) for name in options.sets]
    counts = [options.world] if options.world else options.questions
    items, corpus = questions_of(sets, counts if len(counts) > 1 else [*counts] * len(sets)), indexed(folder, sets)
    previous_matrix = ScoreMatrix.load(options.out) if options.out.exists() else None
    items = [
        item for item in items if previous_matrix is None or item.id not in set(previous_matrix.questions.tolist())
    ]
    reader = None
    if options.world:
        reader = Reader(
            SimulatedReader.from_data(sets[0], list(sets[0].items()), profile_named("noisy")), max_passages=SHOWN
        )
    began = time.process_time()

    def keep(so_far: ScoreMatrix) -> None:
        (previous_matrix.joined(so_far) if previous_matrix else so_far).save(options.out)

    if items:
        measured(space(corpus), items, reader=reader, save=keep)
    score_matrix = ScoreMatrix.load(options.out)
    means = score_matrix.scores.mean(axis=1)
    distinct = sum(len(np.unique(column)) for column in score_matrix.contexts.T)
    print(f"{score_matrix.codes.size:,} scores in {time.process_time() - began:.0f} CPU-s")
    print(f"best {means.max():.4f}, median {np.median(means):.4f}; {(means > means.max() - 0.01).sum()} within a point")
    print(f"{100 * distinct / score_matrix.codes.size:.1f} contexts in 100 rows")


if __name__ == "__main__":
    main()
