"""From 1,000 files to answers: the same folder, cut in the same way, indexed and asked by Spolia and by LazyLLM.

    python benchmarks/documents.py [--peers] [--rounds 3] [--out FILE]

The first 1,000 passages of 2WikiMultihopQA, one `.txt` file each, are cut into lines: 2,003 nodes. They are searched by
words (BM25) and by cosine, with vectors of 384 numbers that a hash of the words makes on both sides, for 50 titles, the
best five. Indexing counts until the first question is answered; Spolia's store is on the disk then, durable, LazyLLM's
in memory, as it is by default. A side is a process of its own, told the same by `peers/documents.py`; what counts is
the CPU time of the whole process without its imports; for each question the least of some rounds, for indexing too.
Vectors of questions are made within the time. `--peers` installs LazyLLM 1.4.0 into a temporary environment (network,
two minutes) and lets the sides take turns; its log is set to errors, its bars are off, and the encoding that it would
load from the network when it is imported is taken from its own package. Data: `SPOLIA_DATASETS`, else
`../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from itertools import islice
from pathlib import Path
from typing import Any

from results import publish

from spolia.evaluation.data.dataset import DataSet

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
FILES, ASKED, TOP_K = 1000, 50, 5
CODE = Path(__file__).parent / "peers" / "documents.py"
PEER = "lazyllm[rag]==1.4.0"
QUIET = {"LAZYLLM_LOG_LEVEL": "ERROR", "TQDM_DISABLE": "1"}


def write_files(folder: Path) -> list[str]:
    """The files, and titles to ask for."""
    passages = list(islice(DataSet(str(DATA / "2wikimultihopqa")).passages(), FILES))
    for number, passage in enumerate(passages):
        (folder / f"{number:04}.txt").write_text(f"{passage.title}\n{passage.text}", "utf-8")
    return [passage.title for passage in passages[:: FILES // ASKED]]


def run(python: str, side: str, way: str, folder: Path, home: Path) -> dict[str, Any]:
    """One process: indexed once, asked all questions."""
    with tempfile.TemporaryDirectory(dir=home) as place:
        environment = os.environ | QUIET | {"HOME": place}
        command = [python, str(CODE), side, way, str(folder), str(home / "questions.json"), place]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    numbers: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return numbers


def least_of_runs(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The runs of one side as one: the least time of each question, and of indexing."""
    fastest = [min(times) for times in zip(*(numbers["asked_ms"] for numbers in runs), strict=True)]
    indexed = min(runs, key=lambda one: one["indexed_cpu_s"])
    return {
        "nodes": runs[0]["nodes"],
        "indexed_cpu_s": round(indexed["indexed_cpu_s"], 3),
        "indexed_wall_s": round(indexed["indexed_wall_s"], 2),
        "files_per_cpu_s": round(FILES / indexed["indexed_cpu_s"]),
        "question_cpu_ms": {
            "p50": round(statistics.median(fastest), 3),
            "p95": round(statistics.quantiles(fastest, n=20)[-1], 3),
        },
        "answers_in_order": f"{runs[0]['ordered']} of {ASKED}",
        "answers_with_the_title": f"{runs[0]['right']} of {ASKED}",
    }


def install_peer(home: Path) -> str:
    venv.create(home / "peers", with_pip=True)
    python = home / "peers" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True, stderr=subprocess.DEVNULL)
    return str(python)


def measure(home: Path, folder: Path, rounds: int, *, peers: bool) -> dict[str, Any]:
    sides = {"spolia": sys.executable} | ({"lazyllm": install_peer(home)} if peers else {})
    result: dict[str, Any] = {}
    for way in ("bm25", "cosine"):
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, python in sides.items():
                runs[side].append(run(python, side, way, folder, home))
        result[way] = {side: least_of_runs(side_runs) for side, side_runs in runs.items()}
        if peers:
            ours, theirs = result[way]["spolia"], result[way]["lazyllm"]
            result[way]["ratio"] = {
                "files_per_cpu_s": round(ours["files_per_cpu_s"] / theirs["files_per_cpu_s"], 1),
                "question_cpu_ms": round(theirs["question_cpu_ms"]["p50"] / ours["question_cpu_ms"]["p50"], 1),
            }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home, folder = Path(temporary), Path(temporary, "files")
        folder.mkdir()
        (home / "questions.json").write_text(json.dumps(write_files(folder)))
        result = {"files": FILES, "questions": ASKED, "top_k": TOP_K, "python": platform.python_version()}
        result |= measure(home, folder, options.rounds, peers=options.peers)
    publish("documents", result, options.out)


if __name__ == "__main__":
    main()
