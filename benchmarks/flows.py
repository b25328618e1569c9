"""Every published flow with the simulated reader: what it finds, answers and costs, by data set and retriever.

    python benchmarks/flows.py [--quick] [--questions N] [--seeds N] [--out FILE] [--kept FOLDER]
                               [--part | --measured] [SET ...]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout, and an invented world. PubMedQA stands for
BioASQ (yes, no, maybe). Bamboogle has no corpus, so only `closed-book` is asked. The ideal reader asks with bm25, dense
(all-MiniLM-L6-v2) and hybrid, and once more with hybrid where a passage need not state a fact in the words of the gold
passage (lenient). The noisy reader asks with hybrid alone, once for each seed. A trained scorer is simulated as well.

A cell is one flow on a block of questions with one retriever, profile and seed. It is kept in `--kept` as it ends, so
that a run that was killed goes on; cells of earlier code are measured again. Two processes may share the work
(`--part SET ...`, which writes no page). `--measured` writes what is kept.

`QUESTIONS` of each set are drawn, one block of them for the flows that take many calls (`MANY_CALLS`). `--quick` takes
a small world, few questions and bm25 alone.

No language model is asked: the reader knows the gold and says what its prompts state. It plans with gold sub-questions,
so flows that ask sub-questions look better than they are beside those that rewrite a question. The numbers do not
compare with those of a language model.

Flows of one source search the whole corpus. For flows of two sources it is halved, by a hash of the document's id:
`local` is one half, `web` the other. A source takes from the ranking of the whole corpus what lies in its half.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from math import fsum, sqrt
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from flows_page import page
from results import publish
from retrieval import DATA, HERE

from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.errors import SpoliaError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.measures.costs import AverageTokens, DocumentsShown, RetrievalCalls, UsedCalls
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.simulation.gold_hops import GoldChain, Hop
from spolia.evaluation.simulation.profile import PROFILES, Profile, profile_named
from spolia.evaluation.simulation.reader import SimulatedReader
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.evaluation.statistics.sample import difference, interval
from spolia.flow_files.built_in_flows import BUILT_IN
from spolia.flows.catalogue import PublishedMethod, list_flows
from spolia.models.file_hash import cache_folder
from spolia.models.onnx.minilm import MiniLM
from spolia.pre_retrieval.query_llm import normalize_text
from spolia.run import Run
from spolia.types import Answer, Failure, Item, Prompt, Query, Ranking, SubQuestion, Value, lazy_property

SETS = ("musique", "hotpotqa", "2wikimultihopqa", "world", "pubmedqa", "bamboogle")
RETRIEVERS = ("bm25", "dense", "hybrid")
QUESTIONS, SEEDS, DRAWN_WITH = 200, 5, 0
"""Questions of each set and seeds of the noisy reader. A question of a flow costs about 9 ms of CPU."""
BLOCK = 60
"""Questions of a cell."""
MANY_CALLS = (
    "corag-tree",
    "corag-best-of-n",
    "corag-classifier-tree",
    "corag-classifier-best-of-n",
    "tree-of-clarifications",
)
NO_CORPUS = "none"
"""The retriever of a set without a corpus."""
DEPTHS = (3, 5, 7)
"""Passages of a search, for the flows `DEEPENED`."""
DEEPENED = ("naive", "prefrag")
PLACES = 100
"""Places of a ranking from which a half takes its own; tree of clarifications takes all of them."""
WORLD = FictionalWorld(7)
SMALL = FictionalWorld(7, people=60, questions=39)
SIMULATED = {"simulated": True, "planner": "gold"}
SOURCES = ("local", "web")
EM, F1 = parse_measures("EM, F1")


def in_local(document: str) -> bool:
    """Whether a document lies in the half that is called `local`."""
    return hashlib.blake2b(document.encode(), digest_size=1).digest()[0] < 128


class Rankings:
    """What a retriever has found for each query, so that a query of several flows is searched once."""

    def __init__(self, search: Retriever, is_local: Callable[[str], bool] = in_local) -> None:
        self.search, self.is_local = search, is_local
        self.found: dict[Query, Ranking] = {}

    def of(self, query: Query) -> Ranking:
        """The ranking; searched in another thread, outside of the question's account."""
        key = query.but(question=query.text, sample=0, weight=1.0, history=(), origin=None)
        if key not in self.found:
            self.found[key] = OUTSIDE.submit(self.search, key).result()
        return self.found[key]


OUTSIDE = ThreadPoolExecutor(1)
RANKINGS: dict[str, Rankings] = {}
"""By data set and retriever."""


@step
def source(query: Query, *, retriever: str, name: str, top_k: int) -> Ranking:
    """The best passages of a source: of the whole corpus, or of the half that is called so."""
    rankings = RANKINGS[retriever]
    hits = rankings.of(query).hits
    if name in SOURCES:
        hits = tuple(hit for hit in hits if rankings.is_local(hit.node.document) is (name == "local"))
    return Ranking(query, hits[:top_k], name)


JUDGED: Counter[str] = Counter()
"""Tokens of judges of sufficiency, in the question that is asked."""


class CountingReader(SimulatedReader):
    """Counts what judging costs."""

    def _reply(self, prompt: Prompt) -> str:
        reply = super()._reply(prompt)
        if PurePosixPath(prompt.role).name.startswith("corag_enough"):
            prompt_words = sum(len(message.content.split()) for message in prompt.messages)
            JUDGED["tokens"] += prompt_words + len(reply.split())
        return reply


_PAIR = re.compile(r"^Q: (.*)\nA: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class SimulatedScorer(Value):
    """Stands for a trained scorer: 1 for a passage that states what the question needs, and for a chain that suffices.

    Args:
        chains: the questions with their hops.
        profile: how often it errs, as a judge does.
    """

    chains: tuple[GoldChain, ...] = field(repr=False)
    profile: Profile = PROFILES["ideal"]
    seed: int = 0
    name: str = "simulated"

    scoped: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return self.digest.hex()

    @lazy_property
    def _by_question(self) -> dict[str, GoldChain]:
        return {normalize_text(chain.item.question): chain for chain in self.chains}

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        chain = self._by_question.get(normalize_text(query))
        return tuple(1.0 if chain and self._holds(chain, text) else -1.0 for text in texts)

    def _holds(self, chain: GoldChain, text: str) -> bool:
        if pairs := _PAIR.findall(text):
            holds = chain.is_resolved(chain.resolve_hops(pairs, ()))
        else:
            holds = any(hop.is_supported(text) for hop in chain.hops)
        return holds is not self.profile.happens("judge_fn" if holds else "judge_fp", "scorer", self.seed, text)


@dataclass(frozen=True)
class LenientHop(Hop):
    """Is stated by any passage that holds the answer and half of the words of a sentence that states it."""

    def is_stated_in(self, passage: str, *, strict: bool = False) -> bool:
        return super().is_stated_in(passage, strict=strict)


def lenient(hop: Hop) -> Hop:
    return LenientHop(hop.question, hop.answer, hop.stated, hop.passage, tuple(map(lenient, hop.companions)))


@dataclass(frozen=True)
class Row:
    """A flow of the table.

    Args:
        name: as the table has it.
        flow: what is published.
        halves: whether it searches two halves.
        top_k: passages of a search.
        settings: of the flow.
    """

    name: str
    flow: PublishedMethod
    halves: bool
    top_k: int
    settings: tuple[tuple[str, Any], ...] = ()

    def build_flow_of_row(
        self, llm: SimulatedReader, retriever: str, chunks: Any, embedder: Any
    ) -> Operator[Query, Answer]:
        search = source.but(retriever=retriever, name="local" if self.halves else "all", top_k=self.top_k)
        scorer = SimulatedScorer(llm.chains, llm.profile, llm.seed)
        parts = {"llm": llm, "search": search, "group": chunks, "embedder": embedder, "scorer": scorer}
        parts |= dict(self.settings)
        return self.flow.build_flow(parts | ({"web": search.but(name="web")} if self.halves else {}))


def rows() -> Iterator[Row]:
    """What is measured: every flow, and some at several depths."""
    for flow in list_flows():
        halves = "web" in flow.needs or flow.name == "react"
        yield Row(flow.name, flow, halves, flow.top_k)
        if flow.name == "naive":
            yield Row("naive, local half", flow, True, flow.top_k)
        for depth in DEPTHS if flow.name in DEEPENED else ():
            if depth != flow.top_k:
                settings = (("top_k", depth),) if flow.name == "naive" else ()
                yield Row(f"{flow.name}, k = {depth}", flow, halves, depth, settings)


def scored_flows() -> list[str]:
    """Flows that need a trained scorer, which is simulated."""
    return [flow.name for flow in list_flows() if "scorer" in flow.needs]


# One cell: a flow on a block of a set's questions with a retriever, a profile and a seed.


@dataclass(frozen=True)
class Bench:
    """A data set that is ready to be asked."""

    name: str
    data: DataSet
    items: Sequence[Item]
    chunks: Any
    embedder: Any
    chains: Mapping[str, GoldChain]

    @classmethod
    def of(cls, name: str, retrievers: Sequence[str], embedder: Any, world: FictionalWorld) -> Bench:
        data = DataSet(str(DATA / name))
        if name == "bamboogle":
            items = [item for item in data.items() if item.answers]
            return cls(name, data, items, None, None, {item.id: GoldChain.from_item(item, {}) for item in items})
        if name in ("world", "contradicting"):
            variant: Any = "" if name == "world" else name
            folder = cache_folder() / "worlds" / f"{name}-{world.seed}-{world.people}-{world.questions}"
            world.but(variant=variant).write(folder)
            data = DataSet(str(folder))
        chunks = index_passages(data, embedder)
        is_local = (lambda document: document.startswith("l")) if name == "contradicting" else in_local
        for retriever in retrievers:
            search = BUILT_IN[retriever](chunks, embedder, None, PLACES)
            RANKINGS[f"{name} {retriever}"] = Rankings(search, is_local)
        items = [item for item in data.items() if item.gold and item.answers]
        random.Random(DRAWN_WITH).shuffle(items)
        chains = {chain.item.id: chain for chain in SimulatedReader.from_data(data, items).chains}
        return cls(name, data, items, chunks, embedder, chains)

    def block(self, number: int, questions: int) -> Sequence[Item]:
        """The questions of a block, of so many in all."""
        return self.items[: min(questions, len(self.items))][number * BLOCK : (number + 1) * BLOCK]

    def rows(self, retriever: str, number: int) -> Iterator[Row]:
        """What is asked the questions of a block with a retriever."""
        for row in rows():
            if self.chunks is None:
                is_asked = row.name == "closed-book"
            elif row.name == "multi-head":  # which is a retriever itself
                is_asked = self.embedder is not None and retriever == RETRIEVERS[-1]
            else:
                is_asked = not (number and row.name in MANY_CALLS)
            if is_asked:
                yield row

    def conditions(self, seeds: int, retrievers: Sequence[str]) -> list[tuple[str, str, int]]:
        """Retriever, profile and seed."""
        if self.chunks is None:
            retrievers = (NO_CORPUS,)
        last = retrievers[-1]
        noisy = [(last, "noisy", seed) for seed in range(seeds)]
        more = [(last, "lenient", 0)] if self.chunks is not None else []
        return [(retriever, "ideal", 0) for retriever in retrievers] + more + noisy

    def reader(self, profile: str, seed: int, items: Sequence[Item]) -> CountingReader:
        chains = tuple(self.chains[item.id] for item in items)
        if profile == "lenient":
            chains = tuple(chain.but(hops=tuple(map(lenient, chain.hops))) for chain in chains)
        return CountingReader(
            chains=chains, profile=profile_named("ideal" if profile == "lenient" else profile), seed=seed
        )

    def measure(self, row: Row, retriever: str, profile: str, seed: int, items: Sequence[Item]) -> dict[str, Any]:
        """What came of each question, and the CPU time since the cell before."""
        reader = self.reader(profile, seed, items)
        return self.ask_all(
            row.build_flow_of_row(reader, f"{self.name} {retriever}", self.chunks, self.embedder), items
        )

    def ask_all(self, flow: Operator[Query, Answer], items: Sequence[Item]) -> dict[str, Any]:
        with Run() as run:
            question_rows = [_ask(flow, item, run) for item in items]
        return {"questions": question_rows, "cpu_s": SPENT.since()}


class Spent:
    """CPU time of this process: what was loaded, indexed and searched before a cell counts for it."""

    def __init__(self) -> None:
        self.counted = 0.0

    def since(self) -> float:
        """Seconds since it was asked before."""
        counted_before, self.counted = self.counted, time.process_time()
        return round(self.counted - counted_before, 3)


SPENT = Spent()
COSTS = {
    "tokens": AverageTokens(),
    **{f"searches, {name}": RetrievalCalls(source=name) for name in ("all", *SOURCES)},
    **{f"used, {name}": UsedCalls(source=name) for name in ("all", *SOURCES)},
    **{f"shown, {name}": DocumentsShown(source=name) for name in ("all", *SOURCES)},
}


def _ask(flow: Operator[Query, Answer], item: Item, run: Run) -> dict[str, Any]:
    """One question: its scores, what it cost, and why it ended."""
    JUDGED.clear()
    with run.lane() as lane:
        try:
            outcome: Answer | Failure = flow(Query(item.question))
        except SpoliaError as error:
            outcome = Failure.from_error(error)
    case = Case(item, outcome, lane.usage, tuple(lane.retrievals))
    answer = outcome if isinstance(outcome, Answer) else None
    shown_documents = {hit.node.document for hit in answer.evidence.hits} if answer and answer.evidence else set()
    return {
        "id": item.id,
        "EM": EM.score(answer, item) if answer else 0.0,
        "F1": F1.score(answer, item) if answer else 0.0,
        "all gold": float(bool(item.gold) and all(shown_documents & set(map(str, group)) for group in item.gold)),
        "calls": lane.usage.calls,
        "judging": JUDGED["tokens"],
        "answer": answer.text if answer else "",
        "stop": answer.stop_reason if answer else "failed",
        "sufficient": float(bool(answer and answer.stop_reason == "sufficient")),
        **{name: measure.cost(case) for name, measure in COSTS.items()},
    }


class Kept:
    """Cells in a file, one a line, of this code."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "cells.jsonl"
        source = HERE.parent / "src" / "spolia"
        digest = hashlib.blake2b(digest_size=8)
        for path in sorted(
            source_file
            for source_file in source.rglob("*")
            if source_file.suffix in (".py", ".txt") and source_file.parent.name != "cli"
        ):
            digest.update(path.read_bytes())
        self.code = digest.hexdigest()
        self.cells: dict[str, dict[str, Any]] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                self.cells |= json.loads(line)
            except ValueError:
                continue  # the line that a kill cut short

    def key(self, *of: object) -> str:
        return " | ".join(map(str, (*of, self.code)))

    def keep(self, key: str, cell: dict[str, Any]) -> None:
        self.cells[key] = cell
        with self.path.open("a") as file:
            file.write(f"\n{json.dumps({key: cell})}\n")


# All cells.


def fill(store: Kept, benches: Sequence[Bench], questions: int, seeds: int, retrievers: Sequence[str]) -> None:
    """Measure the cells that are not kept, the first block of everything first, and say how many are left."""
    todo = []
    for number in range(-(-questions // BLOCK)):
        for bench in benches:
            items = bench.block(number, questions)
            for retriever, profile, seed in bench.conditions(seeds, retrievers) if items else ():
                for row in bench.rows(retriever, number):
                    key = store.key(bench.name, row.name, retriever, profile, seed, number, len(items))
                    if key not in store.cells:
                        todo.append((key, bench, row, retriever, profile, seed, items))
    last = None
    for index, (key, bench, row, *condition, items) in enumerate(todo):
        if (bench.name, *condition) != last:
            last = (bench.name, *condition)
            print(f"{' '.join(map(str, last))}: {len(todo) - index} cells left", flush=True)
        if index and todo[index - 1][1] is not bench:
            for rankings in RANKINGS.values():
                rankings.found.clear()
        store.keep(key, bench.measure(row, *condition, items))


def collect_cells(
    kept: Kept, benches: Sequence[Bench], questions: int, seeds: int, retrievers: Sequence[str]
) -> dict[tuple[str, str, str, str], list[list[dict[str, Any]]]]:
    """By set, row, retriever and profile: the questions of each seed.

    Of blocks that were measured whole: with every flow and seed, so that all flows are asked the same questions.
    """
    cells_by_condition: dict[tuple[str, str, str, str], list[list[dict[str, Any]]]] = {}
    for bench in benches:
        conditions = bench.conditions(seeds, retrievers)
        for number in range(-(-questions // BLOCK)):
            items = bench.block(number, questions)
            for retriever, profile in dict.fromkeys(condition[:2] for condition in conditions) if items else ():
                several = [seed for *key, seed in conditions if key == [retriever, profile]]
                cells = {
                    (row.name, seed): kept.cells.get(
                        kept.key(bench.name, row.name, retriever, profile, seed, number, len(items))
                    )
                    for row in bench.rows(retriever, number)
                    for seed in several
                }
                for (name, seed), cell in cells.items() if None not in cells.values() else ():
                    rows_of_seeds = cells_by_condition.setdefault(
                        (bench.name, name, retriever, profile), [[] for _ in several]
                    )
                    rows_of_seeds[several.index(seed)] += cell["questions"] if cell else []
    return cells_by_condition


def counts(cells: Mapping[tuple[str, str, str, str], Sequence[Sequence[Any]]]) -> dict[str, dict[str, int]]:
    """By set and profile: how many questions most flows were asked with every retriever."""
    counts_by_set: dict[str, dict[str, int]] = {}
    for (data, name, _, profile), cell in cells.items():
        if name == "closed-book":
            counts_by_profile = counts_by_set.setdefault(data, {})
            counts_by_profile[profile] = min(counts_by_profile.get(profile, len(cell[0])), len(cell[0]))
    return counts_by_set


# What the cells say.

Cells = Mapping[tuple[str, str, str, str], Sequence[Sequence[Mapping[str, Any]]]]
SINGLE_SHOT = "naive"
ITERATIVE = ("iter-retgen", "ircot", "flare", "adaptive-rag", "auto-rag", "planrag", "corag", "corag-oracle")
R5 = parse_measures("R@5")[0]


def mean(numbers: Sequence[float]) -> float:
    return fsum(numbers) / len(numbers) if numbers else 0.0


def by_question(cell: Sequence[Sequence[Mapping[str, Any]]], name: str) -> dict[str, float]:
    """A number of each question, the mean of the seeds."""
    several: dict[str, list[float]] = {}
    for seed_rows in cell:
        for row in seed_rows:
            several.setdefault(row["id"], []).append(row[name])
    return {id: mean(numbers) for id, numbers in several.items()}


def summary(condition: tuple[str, str, str, str], cell: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """A row of the table."""
    scores = {name: interval(list(by_question(cell, name).values())).json() for name in ("EM", "F1", "all gold")}
    stops = Counter(row["stop"] for seed_rows in cell for row in seed_rows)
    costs = {name: round(mean(list(by_question(cell, name).values())), 2) for name in ("calls", "judging", *COSTS)}
    rounded = {f"sim_{name}": _round_numbers(score) for name, score in scores.items()}
    whole = sum(stops.values())
    return {
        **dict(zip(("data", "flow", "retriever", "profile"), condition, strict=True)),
        **SIMULATED,
        "seeds": len(cell),
        **rounded,
        **{name: cost for name, cost in costs.items() if cost or name in ("calls", "tokens")},
        "stops": {name: round(count / whole, 3) for name, count in stops.most_common()},
    }


def _round_numbers(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(number, 4) if isinstance(number, float) else number for name, number in figures.items()}


def kendall(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Kendall's tau-b of two lists of scores of the same flows.

    >>> kendall([1, 2, 3], [1, 3, 2])
    0.3333333333333333
    """
    pairs = [(_sign(a - c), _sign(b - d)) for (a, b), (c, d) in combinations(list(zip(ours, theirs, strict=True)), 2)]
    norm = sqrt(sum(x * x for x, _ in pairs) * sum(y * y for _, y in pairs))
    return sum(x * y for x, y in pairs) / norm if norm else 0.0


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def calibration(world: Bench, cells: Cells, retrievers: Sequence[str]) -> dict[str, Any]:
    """How hard the world is to search, and whether flows stand in the same order on it as on public sets."""
    recall: dict[str, Any] = {}
    for retriever in retrievers:
        search = BUILT_IN[retriever](world.chunks, world.embedder, None, 5)
        kinds: dict[str, list[float]] = {"all": []}
        for item in world.items:
            score = R5.score(search(Query(item.question)), item) or 0.0
            kinds["all"].append(score)
            kinds.setdefault(item.type, []).append(score)
        recall[retriever] = {kind: _round_numbers(interval(scores).json()) for kind, scores in sorted(kinds.items())}
    return {"R@5 on the world": recall, "Kendall's tau, EM on the world against": orders(cells, retrievers)}


def orders(cells: Cells, retrievers: Sequence[str]) -> dict[str, dict[str, float]]:
    """By set and retriever: tau of the flows' EM against the world, over questions of at least two hops there."""
    taus: dict[str, dict[str, float]] = {}
    for data in (
        set_name for set_name in SETS if set_name != "world" and any(condition[0] == set_name for condition in cells)
    ):
        for retriever in retrievers:
            names = sorted({condition[1] for condition in cells if "k =" not in condition[1]})
            keys = [[(set_name, name, retriever, "ideal") for name in names] for set_name in (data, "world")]
            indexes = [index for index in range(len(names)) if all(key[index] in cells for key in keys)]
            if len(indexes) < 10:
                continue
            ours, theirs = (
                [mean(list(by_question(cells[key[index]], "EM").values())) for index in indexes] for key in keys
            )
            taus.setdefault(data, {})[retriever] = round(kendall(ours, theirs), 3)
    return taus


def hops_of(item: Item) -> int:
    """Hops of the decomposition; where there is none, as of HotpotQA, as many as there are gold passages, at most 2."""
    return len(item.decomposition) or min(2, len(item.gold))


def deeper(benches: Sequence[Bench], cells: Cells) -> list[dict[str, Any]]:
    """What iterative flows score above the single-shot one, by hops, over the questions of all sets."""
    hops = {item.id: hops_of(item) for bench in benches for item in bench.items}
    new_rows = []
    for retriever, profile in dict.fromkeys(condition[2:] for condition in cells if condition[2] != NO_CORPUS):
        for name in ITERATIVE:
            ours, theirs = (
                _pool_scores(benches, cells, (flow, retriever, profile), "EM") for flow in (name, SINGLE_SHOT)
            )
            for count in (2, 3, 4):
                ids = [id for id in ours.keys() & theirs.keys() if hops[id] == count]
                if ids:
                    gain = difference([ours[id] for id in ids], [theirs[id] for id in ids])
                    single = round(mean([theirs[id] for id in ids]), 4)
                    new_rows.append({"retriever": retriever, "profile": profile, "flow": name, "hops": count,
                                  "single-shot": single, "more EM": _round_numbers(gain.json())})  # fmt: skip
    return new_rows


def _pool_scores(
    benches: Sequence[Bench], cells: Cells, condition: tuple[str, str, str], number: str
) -> dict[str, float]:
    result: dict[str, float] = {}
    for bench in benches:
        if cell := cells.get((bench.name, *condition)):
            result |= by_question(cell, number)
    return result


def stopping(cells: Cells) -> list[dict[str, Any]]:
    """What CoRAG spends that stops where the oracle says so, as a share of the tokens of L = 6."""
    new_rows = []
    for (data, name, retriever, profile), whole in cells.items():
        if name != "corag" or (data, "corag-oracle", retriever, profile) not in cells:
            continue
        stopped = cells[data, "corag-oracle", retriever, profile]
        ours, theirs = (list(by_question(cell, "EM").values()) for cell in (stopped, whole))
        tokens, judging = (mean(list(by_question(stopped, figure).values())) for figure in ("tokens", "judging"))
        whole_mean = mean(list(by_question(whole, "tokens").values()))
        new_rows.append({
            "data": data, "retriever": retriever, "profile": profile, "L = 6": round(whole_mean),
            "share": round((tokens - judging) / whole_mean, 3), "share with the judge": round(tokens / whole_mean, 3),
            "more EM": _round_numbers(difference(ours, theirs).json()),
        })  # fmt: skip
    return new_rows


def stopping_by_hops(benches: Sequence[Bench], cells: Cells) -> list[dict[str, Any]]:
    """The same share by the hops of a question, and by whether the chain came to suffice, over all sets."""
    hops = {item.id: hops_of(item) for bench in benches for item in bench.items}
    new_rows = []
    for retriever, profile in dict.fromkeys(key[2:] for key in cells if key[2] != NO_CORPUS):
        tokens, judging, resolved = (
            _pool_scores(benches, cells, ("corag-oracle", retriever, profile), key)
            for key in ("tokens", "judging", "sufficient")
        )
        whole_tokens = _pool_scores(benches, cells, ("corag", retriever, profile), "tokens")
        for count in sorted({hops[id] for id in tokens}):
            for is_resolved in (True, False):
                ids = [id for id in tokens if hops[id] == count and (resolved[id] > 0.5) is is_resolved]
                if ids:
                    share = mean([tokens[id] - judging[id] for id in ids]) / mean([whole_tokens[id] for id in ids])
                    new_rows.append({"retriever": retriever, "profile": profile, "hops": count, "n": len(ids),
                                  "chain suffices": is_resolved, "share": round(share, 3)})  # fmt: skip
    return new_rows


def exposure(benches: Sequence[Bench], cells: Cells) -> list[dict[str, Any]]:
    """How often PrefRAG asks the web and shows it, where the local half suffices and where it does not.

    It suffices where the local passages that are found for each gold sub-question state its answer.
    """
    new_rows = []
    for bench in benches:
        for retriever, profile in dict.fromkeys(
            condition[2:] for condition in cells if condition[0] == bench.name and condition[2] != NO_CORPUS
        ):
            asked_of = {condition[1]: [row for seed in cell for row in seed] for condition, cell in cells.items()
                        if (condition[0], *condition[2:]) == (bench.name, retriever, profile)}  # fmt: skip
            ids = {row["id"] for row in asked_of.get("prefrag", ())}
            enough = {id for id in ids if local_suffices(bench.chains[id], f"{bench.name} {retriever}")}
            for name in ("prefrag", "prefrag-prompt", "prefrag-no-preference", "react", "react-concat"):
                for suffices in (True, False):
                    rows = [row for row in asked_of.get(name, ()) if (row["id"] in enough) is suffices]
                    if rows:
                        counts = {
                            condition: round(mean([row[condition] for row in rows]), 2)
                            for condition in ("searches, web", "shown, web")
                        }
                        web = sum(row["shown, web"] > 0 for row in rows)
                        new_rows.append({"data": bench.name, "retriever": retriever, "profile": profile, "flow": name,
                                      "local suffices": suffices, "n": len(rows),
                                      "questions with web shown": web, **counts})  # fmt: skip
    return new_rows


def local_suffices(chain: GoldChain, retriever: str) -> bool:
    """Whether the local half's own ranking answers each sub-question, asked with the gold answers before it."""
    gold = {number: hop.answer for number, hop in enumerate(chain.hops, 1)}
    local = source.but(retriever=retriever, name="local", top_k=5)
    return all(hop.is_visible(local(Query(hop.fill_question(gold))).texts) for hop in chain.hops)


# A world whose two sources contradict each other.


@dataclass(frozen=True)
class BelievesBoth(CountingReader):
    """Believes what it is shown: the local facts or those of the web, whichever resolve more of the question."""

    other: SimulatedReader | None = None

    def _reply(self, prompt: Prompt) -> str:
        assert self.other is not None
        ours, theirs = super()._reply(prompt), self.other._reply(prompt)
        if PurePosixPath(prompt.role).name.startswith("prefrag_helps"):
            return max(ours, theirs)  # yes, where one says so
        return theirs if _resolves(self.other, prompt) > _resolves(self, prompt) else ours


def _resolves(reader: SimulatedReader, prompt: Prompt) -> int:
    chain = next(known_chain for known_chain in reader.chains if known_chain.item.question in prompt.text)
    return len(chain.resolve_hops((), [prompt.text]))


def contradictions(store: Kept, bench: Bench, retriever: str, questions: int) -> list[dict[str, Any]]:
    """Whose facts PrefRAG answers with, where one source or the other is preferred."""
    items = [item for item in bench.items if dict(item.meta).get("web_answer") not in (None, *item.answers)]
    items = [item for item in items if hops_of(item) <= 4][: min(questions, BLOCK)]
    metadata = [dict(item.meta) for item in items]
    webs = [item.but(answers=(str(meta["web_answer"]),),
                     decomposition=tuple(SubQuestion(**entry) for entry in json.loads(str(meta["web_decomposition"]))))
            for item, meta in zip(items, metadata, strict=True)]  # fmt: skip
    reader = BelievesBoth.from_data(bench.data, items).but(other=CountingReader.from_data(bench.data, webs))
    findings = []
    for preferred in SOURCES:
        key = store.key(bench.name, preferred, retriever, len(items))
        if key not in store.cells:
            row = next(entry for entry in rows() if entry.name == "prefrag")
            search = source.but(retriever=f"{bench.name} {retriever}", top_k=row.top_k)
            first, second = (
                search.but(name=name) for name in (preferred, *(entry for entry in SOURCES if entry != preferred))
            )
            store.keep(key, bench.ask_all(row.flow.build_flow({"llm": reader, "search": first, "web": second}), items))
        asked_rows = store.cells[key]["questions"]
        answers = [Answer(entry["answer"].partition(" [")[0]) for entry in asked_rows]
        says = {name: [EM.score(entry, item) or 0.0 for entry, item in zip(answers, source_items, strict=True)]
                for name, source_items in (("local", items), ("web", webs))}  # fmt: skip
        findings.append({
            "preferred": preferred, "n": len(items),
            **{f"answers of {name}": _round_numbers(interval(scores).json()) for name, scores in says.items()},
            **{f"shown, {name}": round(mean([row[f"shown, {name}"] for row in asked_rows]), 2)
               for name in SOURCES},
        })  # fmt: skip
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "flows.json")
    parser.add_argument("--kept", type=Path, default=cache_folder() / "flows")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of each set")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the noisy reader")
    parser.add_argument("--quick", action="store_true", help="a small world, 4 questions, bm25")
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--part", action="store_true", help="measure these sets and write nothing else")
    parser.add_argument("--measured", action="store_true", help="measure nothing, write what is kept so far")
    options = parser.parse_args()
    sets, retrievers, world = (("world",), ("bm25",), SMALL) if options.quick else (options.sets, RETRIEVERS, WORLD)
    questions, seeds = (4, 1) if options.quick else (options.questions, options.seeds)
    embedder = None if options.quick else MiniLM(threads=1)
    store = Kept(options.kept)
    benches = [Bench.of(name, retrievers, embedder, world) for name in sets]
    if not options.measured:
        fill(store, benches, questions, seeds, retrievers)
    if options.part:
        return
    cells = collect_cells(store, benches, questions, seeds, retrievers)
    contradicting_bench = Bench.of("contradicting", ("bm25",), None, world)
    result = {
        **SIMULATED,
        "questions": counts(cells),
        "cells": len(cells),
        "of flows with many calls": {"questions": min(BLOCK, questions), "flows": MANY_CALLS},
        "seeds of the noisy reader": seeds,
        "pseudo-decomposed": {
            bench.name: round(mean([float(chain.pseudo) for chain in bench.chains.values()]), 3) for bench in benches
        },
        "with a simulated scorer": scored_flows(),
        "calibration": calibration(next(bench for bench in benches if bench.name == "world"), cells, retrievers),
        "iterative against single-shot": deeper(benches, cells),
        "corag that stops": stopping(cells),
        "corag that stops, by hops": stopping_by_hops(benches, cells),
        "prefrag and the web": exposure(benches, cells),
        "prefrag and contradicting sources": contradictions(store, contradicting_bench, "bm25", questions),
        "table": [summary(condition, cell) for condition, cell in cells.items()],
    }  # fmt: skip
    cpu_s = sum(cell["cpu_s"] for key, cell in store.cells.items() if key.endswith(store.code)) + SPENT.since()
    result["cpu_minutes"] = round(cpu_s / 60, 1)
    publish("flows", result, options.out)
    options.out.with_suffix(".md").write_text(page(json.loads(options.out.read_text())))


if __name__ == "__main__":
    main()
