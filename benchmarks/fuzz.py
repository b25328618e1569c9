"""Broken files: mutated fixtures of all formats through the workers, counted by what became of them.

    python benchmarks/fuzz.py --data FOLDER [--inputs 100000] [--minutes 60] [--workers 2] [--seconds 3] [--out FILE]

FOLDER has documents of all formats. Each input is one of them, changed: bytes flipped, cut out, repeated, put in the
place of others or of another file's, numbers in the file made large, or the file cut off; of what is packed as ZIP, in
one half of all cases a member is changed, and packed again. A worker reads it and what stands right in it. The
name keeps its suffix, but for one in twenty, which gets another one. Drawn by `--seed`; the same seed gives the same
inputs. What is counted: read; refused, with the reason; the reader failed with an exception that is not its own; the
worker died, or needed too much memory or time. The parent must do nothing but count: that it lives, and how long each
input took at most, is the result. Text in pictures is recognised only with `--ocr`: the time would be Tesseract's.
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
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import results
from limits import JUDGES

from spolia.errors import MissingExtra, SpoliaError
from spolia.indexing.readers.choosing import by_suffix, reader_of
from spolia.indexing.readers.reading import Blob, Container
from spolia.indexing.workers.limits import Limits
from spolia.indexing.workers.pool import Workers

PARTS = 20
"""Parts of a container that are asked for."""
LARGE = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)


def mutated(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """A file with one to sixteen changes."""
    found = bytearray(data)
    for _ in range(1 << draw.randrange(5)):
        if not found:
            break
        at, length = draw.randrange(len(found)), 1 << draw.randrange(12)
        match draw.randrange(7):
            case 0:
                found[at] ^= 1 << draw.randrange(8)
            case 1:
                found[at : at + draw.randrange(1, 9)] = draw.randbytes(draw.randrange(1, 9))
            case 2:
                del found[at : at + length]
            case 3:
                found[at:at] = found[at : at + length] * draw.randrange(1, 4)
            case 4:
                other = draw.choice(others)
                begin = draw.randrange(len(other) or 1)
                found[at : at + length] = other[begin : begin + length]
            case 5:
                size = draw.choice((1, 2, 4, 8))
                value = draw.choice(LARGE) % (1 << 8 * size)
                found[at : at + size] = value.to_bytes(size, draw.choice(("little", "big")))
            case _:
                if draw.random() < 0.3:
                    del found[at:]
    return bytes(found)


def repacked(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """An archive of which one member is changed."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        members = archive.infolist()
        chosen = draw.randrange(len(members))
        for number, member in enumerate(members):
            content = archive.read(member)
            made.writestr(member.filename, mutated(content, others, draw) if number == chosen else content)
    return out.getvalue()


def inputs(files: list[Path], draw: random.Random) -> Iterator[Blob]:
    """Mutated files without end: each format as often as any other."""
    contents = {path: path.read_bytes() for path in files}
    by_format: dict[str, list[Path]] = {}
    for path in files:
        by_format.setdefault(path.suffix.lower(), []).append(path)
    suffixes = sorted(by_format)
    others = list(contents.values())
    number = 0
    while True:
        number += 1
        suffix = draw.choice(suffixes)
        path = draw.choice(by_format[suffix])
        name = f"{number}{draw.choice(suffixes) if draw.random() < 0.05 else suffix}"
        change = repacked if contents[path].startswith(b"PK") and draw.random() < 0.5 else mutated
        yield Blob(name, change(contents[path], others, draw))


@dataclass
class Count:
    """What became of the inputs, by format."""

    by_suffix: dict[str, Counter[str]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0

    def note(self, blob: Blob, outcome: str, why: str, seconds: float) -> None:
        suffix = blob.uri[blob.uri.rfind(".") :]
        self.by_suffix.setdefault(suffix, Counter())[outcome] += 1
        self.longest_s = max(self.longest_s, seconds)
        if outcome not in ("read", "refused", "missing package"):
            self.faults[f"{suffix}: {outcome}: {re.sub(r'[0-9]+', 'N', why)[:160]}"] += 1


def outcome_of(error: SpoliaError) -> tuple[str, str]:
    """What a worker's refusal was, and its reason."""
    said = str(error)
    for outcome, marks in (
        ("took too long", ("took longer than",)),
        ("too much memory", ("MB of memory",)),
        ("reader failed", ("failed (", "gave no reading")),
        ("worker died", ("died (",)),
    ):
        if "reader" in said and any(mark in said for mark in marks):
            return outcome, said[said.find("reader") :]
    return ("missing package" if isinstance(error, MissingExtra) else "refused"), said


def tried(workers: Workers, blob: Blob) -> tuple[Blob, str, str, float]:
    reader = reader_of(blob.uri, by_suffix())
    assert reader is not None
    began = time.perf_counter()
    outcome, why = "read", ""
    try:
        workers.read(reader, blob)
        if isinstance(reader, Container):
            for _ in islice(workers.parts(reader, blob), PARTS):
                pass
    except SpoliaError as error:
        outcome, why = outcome_of(error)
        if not why.strip():
            outcome = "no reason"
    return blob, outcome, why, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
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
    count, done, began = Count(), 0, time.monotonic()
    before = _megabytes()
    drawn = islice(inputs(files, random.Random(arguments.seed)), arguments.inputs)
    limits = Limits(seconds=arguments.seconds, memory_mb=arguments.mb, attempts=1)
    with Workers(arguments.workers, limits) as workers:
        for future in workers.each(lambda blob: tried(workers, blob), drawn):
            count.note(*future.result())
            done += 1
            if time.monotonic() - began > 60 * arguments.minutes:
                break
    result = told(arguments, files, count, done, time.monotonic() - began, before)
    result |= results.told(JUDGES["fuzz"](result)) | {"machine": results.machine()}
    print(json.dumps(result, indent=1, ensure_ascii=False))
    if arguments.out:
        runs = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
        arguments.out.write_text(json.dumps([*runs, result], indent=1, ensure_ascii=False) + "\n")


def told(arguments: Any, files: list[Path], count: Count, done: int, seconds: float, before: float) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for outcomes in count.by_suffix.values():
        total.update(outcomes)
    return {
        "inputs": done,
        "seed": arguments.seed,
        "fixtures": len(files),
        "formats": len({path.suffix.lower() for path in files}),
        "limits": {"seconds": arguments.seconds, "memory_mb": arguments.mb},
        "outcomes": dict(total.most_common()),
        "longest_s": round(count.longest_s, 2),
        "parent_mb": {"before": round(before), "most": round(_megabytes())},
        "seconds": round(seconds),
        "inputs_per_s": round(done / seconds, 1),
        "python": platform.python_version(),
        "by_suffix": {suffix: dict(found.most_common()) for suffix, found in sorted(count.by_suffix.items())},
        "faults": dict(count.faults.most_common(60)),
    }


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
