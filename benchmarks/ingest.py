"""Indexing 10,000 files of one passage each, and indexing them again when nothing has changed.

    python benchmarks/ingest.py [--files 10000] [--rounds 3] [--out FILE]

Passages of MuSiQue and 2WikiMultihopQA, one `.txt` file each, no embedder. Every batch of 1,000 is durable (fsync) and
can be searched before the next one begins; that is checked in a run of its own. A run is a process of its own, and what
counts is the CPU time of that process with all its threads and children, from start to end, imports included; modules
are compiled before, as those of an installed package are. The median of the rounds counts. Data: `SPOLIA_DATASETS`,
else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from itertools import chain, islice
from pathlib import Path
from typing import Any

from results import publish

from spolia.evaluation.data.dataset import DataSet
from spolia.indexing.sync.report import Progress
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
SETS = ("musique", "2wikimultihopqa")
BATCH = 1000
PEERS = {"LazyLLM": 286}  # files per CPU-second, measured apart from this project on passages of this length
ONE_RUN = """
import json, sys
from spolia import Corpus, sync
report = sync(sys.argv[1], Corpus(sys.argv[2]))
print(json.dumps([report.added, report.unchanged, report.chunks, report.embedded, report.generation, report.seconds]))
"""


def write_files(folder: Path, count: int) -> int:
    """One file for each passage; returns the bytes."""
    passages = chain.from_iterable(DataSet(str(DATA / name)).passages() for name in SETS)
    total = 0
    for number, passage in enumerate(islice(passages, count)):
        total += (folder / f"{number:05}.txt").write_bytes(f"{passage.title}\n{passage.text}".encode())
    return total


def measured(folder: Path, store: Path) -> dict[str, Any]:
    """One run in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", ONE_RUN, str(folder), str(store)]
    ran = subprocess.run(command, check=True, capture_output=True, env=environment)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    names = ("added", "unchanged", "chunks", "embedded", "generation", "sync_wall_s")
    return {**dict(zip(names, json.loads(ran.stdout), strict=True)), "cpu_s": round(cpu, 3), "wall_s": round(wall, 3)}


def searchable_after_each_batch(folder: Path, store: Path) -> bool:
    """Whether a reader finds all files of the batches that are complete, and no others, while the next one is read."""
    corpus, seen = Corpus(str(store)), []

    def look(progress: Progress) -> None:
        if progress.done % BATCH == BATCH // 2:
            seen.append((progress.done // BATCH * BATCH, corpus.snapshot().stats().documents))

    sync(folder, corpus, batch=BATCH, progress=look)
    copies = {row.content_hash for row in corpus.snapshot().sources().values()}
    allowed = len(corpus.snapshot().sources()) - len(copies)  # files with the same content are one document
    return all(0 <= files - documents <= allowed for files, documents in seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "files")
        folder.mkdir()
        size = write_files(folder, options.files)
        stores = [Path(temporary, f"{number}.spolia") for number in range(options.rounds)]
        first = sorted((measured(folder, store) for store in stores), key=lambda run: run["cpu_s"])[len(stores) // 2]
        repeated = sorted((measured(folder, store) for store in stores), key=lambda run: run["sync_wall_s"])
        again = repeated[len(stores) // 2]
        searchable = searchable_after_each_batch(folder, Path(temporary, "looked-at.spolia"))
    rate = options.files / first["cpu_s"]
    result = {
        "files": options.files,
        "bytes": size,
        "batch": BATCH,
        "first": first,
        "files_per_cpu_s": round(rate),
        "again": again,
        "searchable_after_each_batch": searchable,
        "peers_measured_apart_files_per_cpu_s": PEERS,
        "python": platform.python_version(),
    }
    publish("ingest", result, options.out)


if __name__ == "__main__":
    main()
