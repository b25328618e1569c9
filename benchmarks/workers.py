"""Reading in workers: how much faster two are than one.

    python benchmarks/workers.py [--copies 40] [--rounds 4] [--out FILE]

PDF and DOCX files of the shared documents. Each is copied, each copy of a PDF made another file by some bytes after its
end. `reading` is what workers do: files on their way to being documents. `sync` brings them into a new store, without
vectors, and takes copies of a DOCX for one document: the process that cuts, stores and indexes is one however many
read, and works beside a single worker too. One worker and two in turn; wall-clock, the best round counts. Data:
`SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import publish

from spolia.indexing.readers.reader import Blob, reader_of
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.sync.prefetch import FetchedSource, FetchItem, open_prefetch
from spolia.indexing.sync.sync import sync
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")


def lay(data: Path, folder: Path, copies: int) -> int:
    """Copies of all PDF and DOCX files, those of PDF with bytes of their own; how many."""
    files = [path for path in sorted(data.rglob("*")) if path.suffix in (".pdf", ".docx")]
    count = 0
    for number in range(copies):
        for path in files:
            comment = b"\n%%%d\n" % number if path.suffix == ".pdf" else b""
            (folder / f"{number:03}-{path.name}").write_bytes(path.read_bytes() + comment)
            count += 1
    return count


def whole(folder: Path, workers: int) -> int:
    with tempfile.TemporaryDirectory() as place:
        report = sync(folder, Corpus(f"{place}/s.spolia"), workers=workers)
        return report.added


def reading(folder: Path, workers: int) -> int:
    readers, done = by_suffix(), 0

    def item(path: Path) -> FetchItem:
        reader, data = reader_of(path.name, readers), path.read_bytes()
        assert reader is not None
        blob = Blob(path.name, data)
        return FetchItem(path.name, reader, len(data), lambda: FetchedSource(blob, SourceRow(path.name, len(data))))

    with tempfile.TemporaryDirectory() as place, open_prefetch(Path(place), workers) as prefetch:
        for fetched in prefetch.read_ahead(map(item, sorted(folder.iterdir())), lambda uri, row: True):
            done += fetched.row.size > 0
    return done


WAYS: dict[str, Callable[[Path, int], int]] = {"sync": whole, "reading": reading}


def throughput(folder: Path, rounds: int) -> dict[str, Any]:
    best: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for name, way in WAYS.items():
            for workers in (1, 2):
                began = time.perf_counter()
                way(folder, workers)
                best[name, workers] = min(best.get((name, workers), 1e9), time.perf_counter() - began)
    return {
        name: {
            "one_s": round(best[name, 1], 2),
            "two_s": round(best[name, 2], 2),
            "ratio": round(best[name, 1] / best[name, 2], 2),
        }
        for name in WAYS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = lay(DATA / "documents" / "files", folder, options.copies)
        publish("workers", {"files": files, **throughput(folder, options.rounds)}, options.out)


if __name__ == "__main__":
    main()
