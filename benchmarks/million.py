"""A whole store of 1,000,000 nodes: built, killed in the middle, built on, checked and asked; and one of 100,000.

    python benchmarks/million.py [--nodes 1000000] [--dimension 384] [--out FILE]

Nodes are pairs of real sentences, twenty in a file (`store.py`), with documents, texts, words and vectors on the disk.
Vectors are normalised sums of those of the two sentences by all-MiniLM-L6-v2, made once; with another `--dimension`
than 384 they are projected at random to so many numbers, which is said in the result: graphs over them are built in
less time. The process that indexes is killed (SIGKILL) half as long again after the first publication, while it builds
a graph or is at the next one; then all of the store is looked at, and another process goes on. What has a vector by
then is not embedded again.

500 questions that people asked are asked of either store one at a time, top 10, with nodes and texts: by words, by
vectors that are looked up, by both, and by vectors that the model makes of the question. CPU-ms of the thread, on one
core: for each question its only turn, after another question has opened everything. Recall is of 50 questions,
against comparing all vectors. Anonymous memory (RssAnon) is polled; the vectors that are looked up, 150 MB at 384
numbers, are in it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import sentences  # noqa: E402
from results import publish  # noqa: E402
from store import ASKED, BETWEEN, FIRST, PER_FILE, REAL, TOP_K, lines, rows, written  # noqa: E402
from vectors import quantiles  # noqa: E402

from spolia.flow_files.built_in_flows import hybrid  # noqa: E402
from spolia.indexing.sync.sync import sync  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.retrieval.bm25 import BM25  # noqa: E402
from spolia.retrieval.dense import Dense  # noqa: E402
from spolia.stores.corpus import Corpus  # noqa: E402
from spolia.stores.vectors.segments import FROZEN_ROWS  # noqa: E402
from spolia.types import Query, Value  # noqa: E402

OF_MODEL = 384
BATCH = FROZEN_ROWS // PER_FILE + 1
"""Files that are published together: as many as give a segment that is never joined again."""
RECALLED = 50
FLOWS = ("BM25", "Dense", "hybrid", "Dense, embedding the question")


@cache
def projection(dimension: int) -> Any:
    return np.random.default_rng(7).standard_normal((OF_MODEL, dimension)).astype(np.float32)


def project(vectors: Any, dimension: int) -> Any:
    if dimension == OF_MODEL:
        return vectors
    projections = vectors @ projection(dimension)
    return projections / np.linalg.norm(projections, axis=1, keepdims=True)


@cache
def kept_vectors(dimension: int) -> Any:
    return project(rows()[1], dimension)


@dataclass(frozen=True)
class Recombined(Value):
    """Of a pair of sentences the normalised sum of their vectors, as they are kept, and of what else is kept its own.

    Args:
        dimension: numbers in a vector.
        fresh: have the model embed what is no pair.
    """

    dimension: int = OF_MODEL
    fresh: bool = False
    model: MiniLM = field(default_factory=MiniLM)
    window: int = 256
    scoped = False

    @property
    def name(self) -> str:
        return f"{self.model.name}, {self.dimension} numbers"

    def fingerprint(self) -> str:
        return f"{self.model.fingerprint()} {self.dimension}"

    def embed(self, texts: Any, *, kind: str) -> Any:
        if self.fresh:
            return project(self.model.embed(texts, kind=kind), self.dimension)
        rows_by_text, vectors = rows()[0], kept_vectors(self.dimension)
        if all(text in rows_by_text for text in texts):
            return vectors[[rows_by_text[text] for text in texts]]
        halves = [text.split(BETWEEN) for text in texts]
        sums = (
            vectors[[rows_by_text[first] for first, _ in halves]]
            + vectors[[rows_by_text[second] for _, second in halves]]
        )
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def tokens(self, texts: Any) -> list[int]:
        return [len(text) // 4 for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


# What processes of their own do.


def build(dimension: int, folder: Path, store: Path) -> dict[str, Any]:
    kept_vectors(dimension)
    began, ticked = time.process_time(), time.perf_counter()
    summary = sync(folder, Corpus(str(store)), splitter=lines, embedder=Recombined(dimension), batch=BATCH)
    return {
        "cpu_s": round(time.process_time() - began, 1),
        "wall_s": round(time.perf_counter() - ticked, 1),
        "files": summary.added,
        "texts_embedded": summary.embedded,
    }


def look_at_store(dimension: int, folder: Path, store: Path) -> dict[str, Any]:
    """Read all of a store."""
    snapshot, ticked = Corpus(str(store)).snapshot(), time.perf_counter()
    stats, wrong = snapshot.stats(), snapshot.check()
    return {
        "generation": stats.generation,
        "nodes": dict(stats.nodes).get("chunk", 0),
        "vectors": sum(count for _, count in stats.vectors),
        "mb": round(stats.bytes / 1e6),
        "wrong": wrong,
        "wall_s": round(time.perf_counter() - ticked, 1),
    }


def ask(dimension: int, folder: Path, store: Path) -> dict[str, Any]:
    group, questions = Corpus(str(store)).group(), sentences.questions(ASKED)
    near = Dense(group, Recombined(dimension), TOP_K)
    flows = {
        "BM25": BM25(group, TOP_K),
        "Dense": near,
        "hybrid": hybrid(group, Recombined(dimension), top_k=TOP_K),
        "Dense, embedding the question": Dense(group, Recombined(dimension, fresh=True), TOP_K),
    }
    result: dict[str, Any] = {name: time_flow(flows[name], questions) for name in FLOWS}
    result["Dense"]["recall"] = recall(near, dimension, questions[:: ASKED // RECALLED])
    return result


def time_flow(flow: Any, questions: list[str]) -> dict[str, Any]:
    flow(Query(FIRST))
    cpu, wall = [], []
    for question in questions:
        began, ticked = time.thread_time(), time.perf_counter()
        assert flow(Query(question)).hits
        cpu.append((time.thread_time() - began) * 1e3)
        wall.append((time.perf_counter() - ticked) * 1e3)
    return {"cpu_ms": quantiles(cpu), "wall_ms": quantiles(wall)}


def recall(flow: Dense, dimension: int, questions: list[str]) -> float:
    """Share of what comparing all vectors finds, some thousand at a time."""
    snapshot, embedder = flow.group.snapshot(), Recombined(dimension)
    stored, keys = snapshot.open.stored_vectors("chunk", embedder.name), snapshot.allowed("chunk", frozenset()).keys
    vectors = embedder.embed(questions, kind="query")
    scores = np.concatenate(
        [
            vectors @ stored.vectors_at(np.arange(start, min(start + 50_000, len(keys)))).T
            for start in range(0, len(keys), 50_000)
        ],
        axis=1,
    )
    count = 0
    for question, row in zip(questions, scores, strict=True):
        best = {node.id for node in snapshot.nodes(keys[np.argsort(-row)[:TOP_K]].tolist(), frozenset())}
        count += len(best & {hit.node.id for hit in flow(Query(question)).hits})
    return round(count / (TOP_K * len(questions)), 4)


PARTS = {"build": build, "look": look_at_store, "ask": ask}


# Running them.


def child(part: str, dimension: int, folder: Path, store: Path, *, killed: bool = False) -> dict[str, Any]:
    """What a part gives, and the anonymous memory of its process; killed after the first publication."""
    report = store.with_suffix(".json")
    command = [sys.executable, __file__, "--part", part, str(dimension), str(folder), str(store), str(report)]
    running, peak, published_at, began = subprocess.Popen(command), 0, 0.0, time.monotonic()
    while running.poll() is None:
        status = Path(f"/proc/{running.pid}/status").read_text()
        anon = [int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("RssAnon")]
        peak = max(peak, *anon, 0)
        if killed and not published_at and store.exists() and Corpus(str(store)).snapshot().generation:
            published_at = time.monotonic()
        if published_at and time.monotonic() > published_at + (published_at - began) / 2:
            running.send_signal(signal.SIGKILL)
            break
        time.sleep(0.1)
    if running.wait() not in (0, -signal.SIGKILL if killed else 0):
        sys.exit(f"{part} ended with {running.returncode}")
    report_data = {"after_s": round(time.monotonic() - began, 1)} if killed else json.loads(report.read_text())
    return {**report_data, "anon_mb": peak}


def measure(place: Path, nodes: int, dimension: int, *, killed: bool) -> dict[str, Any]:
    folder, store = place / "files", place / "all.spolia"
    folder.mkdir(parents=True)
    written(folder, nodes)
    result: dict[str, Any] = {}
    if killed:
        result["killed"] = child("build", dimension, folder, store, killed=True)
        result["found after the kill"] = child("look", dimension, folder, store)
    result["resumed" if killed else "built"] = child("build", dimension, folder, store)
    result["found at the end"] = child("look", dimension, folder, store)
    asking = child("ask", dimension, folder, store)
    return {**result, **asking, "asking_anon_mb": asking["anon_mb"], "load": round(os.getloadavg()[1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=OF_MODEL)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, dimension, folder, store, report = options.part
        Path(report).write_text(json.dumps(PARTS[part](int(dimension), Path(folder), Path(store))))
        return
    result: dict[str, Any] = {
        "made_of": "pairs of distinct real sentences, in texts and vectors",
        "numbers_in_a_vector": options.dimension,
        "projected": options.dimension != OF_MODEL,
    }
    few, many = str(REAL), str(options.nodes)
    with tempfile.TemporaryDirectory() as place:
        result[few] = measure(Path(place, "few"), REAL + PER_FILE, options.dimension, killed=False)
        print(json.dumps(result[few]), flush=True)
        result[many] = measure(Path(place, "many"), options.nodes, options.dimension, killed=True)
    result["p95_ratio"] = {
        name: round(result[many][name]["cpu_ms"]["p95"] / result[few][name]["cpu_ms"]["p95"], 1) for name in FLOWS
    }
    publish("million", result, options.out)


if __name__ == "__main__":
    main()
