"""Every score of the space of `space.py`: what strategies are compared on without asking anything again.

    python benchmarks/optimizer/matrix.py [--questions N] [--kept FOLDER] --out FILE.npz

Passages of squad_newwiki, covid_qa and xquad_en (`SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout) are
files of one folder, indexed with `sync`; as many questions of each are drawn. Every flow is asked every question as
`spolia tune` asks them. The numbers of flows are those that `tune` gives them: `candidates_of` gives the same ones
without an index.

The file (`ScoreMatrix.load`) holds, by array:

- `points` int8[flows, places]: the candidate at each place of `places`; -1 where the place does not matter.
- `codes` uint[flows, questions] and `levels` float64[...]: nDCG@10 is `levels[codes]`, to the last bit.
- `contexts` uint16[flows, questions]: flows with the same number show a reader the same five passages of a question, in
  the same order. A cache of reader calls by rendered context asks once for each number of a question.
- `questions`, `sets`: the ids of the questions, and of which data set each is.
- `steps` int32[flows, most] and `step_us` float64[...]: the steps that a flow takes, by number, -1 after the last; and
  what each takes for a question, in CPU-µs. Flows share a step with the same number: what comes before is the same too.
- `space`: the space as it is written.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parent))

from space import groups, space

from spolia.core.combinators import Branch
from spolia.core.combinators.space import Space
from spolia.core.operator import Operator, Then
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.experiment.flows import written
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.indexing.sync.sync import sync
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.plan import TuningPlan
from spolia.orchestration.sweep import sweep
from spolia.post_retrieval.selection import Cut
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Document, Item, Query

HERE = Path(__file__).parent
DATA = Path(os.environ.get("SPOLIA_DATASETS") or HERE.parents[2] / "shared" / "datasets")
KEPT = Path("/tmp/spolia-optimizer")
POOLED = ("squad_newwiki", "covid_qa", "xquad_en")
EACH = 500
MEASURE, SHOWN = "nDCG@10", 5
SHARED_BYTES = 64 << 20
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

    @classmethod
    def load(cls, path: Path) -> Self:
        with np.load(path, allow_pickle=False) as found:
            return cls(**{one.name: found[one.name] for one in fields(cls)})

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **{one.name: getattr(self, one.name) for one in fields(self)})

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """By flow and question."""
        return self.levels[self.codes]

    def cost_us(self, flows: Sequence[int]) -> float:
        """CPU-µs of some flows for a question, when each step that they share is taken once."""
        taken = np.unique(self.steps[list(flows)])
        return float(self.step_us[taken[taken >= 0]].sum())


def candidates_of() -> Candidates:
    """The flows with the numbers of the matrix, without an index."""
    found = Candidates(Space(space(Corpus("pool.spolia"))))
    assert found.every  # looked at: that numbers them
    return found


# The data.


def files_of(folder: Path, passages: Iterator[Document]) -> None:
    """Passages as files, with the title as heading."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in passages:
        title = one.title.replace("_", " ")
        (folder / f"{one.id}.md").write_text((f"# {title}\n\n" if title else "") + one.text, encoding="utf-8")


def in_files(item: Item, name: str) -> Item:
    """The item with its gold as the names of files."""
    gold = tuple(tuple(f"{one}.md" for one in group) for group in item.gold)
    return item.but(gold=gold, meta=(("set", name),))


def indexed(folder: Path, names: Sequence[str]) -> Corpus:
    """The passages of data sets in one store, made once."""
    corpus = Corpus(str(folder / "pool.spolia"))
    for name in names:
        if not (done := folder / f"{name}.done").exists():
            files_of(folder / "files", DataSet(str(DATA / name)).passages())
            done.touch()
    sync(folder / "files", corpus, groups=groups(corpus))
    return corpus


def questions_of(names: Sequence[str], each: int) -> list[Item]:
    """As many questions of each set, drawn by a seed, mixed."""
    found = [in_files(item, name) for name in names for item in DataSet(str(DATA / name)).sample(each)]
    random.Random(0).shuffle(found)
    return found


# The scores.


def measured(flow: Operator[Query, Any], items: Sequence[Item], measure: str = MEASURE) -> ScoreMatrix:
    """Every score of a space, by the route of `tune`."""
    plan = TuningPlan.of(flow, items, measure)
    candidates = plan.candidates
    every = list(candidates.every)
    assert every == list(range(len(every)))
    order = {item.id: at for at, item in enumerate(plan.items)}
    place = [order[item.id] for item in items]  # as they were given
    with ScoreStore(None) as store:
        asked = FlowScores(candidates, plan.items, plan.objectives, Run(share=SHARED_BYTES), store)
        values = asked(every, range(len(plan.items))).values[:, place, 0]
        assert not asked.excluded
    levels, codes = np.unique(values, return_inverse=True)
    codes = codes.reshape(values.shape)
    names = list(candidates.space.places)
    points = [[point.get(name, -1) for name in names] for point in candidates.points]
    steps, step_us = costs(candidates, items[:TIMED])
    return ScoreMatrix(
        np.array(names),
        np.array(points, np.int8),
        codes.astype(np.uint8 if len(levels) < 256 else np.uint16),
        levels,
        contexts(candidates, items),
        np.array([item.id for item in items]),
        np.array([str(dict(item.meta)["set"]) for item in items]),
        steps,
        step_us,
        np.array(written(flow)),
    )


def contexts(candidates: Candidates, items: Sequence[Item]) -> NDArray[np.uint16]:
    """By flow and question the number of the context: the first five nodes."""
    found = np.zeros((len(candidates.flows), len(items)), np.uint16)
    queries = (Query(item.question) for item in items)
    with Run(share=SHARED_BYTES):
        for at, rankings in enumerate(sweep(queries, [flow >> Cut() for flow in candidates.flows])):
            numbers: dict[tuple[str, ...], int] = {}
            found[:, at] = [numbers.setdefault(tuple(one.ids[:SHOWN]), len(numbers)) for one in rankings]
    return found


# What steps cost.


def costs(candidates: Candidates, items: Sequence[Item]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The steps of each flow by number, and what each takes, timed alone."""
    numbers: dict[tuple[bytes, bytes], int] = {}
    sums: list[float] = []
    rows = [_Timed(numbers, sums) for _ in candidates.flows]
    for item in items:
        known: dict[tuple[bytes, bytes], Any] = {}
        with Run():
            for row, flow in zip(rows, candidates.flows, strict=True):
                row.take(flow, b"", Query(item.question), known)
    most = max(len(row.steps) for row in rows)
    steps = np.full((len(rows), most), -1, np.int32)
    for at, row in enumerate(rows):
        taken = sorted(row.steps)
        steps[at, : len(taken)] = taken
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
            for one in op.steps:
                value = self.take(one, before, value, known)
                before += one.digest
            return value
        if isinstance(op, Branch):
            return tuple(self.take(arm, before, value, known) for arm in op.arms)
        key = before, op.digest
        if key not in known:
            began = time.process_time()
            known[key] = op(value)
            taken = time.process_time() - began
            at = self.numbers.setdefault(key, len(self.sums))
            if at == len(self.sums):
                self.sums.append(0.0)
            self.sums[at] += taken
        self.steps.add(self.numbers[key])
        return known[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=EACH, help="of each data set")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where the index is kept")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    corpus = indexed(given.kept, POOLED)
    began = time.process_time()
    found = measured(space(corpus), questions_of(POOLED, given.questions))
    found.save(given.out)
    means = found.scores.mean(axis=1)
    distinct = sum(len(np.unique(column)) for column in found.contexts.T)
    print(f"{found.codes.size:,} scores in {time.process_time() - began:.0f} CPU-s")
    print(f"best {means.max():.4f}, median {np.median(means):.4f}; {(means > means.max() - 0.01).sum()} within a point")
    print(f"{100 * distinct / found.codes.size:.1f} contexts in 100 rows")


if __name__ == "__main__":
    main()
