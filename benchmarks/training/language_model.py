"""How much likelier a tuned language model finds the replies of questions that it was not tuned on.

    python benchmarks/training/language_model.py [--steps N] [--out FILE]

The model is a Llama of 16 numbers a token with random weights, made here; the rows are those of `spolia rows`, whose
words are of the simulated reader, over an invented world. So the table says that the pipelines teach what their rows
hold, and nothing about a real model. Rows of every fourth question are kept apart: natural logarithm of a token's
probability, its mean over the tokens of a reply; for pairs, the chosen reply minus the rejected one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from results import publish  # noqa: E402

from spolia.evaluation.simulation.world import FictionalWorld  # noqa: E402
from spolia.evaluation.statistics.sample import difference  # noqa: E402
from spolia.models.local.language_model import LocalModel  # noqa: E402
from spolia.training.language_model import Tuning, tune  # noqa: E402
from spolia.types import Message, Prompt  # noqa: E402
from tests.models.local.tiny import llama  # noqa: E402

KINDS = {"ra-dit": "sft", "self-rag": "sft", "corag": "sft"}
TUNING = {"sft": Tuning("sft", rate=0.01, rank=0, batch=4, max_tokens=3000)}
POSITIONS, EVERY, SEED = 4000, 4, 0


def write_rows(kind: str, data: Path, out: Path) -> list[dict[str, Any]]:
    """The rows of a kind, by the command line."""
    words = ["rows", kind, "--data", str(data), "--retriever", "bm25", "--llm", "simulated", "-o", str(out)]
    subprocess.run([sys.executable, "-m", "spolia", *words], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in out.read_text().splitlines()]


def likelihoods(model: LocalModel, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """ln P of a token of the reply, by question: the mean over its rows."""
    by_item: dict[str, list[float]] = {}
    for row in rows:
        prompt = Prompt(tuple(Message(message["role"], message["content"]) for message in row["prompt"]))
        reply = model.continuation(prompt, row["completion"][0]["content"])
        by_item.setdefault(row["id"], []).append(fmean(token.logprob for token in reply))
    return {item: fmean(values) for item, values in by_item.items()}


def result(kind: str, folder: Path, steps: int) -> dict[str, Any]:
    rows = write_rows(kind, folder / "world", folder / f"{kind}.jsonl")
    held_out_ids = set(sorted({row["id"] for row in rows})[::EVERY])
    learned, held_out_rows = (
        [row for row in rows if (row["id"] in held_out_ids) is is_held_out] for is_held_out in (False, True)
    )
    (folder / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in learned))
    tuned = tune(
        folder / f"{kind}.jsonl", str(folder / "base"), folder / kind, TUNING[KINDS[kind]], steps=steps, seed=SEED
    )
    models = (LocalModel(str(folder / "base"), window=POSITIONS), LocalModel(str(folder / kind), window=POSITIONS))
    values_before, values_after = (list(likelihoods(model, held_out_rows).values()) for model in models)
    logarithms = (-float("inf"), 0.0)
    gain = difference(values_after, values_before, range=logarithms)
    return {
        "method": KINDS[kind],
        "rows": len(learned),
        "questions_kept_apart": len(held_out_ids),
        "before": fmean(values_before),
        "after": fmean(values_after),
        "gain": gain.json(),
        "cost": tuned.card["cost"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        FictionalWorld(7, people=300, questions=300).write(folder / "world")
        llama(folder / "base", positions=POSITIONS)
        results = {kind: result(kind, folder, options.steps) for kind in KINDS}
    note = "a model with random weights; rows with the words of the simulated reader"
    publish("language_model", {"simulated": note, "steps": options.steps, "kinds": results}, options.out)


if __name__ == "__main__":
    main()
