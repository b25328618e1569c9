"""What an invented world costs to write: 100,000 documents with 10,000 questions.

python benchmarks/world.py [--people N] [--questions N] [--out FILE]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from results import publish

from spolia.evaluation.simulation.world import FictionalWorld

PEOPLE = 36_765
"""A person brings a work, half a company, a fifth of a town and a fiftieth of a country."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        sha256 = FictionalWorld(7, options.people, options.questions).write(Path(folder))
        cpu_s = time.process_time() - began
        documents = sum(1 for _ in (Path(folder) / "corpus.jsonl").open())
    result = {"documents": documents, "questions": options.questions, "cpu_s": round(cpu_s, 2), "sha256": sha256}
    publish("world", result, options.out)


if __name__ == "__main__":
    main()
