"""Keep what this version writes: `python tests/saved/make.py` writes tests/saved/VERSION.tar.gz.

It uses nothing but the command line, so an older version makes its own set, with PYTHONPATH=OLD/src.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import spolia

HERE = Path(__file__).resolve().parent
TEXTS = {
    "tides.md": "# Tides\n\nThe tide rises twice a day. The pull of the moon causes it.",
    "salt.txt": "Salt is dug in mines near the border.",
    "roads.txt": "Roads were straight. Salt was carried on them.",
}
QUESTIONS = {"What causes the tide?": "tides.md", "Where is salt dug?": "salt.txt", "What were roads?": "roads.txt"}
SPACE = """- Choice:
    name: search
    options:
    - BM25: {group: {use: chunks}, top_k: 20}
    - Phrase: {group: {use: chunks}, top_k: 20}
"""


def run(folder: Path, *arguments: str) -> str:
    """What a command prints; empty, or an error as JSON, where this version cannot do it."""
    command = [sys.executable, "-m", "spolia", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "saved"
        (folder / "notes").mkdir(parents=True)
        (folder / "flows").mkdir()
        for name, text in TEXTS.items():
            (folder / "notes" / name).write_text(text)
        rows = ({"id": text, "question": text, "gold_ids": [gold]} for text, gold in QUESTIONS.items())
        (folder / "asked").mkdir()
        (folder / "asked" / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (folder / "space.yaml").write_text(SPACE)
        run(folder, "index", "notes", "--store", "store", "--no-vectors")
        asked = ("--data", "asked", "--store", "store")
        run(folder, "gate", "bm25", *asked, "--measures", "R@5,MRR", "--baseline", "baseline.json", "--write")
        run(folder, "tune", "space.yaml", *asked, "--objective", "MRR", "-o", "study")
        listed = json.loads(run(folder, "flows", "--json"))
        published = [flow["name"] for flow in listed] if isinstance(listed, list) else []
        for name in ("bm25", "dense", "hybrid", "naive", *published):
            if text := run(folder, "show", name, "--yaml"):
                (folder / "flows" / f"{name}.yaml").write_text(text)
        with tarfile.open(HERE / f"{spolia.__version__}.tar.gz", "w:gz") as archive:
            archive.add(folder, "saved")


if __name__ == "__main__":
    main()
