"""What starting costs: CPU seconds of imports, and of a cold search on 10,000 documents, as whole processes.

    python benchmarks/imports.py [--peers] [--out FILE]

Each figure is the median of several fresh processes, all their CPU included; an empty interpreter stands beside them.
Modules are compiled beforehand, as those of an installed package are.
`--peers` installs Haystack and LlamaIndex into a temporary environment (network) and measures their imports too.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from results import publish

RUNS = 9
README = Path(__file__).resolve().parents[1] / "README.md"
FIRST = "the first import line of README"
IMPORTS = {
    "python alone": "pass",
    "import spolia": "import spolia",
    "from spolia import Query, BM25, Reader": "from spolia import Query, BM25, Reader",
    FIRST: next(line for line in README.read_text("utf-8").splitlines() if line.startswith("from spolia import ")),
}
PEERS = ("from haystack import Pipeline", "import llama_index.core")
WORDS = ("stone", "river", "archive", "lantern", "copper", "harvest", "orchard", "signal", "quarry", "tide", "ember")


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a command and its children; the median of several runs."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    seconds = []
    for _ in range(RUNS):
        usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env=environment)
        usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime)
    return round(statistics.median(seconds), 3)


def peers() -> dict[str, float]:
    """The peers' imports, from an environment of their own."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "-q", "haystack-ai", "llama-index-core"]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        return {code: cpu_seconds([python, "-c", code]) for code in PEERS}


def cold_search(documents: int) -> float:
    """One `spolia search` in a fresh process, on a store of that many documents."""
    spolia = str(Path(sys.executable).parent / "spolia")
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        source, store = Path(folder) / "source", str(Path(folder) / "store.spolia")
        source.mkdir()
        for index in range(documents):
            text = " ".join(draw.choices(WORDS, k=80))
            (source / f"{index:05d}.txt").write_text(f"Note {index}. {text}.\n")
        index = [spolia, "index", str(source), "--store", store, "--no-vectors"]
        subprocess.run(index, check=True, capture_output=True)
        return cpu_seconds([spolia, "search", "copper lantern on the river", "--store", store])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = {label: cpu_seconds([sys.executable, "-c", code]) for label, code in IMPORTS.items()}
    result["spolia search, cold, 10,000 documents"] = cold_search(10_000)
    if options.peers:
        result |= peers()
    publish("imports", {"unit": "CPU seconds, whole process", **result}, options.out)


if __name__ == "__main__":
    main()
