"""Kills writers of embedded databases: `python -m tests.stores.adapters.crashing LanceDB FOLDER KILLS SEED`.

In every round a process of its own puts new vectors in the place of all old ones, batch by batch, and is killed at a
random moment. Prints one JSON object for each kill: what was acknowledged, and what is wrong, at once and repeated.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from spolia.stores.adapters.chroma import Chroma, ChromaCollection
from spolia.stores.adapters.lancedb import LanceDB, LanceTable
from spolia.stores.adapters.milvus import Milvus
from spolia.stores.adapters.qdrant import Qdrant
from spolia.stores.indexes import Database, VectorIndex
from spolia.stores.vectors import Vectors

DATABASES: dict[str, Database] = {
    "LanceDB": LanceDB(index="flat"),
    "Chroma": Chroma(),
    "Milvus": Milvus(index="FLAT"),
    "Qdrant": Qdrant(),
}
BATCHES, ROWS, DIMENSION = 20, 50, 32
ROUNDS = 10
"""After as many, the collection is dropped, so that making it is killed, too."""


def vectors_of(round: int) -> Vectors:
    """float32[BATCHES * ROWS, DIMENSION], the same in every process; row i is that of key i."""
    return np.random.default_rng(round).normal(size=(BATCHES * ROWS, DIMENSION)).astype(np.float32)


def write(database: Database, folder: Path, round: int) -> Iterator[int]:
    """Add all vectors of a round; the number of each batch when it was acknowledged."""
    index, vectors = database.open(folder, "killed", DIMENSION, "euclidean"), vectors_of(round)
    for batch in range(BATCHES):
        keys = range(batch * ROWS, (batch + 1) * ROWS)
        index.add(keys, vectors[keys.start : keys.stop])
        yield batch
    index.close()


def killed(name: str, folder: Path, round: int, seconds: float) -> tuple[list[int], bool]:
    """The batches that a writer acknowledged before it was killed, and whether it was."""
    command = [sys.executable, "-m", "tests.stores.adapters.crashing", name, str(folder), "--round", str(round)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(seconds)
        writer.kill()
        said = writer.stdout.read().splitlines()
    return [int(line) for line in said], writer.returncode == -9


def as_in(index: VectorIndex, round: int) -> set[int]:
    """Keys under which the vectors of a round lie."""
    if round < 0:
        return set()
    vectors = vectors_of(round)
    if (held := stored(index)) is not None:
        return {key for key, vector in held.items() if np.allclose(vector, vectors[key], atol=1e-5)}
    found = index.search(vectors, 1)
    return {key for key, near in enumerate(found) if near and near[0][0] == key and near[0][1] > -1e-2}


def stored(index: VectorIndex) -> dict[int, Any] | None:
    """Vectors as the database holds them, where it says: a graph does not find every vector that it holds."""
    if isinstance(index, ChromaCollection):
        held = index.collection.get(include=["embeddings"])
        return dict(zip(map(int, held["ids"]), held["embeddings"], strict=True))
    if isinstance(index, LanceTable):
        rows = index.table.to_arrow()
        return dict(zip(rows["key"].to_pylist(), rows[index.metric].to_pylist(), strict=True))
    return None


def wrong(index: VectorIndex, acknowledged: set[int], round: int) -> list[str]:
    """What is not as it must be: acknowledged vectors are the new ones, all others the old or the new."""
    held = list(index.keys())
    new, old = as_in(index, round), as_in(index, round - 1 if round % ROUNDS else -1)
    found = [f"twice: {len(held) - len(set(held))}"] if len(held) != len(set(held)) else []
    found += [f"lost: {sorted(lost)}"] if (lost := acknowledged - new) else []
    found += [f"neither old nor new: {sorted(other)}"] if (other := set(held) - new - old) else []
    before = set(range(BATCHES * ROWS)) if round % ROUNDS else set()
    return found + ([f"gone: {sorted(gone)}"] if (gone := before - set(held)) else [])


def kills(name: str, folder: Path, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Kill `count` writers of the database with this name.

    Yields for each: the round, how many batches were acknowledged, and what was wrong.
    """
    database, draw, round = DATABASES[name], random.Random(seed), 0
    seconds = _timed(database, folder)
    while count:
        if round % ROUNDS == 0:
            database.drop(folder, "killed")
        batches, was = killed(name, folder, round, draw.uniform(0, seconds))
        yield {
            "round": round,
            "acknowledged": len(batches),
            "killed": was,
            "wrong": after(database, folder, round, batches),
        }
        count, round = count - was, round + 1


def after(database: Database, folder: Path, round: int, batches: list[int]) -> list[str]:
    """What is wrong at once, and after all was added again."""
    acknowledged = {key for batch in batches for key in range(batch * ROWS, (batch + 1) * ROWS)}
    index = database.open(folder, "killed", DIMENSION, "euclidean")
    at_once = wrong(index, acknowledged, round)
    index.close()
    for _ in write(database, folder, round):
        pass
    index = database.open(folder, "killed", DIMENSION, "euclidean")
    every = set(range(BATCHES * ROWS))
    repeated = [] if as_in(index, round) == every == set(index.keys()) else ["not as wanted after it was repeated"]
    index.close()
    return at_once + repeated


def _timed(database: Database, folder: Path) -> float:
    """Seconds that a round takes."""
    import_module(database.module)
    for _ in write(database, folder, 0):
        pass
    began = time.monotonic()
    for _ in write(database, folder, 0):
        pass
    return time.monotonic() - began


def main(name: str, folder: Path, arguments: list[str]) -> None:
    if arguments[0] == "--round":
        import_module(DATABASES[name].module)
        _say("ready")
        for batch in write(DATABASES[name], folder, int(arguments[1])):
            _say(str(batch))
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for result in kills(name, folder, int(arguments[0]), int(arguments[1])):
        _say(json.dumps(result))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
