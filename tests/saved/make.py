"""Write an archive of the files of this version: `python tests/saved/make.py NAME` writes tests/saved/NAME.tar.gz.

It uses nothing but the command line, so an older version makes its own set, with PYTHONPATH=OLD/src.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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


MODEL_PORT = 18_765
"""Answers are kept by the address of their model. Nothing listens here when the archive is read."""
MODEL = ("--llm", f"http://127.0.0.1:{MODEL_PORT}/v1", "--model", "saved")
ANSWERED = ("bm25", "dense", "naive", "--save", "evaluation.experiment")


class ScriptedModel(BaseHTTPRequestHandler):
    """Chat server with one reply."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        reply = {
            "choices": [{"message": {"role": "assistant", "content": "The moon [1]."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14},
        }
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def run(folder: Path, *arguments: str, stderr: int = subprocess.DEVNULL) -> str:
    """Run a command and return what it prints: nothing or an error as JSON if this version lacks it."""
    command = [sys.executable, "-m", "spolia", *arguments]
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True).stdout


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", MODEL_PORT), ScriptedModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
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
        run(folder, "index", "notes", "--store", "store")
        options = ("--data", "asked", "--store", "store")
        run(folder, "gate", "bm25", *options, "--measures", "R@5,MRR", "--baseline", "baseline.json", "--write")
        run(folder, "tune", "space.yaml", *options, "--objective", "MRR", "-o", "study")
        run(folder, "eval", *ANSWERED, *options, *MODEL)
        listed = json.loads(run(folder, "flows", "--json"))
        published = [flow["name"] for flow in listed] if isinstance(listed, list) else []
        for name in ("bm25", "dense", "hybrid", "naive", *published):
            if text := run(folder, "show", name, "--yaml"):
                (folder / "flows" / f"{name}.yaml").write_text(text)
        with tarfile.open(HERE / f"{sys.argv[1]}.tar.gz", "w:gz") as archive:
            archive.add(folder, "saved")


if __name__ == "__main__":
    main()
