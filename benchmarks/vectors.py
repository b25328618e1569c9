"""Searching vectors: exactly, along graphs, under filters, and among a million; on real sentences.

    python benchmarks/vectors.py [--count 100000] [--nodes 1000000] [--rounds 3] [--out FILE]

Distinct sentences of the data sets, embedded once (`benchmarks/sentences.py`, a quarter of an hour when it is run for
the first time), are asked 500 questions that people asked, one at a time, top 10. Recall is the share of what exact
search finds. Times are CPU-ms of the thread, on one core, for each question the least of some rounds; `wall_ms` says
beside them what a clock said. Clustered filters allow a data set, or the sentences nearest to one of them, and
questions come from everywhere. A million nodes are normalised sums of the vectors of two sentences each; their graphs
are built by a process that is killed in the middle and started again. Anonymous memory is RssAnon, polled.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import sentences  # noqa: E402
from results import publish  # noqa: E402

from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.stores.access.allowed_nodes import Allowed  # noqa: E402
from spolia.stores.backends.searches import Search  # noqa: E402
from spolia.stores.files import graph_folder, segment_path  # noqa: E402
from spolia.stores.indexes import HNSW  # noqa: E402
from spolia.stores.vectors.dense import Vectors, open_segment, write_segment  # noqa: E402
from spolia.stores.vectors.graphs import (  # noqa: E402
    VectorGraph,
    build_graphs,
    graph_path,
)
from spolia.stores.vectors.placement import PlacedVectors  # noqa: E402
from spolia.stores.vectors.segment_search import ExactSearch, GraphSearch  # noqa: E402
from spolia.stores.vectors.segments import FROZEN_ROWS  # noqa: E402

EMBEDDER, TOP_K, ASKED, SMALL = "minilm", 10, 500, 2_003
SETTINGS = HNSW()
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
PARTS = ("small", "by_size", "large", "million")


# A store's vectors, without the store.


def keep(store: Path, *parts: Vectors) -> None:
    for number, part in enumerate(parts, 1):
        hashes = [f"{number}:{row}".encode().ljust(16) for row in range(len(part))]
        write_segment(segment_path(store, EMBEDDER, number), EMBEDDER, hashes, part)


def rows_of(store: Path) -> dict[int, int]:
    paths = sorted(segment_path(store, EMBEDDER, 0).parent.glob("*.seg"))
    return {int(path.stem): len(open_segment(path).vectors) for path in paths}


def build(store: Path, settings: HNSW = SETTINGS) -> None:
    build_graphs(store, EMBEDDER, rows_of(store), "cosine", settings)


def open_vectors(store: Path) -> tuple[PlacedVectors, Callable[[HNSW], GraphSearch]]:
    numbers = rows_of(store)
    segments = [open_segment(segment_path(store, EMBEDDER, number)).vectors for number in numbers]
    count = sum(numbers.values())
    placed = PlacedVectors(np.arange(count, dtype=np.int64), segments, np.arange(count, dtype=np.int64))

    def along(settings: HNSW) -> GraphSearch:
        paths = [graph_path(graph_folder(store, EMBEDDER), number, "cosine", settings) for number in numbers]
        graphs = [
            VectorGraph(path, segment_path(store, EMBEDDER, number))
            for number, path in zip(numbers, paths, strict=True)
        ]
        return GraphSearch(
            placed, "cosine", [partial(_keep_graph, graph) for graph in graphs], settings.expansion_search
        )

    return placed, along


def _keep_graph(graph: VectorGraph) -> VectorGraph:
    return graph


# Measuring.


def time_work(work: Callable[[int], Any], rounds: int, count: int) -> dict[str, dict[str, float]]:
    """CPU and wall ms over `count` questions, each the least of the rounds."""
    cpu, wall = [float("inf")] * count, [float("inf")] * count
    work(0)
    for index in list(range(count)) * rounds:
        began, ticked = time.thread_time(), time.perf_counter()
        work(index)
        cpu[index] = min(cpu[index], (time.thread_time() - began) * 1e3)
        wall[index] = min(wall[index], (time.perf_counter() - ticked) * 1e3)
    return {"cpu_ms": quantiles(cpu), "wall_ms": quantiles(wall)}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(values), 3), "p95": round(statistics.quantiles(values, n=20)[-1], 3)}


def measure(search: Search[Vectors], queries: Vectors, allowed: Allowed, rounds: int) -> dict[str, Any]:
    return time_work(
        lambda position: search.search(queries[position : position + 1], TOP_K, allowed), rounds, len(queries)
    )


def recall(search: Search[Vectors], exact: Search[Vectors], queries: Vectors, allowed: Allowed) -> float:
    rankings, right = search.search(queries, TOP_K, allowed), exact.search(queries, TOP_K, allowed)
    pairs = list(zip(rankings, right, strict=True))
    total = sum(len(dict(a).keys() & dict(b).keys()) for a, b in pairs)
    return round(total / sum(len(b) for _, b in pairs), 4)


def masks(vectors: Vectors, labels: Any) -> dict[str, Any]:
    draw, count = np.random.default_rng(0), len(vectors)
    result = {f"random {share:.1%}": draw.random(count) < share for share in (0.1, 0.01, 0.001)}
    for name in ("pubmedqa", "aragog", "xquad_en", "cranfield"):
        result[f"data set {name}"] = labels == name
    likeness = vectors @ vectors[5]
    for share in (0.1, 0.01, 0.001):
        result[f"topic {share:.1%}"] = likeness >= np.sort(likeness)[-int(share * count)]
    return result


# The parts.


def hundred_thousand(folder: Path, vectors: Vectors, labels: Any, queries: Vectors, rounds: int) -> dict[str, Any]:
    keep(folder, vectors)
    began = time.process_time()
    build(folder)
    build_s = time.process_time() - began
    placed, along = open_vectors(folder)
    everything, exact, graph = Allowed(placed.keys), ExactSearch(placed), along(SETTINGS)
    filters = {}
    for name, mask in masks(vectors, labels).items():
        allowed = Allowed(placed.keys, mask)
        filters[name] = {
            "allowed": allowed.count,
            "recall": recall(graph, exact, queries, allowed),
            **measure(graph, queries, allowed, rounds),
        }
    return {
        "sentences": len(vectors),
        "build_cpu_s": round(build_s, 1),
        "graph_mb": round(sum(path.stat().st_size for path in folder.rglob("*.hnsw")) / 1e6, 1),
        "exact": measure(exact, queries[:50], everything, rounds),
        "graph": {"recall": recall(graph, exact, queries, everything), **measure(graph, queries, everything, rounds)},
        "filters": filters,
    }


def by_size(folder: Path, vectors: Vectors, queries: Vectors, rounds: int) -> list[dict[str, Any]]:
    """From which size on a graph is faster."""
    rows = []
    for size in SIZES:
        store, settings = folder / f"of {size}", SETTINGS.but(above=0)
        keep(store, vectors[np.random.default_rng(size).permutation(len(vectors))[:size]])
        began = time.process_time()
        build(store, settings)
        took = time.process_time() - began
        placed, along = open_vectors(store)
        allowed, graph = Allowed(placed.keys), along(settings)
        graph._pays = lambda *_: True  # type: ignore[method-assign]  # also where it does not
        exact = ExactSearch(placed)
        rows.append(
            {
                "vectors": size,
                "build_cpu_s": round(took, 2),
                "exact_cpu_ms": measure(exact, queries, allowed, rounds)["cpu_ms"]["p50"],
                "graph_cpu_ms": measure(graph, queries, allowed, rounds)["cpu_ms"]["p50"],
                "recall": recall(graph, exact, queries, allowed),
            }
        )
    return rows


def write_sums(folder: Path, vectors: Vectors, nodes: int) -> None:
    """Segments of nodes whose vectors are normalised sums of two sentences'."""
    draw = np.random.default_rng(1)
    for number, start in enumerate(range(0, nodes, FROZEN_ROWS), 1):
        count = min(FROZEN_ROWS, nodes - start)
        part = vectors[draw.integers(0, len(vectors), count)] + vectors[draw.integers(0, len(vectors), count)]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
        hashes = [f"{number}:{row}".encode().ljust(16) for row in range(count)]
        write_segment(segment_path(folder, EMBEDDER, number), EMBEDDER, hashes, part)


def million(folder: Path, vectors: Vectors, nodes: int) -> dict[str, Any]:
    write_sums(folder, vectors, nodes)
    killed_s, killed_mb = child("build", folder, kill_after_graphs=1)
    whole = sorted(path.name for path in folder.rglob("*.hnsw"))
    resumed_s, resumed_mb = child("build", folder)
    log = folder / "said.json"
    _, asking_mb = child("ask", folder, log)
    return {
        "nodes": nodes,
        "made_of": "normalised sums of the vectors of two sentences",
        "segments": len(rows_of(folder)),
        "build": {
            "killed_after_s": round(killed_s, 1),
            "graphs_whole_when_killed": len(whole),
            "resumed_s": round(resumed_s, 1),
            "anon_mb": max(killed_mb, resumed_mb),
        },
        "graph_mb": round(sum(path.stat().st_size for path in folder.rglob("*.hnsw")) / 1e6),
        "asking_anon_mb": asking_mb,
        **json.loads(log.read_text()),
    }


def child(
    part: str, folder: Path, *more: Path | str, kill_after_graphs: int = 0, code: str = __file__
) -> tuple[float, int]:
    """Seconds and the most anonymous MB of a process that does a part; killed in the midst of the next graph."""
    began, peak, done_at = time.monotonic(), 0, 0.0
    running = subprocess.Popen([sys.executable, code, "--part", part, str(folder), *map(str, more)])
    while running.poll() is None:
        status = Path(f"/proc/{running.pid}/status").read_text()
        peak = max(
            peak, *(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0
        )
        if kill_after_graphs and len(list(folder.rglob("*.hnsw"))) >= kill_after_graphs:
            done_at = done_at or time.monotonic()
            if time.monotonic() > done_at + 5:
                running.send_signal(signal.SIGKILL)
        time.sleep(0.05)
    if running.returncode not in (0, -signal.SIGKILL if kill_after_graphs else 0):
        sys.exit(f"{part} ended with {running.returncode}")
    return time.monotonic() - began, peak


def ask(folder: Path, said: Path) -> None:
    texts = sentences.questions(ASKED)
    queries = sentences.vectors(texts, "questions")
    placed, along = open_vectors(folder)
    graph, exact, allowed, model = along(SETTINGS), ExactSearch(placed), Allowed(placed.keys), MiniLM()
    tenth = Allowed(placed.keys, np.random.default_rng(0).random(len(placed.keys)) < 0.1)
    result = {
        "without_embedding": measure(graph, queries, allowed, 1),
        "with_embedding": time_work(
            lambda position: graph.search(model.embed([texts[position]], kind="query"), TOP_K, allowed), 1, len(texts)
        ),
        "random 10.0%": measure(graph, queries[:100], tenth, 1),
        "recall": recall(graph, exact, queries[:100], allowed),
        "random 10.0% recall": recall(graph, exact, queries[:50], tenth),
    }
    said.write_text(json.dumps(result))


def small(folder: Path, vectors: Vectors, queries: Vectors) -> dict[str, Any]:
    keep(folder, vectors[:SMALL])
    placed, _ = open_vectors(folder)
    return {"vectors": SMALL, **measure(ExactSearch(placed), queries, Allowed(placed.keys), 5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, *paths = options.part
        {"build": build, "ask": ask}[part](*map(Path, paths))
        return
    vectors, labels = sentence_vectors(options.count)
    queries = sentences.vectors(sentences.questions(ASKED), "questions")
    result = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        parts: dict[str, Callable[[Path], Any]] = {
            "small": lambda position: small(position, vectors, queries),
            "by_size": lambda position: by_size(position, vectors, queries, options.rounds),
            "large": lambda position: hundred_thousand(position, vectors, labels, queries, options.rounds),
            "million": lambda position: million(position, vectors, options.nodes),
        }
        for name in options.only:
            result[name] = parts[name](folder / name)
            result["load"] = {**result.get("load", {}), name: round(os.getloadavg()[1], 1)}
            write(result, options.out)


def sentence_vectors(count: int) -> tuple[Vectors, Any]:
    """Vectors of sentences and the data sets that they are of, as they come when data sets are indexed in turn."""
    pairs = sentences.distinct(count)
    vectors = sentences.vectors([sentence for sentence, _ in pairs], "sentences")
    labels = np.array([name for _, name in pairs])
    order = np.argsort([sentences.NAMES.index(name) for name in labels], kind="stable")
    return vectors[order], labels[order]


def write(result: dict[str, Any], out: Path | None) -> None:
    if "large" in result and "million" in result:
        ratio = result["million"]["without_embedding"]["cpu_ms"]["p95"] / result["large"]["graph"]["cpu_ms"]["p95"]
        result["million"]["p95_to_large"] = round(ratio, 1)
    result |= {
        "questions": ASKED,
        "top_k": TOP_K,
        "settings": {name: getattr(SETTINGS, name) for name in SETTINGS.__dataclass_fields__},
        "numpy": np.__version__,
    }
    publish("vectors", result, out)


if __name__ == "__main__":
    main()
