"""AutoRAG's own trial by `spolia tune`, from AutoRAG's files as they are: what it takes, and what it takes again.

    python benchmarks/optimizer/autorag_trial.py [--rounds 3] [--out FILE]

The configuration (`autorag_trial.yaml`) is in AutoRAG's form, questions and passages are its two Parquet tables: BM25
with two tokenizers, MiniLM, 77 settings of reciprocal rank fusion and 202 of convex combination, six measures. All 558
flows are asked; AutoRAG asks 282, as it keeps one tokenizer before it fuses.

Embedding is apart, as a server that another process runs; so is indexing with vectors. Everything else of the process
counts: start, imports, reading tables, the second word index, searches, fusions, measures, choice and report. CPU-s and
MiB are of the whole process; of the rounds, each with a cold cache, the median counts.

- `again`: the same command in a new process.
- `opened again`: the same without the record that the study has ended, so that all its scores are read.
- `another last step`: a new study with a filter behind the same searches, which are recalled. The one text that it
  embeds, as `opened again` does, asks the server for the length of its vectors.

Data: the 68 questions of AutoRAG's trial that `hotpotqa` has (its train split) and 32 of the dev split, in whose favour
64 of the 994 passages are others. `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from results import publish

from spolia.evaluation.data.formats.autorag import AutoRAG
from spolia.models.onnx.minilm import MiniLM
from spolia.types import Document, Item

HERE = Path(__file__).parent
DATA = Path(os.environ.get("SPOLIA_DATASETS") or HERE.parents[2] / "shared" / "datasets")
QUESTIONS, PASSAGES = 100, 994
FILTER = """
    - node_type: passage_filter
      strategy: {metrics: [retrieval_f1, retrieval_recall, retrieval_precision]}
      modules:
        - module_type: percentile_cutoff
          percentile: 0.5
"""
AUTORAG = {
    "version": "0.3.27", "questions": 100, "passages": 994, "candidates": 282,
    "trial, CPU-s": 100.9, "with its imports, CPU-s": 126.8, "peak, MiB": 1044,
    "again, one reranker less, CPU-s": 100.9,
    "measured": "earlier, on a machine of this kind; vector ingest skipped, all nodes computed again",
}  # fmt: skip


LAUNCHER = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"\\n{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}", file=sys.stderr)
sys.exit(code)
"""
"""Starts the command from a small process: a child's peak is never told below its parent's size at the start."""


class Embeddings(ThreadingHTTPServer):
    """MiniLM behind OpenAI's protocol; `texts` are those that it embedded."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Reply)
        self.model, self.texts = MiniLM(), 0
        self.known: dict[str, list[float]] = {}
        Thread(target=self.serve_forever, daemon=True).start()

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += len(texts)
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if new:
            self.known |= dict(zip(new, self.model.embed(new, kind="passage").tolist(), strict=True))
        return [self.known[text] for text in texts]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Reply(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Embeddings

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        rows = [{"index": index, "embedding": row} for index, row in enumerate(self.server.vectors(texts))]
        reply = json.dumps({"data": rows, "model": "minilm", "usage": {"prompt_tokens": 0, "total_tokens": 0}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


def trial_data() -> tuple[list[Document], list[Item]]:
    """Passages and questions."""
    with gzip.open(DATA / "hotpotqa" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        corpus = [json.loads(line) for line in lines]
    questions = [json.loads(line) for line in (DATA / "hotpotqa" / "questions.jsonl").read_text("utf-8").splitlines()]
    questions = sorted(questions, key=lambda one: bool(one["meta"]["source_split"] != "train"))[:QUESTIONS]
    gold = {name for row in questions for name in row["gold_ids"]}
    other_ids = [row["id"] for row in corpus if row["id"] not in gold][: PASSAGES - len(gold)]
    passage_ids = gold.union(other_ids)
    passages = [Document(row["id"], f"{row['title']}. {row['text']}") for row in corpus if row["id"] in passage_ids]
    items = [
        Item(
            row["id"],
            row["question"],
            answers=(row["answers"][0],),
            gold=tuple((name,) for name in row["gold_ids"]),
        )
        for row in questions
    ]
    return passages, items


def run(cache: Path, *words: object) -> dict[str, Any]:
    """One command in a process of its own: what it printed, CPU-s, peak MiB, seconds."""
    variables = {**os.environ, "SPOLIA_CACHE": str(cache)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    command = [sys.executable, "-c", "from spolia.cli import main; main()", *map(str, words), "--json"]
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, "-c", LAUNCHER, *command], capture_output=True, text=True, env=variables)
    wall = time.perf_counter() - began
    if ran.returncode:
        sys.exit(f"{words[0]} ended with {ran.returncode}: {ran.stderr[-2000:]}{ran.stdout[-500:]}")
    cpu, mib = map(float, ran.stderr.splitlines()[-1].split())
    return {"told": json.loads(ran.stdout), "cpu": cpu, "mib": mib, "wall": wall}


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    data, indexed = folder / "project" / "data", folder / "indexed"
    AutoRAG().write_files(data, *trial_data())
    config, changed = HERE / "autorag_trial.yaml", folder / "changed.yaml"
    changed.write_text(config.read_text("utf-8").rstrip("\n") + FILTER, "utf-8")
    server = Embeddings()
    options: list[object] = ["--data", data, "--embedder", server.url, "--embed-model", "minilm"]
    index = run(indexed, "eval", "dense", *options, "--limit", 1, "--measures", "R@10")
    server.vectors([item.question for item in trial_data()[1]])
    runs: dict[str, list[dict[str, Any]]] = {}
    for number in range(rounds):
        cache, out = folder / f"cache{number}", folder / f"tuned{number}"
        shutil.copytree(indexed, cache)
        study = ["tune", config, *options, "-o", out]
        for name, command in (
            ("trial", study), ("again", study), ("opened again", study),
            ("another last step", ["tune", changed, *options, "-o", folder / f"changed{number}"]),
        ):  # fmt: skip
            if name == "opened again":
                (out / "finished.json").unlink()
            embedded_before = server.texts
            runs.setdefault(name, []).append(run(cache, *command) | {"embedded": server.texts - embedded_before})
    first, second = runs["trial"][0]["told"], runs["again"][0]["told"]
    rows = first["spent"]["rows"]
    assert second["spent"] == dict.fromkeys(second["spent"], 0)
    assert second["best"] == first["best"]
    result: dict[str, Any] = {
        "questions": QUESTIONS, "passages": PASSAGES, "flows": first["flows"], "scores": rows,
        "objectives": first["objective"], "best": first["best"]["choices"],
        "means on fresh questions": first["finalists"][0]["means"], "fresh questions": first["fresh_questions"],
        "indexing, CPU-s": round(index["cpu"], 2), "rounds": rounds, "runs": {},
    }  # fmt: skip
    for name, several in runs.items():
        middle = sorted(several, key=lambda one: float(one["cpu"]))[len(several) // 2]
        result["runs"][name] = {
            "CPU-s": round(middle["cpu"], 2), "CPU-s of all": [round(row["cpu"], 2) for row in several],
            "peak, MiB": round(max(row["mib"] for row in several), 1), "wall s": round(middle["wall"], 2),
            "scores computed": middle["told"]["spent"]["rows"], "calls of models": middle["told"]["spent"]["calls"],
            "texts embedded": max(row["embedded"] for row in several),
            "CPU-µs a score": round(1e6 * middle["cpu"] / rows, 2),
        }  # fmt: skip
    with suppress(OSError):
        server.shutdown()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        publish("autorag_trial", measure(Path(folder), options.rounds) | {"AutoRAG": AUTORAG}, options.out)


if __name__ == "__main__":
    main()
