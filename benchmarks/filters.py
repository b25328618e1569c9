"""Search by words under filters: 100,000 real sentences, of which 10, 1 and 0.1 % may be found.

    python benchmarks/filters.py [--count 100000] [--rounds 3] [--out FILE]

Sentences of the data sets are asked questions that people asked, top 10, one at a time. A lexical index is asked either
for the allowed nodes only, or for all, and what is not allowed is passed over: which is faster decides
`spolia.stores.lexical.index.FEW`. Random filters allow any sentences, clustered ones those of one data set. CPU-ms of
the thread, for each question the least of some rounds.
"""

from __future__ import annotations

import argparse
import json
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

from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.lexical.freezing import freeze
from spolia.stores.lexical.index import index as lexical
from spolia.stores.reading.allowed import Allowed

TOP_K, ASKED = 10, 200
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001)
ALWAYS, NEVER = sys.maxsize, -1


def timed(index: lexical.Lexical, questions: Sequence[str], allowed: Allowed | None, few: int, rounds: int) -> Any:
    """CPU-ms of a question: median and 95 % quantile."""
    lexical.FEW = few
    least = [float("inf")] * len(questions)
    for at in list(range(len(questions))) * rounds:
        began = time.thread_time()
        index.search(questions[at], TOP_K, None, allowed)
        least[at] = min(least[at], (time.thread_time() - began) * 1e3)
    return {"p50": round(statistics.median(least), 3), "p95": round(statistics.quantiles(least, n=20)[-1], 3)}


def masks(count: int, labels: Any) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    found = {f"random {share:.1%}": draw.random(count) < share for share in SHARES}
    return found | {f"data set {name}": labels == name for name in ("pubmedqa", "policy_qa", "xquad_en", "cranfield")}


def measured(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    pairs = sentences.distinct(count)
    nodes = ((key, text, 0) for key, (text, _) in enumerate(pairs))
    freeze(folder / "index", None, (), nodes, Analyzer())
    index, usual = lexical.Lexical(folder / "index", Analyzer()), lexical.FEW
    keys, questions = np.arange(len(pairs), dtype=np.int64), sentences.questions(ASKED)
    found: dict[str, Any] = {"nothing filtered": {"all": timed(index, questions, None, NEVER, rounds)}}
    for name, mask in masks(len(pairs), np.array([label for _, label in pairs])).items():
        allowed = Allowed(keys, mask)
        found[name] = {
            "allowed": allowed.count,
            "asked for these only": timed(index, questions, allowed, ALWAYS, rounds),
            "passed over": timed(index, questions, allowed, NEVER, rounds),
            "as it is": timed(index, questions, allowed, usual, rounds),
        }
        print(name, found[name], flush=True)
    return {"count": len(pairs), "few": usual, "cpu_ms": found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {"python": platform.python_version()} | measured(Path(folder), given.count, given.rounds)
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
