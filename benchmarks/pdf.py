"""Reading PDF: pages for each second of CPU beside bare pypdfium2 in the same process, and memory for 5,000 pages.

    python benchmarks/pdf.py [--mixed FOLDER] [--rounds 5] [--peers] [--out FILE]

Two sets of files. Mixed files: the PDFs of a folder (forms, papers, manuals, scans, posters, drawings), by default
those of the data sets. Papers: two of the ARAGOG set, of which 8 of 18 pages have tables. Each is read by bare
pypdfium2 (the text of each page, nothing else), by the reader as it is (text in reading order, a box for each line,
headings, tables cell by cell, pictures; no OCR), and without tables. All ways in turn, file by file; the best of the
rounds counts. For memory, 5,000 pages are put together from the papers by PDFium, and read from their path in a process
of their own. `--peers` installs pypdf into a temporary environment (network) and reads the papers. Data:
`SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pypdfium2
from results import publish

from spolia.indexing.readers.pdf.reader import PdfReader
from spolia.indexing.readers.reader import Blob

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
FILES = DATA / "documents" / "files"
PAPERS = [FILES / name for name in ("ar-roberta.pdf", "ar-distilbert.pdf")]
PEER_CODE = Path(__file__).parent / "peers" / "pdf.py"
PAGES, MEBI = 5_000, 1 << 20


def bare(path: Path) -> int:
    with closing(pypdfium2.PdfDocument(path)) as pdf:
        for number in range(len(pdf)):
            with closing(pdf[number]) as page, closing(page.get_textpage()) as text:
                text.get_text_range()
        return len(pdf)


def ours(path: Path, **settings: Any) -> int:
    return len(PdfReader(ocr=None, **settings).read(Blob(path.name, path)).document.pages)


WAYS: dict[str, Callable[[Path], int]] = {
    "pypdfium2 alone": bare,
    "spolia": ours,
    "spolia, tables=False": lambda path: ours(path, tables=False),
}


def speeds(paths: Sequence[Path], rounds: int) -> dict[str, Any]:
    """Pages for a second of CPU."""
    best = {(name, path): float("inf") for name in WAYS for path in paths}
    pages = sum(map(bare, paths))
    for path in paths:
        for _ in range(rounds):
            for name, way in WAYS.items():
                began = time.process_time()
                way(path)
                best[name, path] = min(best[name, path], time.process_time() - began)
    speed = {name: round(pages / sum(best[name, path] for path in paths)) for name in WAYS}
    return {"files": len(paths), "pages": pages, "pages_per_cpu_s": speed}


def readable(folder: Path) -> list[Path]:
    """The PDFs of a folder that open without a password, and whose pages all do."""
    paths: list[Path] = []
    for path in sorted(folder.glob("*.pdf")):
        with suppress(pypdfium2.PdfiumError):
            bare(path)
            paths.append(path)
    return paths


def long_file(path: Path, pages: int) -> None:
    """Papers after each other until there are enough pages."""
    papers = [pypdfium2.PdfDocument(paper) for paper in PAPERS]
    with closing(pypdfium2.PdfDocument.new()) as document:
        while len(document) < pages:
            for paper in papers:
                document.import_pages(paper, list(range(min(len(paper), pages - len(document)))))
        document.save(path)


def memory(path: Path) -> dict[str, float]:
    """What a process needs to read a file, beyond what it needs before; megabytes."""
    previous_count = _peak_bytes()
    began = time.process_time()
    reading = PdfReader().read(Blob(path.name, path))
    cpu = time.process_time() - began
    document = reading.document
    return {
        "pages": len(document.pages),
        "file_mb": round(path.stat().st_size / MEBI, 1),
        "text_mb": round(len(document.text.encode()) / MEBI, 1),
        "boxes_mb": round(len(document.boxes.packed) / MEBI, 1),
        "tables": sum(region.kind == "table" for region in document.regions),
        "before_mb": round(previous_count / MEBI, 1),
        "most_mb": round(_peak_bytes() / MEBI, 1),
        "pages_per_cpu_s": round(len(document.pages) / cpu),
    }


def _peak_bytes() -> int:
    """The most memory that this process has had, in bytes: of Linux; elsewhere nothing is known."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def peers(paths: Sequence[Path], folder: Path) -> dict[str, int]:
    """The peers' speeds, from an environment of their own."""
    venv.create(folder / "peers", with_pip=True)
    python = str(folder / "peers" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "pypdf"], check=True)
    command = [python, str(PEER_CODE), *map(str, paths)]
    counts: dict[str, int] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixed", type=Path, default=FILES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(memory(options.memory)))
        return
    with tempfile.TemporaryDirectory() as folder:
        mixed, papers = (speeds(paths, options.rounds) for paths in (readable(options.mixed), PAPERS))
        if options.peers:
            papers["pages_per_cpu_s"] |= peers(PAPERS, Path(folder))
        long_file(Path(folder) / "long.pdf", PAGES)
        command = [sys.executable, __file__, "--memory", f"{folder}/long.pdf"]
        long = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    result = {
        "unit": "pages per CPU second",
        "mixed files": mixed,
        "papers": papers,
        f"{PAGES:,} pages": long,
        "pypdfium2": str(pypdfium2.version.PYPDFIUM_INFO),
    }
    publish("pdf", result, options.out)


if __name__ == "__main__":
    main()
