"""Broken files: mutated fixtures of all formats through the workers, counted by what became of them.

    python benchmarks/fuzz.py --data FOLDER [--made also] [--inputs 100000] [--workers 2] [--seconds 3] [--out FILE]

FOLDER has documents of most formats; `--made also` adds small ones of all suffixes that it lacks, `--made only` takes
these alone. Each input is one of them, changed: bytes flipped, cut out, repeated, put in the place of others or of
another file's, numbers in the file made large, or the file cut off; of what is packed, in one half of all cases what is
in it is changed, and packed again. A worker reads it and what stands right in it. The name keeps its suffix, but for
one in twenty, which gets another one. Drawn by `--seed`; the same seed gives the same inputs. What is counted: read;
refused, with the reason; the reader failed with an exception that is not its own; the worker died, or needed too much
memory or time. The parent must do nothing but count: that it lives, and how long each input took at most, is the
result. Text in pictures is recognised only with `--ocr`: the time would be Tesseract's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import resource
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import results
from limits import JUDGES
from mutations import changed
from sample_files import made, suffix_of

from spolia.errors import MissingExtra, SpoliaError
from spolia.indexing.readers.reader import Blob, Container, FileReader, reader_of
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.workers.pool import WorkerProcesses
from spolia.indexing.workers.protocol import WorkerLimits

PARTS = 20
"""Parts of a container that are asked for."""
Found: TypeAlias = tuple[Blob, str, str, float]
"""An input, what became of it, why, and the seconds that it took."""
Fixtures: TypeAlias = dict[str, dict[str, list[bytes]]]
"""By format, and within it by the suffix that a file is called by."""


def by_format(files: list[Path], readers: Mapping[str, FileReader]) -> Fixtures:
    """Files of a folder: each suffix is a format."""
    fixtures: Fixtures = {}
    for path in files:
        suffix = suffix_of(path.name, readers)
        fixtures.setdefault(suffix, {}).setdefault(suffix, []).append(path.read_bytes())
    return fixtures


def make_missing(fixtures: Fixtures, more: Mapping[str, bytes], readers: Mapping[str, FileReader]) -> Fixtures:
    """Files for all other suffixes; each reader is a format. What is not made is another file of the same reader."""
    made_of, of_reader = dict[str, list[bytes]](), dict[str, list[bytes]]()
    for name, content in more.items():
        suffix = suffix_of(name, readers)
        made_of.setdefault(suffix, []).append(content)
        of_reader.setdefault(readers[suffix].name, []).append(content)
    for suffix, files in fixtures.items():
        of_reader.setdefault(readers[suffix].name, []).extend(files[suffix])
    missing: Fixtures = {}
    for suffix, reader in readers.items():
        if suffix not in fixtures:
            missing.setdefault(reader.name, {})[suffix] = made_of.get(suffix) or of_reader[reader.name]
    return missing


def inputs(fixtures: Fixtures, contents: list[bytes], draw: random.Random) -> Iterator[Blob]:
    """Mutated files without end: each format as often as any other.

    Args:
        contents: files that pieces are taken from.
    """
    formats = sorted(fixtures)
    suffixes = sorted({suffix for kind in fixtures.values() for suffix in kind})
    number = 0
    while True:
        number += 1
        kind = fixtures[draw.choice(formats)]
        suffix = draw.choice(sorted(kind)) if len(kind) > 1 else next(iter(kind))
        content = draw.choice(kind[suffix])
        name = f"{number}{draw.choice(suffixes) if draw.random() < 0.05 else suffix}"
        yield Blob(name, changed(content, contents, draw))


@dataclass
class Count:
    """What became of the inputs, by format."""

    by_suffix: dict[str, Counter[str]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0

    def note(self, blob: Blob, outcome: str, why: str, seconds: float) -> None:
        suffix = blob.uri[blob.uri.find(".") :]
        self.by_suffix.setdefault(suffix, Counter())[outcome] += 1
        self.longest_s = max(self.longest_s, seconds)
        if outcome not in ("read", "refused", "missing package"):
            self.faults[f"{suffix}: {outcome}: {re.sub(r'[0-9]+', 'N', why)[:160]}"] += 1


def outcome_of(error: SpoliaError) -> tuple[str, str]:
    """What a worker's refusal was, and its reason."""
    message = str(error)
    for outcome, marks in (
        ("took too long", ("took longer than",)),
        ("too much memory", ("MB of memory", "want of memory")),
        ("reader failed", ("failed (", "gave no reading")),
        ("worker died", ("died (",)),
    ):
        if "reader" in message and any(mark in message for mark in marks):
            return outcome, message[message.find("reader") :]
    return ("missing package" if isinstance(error, MissingExtra) else "refused"), message


def try_blob(workers: WorkerProcesses, blob: Blob) -> Found:
    reader = reader_of(blob.uri, by_suffix())
    assert reader is not None
    began = time.perf_counter()
    outcome, reason = "read", ""
    try:
        workers.read(reader, blob)
        if isinstance(reader, Container):
            for _ in islice(workers.parts(reader, blob), PARTS):
                pass
    except SpoliaError as error:
        outcome, reason = outcome_of(error)
        if not reason.strip():
            outcome = "no reason"
    return blob, outcome, reason, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--made", choices=("also", "only"), help="files of the formats that the folder lacks")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each input")
    parser.add_argument("--mb", type=int, default=1_024, help="megabytes for each worker")
    parser.add_argument("--largest", type=int, default=300_000, help="bytes of a fixture at most")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--ocr", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not arguments.ocr:
        os.environ["PATH"] = ""
    readers = by_suffix()
    files = sorted(
        path
        for path in arguments.data.rglob("*")
        if path.is_file() and reader_of(path.name, readers) and 0 < path.stat().st_size <= arguments.largest
    )
    fixtures, contents = by_format(files, readers), [path.read_bytes() for path in files]
    if arguments.made:
        files_made = {name: file for name, file in made().items() if suffix_of(name, readers) not in fixtures}
        contents += files_made.values()
        more = make_missing(fixtures, files_made, readers)
        fixtures = more if arguments.made == "only" else fixtures | more
    count, done, began = Count(), 0, time.monotonic()
    megabytes_before = _megabytes()
    blobs = islice(inputs(fixtures, contents, random.Random(arguments.seed)), arguments.inputs)
    limits = WorkerLimits(seconds=arguments.seconds, memory_mb=arguments.mb, attempts=1)
    with WorkerProcesses(arguments.workers, limits) as workers:
        for trial in each(lambda blob: try_blob(workers, blob), blobs, arguments.workers):
            count.note(*trial)
            done += 1
            if time.monotonic() - began > 60 * arguments.minutes:
                break
    result = report(arguments, fixtures, count, done, time.monotonic() - began, megabytes_before)
    result |= results.told(JUDGES["fuzz"](result)) | {"machine": results.machine()}
    print(json.dumps(result, indent=1, ensure_ascii=False))
    if arguments.out:
        runs = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
        arguments.out.write_text(json.dumps([*runs, result], indent=1, ensure_ascii=False) + "\n")


def each(work: Callable[[Blob], Found], blobs: Iterable[Blob], threads: int) -> Iterator[Found]:
    """What is found with each of them, as many at once as there are workers; no more are begun than are wanted next."""
    waiting = deque[Future[Found]]()
    with ThreadPoolExecutor(threads) as pool:
        for blob in blobs:
            waiting.append(pool.submit(work, blob))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def report(
    arguments: Any, fixtures: Fixtures, count: Count, done: int, seconds: float, megabytes_before: float
) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for outcomes in count.by_suffix.values():
        total.update(outcomes)
    return {
        "inputs": done,
        "seed": arguments.seed,
        "made": arguments.made or "",
        "fixtures": sum(len(files) for kind in fixtures.values() for files in kind.values()),
        "formats": len(fixtures),
        "limits": {"seconds": arguments.seconds, "memory_mb": arguments.mb},
        "outcomes": dict(total.most_common()),
        "longest_s": round(count.longest_s, 2),
        "parent_mb": {"before": round(megabytes_before), "most": round(_megabytes())},
        "seconds": round(seconds),
        "inputs_per_s": round(done / seconds, 1),
        "python": platform.python_version(),
        "by_suffix": {suffix: dict(counts.most_common()) for suffix, counts in sorted(count.by_suffix.items())},
        "faults": dict(count.faults.most_common(60)),
    }


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
