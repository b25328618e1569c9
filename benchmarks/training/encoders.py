"""What three parts made of MiniLM add on real data: bi-encoder, cross-encoder reranker, chooser of sentences.

    python benchmarks/training/encoders.py [--folder DIR] [--parts NAME …] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. Bi-encoder and reranker are trained on questions
of squad_newwiki and scored on those of other articles, over the passages of all. The chooser of
sentences is trained on HotpotQA with the simulated reader as the model that answers, and scored with it on the
questions of the part `report`. Settings are the defaults but for the number of steps; nothing was chosen by the scores.
`--folder` keeps each part, so that a run that was stopped goes on; `--parts` makes some of them only.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from results import publish  # noqa: E402
from retrieval import DATA  # noqa: E402

from spolia.evaluation.data.dataset import DataSet  # noqa: E402
from spolia.evaluation.data.passage_store import index_passages  # noqa: E402
from spolia.evaluation.simulation.reader import SimulatedReader  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.retrieval.bm25 import BM25  # noqa: E402
from spolia.training.encoders import BiEncoderTrainer, ContextTrainer  # noqa: E402
from spolia.training.fine_tuning import RerankerTrainer  # noqa: E402
from spolia.training.training import QuestionSplit, Trained, link_keys_of, train  # noqa: E402
from spolia.types import Item  # noqa: E402

ARTICLES, HOPS = "squad_newwiki", "hotpotqa"
TRAINED, ASKED, SEED = 600, 150, 0
STEPS = {"bi-encoder": 50, "reranker": 300, "context": 200}


def articles() -> tuple[DataSet, list[Item], list[Item]]:
    """Questions to train on, and other questions, on other articles."""
    data = DataSet(str(DATA / ARTICLES))
    by_fold = {name: [item for item in data.items() if dict(item.meta)["fold"] == name] for name in ("train", "dev")}
    draw = random.Random(SEED)
    held_out = draw.sample(by_fold["dev"], ASKED)
    asked_marks = {mark for item in held_out for mark in link_keys_of(item)}
    return (
        data,
        draw.sample([item for item in by_fold["train"] if asked_marks.isdisjoint(link_keys_of(item))], TRAINED),
        held_out,
    )


def bi_encoder(folder: Path) -> Trained:
    data, learned, held_out = articles()
    trainer = BiEncoderTrainer(index_passages(data, MiniLM(), folder=folder), MiniLM())
    return train(trainer, learned, folder / "bi-encoder", kept_apart=held_out, steps=STEPS["bi-encoder"], seed=SEED)


def reranker(folder: Path) -> Trained:
    data, learned, held_out = articles()
    trainer = RerankerTrainer(index_passages(data, MiniLM(), folder=folder), MiniLM())
    return train(trainer, learned, folder / "reranker", kept_apart=held_out, steps=STEPS["reranker"], seed=SEED)


def context(folder: Path) -> Trained:
    data = DataSet(str(DATA / HOPS))
    items = list(data.items())
    split = QuestionSplit.from_items(items)
    learned = [*split.train, *split.validation]
    trainer = ContextTrainer(SimulatedReader.from_data(data, items), BM25(index_passages(data, folder=folder), top_k=5))
    return train(trainer, learned, folder / "context", kept_apart=split.kept_apart, steps=STEPS["context"], seed=SEED)


PARTS: dict[str, tuple[str, Callable[[Path], Trained]]] = {
    "bi-encoder": (ARTICLES, bi_encoder),
    "reranker": (ARTICLES, reranker),
    "context": (HOPS, context),
}


def report_training(data: str, training: Trained) -> dict[str, Any]:
    names = ("sha256", "questions", "steps", "score", "cost", "settings", "notes")
    return {"data": data} | {name: training.card[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the parts are kept")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="those to make")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        publish(
            "encoders",
            {"parts": {name: report_training(*_train_part(name, folder)) for name in options.parts}},
            options.out,
        )


def _train_part(name: str, folder: Path) -> tuple[str, Trained]:
    data, make = PARTS[name]
    return data, make(folder)


if __name__ == "__main__":
    main()
