"""Kills writers of embedded databases: `python -m tests.stores.adapters.kills FOLDER LanceDB KILLS SEED`.

In every round a process puts new vectors in the place of all old ones, batch by batch, and is killed at a random
moment. Prints one JSON object for each kill: what was acknowledged, and what is wrong, at once and repeated.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from spolia.stores.adapters.chroma import Chroma, ChromaCollection
from spolia.stores.adapters.lancedb import LanceDB, LanceTable
from spolia.stores.adapters.milvus import Milvus
from spolia.stores.adapters.qdrant import Qdrant
from spolia.stores.indexes import Database, VectorIndex
from spolia.stores.vectors.dense import Vectors
from tests.stores.kills import run_in_child, say, start_child, wait_for_child

DATABASES: dict[str, Database] = {
    "LanceDB": LanceDB(index="flat"),
    "Chroma": Chroma(),
    "Milvus": Milvus(index="FLAT"),
    "Qdrant": Qdrant(),
}
BESIDE = {"pymilvus": ("milvus_lite.adapter.grpc.server",)}
"""What is imported late besides the package."""
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


def kill_writer(database: Database, folder: Path, round: int, seconds: float) -> tuple[list[int], bool]:
    """The batches that a writer acknowledged before it was killed, and whether it was."""
    log = folder / "said"

    def work() -> None:
        with log.open("w") as acknowledged:
            for batch in write(database, folder, round):
                acknowledged.write(f"{batch}\n")
                acknowledged.flush()

    log.unlink(missing_ok=True)
    pid = start_child(work)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    was = wait_for_child(pid) == -signal.SIGKILL
    return list(map(int, log.read_text().split())) if log.exists() else [], was


def keys_of_round(index: VectorIndex, round: int) -> set[int]:
    """Keys under which the vectors of a round lie."""
    if round < 0:
        return set()
    vectors = vectors_of(round)
    if (vectors_by_key := stored_vectors(index)) is not None:
        return {key for key, vector in vectors_by_key.items() if np.allclose(vector, vectors[key], atol=1e-5)}
    rankings = index.search(vectors, 1)
    return {key for key, near in enumerate(rankings) if near and near[0][0] == key and near[0][1] > -1e-2}


def stored_vectors(index: VectorIndex) -> dict[int, Any] | None:
    """Vectors as the database holds them, where it says: a graph does not find every vector that it holds."""
    if isinstance(index, ChromaCollection):
        records = index.collection.get(include=["embeddings"])
        return dict(zip(map(int, records["ids"]), records["embeddings"], strict=True))
    if isinstance(index, LanceTable):
        rows = index.table.to_arrow()
        return dict(zip(rows["key"].to_pylist(), rows[index.metric].to_pylist(), strict=True))
    return None


def list_problems(index: VectorIndex, acknowledged: set[int], round: int) -> list[str]:
    """What is not as it must be: acknowledged vectors are the new ones, all others the old or the new."""
    keys = list(index.keys())
    new, old = keys_of_round(index, round), keys_of_round(index, round - 1 if round % ROUNDS else -1)
    problems = [f"twice: {len(keys) - len(set(keys))}"] if len(keys) != len(set(keys)) else []
    problems += [f"lost: {sorted(lost)}"] if (lost := acknowledged - new) else []
    problems += [f"neither old nor new: {sorted(other_keys)}"] if (other_keys := set(keys) - new - old) else []
    expected_keys = set(range(BATCHES * ROWS)) if round % ROUNDS else set()
    return problems + ([f"gone: {sorted(gone)}"] if (gone := expected_keys - set(keys)) else [])


def kill_writers(database: Database, folder: Path, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Kill `count` writers.

    Every writer and every check is a fork of this process, which has imported everything and opened nothing.

    Yields for each: the round, how many batches were acknowledged, whether it was killed, and what is wrong after it.
    """
    for module in (database.module, *BESIDE.get(database.module, ())):
        import_module(module)
    draw, round, seconds = random.Random(seed), 0, 0.0
    for earlier in (0, 1):  # the first makes the collection
        began = time.monotonic()
        assert wait_for_child(start_child(partial(list, write(database, folder, earlier)))) == 0
        seconds = time.monotonic() - began
    while count:
        if round % ROUNDS == 0:
            assert wait_for_child(start_child(lambda: database.drop(folder, "killed"))) == 0
        batches, was = kill_writer(database, folder, round, draw.uniform(0, seconds))
        problems = run_in_child(partial(problems_after_kill, database, folder, round, batches), folder / "told")
        yield {"round": round, "acknowledged": len(batches), "killed": was, "wrong": problems}
        count, round = count - was, round + 1


def problems_after_kill(database: Database, folder: Path, round: int, batches: list[int]) -> list[str]:
    """What is wrong at once, and after all was added again."""
    acknowledged = {key for batch in batches for key in range(batch * ROWS, (batch + 1) * ROWS)}
    index = database.open(folder, "killed", DIMENSION, "euclidean")
    at_once = list_problems(index, acknowledged, round)
    index.close()
    for _ in write(database, folder, round):
        pass
    index = database.open(folder, "killed", DIMENSION, "euclidean")
    all_keys = set(range(BATCHES * ROWS))
    repeated = (
        [] if keys_of_round(index, round) == all_keys == set(index.keys()) else ["not as wanted after it was repeated"]
    )
    index.close()
    return at_once + repeated


def main(folder: Path, name: str, count: int, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for result in kill_writers(DATABASES[name], folder, count, seed):
        say(result)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
