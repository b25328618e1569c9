"""Search by words under filters: 100,000 real sentences, of which 10, 1 and 0.1 % may be found.

    python benchmarks/filters.py [--count 100000] [--rounds 5] [--out FILE]

Sentences of the data sets, in the order in which the sets would be indexed, are asked 200 questions that people asked,
top 10, one at a time. Random filters allow any sentences. Clustered ones allow a data set, whose sentences follow each
other, or a topic: the sentences nearest in meaning to one of them (all-MiniLM-L6-v2), which stand anywhere; questions
come from everywhere, and most have nothing to do with either. A lexical index is asked in each way that it has: for the
allowed nodes only, or for all, and what is not allowed is passed over; `as it is` chooses by the constants of
`spolia.stores.lexical.index`, and is what counts. Recall is the share of what is left of the whole ranking. CPU-ms of
the thread, for each question the least of some rounds; the limit is of the 95 % quantile.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import sentences
from results import publish

from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.lexical import index as lexical
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.lexical.index_writer import freeze

TOP_K, ASKED = 10, 200
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001)
TOPICS = (0.1, 0.01, 0.001)
ALWAYS, NEVER = sys.maxsize, -1


def time_questions(
    index: lexical.Lexical, questions: Sequence[str], allowed: Allowed | None, rounds: int
) -> dict[str, float]:
    """CPU-ms of a question: median and 95 % quantile."""
    best_seconds = [float("inf")] * len(questions)
    for position in list(range(len(questions))) * rounds:
        began = time.thread_time()
        index.search(questions[position], TOP_K, None, allowed)
        best_seconds[position] = min(best_seconds[position], (time.thread_time() - began) * 1e3)
    return {
        "p50": round(statistics.median(best_seconds), 3),
        "p95": round(statistics.quantiles(best_seconds, n=20)[-1], 3),
    }


def force_way(index: lexical.Lexical, questions: Sequence[str], allowed: Allowed, *, only: bool) -> dict[str, float]:
    """One way, whatever would be chosen: for the allowed ones only, or passing over the others."""
    usual = lexical.FEW, lexical.RUNS, lexical._bearable
    lexical.FEW, lexical.RUNS, lexical._bearable = ALWAYS if only else NEVER, NEVER, lambda count: ALWAYS
    try:
        return time_questions(index, questions, allowed, 1)
    finally:
        lexical.FEW, lexical.RUNS, lexical._bearable = usual


def recall(index: lexical.Lexical, rankings: dict[str, list[tuple[int, float]]], allowed: Allowed) -> float:
    count = right = 0
    for question, ranking in rankings.items():
        left = allowed.holds([key for key, _ in ranking])
        best = {ranking[position][0] for position in np.flatnonzero(left)[:TOP_K]}
        count += len(best & dict(index.search(question, TOP_K, None, allowed)).keys())
        right += len(best)
    return round(count / max(right, 1), 4)


def masks(labels: Any, vectors: Any) -> dict[str, Any]:
    draw, count, likeness = np.random.default_rng(0), len(labels), vectors @ vectors[5]
    masks_by_name = {f"random {share:.1%}": draw.random(count) < share for share in SHARES}
    masks_by_name |= {f"data set {name}": labels == name for name in ("pubmedqa", "policy_qa", "xquad_en", "cranfield")}
    return masks_by_name | {
        f"topic {share:.1%}": likeness >= np.sort(likeness)[-int(share * count)] for share in TOPICS
    }


def measure(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    pairs = sentences.distinct(count)
    vectors = sentences.vectors([sentence for sentence, _ in pairs], "sentences")
    order = np.argsort([sentences.NAMES.index(name) for _, name in pairs], kind="stable")
    pairs, vectors = [pairs[position] for position in order], vectors[order]
    freeze(folder / "index", None, (), ((key, text) for key, (text, _) in enumerate(pairs)), Analyzer())
    index = lexical.Lexical(folder / "index", Analyzer())
    keys, questions = np.arange(len(pairs), dtype=np.int64), sentences.questions(ASKED)
    rankings = {question: index.search(question, len(pairs)) for question in questions[::4]}
    rows: dict[str, Any] = {"nothing filtered": {"as it is": time_questions(index, questions, None, rounds)}}
    for name, mask in masks(np.array([label for _, label in pairs]), vectors).items():
        allowed = Allowed(keys, mask)
        usual, reached_recall = time_questions(index, questions, allowed, rounds), recall(index, rankings, allowed)
        rows[name] = {
            "allowed": allowed.count,
            "as it is": usual,
            "asked for these only": force_way(index, questions, allowed, only=True),
            "passed over": force_way(index, questions, allowed, only=False),
            "recall": reached_recall,
        }
        print(name, rows[name], flush=True)
    return {"count": len(pairs), "few": lexical.FEW, "runs": lexical.RUNS, "cpu_ms": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {"python": platform.python_version()} | measure(Path(folder), options.count, options.rounds)
    publish("filters", result, options.out)


if __name__ == "__main__":
    main()
