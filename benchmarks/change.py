"""One changed file among 10,000: what it costs to have it searchable, and that nothing else is made again.

    python benchmarks/change.py [--files 10000] [--rounds 9] [--out FILE]

Passages of MuSiQue and 2WikiMultihopQA, one `.txt` file each in a folder on the disk, are indexed; then a sentence is
added to one of them, and the folder is indexed again. CPU-ms are those of the process with all its threads around the
call of `sync`, nothing else. Each round is a process of its own, which has loaded everything by indexing another folder
before: `fresh` is its first call, `again` are further ones, as of somebody who watches the folder. Two stores: for
words alone, and for vectors too, which come from an embedder that costs next to nothing and counts what it is given.
What the store holds is compared before and after: nodes that were written must be those of the changed file. Data:
`SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
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
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from ingest import write_files
from results import publish

from spolia.indexing.sync.sync import sync
from spolia.stores.backends import sql
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Value

AGAIN = 3
DIMENSION = 384


@dataclass(frozen=True)
class Cheap(Value):
    """Directions that a hash of the text draws."""

    name: str = "cheap"
    dimension: int = DIMENSION
    window: int = 512
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        GIVEN.append(len(texts))
        vectors = np.stack([np.random.default_rng(crc32(text.encode())).standard_normal(DIMENSION) for text in texts])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // 4 for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


GIVEN: list[int] = []
STORES = {"words": None, "words and vectors": Cheap()}


def keys(snapshot: Snapshot) -> set[int]:
    return {key for (key,) in snapshot.open_store.rows(sql.LIVE_KEYS, {"grp": "chunk", "at": snapshot.generation})}


def sync_change(folder: Path, corpus: Corpus, kind: str, path: Path) -> dict[str, Any]:
    """One round: the sync of one changed file."""
    path.write_text(f"{path.read_text()} One more sentence at {time.time_ns()}.")
    os.utime(path, ns=(time.time_ns(), time.time_ns() - 1_000_000_000))  # so that it need not be waited for
    keys_before = keys(corpus.snapshot())
    GIVEN.clear()
    began, ticked = time.process_time(), time.perf_counter()
    report = sync(folder, corpus, embedder=STORES[kind])
    cpu, wall = time.process_time() - began, time.perf_counter() - ticked
    snapshot = corpus.snapshot()
    keys_after = keys(snapshot)
    document = snapshot.sources()[path.name].document
    own = {key for key, *_ in snapshot.open_store.rows(sql.NUMBERED, _own(document, snapshot.generation))}
    return {
        "cpu_ms": round(cpu * 1e3, 1),
        "wall_ms": round(wall * 1e3, 1),
        "changed": report.changed,
        "unchanged": report.unchanged,
        "nodes_of_the_file": len(own),
        "nodes_written": len(keys_after - keys_before),
        "texts_embedded": sum(GIVEN),
        "only_its_nodes": keys_after - keys_before == own and sum(GIVEN) <= len(own),
    }


def _own(document: str, generation: int) -> dict[str, Any]:
    return {"document": document, "grp": "chunk", "first": 0, "last": sql.ALIVE, "at": generation}


def rounds_of(folder: Path, store: Path, kind: str, number: int) -> list[dict[str, Any]]:
    """In a process that has loaded everything."""
    with tempfile.TemporaryDirectory() as place:
        other_folder = Path(place, "files")
        other_folder.mkdir()
        for text in ("A letter.", "Another letter."):
            (other_folder / "a.txt").write_text(text)
            sync(other_folder, Corpus(f"{place}/other.spolia"), embedder=STORES[kind])
    paths = sorted(folder.iterdir())
    changed_paths = [paths[(number * 997 + more * 101) % len(paths)] for more in range(1 + AGAIN)]
    return [sync_change(folder, Corpus(str(store)), kind, path) for path in changed_paths]


def measure(folder: Path, store: Path, kind: str, rounds: int) -> dict[str, Any]:
    sync(folder, Corpus(str(store)), embedder=STORES[kind])
    runs_by_way = []
    for number in range(rounds):
        command = [sys.executable, __file__, "--part", str(folder), str(store), kind, str(number)]
        runs_by_way.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    fresh, repeated = [runs[0] for runs in runs_by_way], [run for runs in runs_by_way for run in runs[1:]]
    only_its_nodes = all(run["only_its_nodes"] and run["changed"] == 1 for run in [*fresh, *repeated])
    return {
        "fresh": quantiles(fresh),
        "again": quantiles(repeated),
        "rounds": [{name: value for name, value in run.items() if name != "only_its_nodes"} for run in fresh],
        "only_its_nodes": only_its_nodes,
    }


def quantiles(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    cpu = [run["cpu_ms"] for run in runs]
    wall = statistics.median(run["wall_ms"] for run in runs)
    middle = round(statistics.median(cpu), 1)
    return {"least_cpu_ms": min(cpu), "p50_cpu_ms": middle, "most_cpu_ms": max(cpu), "p50_wall_ms": round(wall, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        folder, store, kind, number = options.part
        print(json.dumps(rounds_of(Path(folder), Path(store), kind, int(number))))
        return
    result: dict[str, Any] = {"files": options.files, "python": platform.python_version(), "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "files")
        folder.mkdir()
        write_files(folder, options.files)
        for number, kind in enumerate(STORES):
            result[kind] = measure(folder, Path(temporary, f"{number}.spolia"), kind, options.rounds)
            result[kind]["load"] = round(os.getloadavg()[0], 1)
    publish("change", result, options.out)


if __name__ == "__main__":
    main()
