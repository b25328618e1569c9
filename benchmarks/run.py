"""Run every benchmark and write its result to benchmarks/results/.

    python benchmarks/run.py [NAME ...]

Each benchmark is a script of its own that takes `--out FILE`. Data sets are looked for as the tests look for them:
`SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("steps", "imports", "install", "bm25", "ingest", "embedding", "retrieval", "extract")


def main() -> None:
    wanted = sys.argv[1:] or NAMES
    unknown = set(wanted) - set(NAMES)
    if unknown:
        sys.exit(f"No benchmark {', '.join(sorted(unknown))}. There are: {', '.join(NAMES)}.")
    failed = [name for name in wanted if subprocess.run(command(name)).returncode != 0]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}")


def command(name: str) -> list[str]:
    """The command that measures one thing anew."""
    print(f"== {name}", flush=True)
    return [sys.executable, str(HERE / f"{name}.py"), "--out", str(HERE / "results" / f"{name}.json")]


if __name__ == "__main__":
    main()
