"""ARAGOG's retrieval study as far as it goes without a judge: which search finds passages of the right paper.

    python benchmarks/optimizer/aragog.py [--out FILE]

The 98 questions of ARAGOG (Eibich, Nagpal, Fred-Ojala 2024) whose paper is among the 15 whose text is there, over 821
windows of 230 words. The study asks a judge which passages are relevant, and no passage is labelled; here a passage is
right that is from the paper which the question names. So `SetP` is the share of the passages shown that are from that
paper, and `MRR` tells at which rank the first one is. Three papers are named by no question.

Its techniques that ask no model are candidates: naive retrieval by vectors, sentences that lead to their windows (found
by words here, by vectors there), MMR; beside them BM25, hybrid search and depth. HyDE, several queries and rerankers by
models are not: they need a model. `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from results import publish

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).parents[3] / "shared" / "datasets")
SPACE = """
- Choice:
    options:
    - Dense: {group: {use: chunks}, embedder: {use: embedder}, top_k: 20}
    - BM25: {group: {use: chunks}, top_k: 20}
    - Then:
      - Branch:
        - BM25: {group: {use: chunks}, top_k: 100}
        - Dense: {group: {use: chunks}, embedder: {use: embedder}, top_k: 100}
      - ConvexCombination: {weights: {bm25: 0.5, dense: 0.5}, top_k: 20}
    - Then:
      - BM25:
          group: {corpus: {use: corpus}, name: sentence, definition: {transform: Sentences, parent: chunk}}
          top_k: 40
      - Mapped: {target: {use: chunks}, top_k: 20}
    name: search
- Choice:
    options:
    - Identity
    - MMR: {embedder: {use: embedder}, group: {use: chunks}, relevance: 0.5, top_k: 10}
    - MMR: {embedder: {use: embedder}, group: {use: chunks}, relevance: 0.8, top_k: 10}
    name: diversity
- Vary:
    body: {Cut: {top_k: 3}}
    ranges: {top_k: [3, 5, 10]}
    names: {top_k: shown}
"""


def prepared(folder: Path) -> int:
    """The data set with papers as gold: any passage of the paper will do. How many questions there are."""
    source = DATA / "aragog"
    corpus = [json.loads(line) for line in (source / "corpus.jsonl").read_text("utf-8").splitlines()]
    of_paper: dict[str, list[str]] = {}
    for row in corpus:
        of_paper.setdefault(row["meta"]["paper"], []).append(row["id"])
    questions = [json.loads(line) for line in (source / "questions.jsonl").read_text("utf-8").splitlines()]
    kept_questions = [row for row in questions if row["meta"]["paper"] in of_paper]
    folder.mkdir(parents=True)
    new_rows = [{**row, "gold_ids": [of_paper[row["meta"]["paper"]]]} for row in kept_questions]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), "utf-8")
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, new_rows)), "utf-8")
    return len(kept_questions)


def measure(folder: Path) -> dict[str, Any]:
    questions = prepared(folder / "aragog")
    (folder / "space.yaml").write_text(SPACE, "utf-8")
    objectives = {}
    for objective in ("SetP", "MRR"):
        words = ["tune", folder / "space.yaml", "--data", folder / "aragog", "--objective", objective, "--json"]
        command = [sys.executable, "-c", "from spolia.cli import main; main()", *map(str, words), "-o"]
        ran = subprocess.run([*command, str(folder / objective)], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(ran.stderr[-2000:])
        study = json.loads(ran.stdout)
        objectives[objective] = {
            "best": study["best"]["choices"], "score": study["score"], "scored on": study["scored_on"],
            "flows": study["flows"],
        }  # fmt: skip
    return {
        "questions": questions,
        "gold": "any passage of the paper that the question names",
        "objectives": objectives,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        publish("aragog", measure(Path(folder)), options.out)


if __name__ == "__main__":
    main()
