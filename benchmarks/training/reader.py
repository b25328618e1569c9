"""Trains `SpanReader` on new articles, and asks it the questions of xquad_en, over all of its 240 paragraphs.

    python benchmarks/training/reader.py [--steps N] [--seed N] [--folder DIR] [--questions N] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout. Trained on the articles of squad_newwiki and
squad2_dev whose fold is `train`; the weight of the rank and nothing else is chosen on those whose fold is `dev`. No
question, passage or article of xquad_en is among them. The training is killed and run again as you like: it goes on.
CPU time is that of one thread; a busy machine makes it longer. Beside it the sentences that `Extract` chooses, by F1,
and the reader on the gold paragraph alone. EM and F1 are those of SQuAD; an abstention counts 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from results import publish  # noqa: E402
from retrieval import DATA  # noqa: E402

from spolia.core.function import step  # noqa: E402
from spolia.evaluation.data.dataset import DataSet  # noqa: E402
from spolia.evaluation.data.passage_store import indexed  # noqa: E402
from spolia.evaluation.experiment.experiment import Experiment  # noqa: E402
from spolia.flow_files.built_in_flows import hybrid  # noqa: E402
from spolia.generation.extract import Extract  # noqa: E402
from spolia.generation.span_reader import SpanReader  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.models.onnx.tuned_minilm import MiniLMSpans  # noqa: E402
from spolia.models.protocols import FoundSpan  # noqa: E402
from spolia.training.span_reader import SpanReaderTrainer  # noqa: E402
from spolia.training.training import train  # noqa: E402
from spolia.types import Hit, Item, Node, Query, Ranking  # noqa: E402

TRAINED_ON, ASKED = ("squad_newwiki", "squad2_dev"), "xquad_en"
RANK_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)
CHOSEN_ON, TIMED = 200, 50


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


def told(step: int, steps: int, loss: float, validation: float | None) -> None:
    if validation is not None:
        print(f"{time.strftime('%T')} step {step} of {steps}: loss {loss:.3f}, on others {validation:.3f}", flush=True)


def scores(flow: Any, items: Sequence[Item]) -> dict[str, Any]:
    """EM and F1 with their intervals."""
    report = Experiment({"flow": flow}, list(items), ("EM", "F1")).run()
    return dict(report.flows[0].json()["measures"])


def chosen_weight(reader: SpanReader, items: Sequence[Item], folder: Path) -> dict[float, float]:
    """F1 by the weight of the rank, on other articles: the answerable questions, over the passages of squad2_dev."""
    found = hybrid(indexed(DataSet(str(DATA / TRAINED_ON[1])), MiniLM(), folder=folder), MiniLM())
    flows = {str(weight): found >> reader.but(rank_weight=weight) for weight in RANK_WEIGHTS}
    report = Experiment(flows, list(items), ("F1",)).run()
    return {float(one.flow): one.json()["measures"]["F1"]["mean"] for one in report.flows}


def result(steps: int, seed: int, folder: Path, questions: int | None) -> dict[str, Any]:
    sets = [DataSet(str(DATA / name)) for name in TRAINED_ON]
    texts = {passage.id: [passage.text] for data in sets for passage in data.passages()}
    items = [item for data in sets for item in data.items()]
    learned = [item for item in items if dict(item.meta)["fold"] == "train"]
    others = [item for item in sets[1].items() if dict(item.meta)["fold"] == "dev" and item.answers][:CHOSEN_ON]
    asked = DataSet(str(DATA / ASKED))
    apart = asked.sample(questions)
    group = indexed(asked, MiniLM())
    search = hybrid(group, MiniLM())
    found = train(
        SpanReaderTrainer(group, MiniLM(), texts), learned, folder, kept_apart=apart, steps=steps, seed=seed, told=told
    )
    by_weight = chosen_weight(SpanReader(KeptSpans(found.weights)), others, folder)
    best = max(by_weight, key=lambda weight: by_weight[weight])
    reader = SpanReader(KeptSpans(found.weights), rank_weight=best)
    known = {passage.id: passage for passage in asked.passages()}
    for item in apart:
        id = min(item.documents)
        GOLD[item.question] = Node(id, known[id].text, document=id)
    flows = {"SpanReader": search >> reader, "Extract": search >> Extract(MiniLM())}
    timed = search >> SpanReader(MiniLMSpans(found.weights), rank_weight=best)
    began = time.process_time()
    for item in apart[:TIMED]:
        timed(Query(item.question))
    cpu_ms = 1000 * (time.process_time() - began) / TIMED
    return {
        "data": {"trained on": list(TRAINED_ON), "asked": ASKED, "questions": len(apart), "paragraphs": len(known)},
        "training": {
            name: found.card[name] for name in ("sha256", "steps", "seed", "cost", "settings", "curve", "notes")
        },
        "rank_weight": {"f1_on_other_articles": by_weight, "chosen": best},
        "scores": {name: scores(flow, apart) for name, flow in flows.items()}
        | {"gold paragraph": scores(gold_paragraph >> reader, apart)},
        "cpu_ms_a_question": round(cpu_ms, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the training is kept; by default a temporary one")
    parser.add_argument("--questions", type=int, help="of xquad_en; by default all")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "reader"
        publish("reader", result(given.steps, given.seed, folder, given.questions), given.out)


if __name__ == "__main__":
    main()
