"""Indexing 10,000 files of one passage each, and indexing them again when nothing has changed.

    python benchmarks/ingest.py [--files 10000] [--rounds 3] [--out FILE]

Passages of MuSiQue and 2WikiMultihopQA, one `.txt` file each, no embedder. Every batch of 1,000 is durable (fsync) and
can be searched before the next one begins; that is checked in a run of its own. `floor` is a script without Spolia: it
walks, reads and hashes the same files, and writes a document, a source and a node of each, with digests, to SQLite and
tantivy, durable in the same batches. It splits nothing, checks nothing, and knows neither formats, groups, access
lists nor other writers. A run is a process of its own, and what
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
import statistics
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

FLOOR = r"""
import json, os, sqlite3, sys
from contextlib import suppress
from hashlib import blake2b
import tantivy

folder, store, batch = sys.argv[1], sys.argv[2], 1_000
os.makedirs(lexical := os.path.join(store, "lexical"))
database = sqlite3.connect(os.path.join(store, "corpus.db"), isolation_level=None)
tables = {
    "documents": "key INTEGER PRIMARY KEY, id TEXT UNIQUE, text, title, birth, digest",
    "sources": "uri TEXT PRIMARY KEY, document, size, mtime_ns, hash, birth, digest",
    "nodes": "key INTEGER PRIMARY KEY, id TEXT UNIQUE, document, text, start, stop, line, last_line, parent, birth, "
    "digest",
    "generations": "generation INTEGER PRIMARY KEY",
}
for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"):
    database.execute(statement)
for table, columns in tables.items():
    database.execute(f"CREATE TABLE {table} ({columns})")
for table, column in (("sources", "document"), ("nodes", "document"), ("nodes", "parent")):
    database.execute(f"CREATE INDEX {table}_{column} ON {table} ({column})")
builder = tantivy.SchemaBuilder()
builder.add_unsigned_field("key", indexed=True, fast=True)
builder.add_text_field("body", tokenizer_name="terms", index_option="freq")
index, analyzer = tantivy.Index(builder.build(), lexical), tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
for each in (tantivy.Filter.remove_long(256), tantivy.Filter.lowercase(), tantivy.Filter.stemmer("english")):
    analyzer = analyzer.filter(each)
index.register_tokenizer("terms", analyzer.build())
writer, known = index.writer(heap_size=50_000_000, num_threads=1), {}

def guarded(*row):
    return (*row, blake2b("\0".join(map(str, row)).encode(), digest_size=8).digest())

def publish(files, generation, first):
    rows = {"documents": [], "sources": [], "nodes": []}
    for key, (uri, text, size, mtime_ns, hash) in enumerate(files, first):
        holder = known.setdefault(hash, key)
        rows["sources"].append(guarded(uri, holder, size, mtime_ns, hash, generation))
        if holder == key:
            rows["documents"].append(guarded(key, hash, text, uri, generation))
            lines = text.count("\n") + 1
            rows["nodes"].append(guarded(key, f"{hash}:1", key, text, 0, len(text), 1, lines, hash, generation))
            document = tantivy.Document()
            document.add_unsigned("key", key)
            document.add_text("body", text)
            writer.add_document(document)
    database.execute("BEGIN IMMEDIATE")
    for table, some in rows.items():
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(some[0]))})", some)
    writer.commit()
    for name in os.listdir(lexical):
        if not name.startswith(".tmp"):
            with suppress(FileNotFoundError):  # merged away meanwhile
                descriptor = os.open(os.path.join(lexical, name), os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
    database.execute("INSERT INTO generations VALUES (?)", (generation,))
    database.execute("COMMIT")

files, first, generation = [], 1, 0
with os.scandir(folder) as entries:
    names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
for number, name in enumerate(names, 1):
    descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW)
    before = os.fstat(descriptor)
    content = os.read(descriptor, before.st_size + 1)
    after = os.fstat(descriptor)
    os.close(descriptor)
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    hash = blake2b(content, digest_size=16).hexdigest()
    files.append((name, content.decode(), len(content), after.st_mtime_ns, hash))
    if len(files) == batch or number == len(names):
        generation += 1
        publish(files, generation, first)
        first, files = first + len(files), []
writer.wait_merging_threads()
print(json.dumps([first - 1, 0, first - 1, 0, generation, 0]))
"""


def write_files(folder: Path, count: int) -> int:
    """One file for each passage; returns the bytes."""
    passages = chain.from_iterable(DataSet(str(DATA / name)).passages() for name in SETS)
    total = 0
    for number, passage in enumerate(islice(passages, count)):
        total += (folder / f"{number:05}.txt").write_bytes(f"{passage.title}\n{passage.text}".encode())
    return total


def measure(folder: Path, store: Path, code: str = ONE_RUN) -> dict[str, Any]:
    """One run in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    usage_before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", code, str(folder), str(store)]
    ran = subprocess.run(command, check=True, capture_output=True, env=environment)
    usage_after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    cpu = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    names = ("added", "unchanged", "chunks", "embedded", "generation", "sync_wall_s")
    return {**dict(zip(names, json.loads(ran.stdout), strict=True)), "cpu_s": round(cpu, 3), "wall_s": round(wall, 3)}


def searchable_after_each_batch(folder: Path, store: Path) -> bool:
    """Whether a reader finds all files of the batches that are complete, and no others, while the next one is read."""
    corpus, counts = Corpus(str(store)), []

    def record_progress(progress: Progress) -> None:
        if progress.done % BATCH == BATCH // 2:
            counts.append((progress.done // BATCH * BATCH, corpus.snapshot().stats().documents))

    sync(folder, corpus, batch=BATCH, progress=record_progress)
    copies = {row.content_hash for row in corpus.snapshot().sources().values()}
    allowed = len(corpus.snapshot().sources()) - len(copies)  # files with the same content are one document
    return all(0 <= files - documents <= allowed for files, documents in counts)


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
        pairs = [
            (measure(folder, store), measure(folder, store.with_suffix(".floor"), FLOOR)["cpu_s"]) for store in stores
        ]
        first = sorted((run for run, _ in pairs), key=lambda run: run["cpu_s"])[len(stores) // 2]
        floor = statistics.median(cpu_s for _, cpu_s in pairs)
        repeated = sorted((measure(folder, store) for store in stores), key=lambda run: run["sync_wall_s"])
        repeated_result = repeated[len(stores) // 2]
        searchable = searchable_after_each_batch(folder, Path(temporary, "looked-at.spolia"))
    rate = options.files / first["cpu_s"]
    result = {
        "files": options.files,
        "bytes": size,
        "batch": BATCH,
        "first": first,
        "files_per_cpu_s": round(rate),
        "floor": {"cpu_s": floor, "files_per_cpu_s": round(options.files / floor)},
        "again": repeated_result,
        "searchable_after_each_batch": searchable,
        "peers_measured_apart_files_per_cpu_s": PEERS,
        "python": platform.python_version(),
    }
    publish("ingest", result, options.out)


if __name__ == "__main__":
    main()
