"""Run every benchmark and write its result to benchmarks/results/.

    python benchmarks/run.py [--alone] [NAME ...]

Each benchmark is a script of its own that takes `--out FILE`. Those with peers run them side by side, installed into
temporary environments (network), unless `--alone` is given, which leaves them out of the result. Data sets are looked
for as the tests look for them: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. `table.py` prints all
results beside their limits (`limits.py`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = (
    "shape",
    "steps",
    "imports",
    "install",
    "bm25",
    "ingest",
    "large",
    "demo",
    "jobs",
    "documents",
    "pdf",
    "encodings",
    "web_pages",
    "change",
    "first_questions",
    "splitters",
    "embedding",
    "model_client",
    "retrieval",
    "extract",
    "filters",
    "vectors",
    "store",
    "million",
    "workers",
    "fusion",
    "kills",
    "concurrent_sync",
    "measures",
    "experiments",
    "score_rows",
    "corag",
    "world",
    "server",
    "answers",
    "documents_http",
)
WITH_PEERS = ("steps", "imports", "bm25", "documents", "pdf", "server")


def main() -> None:
    alone = "--alone" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--alone"] or NAMES
    unknown = set(names) - set(NAMES)
    if unknown:
        sys.exit(f"No benchmark {', '.join(sorted(unknown))}. There are: {', '.join(NAMES)}.")
    failed = [name for name in names if subprocess.run(command(name, alone)).returncode != 0]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}")


def command(name: str, alone: bool) -> list[str]:
    """The command that measures one thing anew."""
    print(f"== {name}", flush=True)
    peers = ["--peers"] if name in WITH_PEERS and not alone else []
    return [sys.executable, str(HERE / f"{name}.py"), "--out", str(HERE / "results" / f"{name}.json"), *peers]


if __name__ == "__main__":
    main()
