"""What an answer over HTTP costs beside its flow.

    python benchmarks/answers.py [--out FILE]

A server of its own and a process without one answer the same questions in turn, each question once, by
`BM25 >> Extract` over the how-to pages. CPU time is that of the process, all threads together. The flow alone runs
bare, and with the record and the account that a server keeps.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from results import publish
from server import answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        publish("answers", {"cpu_ms": answers(Path(folder))}, options.out)


if __name__ == "__main__":
    main()
