"""Trains `SpanReader` on new articles, and asks it the questions of xquad_en, over all of its 240 paragraphs.

    python benchmarks/training/reader.py [--steps N] [--seed N] [--folder DIR] [--questions N] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. Trained on squad_newwiki and on the articles of
squad2_dev whose fold is `train`. The weight of the rank and the threshold are chosen on the answerable questions of
squad2_dev whose fold is `dev`: all questions of xquad_en have an answer, too. No question, passage or article of
xquad_en is trained or chosen on. You can kill the training and run it again: it continues. CPU time is that of one
thread; a busy machine makes it longer. Beside it the sentences that `Extract` chooses, by F1, and the reader on the
gold paragraph alone. EM and F1 are those of SQuAD; an abstention counts 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from results import publish  # noqa: E402
from retrieval import DATA  # noqa: E402

from spolia.core.function import step  # noqa: E402
from spolia.evaluation.data.dataset import DataSet  # noqa: E402
from spolia.evaluation.data.passage_store import index_passages  # noqa: E402
from spolia.evaluation.experiment.experiment import Experiment  # noqa: E402
from spolia.flow_files.built_in_flows import hybrid  # noqa: E402
from spolia.generation.extract import Extract  # noqa: E402
from spolia.generation.span_reader import SpanReader  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.models.onnx.tuned_minilm import MiniLMSpans  # noqa: E402
from spolia.models.protocols import FoundSpan  # noqa: E402
from spolia.stores.corpus import Corpus  # noqa: E402
from spolia.training.span_reader import SpanReaderTrainer  # noqa: E402
from spolia.training.training import QuestionSplit, Trained, train  # noqa: E402
from spolia.types import Hit, Item, Node, Query, Ranking  # noqa: E402

TRAINED_ON, ASKED = ("squad_newwiki", "squad2_dev"), "xquad_en"
RANK_WEIGHTS, THRESHOLDS = (0.0, 0.5, 1.0, 2.0, 4.0), (0.0, -100.0)
"""Of which the best pair is chosen; below the second threshold is nothing, so that every question is answered."""
TIMED = 100


class KeptSpans(MiniLMSpans):
    """Reads each passage once for a question, whatever the weight of the rank."""

    def spans(self, question: str, texts: Sequence[str]) -> list[FoundSpan | None]:
        lacking = [text for text in dict.fromkeys(texts) if (question, text) not in SPANS]
        SPANS.update(
            ((question, text), span) for text, span in zip(lacking, super().spans(question, lacking), strict=True)
        )
        return [SPANS[question, text] for text in texts]


SPANS: dict[tuple[str, str], FoundSpan | None] = {}
GOLD: dict[str, Node] = {}
"""The paragraph of each question."""


@step
def gold_paragraph(query: Query) -> Ranking:
    return Ranking(query, (Hit(GOLD[query.question], 1.0),))


def print_progress(step: int, steps: int, loss: float, validation: float | None) -> None:
    if validation is not None:
        print(f"{time.strftime('%T')} step {step} of {steps}: loss {loss:.3f}, on others {validation:.3f}", flush=True)


def scores(flow: Any, items: Sequence[Item]) -> dict[str, Any]:
    """EM and F1 with their intervals."""
    report = Experiment({"flow": flow}, list(items), ("EM", "F1")).run()
    return dict(report.flows[0].json()["measures"])


def by_settings(reader: SpanReader, items: Sequence[Item], folder: Path) -> dict[tuple[float, float], float]:
    """F1 by weight of the rank and threshold, over the passages of squad2_dev."""
    flow = hybrid(index_passages(DataSet(str(DATA / TRAINED_ON[1])), MiniLM(), folder=folder), MiniLM())
    pairs = {f"{pair}": pair for pair in product(RANK_WEIGHTS, THRESHOLDS)}
    flows = {
        name: flow >> reader.but(rank_weight=weight, threshold=threshold) for name, (weight, threshold) in pairs.items()
    }
    report = Experiment(flows, list(items), ("F1",)).run()
    return {pairs[flow_report.flow]: flow_report.json()["measures"]["F1"]["mean"] for flow_report in report.flows}


def trained_reader(steps: int, seed: int, folder: Path) -> Trained:
    """The reader; nothing of xquad_en and of the articles that the settings are chosen on is trained on."""
    sets = [DataSet(str(DATA / name)) for name in TRAINED_ON]
    texts = {passage.id: [passage.text] for data in sets for passage in data.passages()}
    learned = [*sets[0].items(), *fold(sets[1], "train")]
    QuestionSplit.from_items(
        learned, [*fold(sets[1], "dev"), *DataSet(str(DATA / ASKED)).items()]
    )  # refuses what is shared
    part = SpanReaderTrainer(Corpus(str(folder / "none")).group(), None, texts)
    return train(part, learned, folder, kept_apart=(), steps=steps, seed=seed, on_progress=print_progress)


def fold(data: DataSet, name: str) -> list[Item]:
    return [item for item in data.items() if dict(item.meta)["fold"] == name]


def result(steps: int, seed: int, folder: Path, questions: int | None) -> dict[str, Any]:
    trained = trained_reader(steps, seed, folder)
    items = [item for item in fold(DataSet(str(DATA / TRAINED_ON[1])), "dev") if item.answers]
    data_set = DataSet(str(DATA / ASKED))
    held_out = data_set.sample(questions)
    search = hybrid(index_passages(data_set, MiniLM()), MiniLM())
    chosen = by_settings(SpanReader(KeptSpans(trained.weights)), items, folder)
    weight, threshold = max(chosen, key=lambda pair: chosen[pair])
    reader = SpanReader(KeptSpans(trained.weights), rank_weight=weight, threshold=threshold)
    passages_by_id = {passage.id: passage for passage in data_set.passages()}
    for item in held_out:
        id = min(item.documents)
        GOLD[item.question] = Node(id, passages_by_id[id].text, document=id)
    flows = {"SpanReader": search >> reader, "Extract": search >> Extract(MiniLM())}
    timed = search >> reader.but(model=MiniLMSpans(trained.weights))
    timed(Query(held_out[0].question))  # opens the model
    began = time.process_time()
    for item in held_out[:TIMED]:
        timed(Query(item.question))
    cpu_ms = 1000 * (time.process_time() - began) / TIMED
    return {
        "data": {
            "trained on": list(TRAINED_ON),
            "asked": ASKED,
            "questions": len(held_out),
            "paragraphs": len(passages_by_id),
        },
        "training": {
            name: trained.card[name] for name in ("sha256", "steps", "seed", "cost", "settings", "curve", "notes")
        },
        "chosen": {"rank_weight": weight, "threshold": threshold, "passages": reader.passages, "questions": len(items)},
        "f1_on_other_articles": [
            {"rank_weight": pair[0], "threshold": pair[1], "F1": mean} for pair, mean in chosen.items()
        ],
        "scores": {name: scores(flow, held_out) for name, flow in flows.items()}
        | {"gold paragraph": scores(gold_paragraph >> reader, held_out)},
        "cpu_ms_a_question": round(cpu_ms, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the training is kept; by default a temporary one")
    parser.add_argument("--questions", type=int, help="of xquad_en; by default all")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "reader"
        publish("reader", result(options.steps, options.seed, folder, options.questions), options.out)


if __name__ == "__main__":
    main()
