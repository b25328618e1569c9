"""The same four jobs done with Spolia, Haystack and LlamaIndex: what you write, what you run, and how long it takes.

    python benchmarks/jobs.py [--peers FOLDER] [--rounds 3] [--out FILE]

- `cited_answer`: from a folder to an answer of a language model that names the files it cites.
- `four_flows`: words, vectors and two fusions of both, measured on a CSV with questions of your own.
- `access_list`: one folder of the documents is for staff; a question by staff, and one by everybody else.
- `own_embedder`: a search by the vectors of your own Python function.

The programs stand in `peers/jobs/`, each as the documentation of its library writes it, and Spolia's both as commands
and in Python. Lines are those that are neither empty nor comments, of every file that the job needs; commands are those
that you type, without the installation. The documents are the Markdown files of `docs/`, the questions those of the
tutorial. All programs ask one server: its language model is scripted (it always cites the first passage), its vectors
count hashed words. Times are those of all processes of a job, imports included; the median of the rounds, in which the
libraries take turns. A job counts as done if it prints what it must. Without
`--peers`, a folder with the environments `haystack` and `llamaindex`, they are installed (network).
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from results import publish

from spolia.testing import HashingEmbedder, OpenAIServer, ServedReply, server

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).parent / "peers" / "jobs"
PEERS = {
    "haystack": ("haystack-ai==3.4.0",),
    "llamaindex": (
        "llama-index-core==0.14.25", "llama-index-readers-file", "llama-index-retrievers-bm25",
        "llama-index-llms-openai-like", "llama-index-embeddings-openai-like",
    ),
}  # fmt: skip
SPOLIA, IN_PYTHON = "Spolia, commands", "Spolia, Python"
SIDES = {SPOLIA: ("with_spolia", ".sh"), IN_PYTHON: ("with_spolia", ".py")} | {
    name: (folder, ".py") for name, folder in (("Haystack", "with_haystack"), ("LlamaIndex", "with_llamaindex"))
}
"""By name: where the programs of a side are, and what their names end in."""
JOBS = {
    "cited_answer": ("folder to cited answer", r"(?s)\[1\].*\.md"),
    "four_flows": ("four flows on your questions", r"(?s)bm25.*\d\.?\d"),
    "access_list": ("access list", r"run_contract\.md|architecture\.md|data_model\.md"),
    "own_embedder": ("your own embedder", r"\.md"),
}
"""By file: the job in words, and what the output has to hold."""
OTHERS = shutil.ignore_patterns("tutorial.md", "*.py", "*.toml", "images")
"""No documents, or the page that the questions are from."""
VECTORS = HashingEmbedder(384)
REPLY = ServedReply("The store's database keeps every vector [1].")
EMBEDDER = """import json
import os
from urllib.request import Request, urlopen

import numpy as np


def embed(texts):
    body = json.dumps({"input": texts, "model": "hashed"}).encode()
    asked = Request(os.environ["OPENAI_BASE_URL"] + "/embeddings", body, {"Content-Type": "application/json"})
    rows = json.load(urlopen(asked))["data"]
    return np.array([row["embedding"] for row in sorted(rows, key=lambda row: row["index"])])
"""


def embeddings_of(asked: Any, dimension: int) -> dict[str, Any]:
    """What the server replies to texts: vectors of hashed words."""
    texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
    vectors = VECTORS.embed(texts, kind="passage").tolist()
    rows = [{"index": number, "embedding": vector} for number, vector in enumerate(vectors)]
    return {"object": "list", "data": rows, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def files_of(side: str, job: str) -> list[Path]:
    """What one has to write: the program, and files that it needs."""
    folder, suffix = SIDES[side]
    paths = [path for path in (PROGRAMS / folder).glob(f"{job}.*") if path.suffix not in (".py", ".sh")]
    return [PROGRAMS / folder / f"{job}{suffix}", *(paths if suffix == ".sh" else ())]


def count_lines(side: str, job: str) -> dict[str, int]:
    """Commands, and lines of files."""
    program, *other_files = files_of(side, job)
    own = _lines(program)
    commands, code = (own, 0) if program.suffix == ".sh" else (1, own)
    return {"commands": commands, "lines": code + sum(map(_lines, other_files))}


def _lines(path: Path) -> int:
    return sum(1 for line in path.read_text("utf-8").splitlines() if line.strip() and not line.lstrip().startswith("#"))


def done(side: str, job: str, python: str, url: str) -> dict[str, float]:
    """What one run of a program took, in a folder with nothing but the documents, questions and embedder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copytree(ROOT / "docs", place / "docs", ignore=OTHERS)
        tutorial = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
        (place / "questions.csv").write_text(
            re.findall(r"```text\n(question,file\n.*?)```", tutorial, re.S)[0], "utf-8"
        )
        (place / "my_embedder.py").write_text(EMBEDDER, "utf-8")
        for path in files_of(side, job):
            shutil.copy(path, place)
        program = files_of(side, job)[0].name
        command = ["bash", "-e", program] if program.endswith(".sh") else [python, program]
        path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "HOME": folder, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "PYTHONPATH": folder}
        usage_before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ran = subprocess.run(command, cwd=place, env=own, capture_output=True, text=True)
        wall, usage_after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode or not re.search(JOBS[job][1], ran.stdout):
        sys.exit(f"{side}: {job} failed with code {ran.returncode}.\n{ran.stdout[-2000:]}\n{ran.stderr[-3000:]}")
    print(f"-- {side}: {job}\n{ran.stdout}", file=sys.stderr)
    return {
        "wall_s": wall,
        "cpu_s": usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime,
    }


def install_peers(folder: Path) -> None:
    for name, packages in PEERS.items():
        venv.create(folder / name, with_pip=True)
        install = [folder / name / "bin" / "python", "-m", "pip", "install", "-q", *packages]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)


def measure(peers: Path, rounds: int) -> dict[str, Any]:
    server.embeddings_reply = embeddings_of  # the server of the tests, with real vectors
    pythons = {
        side: str(peers / folder.removeprefix("with_") / "bin" / "python") for side, (folder, _) in SIDES.items()
    }
    pythons |= dict.fromkeys((SPOLIA, IN_PYTHON), sys.executable)
    runs: dict[tuple[str, str], list[dict[str, float]]] = {(job, side): [] for job in JOBS for side in SIDES}
    with OpenAIServer(REPLY) as serving:
        for number in range(rounds):
            for (job, side), side_runs in runs.items():
                side_runs.append(done(side, job, pythons[side], serving.url))
            print(f"-- round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    times = {
        key: {name: round(statistics.median(run[name] for run in side_runs), 2) for name in ("wall_s", "cpu_s")}
        for key, side_runs in runs.items()
    }
    return {
        job: {"job": message} | {side: count_lines(side, job) | times[job, side] for side in SIDES}
        for job, (message, _) in JOBS.items()
    }


def page(result: dict[str, Any]) -> str:
    """The table, in Markdown."""
    lines = [
        "# The same jobs, side by side",
        "",
        f"{' '.join((__doc__ or '').split('    python')[0].split())} [The programs](../peers/jobs) and how they were "
        "[counted and run](../jobs.py). The language model is scripted.",
        "",
        f"| | {' | '.join(SIDES)} |",
        f"|---|{'---|' * len(SIDES)}",
    ]
    for job in JOBS:
        cells = [
            f"{row['commands']} command{'s' * (row['commands'] > 1)}, {row['lines']} lines; {row['cpu_s']:.1f} CPU-s"
            for side in SIDES
            for row in [result[job][side]]
        ]
        lines.append(f"| {result[job]['job']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.peers is None:
            install_peers(Path(folder))
        report = measure(options.peers or Path(folder), options.rounds)
    publish("jobs", {"jobs": report}, options.out)
    if options.out:
        options.out.with_suffix(".md").write_text(page(report), "utf-8")


if __name__ == "__main__":
    main()
