"""The learned ranker on three multi-hop sets, in their own pools and in one pool of all of them.

    python benchmarks/training/ranker.py [--out benchmarks/results/training/ranker.json]

Cross-validation in five folds; questions that share a gold passage stay in one fold. Beside it: words, meaning, their
fusion, hand-set weights, weights trained on the two other sets, and a control that is trained on gold passages of
other questions. Passages are embedded once and kept in the cache directory, and each row of the table beside them, so
that the same command goes on where it was stopped.

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import publish

import spolia.retrieval.learned as learned
import spolia.training.ranker as training
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.json_lines import write_rows
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.statistics.sample import Sample
from spolia.flow_files.built_in_flows import SHIPPED, hybrid
from spolia.models.file_hash import cache_folder
from spolia.models.onnx.minilm import MiniLM
from spolia.models.trained_weights import SHIPPED as SHIPPED_IN
from spolia.retrieval.graph.edges import SharedEntities
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.graph.walk import PersonalisedPageRank
from spolia.retrieval.learned.features import FEATURES, QuestionInGroup
from spolia.retrieval.learned.scores import LinearScore, Score, rank_candidates
from spolia.retrieval.term_counts import texts_of
from spolia.stores.corpus import NodeGroup
from spolia.training.ranker import Example, PassFit, RankerTrainer, TreeFit, cross_fit_seeds, seeds_of
from spolia.training.training import FLOW, link_keys_of, train
from spolia.types import Item, Query

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("SPOLIA_DATASETS") or HERE.parents[2] / "shared" / "datasets")
SETS = ("musique", "hotpotqa", "2wikimultihopqa")
MERGED, SINGLE = "merged", "xquad_en"
FOLDS, STEPS, TREES, SEED = 5, 45, 150, 0
EACH = 180
"""Questions of each other set that weights are trained on, as many as the smallest set has."""
FEW, DRAWS = 10, 10
HAND = {"both_ranks": 1.0, "title_weight": 0.3, "shared_name": 0.05, "linked_from_seed": 0.3, "linked_from_named": 0.3}

Ranked = list[int]
Row = dict[str, Any]


@dataclass(frozen=True)
class KeptMiniLM(MiniLM):
    """MiniLM, which knows the vectors of the sets' own pools: the pool of all sets embeds nothing again."""

    def embed(self, texts: Sequence[str], *, kind: Any) -> Any:
        lacking = [text for text in dict.fromkeys(texts) if text not in _KNOWN]
        _KNOWN.update(zip(lacking, super().embed(lacking, kind=kind), strict=True))
        return np.array([_KNOWN[text] for text in texts], np.float32).reshape(len(texts), self.dimension)


_KNOWN: dict[str, Any] = {}
EMBEDDER = KeptMiniLM(threads=1)


def remember(group: NodeGroup) -> None:
    """Take the vectors of a store for those of its texts."""
    snapshot = group.snapshot()
    keys = snapshot.open.records(group.name).keys
    vectors = snapshot.open.stored_vectors(group.name, EMBEDDER.name).vectors_at(np.arange(len(keys)))
    _KNOWN.update(zip(texts_of(snapshot, keys), np.array(vectors), strict=True))


def merged_folder() -> Path:
    """The passages and questions of all sets as one data set; ids begin with the name of their set."""
    folder = cache_folder() / "benchmarks" / MERGED
    if not (folder / "questions.jsonl").exists():
        folder.mkdir(parents=True, exist_ok=True)
        sets = [DataSet(str(DATA / name)) for name in SETS]
        passages = (
            {"id": f"{entry.name}/{doc.id}", "title": doc.title, "text": doc.text}
            for entry in sets
            for doc in entry.passages()
        )
        write_rows(folder / "corpus.jsonl", passages)
        questions = (
            {
                "id": f"{entry.name}/{item.id}",
                "question": item.question,
                "answers": list(item.answers),
                "gold_ids": [f"{entry.name}/{gold}" for group in item.gold for gold in group],
                "type": entry.name,
            }
            for entry in sets
            for item in entry.items()
        )
        write_rows(folder / "questions.jsonl", questions)
    return folder


@dataclass(eq=False)
class Pool:
    """The questions of a set over a pool of passages, with the candidates of the first pass."""

    items: list[Item]
    questions: list[tuple[QuestionInGroup, frozenset[int]]]
    examples: list[Example]
    cpu_ms: float
    group: Any = None

    @classmethod
    def of(cls, group: NodeGroup, items: Sequence[Item]) -> Pool:
        questions = RankerTrainer(group, EMBEDDER).prepare_questions(items)
        RankerTrainer.build_examples(questions[:1])  # builds links and counts
        for question, _ in questions:
            assert question.ranks  # which hybrid search has anyway
        began = time.process_time()
        examples = RankerTrainer.build_examples(questions)
        return cls(list(items), questions, examples, 1000 * (time.process_time() - began) / len(items), group)

    def some(self, at: Sequence[int]) -> Pool:
        return Pool(
            [self.items[number] for number in at],
            [self.questions[number] for number in at],
            [self.examples[number] for number in at],
            0.0,
        )

    def __add__(self, other: Pool) -> Pool:
        return Pool(self.items + other.items, self.questions + other.questions, self.examples + other.examples, 0.0)

    @cached_property
    def folds(self) -> list[int]:
        """The fold of each question, by what it shares a gold passage with."""
        root: dict[tuple[str, str], int] = {}
        parents = list(range(len(self.items)))

        def top(index: int) -> int:
            while parents[index] != index:
                index = parents[index]
            return index

        for index, item in enumerate(self.items):
            for mark in link_keys_of(item):
                parents[top(index)] = top(root.setdefault(mark, index))
        groups: dict[int, list[int]] = {}
        for index in range(len(self.items)):
            groups.setdefault(top(index), []).append(index)
        listed = sorted(groups.values(), key=lambda group: (-len(group), self.items[group[0]].id))
        random.Random(SEED).shuffle(listed)
        fold, sizes = [0] * len(self.items), [0] * FOLDS
        for group in sorted(listed, key=len, reverse=True):
            smallest = sizes.index(min(sizes))
            sizes[smallest] += len(group)
            for index in group:
                fold[index] = smallest
        return fold


def fit_passes(pool: Pool, passes: int, trees: bool = False) -> list[Score]:
    """Weights, pass after pass, as `spolia train ranker` fits them."""
    if trees:
        return [TreeFit(pool.examples).finish(TREES)]
    examples = pool.examples
    scores: list[Score] = [PassFit.from_examples(examples).finish(STEPS)]
    while len(scores) < passes:
        examples = RankerTrainer.build_examples(pool.questions, cross_fit_seeds(examples, scores[-1], STEPS))
        scores.append(PassFit.from_examples(examples).finish(STEPS))
    return scores


def rank(pool: Pool, passes: Sequence[Score]) -> list[Ranked]:
    """The positions of the candidates of each question, best first."""
    rankings = []
    for (question, _), first in zip(pool.questions, pool.examples, strict=True):
        example = first
        for index, linear in enumerate(passes):
            if index:
                (example,) = RankerTrainer.build_examples(
                    [(question, frozenset())], [seeds_of(example, passes[index - 1])]
                )
            scores = linear.contributions(example.candidates.features).sum(axis=1)
        positions = example.candidates.positions
        rankings.append(positions[np.lexsort((positions, -scores))].tolist())
    return rankings


def cross_validated(pool: Pool, passes: int, trees: bool = False) -> list[Ranked]:
    rankings: list[Ranked] = [[] for _ in pool.items]
    for fold in range(FOLDS):
        inside = [index for index, own_fold in enumerate(pool.folds) if own_fold == fold]
        outside = [index for index, own_fold in enumerate(pool.folds) if own_fold != fold]
        weights = fit_passes(pool.some(outside), passes, trees)
        for index, ranking in zip(inside, rank(pool.some(inside), weights), strict=True):
            rankings[index] = ranking
    return rankings


def random_gold(pool: Pool) -> list[Ranked]:
    """Trained on the gold of other questions: what comes of it, tells how much of a score is chance."""
    generator = random.Random(SEED)
    examples = []
    for example in pool.examples:
        gold = np.zeros(len(example.gold), np.bool_)
        gold[generator.sample(range(len(gold)), max(1, int(example.gold.sum())))] = True
        examples.append(Example(example.candidates, gold))
    return cross_validated(replace(pool, examples=examples), 1)


def by_graph(pool: Pool) -> list[Ranked]:
    """PageRank from the hits of hybrid search, over the names that passages share."""
    question, _ = pool.questions[0]
    group = pool.group
    flow = hybrid(group, EMBEDDER, top_k=20) >> PersonalisedPageRank(
        NodeGraph(group, (SharedEntities("entity"),)), top_k=10
    )
    keys = question.snapshot.open.records(group.name).keys
    rankings = []
    for item in pool.items:
        ids = [node.id for node in flow(Query(item.question)).nodes]
        node_keys = question.snapshot.keys_of(ids)
        rankings.append(np.searchsorted(keys, [node_keys[passage_id] for passage_id in ids]).tolist())
    return rankings


def by_hand(pool: Pool) -> list[Ranked]:
    weights = np.array([HAND.get(name, 0.0) for name in FEATURES])
    zeros, ones = np.zeros(len(FEATURES)), np.ones(len(FEATURES))
    return rank(pool, [LinearScore(zeros, ones, weights)])


def train_on_few(pool: Pool) -> list[float]:
    """R@5 on the other folds' questions, trained on ten: the mean of some draws."""
    means = []
    for draw in range(DRAWS):
        indexes = [index for index, fold in enumerate(pool.folds) if fold == draw % FOLDS]
        other_indexes = [index for index, fold in enumerate(pool.folds) if fold != draw % FOLDS]
        chosen = random.Random(draw).sample(other_indexes, FEW)
        part = pool.some(indexes)
        means.append(float(np.mean(recalls(part, rank(part, fit_passes(pool.some(chosen), 1)), 5))))
    return means


def recalls(pool: Pool, rankings: Sequence[Ranked], top_k: int) -> list[float]:
    golds = (gold for _, gold in pool.questions)
    return [len(gold.intersection(ranking[:top_k])) / len(gold) for gold, ranking in zip(golds, rankings, strict=True)]


def score_rankings(pool: Pool, rankings: Sequence[Ranked], against: Sequence[Ranked] | None = None) -> Row:
    """R@5 and the share of questions with all gold in the best ten, in percent; the gain over another ranking."""
    shares = recalls(pool, rankings, 5)
    sample = Sample(list(zip(shares, recalls(pool, against or rankings, 5), strict=True)))
    row: Row = {
        "R@5": percent(sample.interval(0)),
        "all@10": 100 * float(np.mean([share == 1 for share in recalls(pool, rankings, 10)])),
    }
    return row | ({"gain": percent(sample.difference(0, 1))} if against is not None else {})


def percent(interval: Any) -> dict[str, float]:
    return {name: round(100 * getattr(interval, name), 2) for name in ("mean", "low", "high")}


def baselines(pool: Pool) -> dict[str, list[Ranked]]:
    return {
        "BM25": [list(question.ranks[0]) for question, _ in pool.questions],
        "MiniLM": [list(question.ranks[1]) for question, _ in pool.questions],
        "RRF": [list(question.fused) for question, _ in pool.questions],
    }


# The table.

KEPT = cache_folder() / "benchmarks" / "ranker"


def load_row(name: str, compute: Callable[[], Row]) -> Row:
    """A row that was computed before by the same code; else it is computed."""
    sources = [*Path(learned.__file__).parent.glob("*.py"), Path(training.__file__), Path(__file__)]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:12]
    path = KEPT / f"{name.replace('/', '-')}-{code}.json"
    if path.exists():
        row: Row = json.loads(path.read_text())
        return row
    began = time.process_time()
    row = compute() | {"cpu_s": round(time.process_time() - began, 2)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row))
    print(f"{name}: {json.dumps(row)}", file=sys.stderr, flush=True)
    return row


@dataclass
class Pools:
    """The pools, each opened when a row of it is computed."""

    @cached_property
    def own(self) -> dict[str, Pool]:
        return {name: self._of(DataSet(str(DATA / name))) for name in SETS}

    @cached_property
    def merged(self) -> Pool:
        assert self.own
        return self._of(DataSet(str(merged_folder())))

    @staticmethod
    def _of(data: DataSet) -> Pool:
        group = index_passages(data, EMBEDDER)
        remember(group)
        return Pool.of(group, list(data.items()))


def by_set(pool: Pool, name: str) -> list[int]:
    return [index for index, item in enumerate(pool.items) if item.type == name]


def draw_pool(pool: Pool, at: Sequence[int]) -> Pool:
    return pool.some(random.Random(SEED).sample(list(at), min(EACH, len(at))))


def rows_of(pools: Pools, name: str, known_rows: Mapping[str, Row] = {}) -> dict[str, Row]:
    """What each way of ranking scores in the pool of a set; those that are known are not computed."""

    def pool() -> Pool:
        return pools.own[name]

    def pool_others() -> Pool:
        first, second = (draw_pool(pools.own[set], range(len(pools.own[set].items))) for set in SETS if set != name)
        return first + second

    def base(way: str) -> Row:
        return score_rankings(pool(), baselines(pool())[way])

    def learned_by(rankings: Callable[[], list[Ranked]]) -> Row:
        return score_rankings(pool(), rankings(), baselines(pool())["RRF"])

    ways: dict[str, Callable[[], list[Ranked]]] = {
        "hand weights": lambda: by_hand(pool()),
        "random gold": lambda: random_gold(pool()),
        "own questions, one pass": lambda: cross_validated(pool(), 1),
        "own questions": lambda: cross_validated(pool(), 2),
        "boosted trees": lambda: cross_validated(pool(), 1, trees=True),
        "graph": lambda: by_graph(pool()),
        "other sets": lambda: rank(pool(), fit_passes(pool_others(), 2)),
    }
    rows: dict[str, Callable[[], Row]] = {
        **{name_of_base: lambda which=name_of_base: base(which) for name_of_base in ("BM25", "MiniLM", "RRF")},
        **{way: lambda do=do: learned_by(do) for way, do in ways.items()},
        "ten questions, one pass": lambda: {"R@5": {"mean": 100 * float(np.mean(train_on_few(pool())))}},
    }
    return {way: known_rows.get(way) or load_row(f"{name}/{way}", compute) for way, compute in rows.items()}


def merged_rows(pools: Pools) -> dict[str, dict[str, Row]]:
    """The same questions over the passages of all sets."""

    def select_rows(name: str) -> Pool:
        return pools.merged.some(by_set(pools.merged, name))

    def compute(name: str, way: str) -> Row:
        pool = select_rows(name)
        rrf = baselines(pool)["RRF"]
        if way == "RRF":
            return score_rankings(pool, rrf)
        if way == "own questions":
            return score_rankings(pool, cross_validated(pool, 2), rrf)
        first, second = (draw_pool(select_rows(set), range(len(select_rows(set).items))) for set in SETS if set != name)
        return score_rankings(pool, rank(pool, fit_passes(first + second, 2)), rrf)

    ways = ("RRF", "own questions", "other sets")
    return {
        name: {way: load_row(f"merged/{name}/{way}", lambda n=name, w=way: compute(n, w)) for way in ways}
        for name in SETS
    }


def shipped_pool(pools: Pools) -> Pool:
    """What the shipped weights are trained on."""
    first, second, third = (draw_pool(pools.own[name], range(len(pools.own[name].items))) for name in SETS)
    return first + second + third


def cost(pools: Pools) -> Row:
    """CPU-ms of a question beyond what hybrid search does, by the passages of the pool; training; size."""
    began = time.process_time()
    training_set = shipped_pool(pools)
    features_cpu_s = sum(pools.own[name].cpu_ms * min(EACH, len(pools.own[name].items)) / 1000 for name in SETS)
    weights = fit_passes(training_set, 2)
    trained = time.process_time() - began
    costs = {}
    for name, pool in [*pools.own.items(), (MERGED, pools.merged)]:
        questions = [replace(question) for question, _ in pool.questions[:150]]
        for question in questions:
            assert question.ranks, question.fused
        began = time.process_time()
        for question in questions:
            rank_candidates(question, weights)
        costs[name] = {
            "passages": questions[0].links.count,
            "cpu_ms": round(1000 * (time.process_time() - began) / len(questions), 2),
        }
    size = len(json.dumps({"passes": [linear.plain() for linear in weights]}))
    return {
        "question": costs,
        "training_cpu_s": round(trained + features_cpu_s, 2),
        "trained_on": len(training_set.items),
        "bytes": size,
    }


def single_hop(pools: Pools) -> Row:
    """R@1 on questions that one passage answers, by weights that were trained on all three sets, against hybrid."""
    data = DataSet(str(DATA / SINGLE))
    group, items = index_passages(data, EMBEDDER), data.sample(400, SEED)
    pool, flow = Pool.of(group, items), hybrid(group, EMBEDDER, top_k=1)
    ours = recalls(pool, rank(pool, fit_passes(shipped_pool(pools), 2)), 1)
    theirs = [float(flow(Query(item.question)).hits[0].node.document in item.documents) for item in items]
    sample = Sample(list(zip(ours, theirs, strict=True)))
    return {
        "learned": percent(sample.interval(0)),
        "hybrid": percent(sample.interval(1)),
        "difference": percent(sample.difference(0, 1)),
    }


def ship() -> None:
    """Train what comes with Spolia: on questions of all sets over all passages, with and without vectors."""
    assert Pools().own
    data = DataSet(str(merged_folder()))
    group, items = index_passages(data, EMBEDDER), list(data.items())
    chosen = [
        item
        for name in SETS
        for item in random.Random(SEED).sample([entry for entry in items if entry.type == name], EACH)
    ]
    for name, embedder in zip(SHIPPED, (EMBEDDER, None), strict=True):
        trainer = RankerTrainer(group, embedder, any_group=True)
        shutil.rmtree(SHIPPED_IN / name, ignore_errors=True)
        train(trainer, chosen, SHIPPED_IN / name, kept_apart=(), data=", ".join(SETS))
        (SHIPPED_IN / name / FLOW).unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "training" / "ranker.json")
    parser.add_argument("--add", nargs="*", choices=SETS, help="compute only the rows that the result lacks, of sets")
    parser.add_argument("--ship", action="store_true", help="write the weights that come with Spolia, and nothing else")
    options = parser.parse_args()
    pools = Pools()
    if options.ship:
        ship()
        return
    if options.add is not None:
        result = json.loads(options.out.read_text())
        result["own_pools"] |= {name: rows_of(pools, name, result["own_pools"][name]) for name in options.add or SETS}
        publish("ranker", result, options.out)
        return
    result = {
        "questions": {name: sum(1 for _ in DataSet(str(DATA / name)).items()) for name in SETS},
        "own_pools": {name: rows_of(pools, name) for name in SETS},
        "single_hop": load_row("single hop", lambda: single_hop(pools)),
        "merged_pool": merged_rows(pools),
        "cost": load_row("cost", lambda: cost(pools)),
    }
    publish("ranker", result, options.out)


if __name__ == "__main__":
    main()
