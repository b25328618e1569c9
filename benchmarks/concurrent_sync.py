"""Revoking and removing while a long sync is under way: seconds until another process sees it, and what is left.

    python benchmarks/concurrent_sync.py [--files 10000] [--out FILE]

One process syncs files whose reader sleeps 1 ms for each. Meanwhile this process takes a reader from a document, or
removes one, again and again, each time with the right to write; a third process searches all the time, and tells when
it does not find the document any more. The time runs from before the right to write is asked for. At the end all files
are there, nothing that was taken away is back, and the store is checked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from results import publish

from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.sync.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Query, Value

ANN, BOTH = ("ann",), ("ann", "bob")
OLD, EVERY_S, SLEEP_S = 40, 0.4, 0.001


@dataclass(frozen=True)
class Slow(Value):
    """Reads plain text, slowly."""

    sleep_s: float = SLEEP_S
    name = "slow"
    version = 1
    media_type = "text/plain"
    suffixes = (".note",)

    def read(self, blob: Blob, /) -> Reading:
        time.sleep(self.sleep_s)
        return Reading(blob.document(self, blob.data.decode()))


def access(uri: str) -> tuple[str, ...]:
    return BOTH


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--as", dest="role", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        role, folder, store = options.role
        sync(folder, Corpus(store, wait_s=60), readers=[Slow()], access=access) if role == "sync" else watch(store)
        return
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="spolia-", dir=memory) as place:
        publish("concurrent_sync", measure(Path(place), options.files), options.out)


def measure(place: Path, files: int) -> dict[str, Any]:
    folder, corpus = place / "files", Corpus(place / "s.spolia", wait_s=60)
    folder.mkdir()
    for number in range(OLD):
        (folder / f"old{number}.note").write_text(f"Whale w{number}w is old.")
    sync(folder, corpus, readers=[Slow(0)], access=access)
    for number in range(files):
        (folder / f"{number:05}.note").write_text(f"Krill number {number} is new.")
    generation = corpus.latest().generation
    began = time.perf_counter()
    syncing = subprocess.Popen([*role("sync"), str(folder), corpus.path])
    watching = subprocess.Popen([*role("watch"), "-", corpus.path], stdin=-1, stdout=-1, text=True)
    seconds_by_kind: dict[str, list[float]] = {"revoked": [], "removed": []}
    gone: set[str] = set()
    while syncing.poll() is None and len(gone) < OLD:
        time.sleep(EVERY_S)
        if syncing.poll() is None and corpus.latest().generation > generation:
            number, kind = len(gone), ("revoked", "removed")[len(gone) % 2]
            seconds_by_kind[kind].append(seconds(corpus, folder, number, kind, watching))
            gone.add(f"old{number}.note")
    assert syncing.wait() == 0
    took = time.perf_counter() - began
    watching.communicate()
    with Run(principal="bob"):
        uris = {node.uri for node in BM25(corpus.group(), files + OLD)(Query("krill whale")).nodes}
    expected = {path.name for path in folder.iterdir()} - gone
    all_seconds = sorted(seconds_by_kind["revoked"] + seconds_by_kind["removed"])
    return {
        "files": files,
        "sync_s": round(took, 1),
        **{
            kind: {"times": len(delays), "p50_s": median(delays), "most_s": max(delays)}
            for kind, delays in seconds_by_kind.items()
        },
        "p50_s": median(all_seconds),
        "most_s": all_seconds[-1],
        "lost": len(expected - uris),
        "back": len(uris - expected),
        "wrong": corpus.latest().check(),
    }


def role(name: str) -> list[str]:
    return [sys.executable, __file__, "--as", name]


def seconds(corpus: Corpus, folder: Path, number: int, kind: str, watching: subprocess.Popen[str]) -> float:
    """How long it takes until the other process does not find a document any more."""
    assert watching.stdin is not None
    assert watching.stdout is not None
    watching.stdin.write(f"w{number}w\n")
    watching.stdin.flush()
    assert watching.stdout.readline() == "found\n"
    began = time.monotonic()
    uri = f"old{number}.note"
    with corpus.writer() as writer:
        if kind == "revoked":
            document = writer.document(writer.sources([uri])[uri].document)
            writer.set_readers(document, ANN)
        else:
            writer.remove(uri)
            (folder / uri).unlink()
    return float(watching.stdout.readline()) - began


def watch(store: str) -> None:
    """Search for each word that comes, until it is found no more; tell when that was."""
    search = BM25(Corpus(store).group(), 10)
    for word in sys.stdin:
        is_reported = False
        while True:
            with Run(principal="bob"):
                if not search(Query(word.strip())).nodes:
                    break
            if not is_reported:
                print("found", flush=True)
            is_reported = True
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
