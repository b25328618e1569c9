"""A table of 1 GB through `spolia sync`: how much memory each process takes while the file grows tenfold.

    python benchmarks/large.py [--mb 100 1000] [--workers 1] [--out FILE]

The table has a row for each passage of MuSiQue and 2WikiMultihopQA, under a number, again and again until the file is
as large as it is to be. It is indexed without vectors by `spolia sync`, a process of its own, whose anonymous memory
(RssAnon) is polled, and that of each worker that it starts. Then the number of the first, the middle and the last row
is searched for: each must be found in the row that has it. Bounded means that ten times the bytes take less than twice
the memory. Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. The disk must hold the table, its
copy and the store: five times the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import count, cycle
from pathlib import Path
from typing import Any

from results import publish

from spolia.evaluation.data.dataset import DataSet

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
SETS = ("musique", "2wikimultihopqa")
POLL_S = 0.1
SPOLIA = [sys.executable, "-m", "spolia"]


def write_table(path: Path, size: int) -> int:
    """The table; the number of its rows."""
    passages = [
        (source_passage.title, source_passage.text)
        for name in SETS
        for source_passage in DataSet(str(DATA / name)).passages()
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("row", "title", "text"))
        for number, passage in zip(count(1), cycle(passages), strict=False):
            rows.writerow((word_of_row(number), *passage))
            if number % 1_000 == 0 and path.stat().st_size >= size:
                return number
    raise AssertionError


def word_of_row(number: int) -> str:
    """What stands for a row's number: a word that stands nowhere else."""
    return f"r{number:09}"


def anon_mb(process: int) -> float:
    """Anonymous memory of a process now; 0 when it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("RssAnon"))


def children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def index_table(folder: Path, store: Path, workers: int) -> dict[str, Any]:
    command = [*SPOLIA, "sync", folder, "--store", store, "--no-vectors", "--json", "--workers", str(workers)]
    began, peak, most_of_a_worker = time.perf_counter(), 0.0, 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        while run.poll() is None:
            peak = max(peak, anon_mb(run.pid))
            most_of_a_worker = max((most_of_a_worker, *map(anon_mb, children(run.pid))))
            time.sleep(POLL_S)
        assert run.stdout is not None
        report = json.loads(run.stdout.read())
    return {
        "documents": report["added"],
        "passages": report["chunks"],
        "failed": report["failed"],
        "anon_mb": round(peak),
        "anon_mb of a worker": round(most_of_a_worker),
        "seconds": round(time.perf_counter() - began),
    }


def count_found(store: Path, rows: int) -> int:
    """Of the first, the middle and the last row, how many are found by their number."""
    hits = 0
    for number in (1, rows // 2, rows):
        completed = subprocess.run(
            [*SPOLIA, "search", word_of_row(number), "--store", store, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        hits += word_of_row(number) in completed.stdout.partition('"text"')[2]
    return hits


def measure(megabytes: int, workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder, store = Path(place, "files"), Path(place, "store.spolia")
        folder.mkdir()
        rows = write_table(folder / "table.csv", megabytes * 1_000_000)
        result = {"file_mb": round((folder / "table.csv").stat().st_size / 1e6), "rows": rows}
        return result | index_table(folder, store, workers) | {"rows found of 3": count_found(store, rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, nargs=2, default=(100, 1_000))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    publish("large", {"tables": [measure(size, options.workers) for size in options.mb]}, options.out)


if __name__ == "__main__":
    main()
