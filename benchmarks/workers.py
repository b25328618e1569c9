"""Reading in workers: throughput with one and with two, and the memory that large files need.

    python benchmarks/workers.py --data FOLDER [--copies 12] [--rounds 5] [--megabytes 1000] [--pages 5000] [--out FILE]

FOLDER has PDF and DOCX files. Each is copied, each copy made another file by some bytes after its end, and all are
brought into a new store by `sync` without vectors, with one worker and with two in turn; wall-clock, the best round
counts. `reading` is the same without what one process does alone: cutting, storing, indexing. For memory, a CSV of so
many megabytes and a PDF of so many pages are synced in a process of their own; the most that it and its workers needed.
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
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pypdfium2

from spolia.indexing.intake import Bytes, Item, intake
from spolia.indexing.readers.choosing import by_suffix, reader_of
from spolia.indexing.readers.reading import Blob
from spolia.indexing.sync import sync
from spolia.stores.corpus import Corpus
from spolia.stores.tables.rows import SourceRow


def lay(data: Path, folder: Path, copies: int) -> int:
    """Copies of all PDF and DOCX files, each with bytes of its own; how many."""
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

    def item(path: Path) -> Item:
        reader, data = reader_of(path.name, readers), path.read_bytes()
        assert reader is not None
        blob = Blob(path.name, data)
        return Item(path.name, reader, len(data), lambda: Bytes(blob, SourceRow(path.name, len(data))))

    with tempfile.TemporaryDirectory() as place, intake(Path(place), workers) as taking:
        for taken in taking.ahead(map(item, sorted(folder.iterdir())), lambda uri, row: True):
            done += taken.row.size > 0
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


def large_csv(path: Path, megabytes: int) -> None:
    row = "{0},stone number {0},a place that has a name of some length,{1:.3f}\n"
    with path.open("w") as file:
        file.write("number,what,where,weight\n")
        number = 0
        while file.tell() < megabytes * 1_000_000:
            file.writelines(row.format(number + n, (number + n) / 7) for n in range(10_000))
            number += 10_000


def long_pdf(path: Path, data: Path, pages: int) -> None:
    papers = [pypdfium2.PdfDocument(paper) for paper in sorted(data.rglob("ar-*.pdf"))[:2]]
    with closing(pypdfium2.PdfDocument.new()) as made:
        while len(made) < pages:
            for paper in papers:
                made.import_pages(paper, list(range(min(len(paper), pages - len(made)))))
        made.save(path)


def memory(folder: Path) -> dict[str, Any]:
    """What a `sync` of a folder needs, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--sync", folder], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def synced(folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        report = sync(folder, Corpus(f"{place}/s.spolia"), workers=2)
    return {
        "file_mb": round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6),
        "sources": report.added,
        "failed": [reason for _, reason in report.failed],
        "chunks": report.chunks,
        "most_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "most_of_a_worker_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "seconds": round(time.perf_counter() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--copies", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--pages", type=int, default=5_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sync", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sync:
        print(json.dumps(synced(arguments.sync)))
        return
    result: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place, name) for name in ("files", "csv", "pdf")}
        for folder in folders.values():
            folder.mkdir()
        result["files"] = lay(arguments.data, folders["files"], arguments.copies)
        result |= throughput(folders["files"], arguments.rounds)
        if arguments.pages:
            long_pdf(folders["pdf"] / "long.pdf", arguments.data, arguments.pages)
            result[f"PDF of {arguments.pages} pages"] = memory(folders["pdf"])
        if arguments.megabytes:
            large_csv(folders["csv"] / "large.csv", arguments.megabytes)
            result[f"CSV of {arguments.megabytes} MB"] = memory(folders["csv"])
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
