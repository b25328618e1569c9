"""What a step costs: five trivial steps in a chain, beside Haystack, LangChain and LlamaIndex in the same run.

    python benchmarks/steps.py [--peers] [--out FILE]

Microseconds of CPU per step, the median of several rounds; the work of every step is one addition, or of functions over
texts one slice. Runs are one for all questions, or one for each; the CPU of the thread that writes the traces counts.
`--peers` installs the peers into a temporary environment (network) and lets them take turns with ours, so that ratios
hold when the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from results import publish

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.journal import Runs
from spolia.run import Run
from spolia.types import Hit, Node, Query, Ranking

STEPS = 5
PEERS = {"haystack": "haystack-ai", "langchain": "langchain-core", "llamaindex": "llama-index-workflows"}
PEER_CODE = Path(__file__).parent / "peers" / "steps.py"


@dataclass(frozen=True)
class Add(Operator[int, int]):
    by: int = 1

    def apply(self, value: int, /) -> int:
        return value + self.by


@dataclass(frozen=True)
class Cut(Operator[Ranking, Ranking]):
    top_k: int = 50

    def apply(self, value: Ranking, /) -> Ranking:
        return Ranking(value.query, value.hits[: self.top_k])


@step
def first_half(text: str) -> str:
    return text[: len(text) // 2]


def microseconds(work: Callable[[int], object], calls: int, rounds: int = 7) -> float:
    """CPU time of a step, the median of several rounds."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work(calls)
        times.append((time.process_time() - began) / calls / STEPS * 1e6)
    return round(median(times), 3)


def ours(folder: Path) -> dict[str, float]:
    """Every way of running five steps."""
    numbers = Add() >> Add() >> Add() >> Add() >> Add()
    texts = first_half >> first_half >> first_half >> first_half >> first_half
    rankings = Cut(50) >> Cut(50) >> Cut(50) >> Cut(50) >> Cut(50)
    ranking = Ranking(Query("q"), tuple(Hit(Node(f"node-{i:012d}", "x" * 1000), 1 / (i + 1)) for i in range(50)))
    runs = Runs(folder / "runs.db")
    keeping = Runs(folder / "values.db", values=True)

    def without(calls: int) -> None:
        for index in range(calls):
            numbers(index)

    def unjournaled(calls: int) -> None:
        with Run():
            without(calls)

    def journaled(calls: int) -> None:
        with Run(journal=runs.journal):
            without(calls)
        runs.journal.flush()

    def journaled_rankings(calls: int) -> None:
        with Run(journal=runs.journal):
            for _ in range(calls):
                rankings(ranking)
        runs.journal.flush()

    def with_values(calls: int) -> None:
        with Run(journal=keeping.journal):
            without(calls)
        keeping.journal.flush()

    def rankings_with_values(calls: int) -> None:
        with Run(journal=keeping.journal):
            for _ in range(calls):
                rankings(ranking)
        keeping.journal.flush()

    def over_texts(calls: int) -> None:
        for _ in range(calls):
            texts("The ferry sailed from Aarhus to Kalundborg twice a day.")

    def a_run_each(calls: int) -> None:
        for _ in range(calls):
            with Run():
                over_texts(1)

    def a_journaled_run_each(calls: int) -> None:
        for _ in range(calls):
            with Run(journal=runs.journal):
                over_texts(1)
        runs.journal.flush()

    def batched(calls: int) -> None:
        with Run():
            numbers.batch(range(calls))

    costs = {
        "no run": microseconds(without, 2000),
        "no run, functions over texts": microseconds(over_texts, 2000),
        "run, journal off": microseconds(unjournaled, 2000),
        "run, journal off, batch": microseconds(batched, 5000),
        "run, journal on, flush included": microseconds(journaled, 2000),
        "a run for each question, functions over texts, journal off": microseconds(a_run_each, 1000),
        "a run for each question, functions over texts, journal on": microseconds(a_journaled_run_each, 1000),
        "run, journal on, 50-hit rankings": microseconds(journaled_rankings, 400),
        "run, journal on, inputs and outputs kept": microseconds(with_values, 2000),
        "run, journal on, 50-hit rankings, inputs and outputs kept": microseconds(rankings_with_values, 400),
    }
    assert runs.database.dropped == keeping.database.dropped == 0, "a span was dropped: the figures do not hold"
    runs.close()
    keeping.close()
    return costs


def peers(folder: Path) -> dict[str, float]:
    """The peers' figures, from an environment of their own."""
    venv.create(folder / "peers", with_pip=True)
    python = folder / "peers" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *PEERS.values()], check=True, stderr=subprocess.DEVNULL)
    costs = {}
    for name in PEERS:
        printed = subprocess.run([python, PEER_CODE, name], check=True, capture_output=True, text=True).stdout
        costs[name] = json.loads(printed.splitlines()[-1])
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result: dict[str, object] = {"unit": "CPU microseconds per step", "python": sys.version.split()[0]}
        result["spolia"] = mine = ours(Path(folder))
        if options.peers:
            theirs = peers(Path(folder))
            result["peers"] = theirs
            result["ratio to run with journal off"] = {
                name: round(cost / mine["run, journal off"], 1) for name, cost in theirs.items()
            }
    publish("steps", result, options.out)


if __name__ == "__main__":
    main()
